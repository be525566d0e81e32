//! Taking jobs: a delete from the claimable ones and an insert among the held ones each.
//!
//! Rows that another server is taking are passed over, so servers never wait for each
//! other here, and no two take the same job.

use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::Epoch;
use outlast_core::job::{Event as JobEvent, EventKind, Hold, Holder, Job, State};
use outlast_core::time::{Span, Timestamp};
use outlast_store::StoreError;
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, Command, EndDetail, Payload};
use outlast_store::record::StoredJob;
use outlast_store::reply::{ClaimRefusal, Claimed, Reply};
use outlast_store::settle::{Facts, events_of};
use outlast_store::tally::Before;
use tokio_postgres::Row;

use crate::failure::{Conflict, Failure};
use crate::link::{Ask, values};
use crate::row::{self, STORED, get, int, int4, stored_columns, text};
use crate::writer::Writing;
use crate::writer::live::{Held, Live, Spot};
use crate::writer::tables::{ActiveRow, ReadyRow};

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

/// A row of `ready` that was taken.
#[derive(Debug)]
struct Taken {
    class: ClassId,
    rank: i64,
    seq: i64,
    epoch: Epoch,
    life: std::num::NonZeroU32,
    spent: Spent,
    since: i64,
    isolated: bool,
    checkpoint: Option<Vec<u8>>,
    stored: Arc<StoredJob>,
}

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
        let Some(Some(found)) = self.workers.get(worker) else {
            return Some(ClaimRefusal::UnknownWorker);
        };
        if found.session != *session {
            return Some(ClaimRefusal::StaleSession { current: found.session });
        }
        let active = found.standing.is_active();
        (!active).then_some(ClaimRefusal::NotActive(found.standing))
    }

    async fn claim_alone(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        if matches!(claim.claimant, Claimant::Native { .. }) && !self.opening.is_empty() {
            self.ask_all(Vec::new()).await?;
        }
        if let Some(refusal) = self.native_refusal(&claim.claimant) {
            return Ok(Err(refusal));
        }
        if let Claimant::Plain { worker: Some(name), .. } = &claim.claimant
            && self.plain_standing(name).await?.is_some_and(|standing| !standing.is_active())
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
            let taken = self.taken(row)?;
            claimed.extend(self.hold(taken, &claim.claimant)?);
        }
        if !claimed.is_empty() {
            self.held.clear();
        }
        Ok(claimed)
    }

    fn taken(&self, row: &Row) -> Result<Taken, StoreError> {
        let (seq, stored) = row::stored(row, |class| self.classes.key(class).cloned())?;
        let class = ClassId(get(row, STORED)?);
        Ok(Taken {
            class,
            rank: get(row, STORED + 1)?,
            seq,
            epoch: row::epoch(row, STORED + 2)?,
            life: row::life(row, STORED + 3)?,
            spent: row::spent(row, STORED + 4)?,
            since: get(row, STORED + 7)?,
            isolated: self.classes.key(class)?.isolated,
            checkpoint: get(row, STORED + 8)?,
            stored: Arc::new(stored),
        })
    }

    /// Notes that a taken job is held, or returns `None` and puts it back when the rules
    /// do not give it.
    fn hold(&mut self, taken: Taken, claimant: &Claimant) -> Result<Option<Claimed>, StoreError> {
        let job = Job {
            state: State::Available,
            epoch: taken.epoch,
            life: taken.life,
            spent: taken.spent,
            isolated: taken.isolated,
            holder: None,
            rules: taken.stored.rules.clone(),
        };
        let (worker, starts) = match claimant {
            Claimant::Native { worker, .. } => (Some(*worker), false),
            Claimant::Plain { .. } => (None, true),
        };
        let event = JobEvent::Claim { worker, starts };
        let Ok(transition) = self.bench().decide(&job, event, 0) else {
            self.put_back(&taken);
            return Ok(None);
        };
        let Hold::Take(holder) = transition.hold else {
            return Err(StoreError::Corrupt("a claim that holds nothing".into()));
        };
        let before =
            Before { class: taken.class, state: State::Available, started: false, letter: None };
        self.tally.moved(&before, taken.stored.class, &transition);
        self.lives.remove(&taken.stored.id);
        let visible_until = self.put_active(&taken, (holder, transition.next_epoch), claimant);
        let by = match claimant {
            Claimant::Native { worker, .. } => format!("worker {worker}"),
            Claimant::Plain { worker, .. } => worker.clone().unwrap_or_default(),
        };
        let facts = Facts {
            job: &taken.stored,
            kind: EventKind::Claim,
            worker,
            began: None,
            at: self.now,
            by: &by,
            evidence: &EndDetail::default().evidence,
        };
        self.events.extend(events_of(&facts, &transition));
        self.remember(&taken, job, (holder, transition.next_epoch));
        Ok(Some(Claimed {
            epoch: transition.next_epoch,
            attempt: transition.attempt,
            isolated: taken.isolated,
            claimed: self.now,
            visible_until,
            checkpoint: taken.checkpoint,
            job: taken.stored,
        }))
    }

    /// Remembers what a native worker was given.
    fn remember(&mut self, taken: &Taken, job: Job, (holder, epoch): (Holder, Epoch)) {
        if holder.worker.is_none() {
            return;
        }
        let stored = StoredJob { payload: Payload::default(), ..StoredJob::clone(&taken.stored) };
        let held = Held {
            worker: holder.worker,
            plain: None,
            claimed: self.now,
            started: holder.started,
            visibility: None,
            cancelled: false,
        };
        self.fresh.push(Live {
            seq: taken.seq,
            stored: Arc::new(stored),
            job: Job { state: State::Active, epoch, holder: Some(holder), ..job },
            spot: Spot::Active(held),
            checkpoint: taken.checkpoint.is_some(),
            looked: false,
        });
    }

    fn put_back(&mut self, taken: &Taken) {
        self.tables.ready.push(ReadyRow {
            class: taken.class.0,
            rank: taken.rank,
            seq: taken.seq,
            epoch: int(taken.epoch.0),
            life: int4(taken.life.get()),
            failures: int4(taken.spent.failures),
            losses: int4(taken.spent.losses),
            interruptions: int4(taken.spent.interruptions),
            since: taken.since,
            strand_ms: row::strand_ms(taken.stored.scheduled_timeout),
            expires: taken.stored.rules.expires_at.map(|at| at.0),
        });
    }

    fn put_active(
        &mut self,
        taken: &Taken,
        (holder, epoch): (Holder, Epoch),
        claimant: &Claimant,
    ) -> Option<Timestamp> {
        let (plain, visibility): (Option<&str>, Option<Span>) = match claimant {
            Claimant::Native { .. } => (None, None),
            Claimant::Plain { worker, visibility } => {
                (worker.as_deref(), Some(taken.stored.visibility.unwrap_or(*visibility)))
            }
        };
        let visible_until = visibility.map(|span| self.now.after(span));
        // Native workers watch the limits of their attempts themselves.
        let deadline = visibility.and(taken.stored.timeout).map(|limit| self.now.after(limit));
        self.tables.active.push(ActiveRow {
            seq: taken.seq,
            epoch: int(epoch.0),
            life: int4(taken.life.get()),
            failures: int4(taken.spent.failures),
            losses: int4(taken.spent.losses),
            interruptions: int4(taken.spent.interruptions),
            isolated: taken.isolated,
            worker: holder.worker.map(|worker| worker.0),
            plain: plain.map(text),
            claimed: self.now.0,
            started: holder.started.map(|at| at.0),
            visible_until: visible_until.map(|at| at.0),
            visibility_ms: row::span(visibility),
            deadline: deadline.map(|at| at.0),
        });
        visible_until
    }
}
