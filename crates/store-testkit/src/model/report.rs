//! What the holders of attempts report.

use outlast_core::job::{Event as JobEvent, EventKind, Holder, State};
use outlast_store::command::{EndDetail, Finish, NoteSkew, Progress, Start};
use outlast_store::reply::{MoveRefusal, Moved};
use outlast_store_rules::apply::report;
use outlast_store_rules::rules::{check_fence, decide_finish, event_of, evidence_of, refusal_of};

use crate::model::tables::ActiveRow;
use crate::model::tx::{Cause, Tx, must_be_active};

impl Tx<'_> {
    pub(super) fn start(&mut self, start: &Start) -> Result<Moved, MoveRefusal> {
        let (seq, row) = self.find(start.job)?;
        let attempt = row.in_flight.as_ref();
        check_fence(&row.job, &start.fence, attempt.and_then(|attempt| attempt.plain.as_deref()))?;
        let by = attempt.map(ActiveRow::words).unwrap_or_default();
        let detail = EndDetail::default();
        let cause = Cause { kind: EventKind::Start, by: &by, detail: &detail };
        let moved = self.play(seq, JobEvent::Start, 0, &cause)?;
        if start.pack_digest.is_some() {
            self.tables.change(seq, |row| {
                if let Some(attempt) = &mut row.in_flight {
                    attempt.pack_digest.clone_from(&start.pack_digest);
                }
            });
        }
        Ok(moved)
    }

    pub(super) fn finish(&mut self, finish: &Finish) -> Result<Moved, MoveRefusal> {
        let (seq, mut row) = self.find(finish.job)?;
        let attempt = row.in_flight.as_ref();
        let plain = attempt.and_then(|attempt| attempt.plain.as_deref());
        let alone = attempt
            .and_then(|attempt| attempt.worker)
            .is_some_and(|worker| self.tables.holds_one(worker));
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
        let kind = event_of(finish, alone).kind();
        let cause = Cause { kind, by: &finish.by, detail: &detail };
        let moved = self.apply_transition(seq, &step, &cause, None).ok_or(MoveRefusal::NotFound)?;
        refusal_of(&step).map_or(Ok(moved), |refusal| Err(refusal.into()))
    }

    pub(super) fn note_skew(&mut self, note: &NoteSkew) {
        self.log_event(report::skew(note, self.now()));
    }

    pub(super) fn progress(&mut self, progress: &Progress) -> Result<Moved, MoveRefusal> {
        let (seq, row) = self.find(progress.job)?;
        let attempt = row.in_flight.as_ref();
        check_fence(
            &row.job,
            &progress.fence,
            attempt.and_then(|attempt| attempt.plain.as_deref()),
        )?;
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
            max_attempts: row.stored.rules.retry.max_attempts,
            due: None,
            outcome: None,
            ran: None,
            holder: row.job.holder.and_then(|holder| holder.worker),
            dead_letter: false,
            workflow: row.stored.rules.workflow.map(|it| it.workflow),
            at: self.now(),
        })
    }
}
