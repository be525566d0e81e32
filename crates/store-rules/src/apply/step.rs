//! A decision becomes what a backend writes.
//!
//! The row is first removed where it was read: that statement names the epoch and whatever the
//! decision looked at, and must hit exactly one row. This is the compare-and-set. Then the job
//! is put where it now belongs.

use std::num::NonZeroU32;

use outlast_core::budget::{Charge, ScheduledTimeout, Spent};
use outlast_core::evidence::Evidence;
use outlast_core::id::{Epoch, WorkerId};
use outlast_core::job::{DeadLetterReason, Hold, Holder, Outcome, Place, State, Transition};
use outlast_core::resources::Usage;
use outlast_core::time::Timestamp;
use outlast_store::command::ClassId;
use outlast_store::reply::Moved;
use outlast_store::tally::Before;

use super::claim::ActiveRow;
use super::claim::fair::Ended;
use super::loaded::{ActiveAttempt, Loaded, Location};
use super::sweep::EXPIRED;
use super::workflow::{JobMove, end_of};
use super::{Decided, Outbox};
use crate::rules::{Facts, events_of};
use outlast_store::job::rank;

/// Everything that a move of one job writes.
#[derive(Debug)]
pub struct Step<'a> {
    /// The job's number.
    pub seq: i64,
    /// What happens to the row that was read.
    pub removal: Removal<'a>,
    /// The row that takes its place.
    pub put: Put<'a>,
    /// The attempt that ended.
    pub attempt: Option<EndedAttempt<'a>>,
    /// Why the job is a dead letter from now on.
    pub dead_letter: Option<DeadLetterReason>,
    /// What becomes of its checkpoint.
    pub checkpoint: CheckpointChange<'a>,
    /// When it must not start any more. There may be an entry for it already.
    pub expiry: Option<Timestamp>,
}

/// What happens to the row that the decision was made from.
#[derive(Clone, Copy, Debug)]
pub enum Removal<'a> {
    /// It leaves the claimable ones.
    Ready {
        /// The class it can be claimed in.
        class: ClassId,
        /// Its rank there.
        rank: i64,
        /// Its epoch.
        epoch: Epoch,
    },
    /// It leaves those that wait.
    Waiting {
        /// Its epoch.
        epoch: Epoch,
        /// Its state.
        state: State,
    },
    /// Its attempt ends.
    Active {
        /// Its epoch.
        epoch: Epoch,
        /// When it started, as it was read.
        started: Option<Timestamp>,
        /// Whether it was cancelled, as it was read.
        cancelled: bool,
        /// Whether it has a checkpoint, as it was read.
        checkpoint: bool,
    },
    /// Its attempt stays, changed.
    KeepActive {
        /// Its epoch.
        epoch: Epoch,
        /// When it started, as it was read.
        was_started: Option<Timestamp>,
        /// Whether it was cancelled, as it was read.
        was_cancelled: bool,
        /// When it started.
        started: Option<Timestamp>,
        /// Whether it is cancelled from now on.
        cancelled: bool,
        /// Digest of the pack that it runs.
        pack_digest: Option<&'a str>,
    },
    /// It leaves those that have ended, to live again. It is no dead letter any more.
    Finished {
        /// Its epoch.
        epoch: Epoch,
        /// Its state.
        state: State,
        /// Why it is a dead letter, as it was read.
        letter: Option<DeadLetterReason>,
    },
}

/// What every row of a job has: the epoch and what has been used up.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its life.
    pub life: NonZeroU32,
    /// Budgets used up.
    pub spent: Spent,
}

impl Counters {
    const fn after(transition: &Transition) -> Self {
        Self { epoch: transition.next_epoch, life: transition.life, spent: transition.spent }
    }
}

/// Where a job is put.
#[derive(Debug)]
pub enum Put<'a> {
    /// Among the claimable ones.
    Ready(ReadyRow),
    /// Among those that wait.
    Waiting(WaitingRow),
    /// Among those that have ended.
    Finished(FinishedRow<'a>),
    /// With a worker that holds it.
    Active(Box<ActiveRow>),
    /// It stays with its attempt, or it has ended before.
    Nowhere,
}

