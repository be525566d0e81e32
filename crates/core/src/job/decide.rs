//! May a job go from here to there? One function per state, every event written out.

use std::num::NonZeroU32;

use crate::budget::{Budgets, InterruptionCharge, Spent};
use crate::id::{Epoch, WorkerId};
use crate::job::transition::{Alarm, Answer, DeadLetterReason, Hold, Outcome, Place, Turn};
use crate::job::{Event, Holder, Job, Refusal, State, Transition};
use crate::retry::{Jitter, OnExhaustion, next_attempt_at};
use crate::time::Timestamp;

/// Decides what `event` does to `job`.
///
/// # Errors
/// Returns why the job stays as it is.
pub fn decide(
    job: &Job,
    event: Event<'_>,
    budgets: &Budgets,
    jitter: Jitter,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    debug_assert!(job.state != State::Active || job.holder.is_some(), "active without a holder");
    match job.state {
        State::Scheduled | State::Retryable => waiting_for_time(job, event),
        State::Pending => waiting_for_activation(job, event),
        State::Available => claimable(job, event, now),
        State::Active => in_flight(job, event, &Judge { budgets, jitter, now }),
        State::Cancelled => cancelled(job, event),
        State::Completed => Err(Refusal::Terminal(State::Completed)),
        State::Discarded => discarded(job, event),
    }
}

/// Checks that a report speaks for the attempt that is current.
///
/// A report that names neither epoch nor worker counts for the current holder: a plain
/// OJS client cannot be fenced (I2).
///
/// # Errors
/// Returns [`Refusal::Superseded`] or [`Refusal::NotHolder`] when it does not.
pub fn fence(job: &Job, epoch: Option<Epoch>, worker: Option<WorkerId>) -> Result<(), Refusal> {
    if let Some(reported) = epoch
        && reported != job.epoch
    {
        return Err(Refusal::Superseded { reported, current: job.epoch });
    }
    let (Some(named), Some(holder)) = (worker, job.holder) else { return Ok(()) };
    if holder.worker.is_none_or(|holder| holder == named) {
        Ok(())
    } else {
        Err(Refusal::NotHolder { current: job.epoch })
    }
}

/// Who can have killed the worker that a job was lost with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// No job yet: many workers were lost together.
    None,
    /// This job or one beside it.
    Neighbours,
    /// This job: it was alone.
    Job,
}

/// What a decision about a held job may look at besides the job.
struct Judge<'a> {
    budgets: &'a Budgets,
    jitter: Jitter,
    now: Timestamp,
}

fn waiting_for_time(job: &Job, event: Event<'_>) -> Result<Transition, Refusal> {
    match event {
        Event::Due => Ok(job.become_ready(Turn::InOrder)),
        Event::Cancel => Ok(job.end(State::Cancelled)),
        Event::Expire => Ok(job.end(State::Discarded)),
        Event::Activate
        | Event::Claim { .. }
        | Event::Start
        | Event::Complete
        | Event::Fail { .. }
        | Event::TimeOut
        | Event::Interrupt
        | Event::CutOff
        | Event::Release
        | Event::Requeue
        | Event::Lose { .. }
        | Event::ExpireVisibility
        | Event::Strand
        | Event::Replay => Err(Refusal::WrongState(job.state)),
    }
}

fn waiting_for_activation(job: &Job, event: Event<'_>) -> Result<Transition, Refusal> {
    match event {
        Event::Activate => Ok(job.become_ready(Turn::InOrder)),
        Event::Cancel => Ok(job.end(State::Cancelled)),
        Event::Expire => Ok(job.end(State::Discarded)),
        Event::Due
        | Event::Claim { .. }
        | Event::Start
        | Event::Complete
        | Event::Fail { .. }
        | Event::TimeOut
        | Event::Interrupt
        | Event::CutOff
        | Event::Release
        | Event::Requeue
        | Event::Lose { .. }
        | Event::ExpireVisibility
        | Event::Strand
        | Event::Replay => Err(Refusal::WrongState(job.state)),
    }
}

