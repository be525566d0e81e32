//! What the holders of attempts report.

use outlast_core::job::{Event as JobEvent, EventKind, Holder, State};

use crate::command::{EndDetail, Ending, Extend, Finish, Progress, Start};
use crate::model::tx::{Cause, Tx, must_be_active};
use crate::reply::{MoveRefusal, Moved};
use crate::settle::{check_fence, decide_finish, evidence_of, refusal_of};
use outlast_core::id::JobId;

impl Tx<'_> {
    pub(super) fn start(&mut self, start: &Start) -> Result<Moved, MoveRefusal> {
        let (seq, row) = self.find(start.job)?;
        let held = row.held.as_ref();
        check_fence(&row.job, &start.fence, held.and_then(|held| held.plain_name()))?;
        let by = held.and_then(|held| held.name.clone()).unwrap_or_default();
        let detail = EndDetail::default();
        let cause = Cause { kind: EventKind::Start, by: &by, detail: &detail };
        self.play(seq, JobEvent::Start, 0, &cause)
    }

    pub(super) fn finish(&mut self, finish: &Finish) -> Result<Moved, MoveRefusal> {
        let (seq, mut row) = self.find(finish.job)?;
        let held = row.held.as_ref();
        let plain = held.and_then(|held| held.plain_name());
        let alone =
            held.and_then(|held| held.worker).is_some_and(|worker| self.tables.holds_one(worker));
        // The worker knows better than we do whether it started: short attempts say so
        // only when they end.
        if let (Some(holder), Some(at)) = (row.job.holder, finish.detail.started) {
            let started = holder.started.or(Some(at));
            row.job.holder = Some(Holder { started, ..holder });
        }
        let step = decide_finish(&row.job, finish, plain, alone, &self.bench)?;
        let holder = row.job.holder;
        self.tables.change(seq, |row| row.job.holder = holder);
        let detail = EndDetail { evidence: evidence_of(finish), ..finish.detail.clone() };
        let cause = Cause { kind: kind_of(&finish.ending), by: &finish.by, detail: &detail };
        let moved = self.settle(seq, &step, &cause, None).ok_or(MoveRefusal::NotFound)?;
        refusal_of(&step).map_or(Ok(moved), |refusal| Err(refusal.into()))
    }

    pub(super) fn progress(&mut self, progress: &Progress) -> Result<Moved, MoveRefusal> {
        let (seq, row) = self.find(progress.job)?;
        let held = row.held.as_ref();
        check_fence(&row.job, &progress.fence, held.and_then(|held| held.plain_name()))?;
        must_be_active(row.job.state)?;
        if progress.checkpoint.is_some() {
            self.tables.change(seq, |row| row.checkpoint.clone_from(&progress.checkpoint));
        }
        Ok(Moved {
            job: row.stored.id,
            class: row.stored.class,
            from: State::Active,
            state: State::Active,
            epoch: row.job.epoch,
            attempt: row.job.running_attempt(),
            due: None,
            outcome: None,
            holder: row.job.holder.and_then(|holder| holder.worker),
            dead_letter: false,
            at: self.now(),
        })
    }

    /// Prolongs what a plain client holds. A client that names jobs may prolong those of
    /// nobody too: it may not have given its id when it fetched them.
    pub(super) fn extend(&mut self, extend: &Extend) -> Vec<JobId> {
        let now = self.now();
        let theirs: Vec<_> = self
            .tables
            .live_rows()
            .filter(|(_, row)| row.job.state == State::Active)
            .filter(|(_, row)| {
                let Some(held) = &row.held else { return false };
                let listed = extend.jobs.contains(&row.stored.id);
                held.visible.is_some()
                    && match held.name.as_deref() {
                        Some(name) => name == extend.worker && (listed || extend.jobs.is_empty()),
                        None => listed,
                    }
            })
            .map(|(seq, row)| (seq, row.stored.id))
            .collect();
        for (seq, _) in &theirs {
            self.tables.change(*seq, |row| {
                if let Some(visible) = row.held.as_mut().and_then(|held| held.visible.as_mut()) {
                    visible.until = now.after(visible.length);
                }
            });
        }
        theirs.into_iter().map(|(_, id)| id).collect()
    }
}

const fn kind_of(ending: &Ending) -> EventKind {
    match ending {
        Ending::Completed => EventKind::Complete,
        Ending::Failed { .. } => EventKind::Fail,
        Ending::TimedOut => EventKind::TimeOut,
        Ending::Interrupted => EventKind::Interrupt,
        Ending::NotStarted => EventKind::Release,
        Ending::Requeued => EventKind::Requeue,
        Ending::Lost => EventKind::Lose,
    }
}