/// A claimable job.
#[derive(Clone, Copy, Debug)]
pub struct ReadyRow {
    /// The class it can be claimed in.
    pub class: ClassId,
    /// Its rank there.
    pub rank: i64,
    /// Its lane there, which its keys give.
    pub lane: i64,
    /// Epoch and budgets.
    pub counters: Counters,
    /// Since when it has been claimable.
    pub since: Timestamp,
    /// How long it may wait without an eligible worker.
    pub scheduled_timeout: ScheduledTimeout,
    /// When it must not start any more.
    pub expires: Option<Timestamp>,
}

/// A job that waits for a time or an activation.
#[derive(Clone, Copy, Debug)]
pub struct WaitingRow {
    /// Its state.
    pub state: State,
    /// When it is due; `None` when it waits for an activation.
    pub due: Option<Timestamp>,
    /// Epoch and budgets.
    pub counters: Counters,
    /// Whether it must run alone.
    pub isolated: bool,
    /// Since when it has waited.
    pub since: Timestamp,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRow<'a> {
    /// Its state.
    pub state: State,
    /// When it ended.
    pub at: Timestamp,
    /// Epoch and budgets.
    pub counters: Counters,
    /// Whether it ran alone.
    pub isolated: bool,
    /// Its last attempt, as the wire shows it.
    pub attempt: u32,
    /// Whether lists show it.
    pub shown: bool,
    /// JSON: its result.
    pub result: Option<&'a str>,
    /// JSON: its error, unless an attempt has it.
    pub error: Option<&'a str>,
    /// Why it ended without an attempt; else empty.
    pub ended_by: &'static str,
}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedAttempt<'a> {
    /// The attempt's epoch.
    pub epoch: Epoch,
    /// The life it was in.
    pub life: NonZeroU32,
    /// Its number, as the wire shows it.
    pub number: u32,
    /// The native worker that held it.
    pub worker: Option<WorkerId>,
    /// The id that its plain holder gave itself.
    pub plain: Option<&'a str>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When it started, if it did.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// What it was charged.
    pub charge: Charge,
    /// The state that it led to.
    pub next_state: State,
    /// JSON: its error.
    pub error: Option<&'a str>,
    /// Exit code of the program.
    pub exit_code: Option<i32>,
    /// Who ended it.
    pub by: &'a str,
    /// On what evidence.
    pub evidence: &'a Evidence,
    /// Digest of the pack that it ran.
    pub pack_digest: Option<&'a str>,
    /// What it used.
    pub usage: Usage,
}

/// What becomes of a job's checkpoint.
#[derive(Clone, Copy, Debug)]
pub enum CheckpointChange<'a> {
    /// It stays as it is.
    Keep,
    /// It is replaced.
    Replace(&'a [u8]),
    /// It goes with the job's end.
    Delete,
}

/// Tells whether a move needs the class in which the job can be claimed afterwards, and whether
/// that is the isolated twin.
#[must_use]
pub const fn needs_class(transition: &Transition) -> Option<bool> {
    match transition.place {
        Place::Ready(_) => Some(transition.isolated),
        Place::Timer(_) | Place::Pending | Place::Active | Place::Ended => None,
    }
}

/// Turns a decision into rows, counts, events and the reply. `class` is
/// the one that the job counts in afterwards: see [`needs_class`].
pub fn step<'a>(
    loaded: &'a Loaded,
    decided: &'a Decided<'_>,
    class: ClassId,
    now: Timestamp,
    outbox: &mut Outbox,
) -> (Step<'a>, Moved) {
    let transition = &decided.transition;
    let attempt = loaded.attempt();
    outbox.tally.moved(&before(loaded), class, transition, now);
    let outcome = match (transition.hold, attempt) {
        (Hold::Drop(outcome), Some(_)) => Some(outcome),
        _ => None,
    };
    if let (Some(_), Some(attempt)) = (outcome, attempt) {
        let stored = &loaded.stored;
        outbox.gates.release(&attempt.gates, stored.class, stored.keys.lane());
        outbox.ended.push(ended(loaded, decided, now));
    }
    outbox.gates.charge(&decided.gates);
    let rows = Step {
        seq: loaded.seq,
        removal: removal(loaded, decided),
        put: put(loaded, decided, class, now),
        attempt: outcome.and_then(|outcome| ended_attempt(loaded, decided, outcome, now)),
        dead_letter: transition.dead_letter,
        checkpoint: checkpoint(loaded, decided),
        expiry: loaded.stored.rules.expires_at.filter(|_| !transition.to.is_terminal()),
    };
    log(loaded, decided, now, outbox);
    if let Some(of) = loaded.stored.rules.workflow {
        outbox.item_ends.extend(end_of(of, &job_move(loaded, decided)));
    }
    let moved = Moved {
        job: loaded.stored.id,
        class,
        from: transition.from,
        state: transition.to,
        epoch: transition.next_epoch,
        attempt: transition.attempt,
        max_attempts: loaded.stored.rules.retry.max_attempts,
        due: due(transition),
        outcome,
        // As its event has it.
        ran: outcome.and_then(|_| outbox.events.last()?.duration),
        holder: attempt
            .and_then(|attempt| attempt.worker)
            .or_else(|| taker(transition))
            .filter(|_| outcome.is_none()),
        dead_letter: transition.dead_letter.is_some(),
        workflow: loaded.stored.rules.workflow.map(|it| it.workflow),
        at: now,
    };
    (rows, moved)
}

