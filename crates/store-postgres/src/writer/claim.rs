//! Taking jobs: a delete from the claimable ones and an insert among the held ones each.
//!
//! Rows that another server is taking are passed over, so servers never wait for each
//! other here, and no two take the same job.

use std::sync::Arc;

use outlast_store::StoreError;
use outlast_store::apply::claim::{ActiveRow, Candidate, may_claim, plain_may_claim, take};
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, Command};
use outlast_store::reply::{ClaimRefusal, Claimed, Reply};
use tokio_postgres::Row;

use crate::failure::{Conflict, Failure};
use crate::link::{Ask, values};
use crate::row::{self, STORED, get, int, int4, stored_columns, text};
use crate::writer::Writing;
use crate::writer::tables;

/// Takes the best rows. The rows of `ready` are found by their place in the table once they
/// are locked: no plan can mistake how many there are.
macro_rules! take {
    ($best:expr) => {
        concat!(
            "with ",
            $best,
            ",
             gone as (
                 delete from ready r where r.ctid = any(array(select place from best))
                 returning r.*)
             select ",
            stored_columns!(),
            ", g.class, g.rank, g.epoch, g.life, g.failures,
                 g.losses, g.interruptions, g.since,
                 case when g.epoch > 0
                     then (select k.bytes from checkpoint k where k.seq = g.seq) end
             from gone g join job_row j on j.seq = g.seq
             order by g.rank, g.seq"
        )
    };
}

/// The best of several classes: their heads are merged first, then locked one by one in that
/// order until there are enough. So no more rows are locked than are taken, and what others
/// have locked is passed over.
macro_rules! best_of {
    ($classes:literal) => {
        concat!(
            "heads as materialized (
                 select h.class, h.rank, h.seq
                 from (",
            $classes,
            ") k(class)
                 cross join lateral (
                     select r.class, r.rank, r.seq from ready r
                     where r.class = k.class and (r.expires is null or r.expires > $2)
                     order by r.class, r.rank, r.seq limit 2 * $3::bigint) h
                 order by h.rank, h.seq),
             best as materialized (
                 select r.place
                 from heads h
                 cross join lateral (
                     select r.ctid as place from ready r
                     where r.class = h.class and r.rank = h.rank and r.seq = h.seq
                     for update skip locked) r
                 limit $3)"
        )
    };
}

/// The best of one class: its rows are locked in order.
const TAKE_OF_CLASS: &str = take!(
    "best as materialized (
         select r.ctid as place from ready r
         where r.class = (select c.id from class c where c.id = $1::bigint
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and (r.expires is null or r.expires > $2)
         order by r.class, r.rank, r.seq limit $3
         for update skip locked)"
);

const TAKE_OF_CLASSES: &str = take!(best_of!(
    "select c.id from class c where c.id = any($1::bigint[])
         and not exists (select 1 from queue q where q.name = c.queue and q.paused)"
));

const TAKE_OF_QUEUE: &str = take!(best_of!(
    "select c.id from class c where c.queue = $1 and c.route = ''
         and ($4::text is null or c.tenant = $4)
         and not exists (select 1 from queue q where q.name = c.queue and q.paused)"
));

type Outcome = Result<Vec<Claimed>, ClaimRefusal>;

