//! Applying a transition to a job.
//!
//! It takes the job out of its place by a delete that names its epoch and must hit exactly
//! one row: that is the compare-and-set. Then it puts the job where it now belongs.

use outlast_core::job::{EventKind, Hold, Holder, Job, Outcome, Place, State, Transition, Turn};
use outlast_store::command::{ClassId, EndDetail};
use outlast_store::record::StoredJob;
use outlast_store::reply::Moved;
use outlast_store::settle::{Facts, events_of};
use outlast_store::tally::Before;

use crate::failure::Failure;
use crate::row::{self, int, int4, text};
use crate::writer::Writing;
use crate::writer::live::{Held, Live, Spot, rank};
use crate::writer::tables::{
    ActiveGone, ActiveKept, AttemptRow, CheckpointGone, CheckpointRow, DeadLetterRow, ExpiryRow,
    FinishedGone, FinishedRow, ReadyGone, ReadyRow, WaitingGone, WaitingRow,
};

/// What else a transition leaves behind.
#[derive(Debug)]
pub(super) struct Trace<'a> {
    pub(super) kind: EventKind,
    pub(super) by: &'a str,
    pub(super) detail: &'a EndDetail,
    /// Why the job ended without an attempt; else empty.
    pub(super) ended_by: &'static str,
}

