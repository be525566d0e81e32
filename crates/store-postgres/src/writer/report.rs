//! What holders say about their attempts.

use outlast_core::id::JobId;
use outlast_core::job::EventKind;
use outlast_core::job::{Event as JobEvent, Hold};
use outlast_store::command::{Command, EndDetail, Ending, Finish, Progress, Start};
use outlast_store::reply::{Extended, MoveRefusal, Moved, Reply};
use outlast_store::settle::{check_fence, decide_finish, evidence_of, kind_of_ending, refusal_of};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::failure::{Conflict, Failure};
use crate::link::{Ask, values};
use crate::row::{get, text};
use crate::writer::Writing;
use crate::writer::live::{Live, Spot};
use crate::writer::tables::CheckpointRow;
use crate::writer::transition::Trace;

type Outcome = Result<Moved, MoveRefusal>;

/// Prolongs those of the attempts in `theirs` that nobody else has locked.
macro_rules! extend {
    ($theirs:literal) => {
        concat!(
            "with theirs as materialized (",
            $theirs,
            "),
             mine as materialized (
                 select a.seq from active a where a.seq = any(array(select seq from theirs))
                     and a.visible_until is not null and not a.cancelled
                 order by a.seq for update skip locked),
             longer as (
                 update active a set visible_until = $2 + a.visibility_ms
                 from mine where a.seq = mine.seq returning a.seq)
             select j.id, l.seq is not null
             from theirs t join job_row j on j.seq = t.seq left join longer l on l.seq = t.seq
             order by t.seq"
        )
    };
}

const EXTEND_ALL: &str = extend!(
    "select a.seq from active a
     where a.plain = $1 and a.visible_until is not null and not a.cancelled"
);
const EXTEND_NAMED: &str = extend!(
    "select a.seq from job_row j join active a on a.seq = j.seq
     where j.id = any($3::uuid[]) and a.visible_until is not null
         and not a.cancelled and (a.plain is null or a.plain = $1)"
);

impl Writing<'_> {
    pub(super) async fn start(&mut self, start: &Start) -> Result<Outcome, Failure> {
        let Some(live) = self.find(start.job).await? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        if let Err(refusal) = check_fence(&live.job, &start.fence, plain_name(&live)) {
            return refused(&live, refusal.into());
        }
        let transition = match self.bench().decide(&live.job, JobEvent::Start, 0) {
            Ok(transition) => transition,
            Err(refusal) => return refused(&live, refusal.into()),
        };
        let by = holder_words(&live);
        let detail = EndDetail::default();
        let trace = Trace { kind: EventKind::Start, by: &by, detail: &detail, ended_by: "" };
        self.carry_out(&live, &transition, &trace).await.map(Ok)
    }

    pub(super) async fn finish(&mut self, finish: &Finish) -> Result<Outcome, Failure> {
        let Some(mut live) = self.find(finish.job).await? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        if let Some(holder) = &mut live.job.holder {
            holder.started = holder.started.or(finish.detail.started);
        }
        let worker = live.job.holder.and_then(|holder| holder.worker);
        // Counting costs a round trip, so it is done for those who ask.
        let alone = match worker {
            Some(worker) if finish.ending == Ending::Lost => self.count_held(worker).await?.1 == 1,
            Some(_) | None => false,
        };
        let decided = decide_finish(&live.job, finish, plain_name(&live), alone, &self.bench());
        let transition = match decided {
            Ok(transition) => transition,
            Err(refusal) => return refused(&live, refusal),
        };
        let detail = EndDetail { evidence: evidence_of(finish), ..finish.detail.clone() };
        let kind = kind_of_ending(&finish.ending);
        let trace = Trace { kind, by: &finish.by, detail: &detail, ended_by: "" };
        let moved = self.carry_out(&live, &transition, &trace).await?;
        Ok(refusal_of(&transition).map_or(Ok(moved), |refusal| Err(refusal.into())))
    }

    pub(super) async fn progress(&mut self, progress: &Progress) -> Result<Outcome, Failure> {
        let Some(live) = self.find(progress.job).await? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        if let Err(refusal) = check_fence(&live.job, &progress.fence, plain_name(&live)) {
            return Ok(Err(refusal.into()));
        }
        // Starting again changes nothing: it asks whether the attempt still counts.
        let transition = match self.bench().decide(&live.job, JobEvent::Start, 0) {
            Ok(transition) => transition,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if let Some(bytes) = &progress.checkpoint {
            self.tables.checkpoints.push(CheckpointRow { seq: live.seq, bytes: bytes.clone() });
            if matches!(&live.spot, Spot::Active(held) if held.worker.is_some() && !held.cancelled)
            {
                self.fresh.push(Live { checkpoint: true, looked: false, ..live.clone() });
            }
        }
        Ok(Ok(Moved {
            job: live.stored.id,
            class: live.stored.class,
            from: transition.from,
            state: transition.from,
            epoch: transition.epoch,
            attempt: transition.attempt,
            due: None,
            outcome: None,
            ran: None,
            holder: match transition.hold {
                Hold::Keep(holder) | Hold::Take(holder) => holder.worker,
                Hold::None | Hold::Drop(_) => None,
            },
            dead_letter: false,
            at: self.now,
        }))
    }

    /// Prolongs plain attempts to their full visibility from now; one round trip for all these
    /// commands. It waits for no lock: what is locked is passed over, and named.
    pub(super) async fn extends(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let mut named = Vec::new();
        let mut asks = Vec::new();
        for command in commands {
            let Command::Extend(extend) = command else { break };
            let name = text(&extend.worker);
            asks.push(if extend.jobs.is_empty() {
                Ask::new(EXTEND_ALL, values![name, self.now.0])
            } else {
                let ids: Vec<Uuid> = extend.jobs.iter().map(|job| job.0).collect();
                Ask::new(EXTEND_NAMED, values![name, self.now.0, ids])
            });
            named.push(extend.jobs.as_slice());
        }
        let found = self.ask_all(asks).await?;
        let mut replies = Vec::with_capacity(named.len());
        for (rows, named) in found.iter().zip(named) {
            replies.push(Reply::Extended(extended(rows, named)?));
        }
        Ok(replies)
    }
}

/// Reads which jobs were prolonged, in the order in which they were named.
fn extended(rows: &[Row], named: &[JobId]) -> Result<Extended, Failure> {
    let mut extended = Extended::default();
    for row in rows {
        let job = JobId(get(row, 0)?);
        if get(row, 1)? { &mut extended.jobs } else { &mut extended.passed_over }.push(job);
    }
    if !named.is_empty() {
        extended.jobs.sort_by_key(|id| named.iter().position(|named| named == id));
    }
    Ok(extended)
}

/// Refuses a report, unless what it was compared with was only remembered.
fn refused(live: &Live, refusal: MoveRefusal) -> Result<Outcome, Failure> {
    if live.looked {
        return Ok(Err(refusal));
    }
    Err(Failure::Again(Conflict::Haste, format!("what was remembered refuses: {refusal:?}")))
}

/// Returns the id that a plain holder gave itself.
fn plain_name(live: &Live) -> Option<&str> {
    match &live.spot {
        Spot::Active(held) => held.plain.as_deref(),
        Spot::Ready { .. } | Spot::Waiting | Spot::Finished(_) => None,
    }
}

fn holder_words(live: &Live) -> String {
    match &live.spot {
        Spot::Active(held) => held.worker.map_or_else(
            || held.plain.clone().unwrap_or_default(),
            |worker| format!("worker {worker}"),
        ),
        Spot::Ready { .. } | Spot::Waiting | Spot::Finished(_) => String::new(),
    }
}