fn claimable(job: &Job, event: Event<'_>, now: Timestamp) -> Result<Transition, Refusal> {
    match event {
        Event::Claim { .. } if job.rules.expires_at.is_some_and(|at| at <= now) => {
            Err(Refusal::Expired)
        }
        Event::Claim { worker, starts } => {
            Ok(job.claim(Holder { worker, started: starts.then_some(now) }))
        }
        Event::Cancel => Ok(job.end(State::Cancelled)),
        Event::Expire | Event::Strand => Ok(job.end(State::Discarded)),
        Event::Activate
        | Event::Due
        | Event::Start
        | Event::Complete
        | Event::Fail { .. }
        | Event::TimeOut
        | Event::Interrupt
        | Event::CutOff
        | Event::Release
        | Event::Requeue
        | Event::Lose { .. }
        | Event::ExpireVisibility
        | Event::Replay => Err(Refusal::WrongState(job.state)),
    }
}

fn in_flight(job: &Job, event: Event<'_>, judge: &Judge<'_>) -> Result<Transition, Refusal> {
    match event {
        Event::Start => Ok(job.start(judge.now)),
        Event::Complete => Ok(Transition {
            attempt: job.running_attempt(),
            hold: Hold::Drop(Outcome::Completed),
            ..job.end(State::Completed)
        }),
        Event::Fail { error_type, retryable } => {
            let may_retry = retryable && !job.rules.retry.forbids_retry_of(error_type);
            Ok(job.fail(Outcome::Failed, job.spent, may_retry, judge))
        }
        Event::TimeOut => {
            let may_retry = !job.rules.retry.forbids_retry_of("timeout");
            Ok(job.fail(Outcome::Timeout, job.spent, may_retry, judge))
        }
        Event::Interrupt => Ok(job.interrupt(judge)),
        Event::CutOff => Ok(job.cut_off()),
        Event::Release => Ok(job.give_back(Outcome::Undelivered, Turn::Front, job.spent)),
        Event::Requeue => Ok(job.give_back(Outcome::Requeued, Turn::InOrder, job.spent)),
        Event::Lose { mass: true, .. } => Ok(job.lose(Suspicion::None, judge.budgets)),
        Event::Lose { alone: true, mass: false } => Ok(job.lose(Suspicion::Job, judge.budgets)),
        Event::Lose { alone: false, mass: false } => {
            Ok(job.lose(Suspicion::Neighbours, judge.budgets))
        }
        Event::ExpireVisibility => Ok(job.expire_visibility()),
        Event::Cancel => Ok(job.cancel_active()),
        Event::Activate
        | Event::Due
        | Event::Claim { .. }
        | Event::Expire
        | Event::Strand
        | Event::Replay => Err(Refusal::WrongState(job.state)),
    }
}

fn cancelled(job: &Job, event: Event<'_>) -> Result<Transition, Refusal> {
    let terminal = Err(Refusal::Terminal(State::Cancelled));
    if job.holder.is_none() {
        return terminal;
    }
    match event {
        // The tree is gone: what the job still held goes too, and nothing else changes.
        Event::Complete
        | Event::Fail { .. }
        | Event::TimeOut
        | Event::Interrupt
        | Event::Release
        | Event::Requeue => {
            Ok(Transition { answer: Answer::TooLate(State::Cancelled), ..job.vacate() })
        }
        Event::CutOff | Event::Lose { .. } | Event::ExpireVisibility => Ok(job.vacate()),
        Event::Activate
        | Event::Due
        | Event::Claim { .. }
        | Event::Start
        | Event::Cancel
        | Event::Expire
        | Event::Strand
        | Event::Replay => terminal,
    }
}

