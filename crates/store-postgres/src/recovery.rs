//! Dealing with commits that a new primary lacks: see [`crate::lineage`].
//!
//! 1. Workers keep what they were given: each attempt that was lost is noted again, under its epoch, and
//!    as started.
//! 2. What cannot be restored is named: an event for each job, claim and result, and a line in the log.
//! 3. The generation is raised, so that every server starts again.

use std::collections::{HashMap, HashSet};

use outlast_core::evidence::Evidence;
use outlast_core::id::JobId;
use outlast_core::job::{Refusal, State};
use outlast_store::command::{
    Adopt, EndDetail, Fence, Finish, Lost, LostFact, NoteLoss, ReportedOutcome,
};
use outlast_store::reply::MoveRefusal;
use outlast_store::{Batch, BatchId, Command, Reply, StoreError};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::connect::Address;
use crate::lineage::{Lineage, Loss};
use crate::writer::Writer;

/// How many attempts one batch notes again.
const ADOPTED_A_BATCH: usize = 200;
/// How many losses one batch names.
const NAMED_A_BATCH: usize = 500;
/// How many jobs the log names; all of them are in the event log.
const NAMED_IN_LOG: usize = 20;
/// Who did it, for the event log.
const BY: &str = "server";

/// Numbers the batches of a recovery.
struct Batches<'a> {
    writer: Writer,
    lineage: &'a Lineage,
    /// Says now and then that the recovery goes on.
    client: &'a Client,
    server: Uuid,
    n: u64,
    loss: &'a Loss,
}

impl Batches<'_> {
    async fn apply(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
        self.lineage.renew(self.client, self.loss).await?;
        self.n += 1;
        let batch = Batch {
            id: BatchId { server: self.server, n: self.n },
            jitter_seed: self.n,
            budgets: self.loss.budgets,
            commands,
        };
        Ok(self.writer.apply(&batch).await?.replies)
    }

    async fn adopt(
        &mut self,
        adoptions: impl Iterator<Item = &Adopt>,
    ) -> Result<Vec<Reply>, StoreError> {
        self.apply(adoptions.cloned().map(Command::Adopt).collect()).await
    }
}

/// Ends the attempt that the store takes for the current one, which no budget is charged for.
fn give_back(later: &Adopt) -> Command {
    let evidence = Evidence::from("the store lost how it ended: the job was given out again since");
    Command::Finish(Box::new(Finish {
        job: later.job,
        fence: Fence::default(),
        reported: ReportedOutcome::Requeued,
        detail: EndDetail { evidence, ..EndDetail::default() },
        by: BY.to_owned(),
    }))
}

/// Deals with a loss. If it fails, all of it may be done again.
pub(crate) async fn recover(
    address: &Address,
    lineage: &Lineage,
    loss: &Loss,
    writer: Writer,
) -> Result<(), StoreError> {
    let link = address.connect().await?;
    let done = recover_on(&link.client, lineage, loss, writer).await;
    link.reader.abort();
    done
}

async fn recover_on(
    client: &Client,
    lineage: &Lineage,
    loss: &Loss,
    writer: Writer,
) -> Result<(), StoreError> {
    let mut batches = Batches { writer, lineage, client, server: Uuid::now_v7(), n: 0, loss };
    let (adopted, lost) = adopt(&mut batches, loss).await?;
    let summary = summary(loss, adopted, &lost);
    tracing::error!("{summary}");
    let mut words = summary;
    for lost in lost.chunks(NAMED_A_BATCH).chain(lost.is_empty().then_some(&[][..])) {
        let note = NoteLoss {
            summary: std::mem::take(&mut words),
            lost: lost.to_vec(),
            by: BY.to_owned(),
        };
        batches.apply(vec![Command::NoteLoss(note)]).await?;
    }
    batches.writer.close();
    Ok(lineage.raise(client, loss).await?)
}

/// Notes again what workers were given; returns how much of it, and what is lost.
async fn adopt(batches: &mut Batches<'_>, loss: &Loss) -> Result<(usize, Vec<Lost>), StoreError> {
    // Of each job only the last attempt: those before it have ended.
    let (mut attempts, mut lost) = (HashMap::new(), Vec::new());
    for fact in &loss.facts {
        match fact.what {
            LostFact::Claim { epoch, worker: Some(worker) }
            | LostFact::Result { epoch, worker: Some(worker) } => {
                let adopt = Adopt { job: fact.job, epoch, worker, by: BY.to_owned() };
                attempts.insert(fact.job, (*fact, adopt));
            }
            _ => {}
        }
        if !matches!(fact.what, LostFact::Claim { worker: Some(_), .. }) {
            lost.push(*fact);
        }
    }
    let attempts: Vec<(Lost, Adopt)> = attempts.into_values().collect();
    let mut adopted = 0;
    for some in attempts.chunks(ADOPTED_A_BATCH) {
        let mut replies = batches.adopt(some.iter().map(|(_, adopt)| adopt)).await?;
        // The store lost how the attempt before ended, as well.
        let is_held = |reply: &Reply| {
            let active = MoveRefusal::Refused(Refusal::WrongState(State::Active));
            *reply == Reply::Moved(Err(active))
        };
        let held: Vec<usize> = (0..replies.len()).filter(|at| is_held(&replies[*at])).collect();
        if !held.is_empty() {
            let held_of = || held.iter().filter_map(|at| some.get(*at)).map(|(_, adopt)| adopt);
            batches.apply(held_of().map(give_back).collect()).await?;
            let again = batches.adopt(held_of()).await?;
            for (at, reply) in held.iter().zip(again) {
                replies[*at] = reply;
            }
        }
        for ((fact, _), reply) in some.iter().zip(replies) {
            match (reply, fact.what) {
                (Reply::Moved(Ok(_)), _) => adopted += 1,
                (_, LostFact::Result { .. }) => {}
                _ => lost.push(*fact),
            }
        }
    }
    // Of a job that is gone, it says nothing more that it was given out.
    let gone: HashSet<JobId> =
        lost.iter().filter(|lost| lost.what == LostFact::Job).map(|lost| lost.job).collect();
    lost.retain(|lost| !(matches!(lost.what, LostFact::Claim { .. }) && gone.contains(&lost.job)));
    Ok((adopted, lost))
}

fn summary(loss: &Loss, adopted: usize, lost: &[Lost]) -> String {
    let count = |is: fn(&LostFact) -> bool| lost.iter().filter(|lost| is(&lost.what)).count();
    let jobs = count(|what| matches!(what, LostFact::Job));
    let claims = count(|what| matches!(what, LostFact::Claim { .. }));
    let results = count(|what| matches!(what, LostFact::Result { .. }));
    let orders = count(|what| matches!(what, LostFact::Order));
    let Loss { timeline, batches, .. } = loss;
    let named: Vec<String> = lost
        .iter()
        .filter(|lost| lost.what == LostFact::Job)
        .take(NAMED_IN_LOG)
        .map(|lost| lost.job.to_string())
        .collect();
    let named = match named.is_empty() {
        true => String::new(),
        false if jobs > named.len() => format!("; the first are {}", named.join(", ")),
        false => format!(": {}", named.join(", ")),
    };
    let more = if loss.is_complete { "" } else { "; more may be lost than this server remembers" };
    format!(
        "a standby took the primary's place (timeline {timeline}) without {batches} commits that this \
         server had acknowledged: {adopted} attempts noted again; lost are {claims} claims, {results} \
         results, {orders} orders and {jobs} jobs{named}{more}; see the events store.*"
    )
}