fn job_move<'a>(loaded: &Loaded, decided: &'a Decided<'_>) -> JobMove<'a> {
    JobMove {
        job: loaded.stored.id,
        transition: &decided.transition,
        kind: decided.kind,
        result: decided.detail.result.as_deref(),
        error: decided.detail.error.as_deref(),
    }
}

/// Returns the native worker that is given the job.
const fn taker(transition: &Transition) -> Option<WorkerId> {
    match transition.hold {
        Hold::Take(holder) => holder.worker,
        Hold::None | Hold::Keep(_) | Hold::Drop(_) => None,
    }
}

fn before(loaded: &Loaded) -> Before {
    Before {
        class: loaded.counted_in(),
        state: loaded.job.state,
        claimable_since: match loaded.location {
            Location::Ready { since, .. } => Some(since),
            Location::Waiting | Location::Active(_) | Location::Finished(_) => None,
        },
        started: loaded
            .attempt()
            .is_some_and(|attempt| attempt.started.is_some() && !attempt.cancelled),
        letter: match loaded.location {
            Location::Finished(letter) => letter,
            Location::Ready { .. } | Location::Waiting | Location::Active(_) => None,
        },
    }
}

fn removal<'a>(loaded: &'a Loaded, decided: &'a Decided<'_>) -> Removal<'a> {
    let transition = &decided.transition;
    let (epoch, state) = (transition.epoch, transition.from);
    match (&loaded.location, transition.hold) {
        (Location::Ready { class, rank, .. }, _) => {
            Removal::Ready { class: *class, rank: *rank, epoch }
        }
        (Location::Waiting, _) => Removal::Waiting { epoch, state },
        (Location::Active(attempt), Hold::Keep(holder)) => Removal::KeepActive {
            epoch,
            was_started: attempt.started,
            was_cancelled: attempt.cancelled,
            started: holder.started,
            cancelled: transition.to == State::Cancelled,
            pack_digest: pack_digest(attempt, decided),
        },
        (Location::Active(attempt), _) => Removal::Active {
            epoch,
            started: attempt.started,
            cancelled: attempt.cancelled,
            checkpoint: loaded.checkpoint,
        },
        (Location::Finished(letter), _) => Removal::Finished { epoch, state, letter: *letter },
    }
}

fn put<'a>(loaded: &Loaded, decided: &'a Decided<'_>, class: ClassId, now: Timestamp) -> Put<'a> {
    let transition = &decided.transition;
    let counters = Counters::after(transition);
    match transition.place {
        Place::Ready(turn) => Put::Ready(ReadyRow {
            class,
            rank: rank(loaded.stored.priority, turn),
            lane: loaded.stored.keys.lane(),
            counters,
            since: now,
            scheduled_timeout: loaded.stored.scheduled_timeout,
            expires: loaded.stored.rules.expires_at,
        }),
        Place::Timer(_) | Place::Pending => Put::Waiting(WaitingRow {
            state: transition.to,
            due: due(transition),
            counters,
            isolated: transition.isolated,
            since: now,
        }),
        Place::Active => match transition.hold {
            Hold::Take(holder) => Put::Active(Box::new(taken(loaded, decided, holder, now))),
            Hold::None | Hold::Keep(_) | Hold::Drop(_) => Put::Nowhere,
        },
        // The terminal row of a cancelled job was made when it was cancelled.
        Place::Ended if transition.from == State::Cancelled => Put::Nowhere,
        Place::Ended => Put::Finished(finished(decided, counters, now)),
    }
}