fn discarded(job: &Job, event: Event<'_>) -> Result<Transition, Refusal> {
    match event {
        Event::Replay => Ok(Transition {
            life: job.life.checked_add(1).unwrap_or(NonZeroU32::MAX),
            spent: Spent::default(),
            isolated: false,
            attempt: 0,
            ..job.become_ready(Turn::InOrder)
        }),
        Event::Activate
        | Event::Due
        | Event::Claim { .. }
        | Event::Start
        | Event::Complete
        | Event::Fail { .. }
        | Event::TimeOut
        | Event::Interrupt
        | Event::CutOff
        | Event::Release
        | Event::Requeue
        | Event::Lose { .. }
        | Event::ExpireVisibility
        | Event::Cancel
        | Event::Expire
        | Event::Strand => Err(Refusal::Terminal(State::Discarded)),
    }
}

/// The moves by name. None of them looks at the state it comes from: `decide` did.
impl Job {
    fn move_to(&self, to: State, place: Place) -> Transition {
        Transition {
            from: self.state,
            epoch: self.epoch,
            to,
            next_epoch: self.epoch,
            life: self.life,
            spent: self.spent,
            isolated: self.isolated,
            place,
            hold: Hold::None,
            attempt: self.spent.failures,
            dead_letter: None,
            alarm: None,
            answer: Answer::Accepted,
        }
    }

    fn become_ready(&self, turn: Turn) -> Transition {
        self.move_to(State::Available, Place::Ready(turn))
    }

    fn end(&self, state: State) -> Transition {
        self.move_to(state, Place::Ended)
    }

    fn claim(&self, holder: Holder) -> Transition {
        Transition {
            next_epoch: self.epoch.next(),
            attempt: self.running_attempt(),
            hold: Hold::Take(holder),
            ..self.move_to(State::Active, Place::Active)
        }
    }

    fn start(&self, now: Timestamp) -> Transition {
        let holder = self.holder.map_or(Holder { worker: None, started: Some(now) }, |holder| {
            Holder { started: holder.started.or(Some(now)), ..holder }
        });
        Transition {
            attempt: self.running_attempt(),
            hold: Hold::Keep(holder),
            ..self.move_to(State::Active, Place::Active)
        }
    }

    fn give_back(&self, outcome: Outcome, turn: Turn, spent: Spent) -> Transition {
        Transition {
            spent,
            attempt: spent.failures,
            hold: Hold::Drop(outcome),
            ..self.become_ready(turn)
        }
    }

    /// Charges the attempt to the job itself: retried after a wait, or used up.
    fn fail(
        &self,
        outcome: Outcome,
        spent: Spent,
        may_retry: bool,
        judge: &Judge<'_>,
    ) -> Transition {
        let failures = spent.failures.saturating_add(1);
        let spent = Spent { failures, ..spent };
        if !may_retry || failures >= self.rules.retry.max_attempts {
            return self.exhaust(outcome, spent);
        }
        let due = next_attempt_at(&self.rules.retry, failures, judge.jitter, judge.now);
        Transition {
            spent,
            attempt: failures,
            hold: Hold::Drop(outcome),
            ..self.move_to(State::Retryable, Place::Timer(due))
        }
    }

    fn exhaust(&self, outcome: Outcome, spent: Spent) -> Transition {
        let dead_letter = match self.rules.retry.on_exhaustion {
            OnExhaustion::Discard => None,
            OnExhaustion::DeadLetter => Some(DeadLetterReason::Exhausted),
        };
        Transition {
            spent,
            attempt: spent.failures,
            hold: Hold::Drop(outcome),
            dead_letter,
            ..self.end(State::Discarded)
        }
    }

    fn give_up(&self, outcome: Outcome, spent: Spent, reason: DeadLetterReason) -> Transition {
        Transition { dead_letter: Some(reason), ..self.exhaust(outcome, spent) }
    }

    /// The worker lives and the job did nothing: neither a loss nor a shutdown nor a failure,
    /// however often it happens.
    fn cut_off(&self) -> Transition {
        if self.rules.is_at_most_once() {
            return self.give_up(Outcome::Interrupted, self.spent, DeadLetterReason::AtMostOnce);
        }
        self.give_back(Outcome::Interrupted, Turn::Front, self.spent)
    }

