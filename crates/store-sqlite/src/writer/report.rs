//! What holders say about their attempts.

use outlast_core::id::JobId;
use outlast_core::job::{Event as JobEvent, EventKind, Hold};
use outlast_store::StoreError;
use outlast_store::command::{EndDetail, Ending, Extend, Finish, Progress, Start};
use outlast_store::reply::{MoveRefusal, Moved};
use outlast_store::settle::{check_fence, decide_finish, evidence_of, refusal_of};
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int};
use crate::writer::Writing;
use crate::writer::live::{Live, Spot};
use crate::writer::transition::Trace;

type Outcome = Result<Moved, MoveRefusal>;

impl Writing<'_> {
    pub(super) fn start(&mut self, start: &Start) -> Result<Outcome, StoreError> {
        let Some(live) = self.find(start.job)? else { return Ok(Err(MoveRefusal::NotFound)) };
        if let Err(refusal) = check_fence(&live.job, &start.fence, plain_name(&live)) {
            return Ok(Err(refusal.into()));
        }
        let transition = match self.bench().decide(&live.job, JobEvent::Start, 0) {
            Ok(transition) => transition,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let by = holder_words(&live);
        let detail = EndDetail::default();
        let trace = Trace { kind: EventKind::Start, by: &by, detail: &detail, ended_by: "" };
        self.carry_out(&live, &transition, &trace).map(Ok)
    }

    pub(super) fn finish(&mut self, finish: &Finish) -> Result<Outcome, StoreError> {
        let Some(mut live) = self.find(finish.job)? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        if let Some(holder) = &mut live.job.holder {
            holder.started = holder.started.or(finish.detail.started);
        }
        let worker = live.job.holder.and_then(|holder| holder.worker);
        // Counting costs as much as the worker holds, so it is done for those who ask.
        let alone = finish.ending == Ending::Lost && self.holds_one(worker)?;
        let decided = decide_finish(&live.job, finish, plain_name(&live), alone, &self.bench());
        let transition = match decided {
            Ok(transition) => transition,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let kind = outlast_store::settle::kind_of_ending(&finish.ending);
        let detail = EndDetail { evidence: evidence_of(finish), ..finish.detail.clone() };
        let trace = Trace { kind, by: &finish.by, detail: &detail, ended_by: "" };
        let moved = self.carry_out(&live, &transition, &trace)?;
        Ok(refusal_of(&transition).map_or(Ok(moved), |refusal| Err(refusal.into())))
    }

    pub(super) fn progress(&mut self, progress: &Progress) -> Result<Outcome, StoreError> {
        let Some(live) = self.find(progress.job)? else { return Ok(Err(MoveRefusal::NotFound)) };
        if let Err(refusal) = check_fence(&live.job, &progress.fence, plain_name(&live)) {
            return Ok(Err(refusal.into()));
        }
        // Starting again changes nothing: it asks whether the attempt still counts.
        let transition = match self.bench().decide(&live.job, JobEvent::Start, 0) {
            Ok(transition) => transition,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if let Some(bytes) = &progress.checkpoint {
            self.execute(
                "insert or replace into checkpoint (seq, bytes) values (?, ?)",
                (live.seq, bytes),
            )?;
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

    /// Prolongs plain attempts to their full visibility from now.
    pub(super) fn extend(&mut self, extend: &Extend) -> Result<Vec<JobId>, StoreError> {
        let mut extended = Vec::new();
        if extend.jobs.is_empty() {
            let held = self.plain_held(&extend.worker)?;
            for (seq, id) in held {
                self.prolong(seq)?;
                extended.push(id);
            }
            return Ok(extended);
        }
        for id in &extend.jobs {
            let Some(seq) = self.seq_of(*id)? else { continue };
            let mut select = self
                .db
                .prepare_cached(
                    "select 1 from active where seq = ?1 and not cancelled
                     and visible_until is not null and (plain is null or plain = ?2)",
                )
                .map_err(failed)?;
            let theirs = select
                .query_row((seq, &extend.worker), |_row| Ok(()))
                .optional()
                .map_err(failed)?;
            if theirs.is_some() {
                self.prolong(seq)?;
                extended.push(*id);
            }
        }
        Ok(extended)
    }

    fn plain_held(&self, worker: &str) -> Result<Vec<(i64, JobId)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select a.seq, j.id from active a join job_row j on j.seq = a.seq
                 where a.visible_until is not null and a.plain = ? and not a.cancelled
                 order by a.seq",
            )
            .map_err(failed)?;
        let rows = select
            .query_map([worker], |row| Ok((row.get(0)?, row::job_id(row, 1)?)))
            .map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    fn prolong(&self, seq: i64) -> Result<(), StoreError> {
        self.execute(
            "update active set visible_until = ? + visibility_ms where seq = ?",
            (int(u64::try_from(self.now.0).unwrap_or(0)), seq),
        )?;
        Ok(())
    }
}

/// Returns the id that a plain holder gave itself.
pub(super) fn plain_name(live: &Live) -> Option<&str> {
    match &live.spot {
        Spot::Active(held) => held.plain.as_deref(),
        Spot::Ready { .. } | Spot::Waiting | Spot::Finished => None,
    }
}

pub(super) fn holder_words(live: &Live) -> String {
    match &live.spot {
        Spot::Active(held) => held.worker.map_or_else(
            || held.plain.clone().unwrap_or_default(),
            |worker| format!("worker {worker}"),
        ),
        Spot::Ready { .. } | Spot::Waiting | Spot::Finished => String::new(),
    }
}