impl Writing<'_> {
    /// Obeys the claims that a batch goes on with; those of native workers that follow
    /// each other are one round trip.
    pub(super) async fn claims(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let first = self.command;
        let mut natives = Vec::new();
        for command in commands {
            let Command::Claim(claim) = command else { break };
            match (&claim.claimant, &claim.from) {
                (Claimant::Native { .. }, ClaimFrom::Classes(classes)) => {
                    natives.push((claim, classes));
                }
                _ if natives.is_empty() => {
                    let claimed = self.claim_alone(claim).await?;
                    return Ok(vec![Reply::Claimed(claimed)]);
                }
                _ => break,
            }
        }
        // In haste the workers are locked by the same message that takes for them.
        let looked = self.opening.is_empty();
        let mut refusals = Vec::with_capacity(natives.len());
        let mut asks = Vec::with_capacity(natives.len());
        for (claim, classes) in &natives {
            let refusal = self.native_refusal(&claim.claimant).filter(|_| looked);
            if refusal.is_none() {
                asks.push(self.take_of_classes(classes, claim));
            }
            refusals.push(refusal);
        }
        let mut taken = self.ask_all(asks).await?.into_iter();
        let refused = |claim: &Claim| self.native_refusal(&claim.claimant).is_some();
        if !looked && natives.iter().any(|(claim, _)| refused(claim)) {
            let words = "a worker that claims may not, any more".into();
            return Err(Failure::Again(Conflict::Haste, words));
        }
        let mut replies = Vec::with_capacity(natives.len());
        for ((claim, _), refusal) in natives.iter().zip(refusals) {
            self.command = first + replies.len();
            replies.push(Reply::Claimed(match refusal {
                Some(refusal) => Err(refusal),
                None => Ok(self.hold_all(claim, &taken.next().unwrap_or_default()).await?),
            }));
        }
        Ok(replies)
    }

    fn native_refusal(&self, claimant: &Claimant) -> Option<ClaimRefusal> {
        let Claimant::Native { worker, session } = claimant else { return None };
        may_claim(self.known_worker(*worker).as_ref(), *session).err()
    }

    async fn claim_alone(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        if matches!(claim.claimant, Claimant::Native { .. }) && !self.opening.is_empty() {
            self.ask_all(Vec::new()).await?;
        }
        if let Some(refusal) = self.native_refusal(&claim.claimant) {
            return Ok(Err(refusal));
        }
        if let Claimant::Plain { worker: Some(name), .. } = &claim.claimant
            && !plain_may_claim(self.plain_standing(name).await?)
        {
            return Ok(Ok(Vec::new()));
        }
        let mut claimed = Vec::new();
        match &claim.from {
            ClaimFrom::Classes(classes) => {
                let ask = self.take_of_classes(classes, claim);
                let rows = self.ask(ask.sql, ask.values).await?;
                claimed = self.hold_all(claim, &rows).await?;
            }
            ClaimFrom::Queues { queues, tenant } => {
                let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
                for queue in queues {
                    let wanted = i64::try_from(max - claimed.len()).unwrap_or(i64::MAX);
                    let values =
                        values![text(queue), self.now.0, wanted, tenant.as_deref().map(text)];
                    let rows = self.ask(TAKE_OF_QUEUE, values).await?;
                    claimed.extend(self.hold_all(claim, &rows).await?);
                    if claimed.len() >= max {
                        break;
                    }
                }
            }
        }
        Ok(Ok(claimed))
    }

    fn take_of_classes(&self, classes: &[ClassId], claim: &Claim) -> Ask {
        let max = i64::from(claim.max.get());
        if let [class] = classes {
            return Ask::new(TAKE_OF_CLASS, values![class.0, self.now.0, max]);
        }
        let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
        Ask::new(TAKE_OF_CLASSES, values![ids, self.now.0, max])
    }

    async fn hold_all(&mut self, claim: &Claim, rows: &[Row]) -> Result<Vec<Claimed>, Failure> {
        // That of each job, and where it is claimable: the same, or its twin for isolated ones.
        let mut classes = Vec::with_capacity(2 * rows.len());
        for row in rows {
            classes.extend([ClassId(get(row, 2)?), ClassId(get(row, STORED)?)]);
        }
        self.learn_classes(classes).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            claimed.extend(self.hold(row, &claim.claimant)?);
        }
        if !claimed.is_empty() {
            self.held.clear();
        }
        Ok(claimed)
    }

    fn candidate(&self, row: &Row) -> Result<Candidate, StoreError> {
        let (seq, stored) = row::stored(row, |class| self.classes.key(class).cloned())?;
        let class = ClassId(get(row, STORED)?);
        Ok(Candidate {
            seq,
            class,
            rank: get(row, STORED + 1)?,
            epoch: row::epoch(row, STORED + 2)?,
            life: row::life(row, STORED + 3)?,
            spent: row::spent(row, STORED + 4)?,
            isolated: self.classes.key(class)?.isolated,
            checkpoint: get(row, STORED + 8)?,
            stored: Arc::new(stored),
        })
    }

    /// Notes that a taken job is held, or returns `None` and puts it back when the rules
    /// do not give it out.
    fn hold(&mut self, row: &Row, claimant: &Claimant) -> Result<Option<Claimed>, StoreError> {
        let candidate = self.candidate(row)?;
        let taken = match take(candidate, claimant, &self.bench(), &mut self.outbox) {
            Ok(taken) => taken,
            Err(candidate) => {
                let since = row::time(row, STORED + 7)?;
                self.note_ready(candidate.seq, &candidate.row(since));
                return Ok(None);
            }
        };
        self.lives.remove(&taken.claimed.job.id);
        self.remembered.remove(&taken.claimed.job.id);
        self.fresh.extend(taken.loaded());
        self.note_active(&taken.active);
        Ok(Some(taken.claimed))
    }

    fn note_active(&mut self, row: &ActiveRow) {
        self.tables.active.push(tables::ActiveRow {
            seq: row.seq,
            epoch: int(row.counters.epoch.0),
            life: int4(row.counters.life.get()),
            failures: int4(row.counters.spent.failures),
            losses: int4(row.counters.spent.losses),
            interruptions: int4(row.counters.spent.interruptions),
            isolated: row.isolated,
            worker: row.worker.map(|worker| worker.0),
            plain: row.plain.as_deref().map(text),
            claimed: row.claimed.0,
            started: row.started.map(|at| at.0),
            visible_until: row.visible_until.map(|at| at.0),
            visibility_ms: row::span(row.visibility),
            deadline: row.deadline.map(|at| at.0),
        });
    }
}
