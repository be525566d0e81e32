//! Applying a transition to a job.
//!
//! It takes the job out of its place by a delete that names its epoch and must hit exactly
//! one row: that is the compare-and-set. Then it puts the job where it now belongs.

use outlast_core::job::{
    DeadLetterReason, EventKind, Hold, Outcome, Place, State, Transition, Turn,
};
use outlast_store::StoreError;
use outlast_store::command::{ClassId, EndDetail};
use outlast_store::record::StoredJob;
use outlast_store::reply::Moved;
use outlast_store::settle::{Facts, events_of};
use outlast_store::tally::Before;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int};
use crate::writer::Writing;
use crate::writer::live::{Held, Live, Spot, rank};

/// What else a transition leaves behind.
#[derive(Debug)]
pub(crate) struct Trace<'a> {
    pub(crate) kind: EventKind,
    pub(crate) by: &'a str,
    pub(crate) detail: &'a EndDetail,
    /// Why the job ended without an attempt; else empty.
    pub(crate) ended_by: &'static str,
}

impl Writing<'_> {
    /// Applies a transition and logs it.
    pub(crate) fn carry_out(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
    ) -> Result<Moved, StoreError> {
        let held = match &live.spot {
            Spot::Active(held) => Some(held),
            Spot::Ready { .. } | Spot::Waiting | Spot::Finished => None,
        };
        let letter = self.take_out(live, transition)?;
        let class = self.put_in(live, transition, trace)?;
        let before = Before {
            class: match &live.spot {
                Spot::Ready { class, .. } => *class,
                Spot::Waiting | Spot::Active(_) | Spot::Finished => live.stored.class,
            },
            state: live.job.state,
            started: held.is_some_and(|held| held.started.is_some() && !held.cancelled),
            letter,
        };
        self.tally.moved(&before, class, transition);
        let mut outcome = None;
        if let (Hold::Drop(how), Some(held)) = (transition.hold, held) {
            outcome = Some(how);
            self.record_attempt((live, held), transition, how, trace)?;
        }
        if let Some(reason) = transition.dead_letter {
            self.execute(
                "insert or replace into dead_letter_row (seq, reason, at) values (?, ?, ?)",
                (live.seq, reason.as_str(), self.now.0),
            )?;
        }
        self.keep_checkpoint(live, transition, trace.detail)?;
        if let Some(at) = live.stored.rules.expires_at
            && !transition.to.is_terminal()
        {
            self.execute("insert or ignore into expiry (at, seq) values (?, ?)", (at.0, live.seq))?;
        }
        let worker = held.and_then(|held| held.worker);
        self.tell(live, transition, trace, held);
        Ok(Moved {
            job: live.stored.id,
            class,
            from: transition.from,
            state: transition.to,
            epoch: transition.next_epoch,
            attempt: transition.attempt,
            due: match transition.place {
                Place::Timer(due) => Some(due),
                Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
            },
            outcome,
            // What its event says.
            ran: outcome.and_then(|_| self.events.last()?.duration),
            holder: worker.filter(|_| outcome.is_none()),
            dead_letter: transition.dead_letter.is_some(),
            at: self.now,
        })
    }

    fn tell(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
        held: Option<&Held>,
    ) {
        let began = held.map(|held| held.started.or(trace.detail.started).unwrap_or(held.claimed));
        let facts = Facts {
            job: &live.stored,
            kind: trace.kind,
            worker: held.and_then(|held| held.worker),
            began,
            at: self.now,
            by: trace.by,
            evidence: &trace.detail.evidence,
        };
        self.events.extend(events_of(&facts, transition));
    }

    /// The compare-and-set: the row goes only if it is where and what it was read as. Returns
    /// why the job waited for a person, if it did.
    fn take_out(
        &self,
        live: &Live,
        transition: &Transition,
    ) -> Result<Option<DeadLetterReason>, StoreError> {
        let epoch = int(transition.epoch.0);
        let mut letter = None;
        let gone = match (&live.spot, transition.hold) {
            (Spot::Ready { class, rank, .. }, _) => self.execute(
                "delete from ready where class = ? and rank = ? and seq = ? and epoch = ?",
                (class.0, rank, live.seq, epoch),
            )?,
            (Spot::Waiting, _) => self.execute(
                "delete from waiting where seq = ? and epoch = ? and state = ?",
                (live.seq, epoch, transition.from.as_str()),
            )?,
            (Spot::Active(_), Hold::Keep(holder)) => self.execute(
                "update active set started = ?, cancelled = ? where seq = ? and epoch = ?",
                (holder.started.map(|at| at.0), transition.to == State::Cancelled, live.seq, epoch),
            )?,
            (Spot::Active(_), _) => {
                self.execute("delete from active where seq = ? and epoch = ?", (live.seq, epoch))?
            }
            (Spot::Finished, _) => {
                letter = self.take_letter(live.seq)?;
                self.execute(
                    "delete from finished where seq = ? and epoch = ? and state = ?",
                    (live.seq, epoch, transition.from.as_str()),
                )?
            }
        };
        if gone == 1 {
            Ok(letter)
        } else {
            let id = live.stored.id;
            Err(StoreError::Corrupt(format!("job {id} moved while the writer held it")))
        }
    }

    /// Takes a job off the dead letters; returns why it was one.
    pub(super) fn take_letter(&self, seq: i64) -> Result<Option<DeadLetterReason>, StoreError> {
        let mut delete = self
            .db
            .prepare_cached("delete from dead_letter_row where seq = ? returning reason")
            .map_err(failed)?;
        let reason = |row: &rusqlite::Row<'_>| row::parsed(row, 0, DeadLetterReason::parse);
        delete.query_row([seq], reason).optional().map_err(failed)
    }

    fn put_in(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
    ) -> Result<ClassId, StoreError> {
        let own = live.stored.class;
        match transition.place {
            Place::Ready(turn) => {
                let class = self.classes.twin(self.db, own, transition.isolated)?;
                self.insert_ready((live.seq, &live.stored), class, turn, transition)?;
                return Ok(class);
            }
            Place::Timer(_) | Place::Pending => self.insert_waiting(live.seq, transition)?,
            Place::Held => {}
            // A cancelled job's terminal row was made when it was cancelled.
            Place::Ended if transition.from == State::Cancelled => {}
            Place::Ended => self.insert_finished(live.seq, transition, trace)?,
        }
        Ok(own)
    }

    pub(super) fn insert_ready(
        &self,
        (seq, stored): (i64, &StoredJob),
        class: ClassId,
        turn: Turn,
        to: &Transition,
    ) -> Result<(), StoreError> {
        self.execute(
            "insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions,
                                since, strand_ms)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                class.0,
                rank(stored.priority, turn),
                seq,
                int(to.next_epoch.0),
                to.life.get(),
                to.spent.failures,
                to.spent.losses,
                to.spent.interruptions,
                self.now.0,
                row::strand_ms(stored.scheduled_timeout),
            ),
        )?;
        Ok(())
    }

    pub(super) fn insert_waiting(&self, seq: i64, to: &Transition) -> Result<(), StoreError> {
        let due = match to.place {
            Place::Timer(due) => Some(due.0),
            Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
        };
        self.execute(
            "insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions,
                                  isolated, since)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                seq,
                to.to.as_str(),
                due,
                int(to.next_epoch.0),
                to.life.get(),
                to.spent.failures,
                to.spent.losses,
                to.spent.interruptions,
                to.isolated,
                self.now.0,
            ),
        )?;
        Ok(())
    }

    fn insert_finished(
        &self,
        seq: i64,
        to: &Transition,
        trace: &Trace<'_>,
    ) -> Result<(), StoreError> {
        let completed = to.to == State::Completed;
        let result = trace.detail.result.as_ref().filter(|_| completed);
        // An attempt's error is kept with the attempt.
        let error = trace.detail.error.as_ref().filter(|_| !matches!(to.hold, Hold::Drop(_)));
        self.execute(
            "insert into finished (seq, state, at, epoch, life, failures, losses, interruptions,
                                   isolated, attempt, shown, result, error, ended_by)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                seq,
                to.to.as_str(),
                self.now.0,
                int(to.next_epoch.0),
                to.life.get(),
                to.spent.failures,
                to.spent.losses,
                to.spent.interruptions,
                to.isolated,
                to.attempt,
                trace.ended_by != "expired",
                result,
                error,
                trace.ended_by,
            ],
        )?;
        Ok(())
    }

    fn record_attempt(
        &self,
        (live, held): (&Live, &Held),
        to: &Transition,
        outcome: Outcome,
        trace: &Trace<'_>,
    ) -> Result<(), StoreError> {
        let started = held.started.or(trace.detail.started);
        self.execute(
            "insert into attempt_row (seq, epoch, life, number, worker, plain, claimed, started,
                                      finished, outcome, next_state, error, exit_code, by, evidence,
                                      evidence_code)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                live.seq,
                int(to.epoch.0),
                live.job.life.get(),
                live.job.running_attempt(),
                held.worker.map(|worker| *worker.0.as_bytes()),
                held.plain,
                held.claimed.0,
                started.map(|at| at.0),
                self.now.0,
                outcome.as_str(),
                to.to.as_str(),
                trace.detail.error,
                trace.detail.exit_code,
                trace.by,
                trace.detail.evidence.text,
                trace.detail.evidence.word(),
            ],
        )?;
        Ok(())
    }

    fn keep_checkpoint(
        &self,
        live: &Live,
        to: &Transition,
        detail: &EndDetail,
    ) -> Result<(), StoreError> {
        if to.to.is_terminal() {
            if live.checkpoint {
                self.execute("delete from checkpoint where seq = ?", [live.seq])?;
            }
        } else if let Some(bytes) = &detail.checkpoint {
            self.execute(
                "insert or replace into checkpoint (seq, bytes) values (?, ?)",
                (live.seq, bytes),
            )?;
        }
        Ok(())
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) fn execute(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<usize, StoreError> {
        self.db.prepare_cached(sql).and_then(|mut sql| sql.execute(params)).map_err(failed)
    }
}
