//! The status of an execution: a view of its job's state.

use outlast_core::job::{DeadLetterReason, State};

/// Statuses of executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It waits: claimable, for its time, for an activation, or for its next attempt.
    Requested,
    /// Claimed, not started.
    Scheduled,
    /// Started.
    Running,
    /// Ended well.
    Completed,
    /// Ended by its own error, by expiry, or because no worker could run it.
    Failed,
    /// Ended by the attempt's time limit.
    Timeout,
    /// Ended by request.
    Cancelled,
    /// A dead letter after losses.
    Abandoned,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Requested,
        Self::Scheduled,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::Abandoned,
    ];

    /// Returns the word in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }

    /// Returns the status called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Derives the status from what is known of the job.
    #[must_use]
    pub const fn of(facts: &Facts) -> Self {
        match facts.state {
            State::Available | State::Scheduled | State::Pending | State::Retryable => {
                Self::Requested
            }
            State::Active if facts.started => Self::Running,
            State::Active => Self::Scheduled,
            State::Completed => Self::Completed,
            State::Cancelled => Self::Cancelled,
            State::Discarded => match facts.dead_letter {
                Some(DeadLetterReason::PoisonSuspect | DeadLetterReason::AtMostOnce) => {
                    Self::Abandoned
                }
                Some(DeadLetterReason::Exhausted) | None if facts.timed_out => Self::Timeout,
                Some(DeadLetterReason::Exhausted) | None => Self::Failed,
            },
        }
    }
}

/// What a status is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// State.
    pub state: State,
    /// Whether the latest attempt is known to have started.
    pub started: bool,
    /// Why it is a dead letter, if it is.
    pub dead_letter: Option<DeadLetterReason>,
    /// Whether the latest error is the time limit.
    pub timed_out: bool,
}