impl Writing<'_> {
    /// Applies a transition and logs it.
    pub(super) async fn carry_out(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
    ) -> Result<Moved, Failure> {
        // Whatever was loaded of the job, or counted, is not so any more.
        self.lives.remove(&live.stored.id);
        self.memory.forget(live.stored.id);
        self.held.clear();
        let held = match &live.spot {
            Spot::Active(held) => Some(held),
            Spot::Ready { .. } | Spot::Waiting | Spot::Finished(_) => None,
        };
        self.take_out(live, transition);
        let class = self.put_in(live, transition, trace).await?;
        let before = Before {
            class: match &live.spot {
                Spot::Ready { class, .. } => *class,
                Spot::Waiting | Spot::Active(_) | Spot::Finished(_) => live.stored.class,
            },
            state: live.job.state,
            started: held.is_some_and(|held| held.started.is_some() && !held.cancelled),
            letter: match &live.spot {
                Spot::Finished(letter) => *letter,
                Spot::Ready { .. } | Spot::Waiting | Spot::Active(_) => None,
            },
        };
        self.tally.moved(&before, class, transition);
        let mut outcome = None;
        if let (Hold::Drop(how), Some(held)) = (transition.hold, held) {
            outcome = Some(how);
            self.record_attempt((live, held), transition, how, trace);
        }
        if let Some(reason) = transition.dead_letter {
            let row = DeadLetterRow { seq: live.seq, reason: reason.as_str(), at: self.now.0 };
            self.tables.dead_letters.push(row);
        }
        self.keep_checkpoint(live, transition, trace.detail);
        if let Some(at) = live.stored.rules.expires_at
            && !transition.to.is_terminal()
        {
            self.tables.expiries.push(ExpiryRow { at: at.0, seq: live.seq });
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

    /// The compare-and-set: the row goes only if it is where and what it was read as.
    fn take_out(&mut self, live: &Live, transition: &Transition) {
        let (seq, epoch) = (live.seq, int(transition.epoch.0));
        let state = transition.from.as_str();
        match (&live.spot, transition.hold) {
            (Spot::Ready { class, rank, .. }, _) => {
                let row = ReadyGone { class: class.0, rank: *rank, seq, epoch };
                self.tables.ready_gone.push(row);
            }
            (Spot::Waiting, _) => self.tables.waiting_gone.push(WaitingGone { seq, epoch, state }),
            (Spot::Active(held), Hold::Keep(holder)) => {
                let cancelled = transition.to == State::Cancelled;
                self.tables.active_kept.push(ActiveKept {
                    seq,
                    epoch,
                    was_started: held.started.map(|at| at.0),
                    was_cancelled: held.cancelled,
                    started: holder.started.map(|at| at.0),
                    cancelled,
                });
                if held.worker.is_some() && !cancelled {
                    self.remember_started(live, held, holder);
                }
            }
            (Spot::Active(held), _) => self.tables.active_gone.push(ActiveGone {
                seq,
                epoch,
                started: held.started.map(|at| at.0),
                cancelled: held.cancelled,
                checkpoint: live.checkpoint,
            }),
            (Spot::Finished(_), _) => {
                self.tables.finished_gone.push(FinishedGone { seq, epoch, state });
            }
        }
    }

    fn remember_started(&mut self, live: &Live, held: &Held, holder: Holder) {
        let held = Held { started: holder.started, ..held.clone() };
        self.fresh.push(Live {
            job: Job { holder: Some(holder), ..live.job.clone() },
            spot: Spot::Active(held),
            looked: false,
            ..live.clone()
        });
    }

    async fn put_in(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
    ) -> Result<ClassId, Failure> {
        let own = live.stored.class;
        match transition.place {
            Place::Ready(turn) => {
                let class = self.twin(own, transition.isolated).await?;
                self.put_ready((live.seq, &live.stored), class, turn, transition);
                return Ok(class);
            }
            Place::Timer(_) | Place::Pending => self.put_waiting(live.seq, transition),
            Place::Held => {}
            // A cancelled job's terminal row was made when it was cancelled.
            Place::Ended if transition.from == State::Cancelled => {}
            Place::Ended => {
                self.put_finished(live.seq, transition, trace.detail, trace.ended_by);
            }
        }
        Ok(own)
    }

    fn put_ready(
        &mut self,
        (seq, stored): (i64, &StoredJob),
        class: ClassId,
        turn: Turn,
        to: &Transition,
    ) {
        self.tables.ready.push(ReadyRow {
            class: class.0,
            rank: rank(stored.priority, turn),
            seq,
            epoch: int(to.next_epoch.0),
            life: int4(to.life.get()),
            failures: int4(to.spent.failures),
            losses: int4(to.spent.losses),
            interruptions: int4(to.spent.interruptions),
            since: self.now.0,
            strand_ms: row::strand_ms(stored.scheduled_timeout),
            expires: stored.rules.expires_at.map(|at| at.0),
        });
    }

    fn put_waiting(&mut self, seq: i64, to: &Transition) {
        self.tables.waiting.push(WaitingRow {
            seq,
            state: to.to.as_str(),
            due: match to.place {
                Place::Timer(due) => Some(due.0),
                Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
            },
            epoch: int(to.next_epoch.0),
            life: int4(to.life.get()),
            failures: int4(to.spent.failures),
            losses: int4(to.spent.losses),
            interruptions: int4(to.spent.interruptions),
            isolated: to.isolated,
            since: self.now.0,
        });
    }

    fn put_finished(
        &mut self,
        seq: i64,
        to: &Transition,
        detail: &EndDetail,
        ended_by: &'static str,
    ) {
        let completed = to.to == State::Completed;
        // An attempt's error is kept with the attempt.
        let error = detail.error.as_deref().filter(|_| !matches!(to.hold, Hold::Drop(_)));
        self.tables.finished.push(FinishedRow {
            seq,
            state: to.to.as_str(),
            at: self.now.0,
            epoch: int(to.next_epoch.0),
            life: int4(to.life.get()),
            failures: int4(to.spent.failures),
            losses: int4(to.spent.losses),
            interruptions: int4(to.spent.interruptions),
            isolated: to.isolated,
            attempt: int4(to.attempt),
            shown: ended_by != "expired",
            result: detail.result.as_deref().filter(|_| completed).map(text),
            error: error.map(text),
            ended_by,
        });
    }

    fn record_attempt(
        &mut self,
        (live, held): (&Live, &Held),
        to: &Transition,
        outcome: Outcome,
        trace: &Trace<'_>,
    ) {
        let started = held.started.or(trace.detail.started);
        self.tables.attempts.push(AttemptRow {
            seq: live.seq,
            epoch: int(to.epoch.0),
            life: int4(live.job.life.get()),
            number: int4(live.job.running_attempt()),
            worker: held.worker.map(|worker| worker.0),
            plain: held.plain.clone(),
            claimed: held.claimed.0,
            started: started.map(|at| at.0),
            finished: self.now.0,
            outcome: outcome.as_str(),
            next_state: to.to.as_str(),
            error: trace.detail.error.as_deref().map(text),
            exit_code: trace.detail.exit_code,
            by: text(trace.by),
            evidence: text(&trace.detail.evidence),
            evidence_code: trace.detail.evidence.word(),
        });
    }

    fn keep_checkpoint(&mut self, live: &Live, to: &Transition, detail: &EndDetail) {
        if to.to.is_terminal() {
            if live.checkpoint {
                self.tables.checkpoint_gone.push(CheckpointGone { seq: live.seq });
            }
        } else if let Some(bytes) = &detail.checkpoint {
            let row = CheckpointRow { seq: live.seq, bytes: bytes.clone() };
            self.tables.checkpoints.push(row);
        }
    }
}