    fn interrupt(&self, judge: &Judge<'_>) -> Transition {
        let interruptions = self.spent.interruptions.saturating_add(1);
        let spent = Spent { interruptions, ..self.spent };
        if self.rules.is_at_most_once() {
            return self.give_up(Outcome::Interrupted, spent, DeadLetterReason::AtMostOnce);
        }
        let over = interruptions > judge.budgets.interruptions;
        let alarm = over.then_some(Alarm::InterruptionBudgetSpent);
        let charged = over || judge.budgets.interruption_charge == InterruptionCharge::Charge;
        if charged {
            Transition { alarm, ..self.fail(Outcome::Interrupted, spent, true, judge) }
        } else {
            self.give_back(Outcome::Interrupted, Turn::Front, spent)
        }
    }

    /// The worker was given up. An attempt of which no start is known is free the first
    /// time, and a few times after a mass loss. It may have started all the same: a start is
    /// stored only once it has lasted a moment, and a job that kills its worker sooner would
    /// otherwise be handed out forever.
    ///
    /// A mass loss suspects no job, until the job has been lost more often than its budget
    /// allows: several jobs that kill their workers look like a mass loss.
    fn lose(&self, suspicion: Suspicion, budgets: &Budgets) -> Transition {
        let started = self.holder.is_some_and(|holder| holder.started.is_some());
        let free = match suspicion {
            Suspicion::None => self.handed_out_in_vain() <= u64::from(budgets.losses),
            Suspicion::Neighbours | Suspicion::Job => self.handed_out_in_vain() == 0,
        };
        if !started && free && !self.rules.is_at_most_once() {
            return self.give_back(Outcome::Undelivered, Turn::Front, self.spent);
        }
        let losses = self.spent.losses.saturating_add(1);
        let spent = Spent { losses, ..self.spent };
        if self.rules.is_at_most_once() {
            return self.give_up(Outcome::Lost, spent, DeadLetterReason::AtMostOnce);
        }
        // Only a job that was alone can have killed its worker: neighbours are not blamed.
        let is_poison = match suspicion {
            Suspicion::None => self.isolated && losses > budgets.losses.saturating_mul(2),
            Suspicion::Neighbours => false,
            Suspicion::Job => losses >= budgets.losses,
        };
        if is_poison {
            return self.give_up(Outcome::Lost, spent, DeadLetterReason::PoisonSuspect);
        }
        let is_suspect = match suspicion {
            Suspicion::None => losses > budgets.losses,
            Suspicion::Neighbours | Suspicion::Job => losses >= 2,
        };
        Transition {
            isolated: self.isolated || is_suspect,
            ..self.give_back(Outcome::Lost, Turn::Front, spent)
        }
    }

    /// Returns how many earlier claims ended without being charged to any budget: every claim
    /// raises the epoch, every charge one of the three counts.
    fn handed_out_in_vain(&self) -> u64 {
        let Spent { failures, losses, interruptions } = self.spent;
        let charged = u64::from(failures)
            .saturating_add(u64::from(losses))
            .saturating_add(u64::from(interruptions));
        self.epoch.0.saturating_sub(1).saturating_sub(charged)
    }

    /// A plain OJS client fell silent: the standard says this spends an attempt.
    fn expire_visibility(&self) -> Transition {
        let spent = Spent {
            failures: self.spent.failures.saturating_add(1),
            losses: self.spent.losses.saturating_add(1),
            ..self.spent
        };
        if spent.failures >= self.rules.retry.max_attempts {
            self.exhaust(Outcome::Lost, spent)
        } else {
            self.give_back(Outcome::Lost, Turn::InOrder, spent)
        }
    }

    /// Cancelled at once; what it holds stays held until its process tree is gone.
    fn cancel_active(&self) -> Transition {
        let hold = self.holder.map_or(Hold::None, Hold::Keep);
        Transition { attempt: self.running_attempt(), hold, ..self.end(State::Cancelled) }
    }

    fn vacate(&self) -> Transition {
        Transition {
            attempt: self.running_attempt(),
            hold: Hold::Drop(Outcome::Cancelled),
            ..self.end(State::Cancelled)
        }
    }
}
