//! What the rules decided: a value that a store applies by compare-and-set.

use std::num::NonZeroU32;

use crate::budget::Spent;
use crate::id::Epoch;
use crate::job::{Holder, State};
use crate::time::Timestamp;

/// One move of a job, valid only while the job is still in `from` at `epoch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// State the job must still be in.
    pub from: State,
    /// Epoch the job must still have.
    pub epoch: Epoch,
    /// State the job moves to.
    pub to: State,
    /// Epoch the job has afterwards: one more for a claim, else the same.
    pub next_epoch: Epoch,
    /// Life the job is in afterwards.
    pub life: NonZeroU32,
    /// Budgets used up afterwards.
    pub spent: Spent,
    /// Whether the job must run alone from now on.
    pub isolated: bool,
    /// Where the job waits afterwards.
    pub place: Place,
    /// What happens to the running attempt's row.
    pub hold: Hold,
    /// Number of charged attempts that the OJS wire shows afterwards.
    pub attempt: u32,
    /// Set when the job becomes a dead letter.
    pub dead_letter: Option<DeadLetterReason>,
    /// Set when an operator should be alerted.
    pub alarm: Option<Alarm>,
    /// The answer to the reporter.
    pub answer: Answer,
}

/// Where a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the claimable jobs.
    Ready(Turn),
    /// Among the jobs that wait for a time.
    Timer(Timestamp),
    /// Among the jobs that wait for an activation.
    Pending,
    /// In an attempt of a worker.
    Active,
    /// The job has ended.
    Ended,
}

/// A job's turn among the claimable ones of its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Before all that were never started: interrupted and lost work first.
    Front,
    /// By the order of enqueueing.
    InOrder,
}

/// What happens to the row of the running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// There is none.
    None,
    /// It is made.
    Take(Holder),
    /// It stays, changed.
    Keep(Holder),
    /// It goes, and the attempt is recorded with this outcome.
    Drop(Outcome),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Well.
    Completed,
    /// By its own error.
    Failed,
    /// By its time limit.
    Timeout,
    /// By shutdown, drain or eviction.
    Interrupted,
    /// By its worker's death, or a plain client's silence.
    Lost,
    /// Handed over and never started.
    Undelivered,
    /// By request.
    Cancelled,
    /// Given back by the client at no cost.
    Requeued,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Interrupted,
        Self::Lost,
        Self::Undelivered,
        Self::Cancelled,
        Self::Requeued,
    ];

    /// Returns the word for the outcome in the store and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
            Self::Lost => "lost",
            Self::Undelivered => "undelivered",
            Self::Cancelled => "cancelled",
            Self::Requeued => "requeued",
        }
    }

    /// Returns the outcome called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// Why a job is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadLetterReason {
    /// Its policy's attempts are used up, and it asked to be kept.
    Exhausted,
    /// Its last worker died under it while it was alone there.
    PoisonSuspect,
    /// It may start once, had started, and its worker died or shut down.
    AtMostOnce,
}

impl DeadLetterReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Exhausted, Self::PoisonSuspect, Self::AtMostOnce];

    /// Returns the word for the reason in the store and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::PoisonSuspect => "poison_suspect",
            Self::AtMostOnce => "at_most_once",
        }
    }

    /// Returns the reason called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// Something an operator should be alerted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The job was interrupted more often than the budget allows for free.
    InterruptionBudgetSpent,
}

/// The answer to the reporter of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The event took effect.
    Accepted,
    /// The job had already been cancelled; the report only freed what was held for it.
    TooLate(State),
}

/// Why a request to move a job was refused. The job is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The job has ended and stays so.
    #[error("job is already {0}")]
    Terminal(State),
    /// The event does not fit the job's state.
    #[error("job is {0}, which does not allow this")]
    WrongState(State),
    /// The report is about an attempt that a newer claim has replaced.
    #[error("attempt was superseded: epoch {reported} is behind {current}")]
    Superseded {
        /// Epoch of the report.
        reported: Epoch,
        /// Epoch of the job.
        current: Epoch,
    },
    /// The report names a worker that does not hold the attempt.
    #[error("attempt at epoch {current} is held by another worker")]
    NotHolder {
        /// Epoch of the job.
        current: Epoch,
    },
    /// The report counts attempts differently from the job.
    #[error("report is about attempt {reported}, but attempt {current} is running")]
    OtherAttempt {
        /// Attempt of the report.
        reported: u32,
        /// Attempt of the job.
        current: u32,
    },
    /// The job must not be started any more.
    #[error("job has expired")]
    Expired,
}