/// Returns the row of an attempt that is noted after it began.
fn taken(loaded: &Loaded, decided: &Decided<'_>, holder: Holder, now: Timestamp) -> ActiveRow {
    let transition = &decided.transition;
    ActiveRow {
        seq: loaded.seq,
        counters: Counters::after(transition),
        isolated: transition.isolated,
        worker: holder.worker,
        plain: None,
        claimed: now,
        started: holder.started,
        visibility: None,
        visible_until: None,
        deadline: None,
        gates: decided.gates.clone(),
    }
}

fn finished<'a>(decided: &'a Decided<'_>, counters: Counters, now: Timestamp) -> FinishedRow<'a> {
    let transition = &decided.transition;
    let detail = &decided.detail;
    let completed = transition.to == State::Completed;
    // An attempt's error is kept with the attempt.
    let without_attempt = !matches!(transition.hold, Hold::Drop(_));
    FinishedRow {
        state: transition.to,
        at: now,
        counters,
        isolated: transition.isolated,
        attempt: transition.attempt,
        shown: decided.ended_by != EXPIRED,
        result: detail.result.as_deref().filter(|_| completed),
        error: detail.error.as_deref().filter(|_| without_attempt),
        ended_by: decided.ended_by,
    }
}

fn ended_attempt<'a>(
    loaded: &'a Loaded,
    decided: &'a Decided<'_>,
    outcome: Outcome,
    now: Timestamp,
) -> Option<EndedAttempt<'a>> {
    let attempt = loaded.attempt()?;
    let detail = &decided.detail;
    Some(EndedAttempt {
        epoch: decided.transition.epoch,
        life: loaded.job.life,
        number: loaded.job.running_attempt(),
        worker: attempt.worker,
        plain: attempt.plain.as_deref(),
        claimed: attempt.claimed,
        started: attempt.started.or(detail.started),
        finished: now,
        outcome,
        charge: Charge::of(loaded.job.spent, decided.transition.spent),
        next_state: decided.transition.to,
        error: detail.error.as_deref(),
        exit_code: detail.exit_code,
        by: &decided.by,
        evidence: &detail.evidence,
        pack_digest: pack_digest(attempt, decided),
        usage: detail.usage,
    })
}

/// What the latest report says, or an earlier one.
fn pack_digest<'a>(attempt: &'a ActiveAttempt, decided: &'a Decided<'_>) -> Option<&'a str> {
    decided.detail.pack_digest.as_deref().or(attempt.pack_digest.as_deref())
}

fn checkpoint<'a>(loaded: &Loaded, decided: &'a Decided<'_>) -> CheckpointChange<'a> {
    if decided.transition.to.is_terminal() {
        if loaded.checkpoint { CheckpointChange::Delete } else { CheckpointChange::Keep }
    } else {
        let left = decided.detail.checkpoint.as_deref();
        left.map_or(CheckpointChange::Keep, CheckpointChange::Replace)
    }
}

fn log(loaded: &Loaded, decided: &Decided<'_>, now: Timestamp, outbox: &mut Outbox) {
    let attempt = loaded.attempt();
    let began = began(loaded, decided);
    let facts = Facts {
        job: &loaded.stored,
        kind: decided.kind,
        worker: attempt.and_then(|attempt| attempt.worker).or_else(|| taker(&decided.transition)),
        has_started: attempt.is_some_and(|attempt| attempt.started.is_some()),
        began,
        at: now,
        by: &decided.by,
        evidence: &decided.detail.evidence,
    };
    outbox.events.extend(events_of(&facts, &decided.transition));
}

/// Returns when the attempt started, or was claimed if that is not known.
fn began(loaded: &Loaded, decided: &Decided<'_>) -> Option<Timestamp> {
    let attempt = loaded.attempt()?;
    Some(attempt.started.or(decided.detail.started).unwrap_or(attempt.claimed))
}

fn ended(loaded: &Loaded, decided: &Decided<'_>, now: Timestamp) -> Ended {
    let has_started = decided.transition.hold != Hold::Drop(Outcome::Undelivered);
    let began = began(loaded, decided).filter(|_| has_started);
    Ended { seq: loaded.seq, ran: began.map(|began| now.since(began)) }
}

const fn due(transition: &Transition) -> Option<Timestamp> {
    match transition.place {
        Place::Timer(due) => Some(due),
        Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
    }
}
