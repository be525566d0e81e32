//! Noting what a move of a job decided, to be written with the rest of the batch.
//!
//! The row is first removed where it was read, by a statement that names its epoch and must hit
//! exactly one row: that is the compare-and-set. Then the job is put where it now belongs.

use outlast_core::job::{DeadLetterReason, Holder, Job};
use outlast_store_rules::apply::claim::ActiveRow;
use outlast_store_rules::apply::loaded::{ActiveAttempt, Loaded, Location};
use outlast_store_rules::apply::step::{
    CheckpointChange, EndedAttempt, FinishedRow, Put, ReadyRow, Removal, Step, WaitingRow,
};
use outlast_store_rules::apply::sweep::Due;

use crate::floors::Place;
use crate::row::{self, int, int4, text};
use crate::writer::Tx;
use crate::writer::write_set::{
    self, ActiveGone, ActiveKept, FinishedGone, ReadyGone, WaitingGone,
};

impl Tx<'_> {
    /// Remembers an attempt that goes on.
    pub(super) fn remember_started(&mut self, loaded: &Loaded, removal: &Removal<'_>) {
        let (Removal::KeepActive { started, cancelled: false, pack_digest, .. }, Some(attempt)) =
            (removal, loaded.attempt())
        else {
            return;
        };
        if attempt.worker.is_none() {
            return;
        }
        let holder = loaded.job.holder.map(|holder| Holder { started: *started, ..holder });
        self.seen.fresh.push(Loaded {
            job: Job { holder, ..loaded.job.clone() },
            location: Location::Active(ActiveAttempt {
                started: *started,
                pack_digest: pack_digest.map(Into::into),
                ..attempt.clone()
            }),
            ..loaded.clone()
        });
    }

    pub(super) fn note_step(&mut self, rows: &Step<'_>) {
        let seq = rows.seq;
        self.note_removal(seq, &rows.removal);
        match &rows.put {
            Put::Ready(row) => self.note_ready(seq, row),
            Put::Waiting(row) => self.note_waiting(seq, row),
            Put::Finished(row) => self.note_finished(seq, row),
            Put::Active(row) => self.note_active(row),
            Put::Nowhere => {}
        }
        if let Some(attempt) = &rows.attempt {
            self.note_attempt(seq, attempt);
        }
        if let Some(reason) = rows.dead_letter {
            let row = write_set::DeadLetterRow {
                seq,
                reason: reason.as_str(),
                at: self.batch.context.now.0,
                unhandled: true,
            };
            self.write_set.dead_letters.push(row);
        }
        match rows.checkpoint {
            CheckpointChange::Keep => {}
            CheckpointChange::Replace(bytes) => {
                let row = write_set::CheckpointRow { seq, bytes: bytes.to_vec() };
                self.write_set.checkpoints.push(row);
            }
            CheckpointChange::Delete => {
                self.write_set.removed.checkpoints.push(write_set::CheckpointGone { seq });
            }
        }
        if let Some(at) = rows.expiry {
            self.holds.sweeps.put(Due::Expiry, at.0, self.batch.context.now);
            self.write_set.expiries.push(write_set::ExpiryRow { at: at.0, seq });
        }
    }

    fn note_removal(&mut self, seq: i64, removal: &Removal<'_>) {
        match *removal {
            Removal::Ready { class, rank, epoch } => {
                let row = ReadyGone { class: class.0, rank, seq, epoch: int(epoch.0) };
                self.write_set.removed.ready.push(row);
            }
            Removal::Waiting { epoch, state } => {
                let row = WaitingGone { seq, epoch: int(epoch.0), state: state.as_str() };
                self.write_set.removed.waiting.push(row);
            }
            Removal::KeepActive {
                epoch,
                was_started,
                was_cancelled,
                started,
                cancelled,
                pack_digest,
            } => {
                self.write_set.active_kept.push(ActiveKept {
                    seq,
                    epoch: int(epoch.0),
                    was_started: was_started.map(|at| at.0),
                    was_cancelled,
                    started: started.map(|at| at.0),
                    cancelled,
                    pack_digest: pack_digest.map(str::to_owned),
                });
            }
            Removal::Active { epoch, started, cancelled, checkpoint } => {
                self.write_set.removed.active.push(ActiveGone {
                    seq,
                    epoch: int(epoch.0),
                    started: started.map(|at| at.0),
                    cancelled,
                    checkpoint,
                });
            }
            Removal::Finished { epoch, state, letter } => {
                self.write_set.removed.finished.push(FinishedGone {
                    seq,
                    epoch: int(epoch.0),
                    state: state.as_str(),
                    letter: letter.map(DeadLetterReason::as_str),
                });
            }
        }
    }

    pub(super) fn note_ready(&mut self, seq: i64, row: &ReadyRow) {
        self.holds.ready.put(row.class.0, Place { rank: row.rank, seq });
        self.write_set.placed.ready.push(write_set::ReadyRow {
            class: row.class.0,
            rank: row.rank,
            lane: row.lane,
            seq,
            epoch: int(row.counters.epoch.0),
            life: int4(row.counters.life.get()),
            failures: int4(row.counters.spent.failures),
            losses: int4(row.counters.spent.losses),
            interruptions: int4(row.counters.spent.interruptions),
            since: row.since.0,
            strand_ms: row::strand_ms(row.scheduled_timeout),
            expires: row.expires.map(|at| at.0),
        });
    }

    /// Notes a job that was claimed.
    pub(super) fn note_active(&mut self, row: &ActiveRow) {
        if let Some(worker) = row.worker {
            self.holds.active.put(worker.0, Place { rank: 0, seq: row.seq });
        }
        for (due, at) in [(Due::Visibility, row.visible_until), (Due::Deadline, row.deadline)] {
            if let Some(at) = at {
                self.holds.sweeps.put(due, at.0, self.batch.context.now);
            }
        }
        self.write_set.placed.active.push(write_set::ActiveRow {
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
            gates: row::gates_text(&row.gates),
        });
    }

    fn note_waiting(&mut self, seq: i64, row: &WaitingRow) {
        if let Some(due) = row.due {
            self.holds.sweeps.put(Due::Timer, due.0, self.batch.context.now);
        }
        self.write_set.placed.waiting.push(write_set::WaitingRow {
            seq,
            state: row.state.as_str(),
            due: row.due.map(|at| at.0),
            epoch: int(row.counters.epoch.0),
            life: int4(row.counters.life.get()),
            failures: int4(row.counters.spent.failures),
            losses: int4(row.counters.spent.losses),
            interruptions: int4(row.counters.spent.interruptions),
            isolated: row.isolated,
            since: row.since.0,
        });
    }

    fn note_finished(&mut self, seq: i64, row: &FinishedRow<'_>) {
        self.write_set.placed.finished.push(write_set::FinishedRow {
            seq,
            state: row.state.as_str(),
            at: row.at.0,
            epoch: int(row.counters.epoch.0),
            life: int4(row.counters.life.get()),
            failures: int4(row.counters.spent.failures),
            losses: int4(row.counters.spent.losses),
            interruptions: int4(row.counters.spent.interruptions),
            isolated: row.isolated,
            attempt: int4(row.attempt),
            shown: row.shown,
            result: row.result.map(text),
            error: row.error.map(text),
            ended_by: row.ended_by,
        });
    }

    fn note_attempt(&mut self, seq: i64, row: &EndedAttempt<'_>) {
        self.write_set.attempts.push(write_set::AttemptRow {
            seq,
            epoch: int(row.epoch.0),
            life: int4(row.life.get()),
            number: int4(row.number),
            worker: row.worker.map(|worker| worker.0),
            plain: row.plain.map(str::to_owned),
            claimed: row.claimed.0,
            started: row.started.map(|at| at.0),
            finished: row.finished.0,
            outcome: row.outcome.as_str(),
            next_state: row.next_state.as_str(),
            error: row.error.map(text),
            exit_code: row.exit_code,
            by: text(row.by),
            evidence: text(row.evidence),
            evidence_code: row.evidence.word(),
            pack_digest: row.pack_digest.map(str::to_owned),
            peak_memory: row.usage.peak_memory.map(int),
            cpu_ms: row.usage.cpu.map(|time| int(time.0)),
            charge: row.charge.bits().into(),
        });
    }
}
