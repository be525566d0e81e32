//! A job as the rules see it: its state, its budgets, who holds it.
//!
//! ```text
//! scheduled ─┐                      ┌─▶ completed
//! pending   ─┼─▶ available ─▶ active┼─▶ retryable ─▶ available …
//! (new)     ─┘        ▲             ├─▶ discarded (± dead letter)
//!                     └─────────────┘   cancelled (from every live state)
//! ```
//!
//! [`decide`] is the only function that moves a job. It is total over (state, event).

mod decide;
mod event;
mod transition;

pub use decide::{decide, fence};
pub use event::{Event, EventKind};
pub use transition::{
    Alarm, Answer, DeadLetterReason, Hold, Outcome, Place, Refusal, Transition, Turn,
};

use std::fmt;
use std::num::NonZeroU32;

use crate::budget::Spent;
use crate::id::{Epoch, WorkerId};
use crate::resources::Resources;
use crate::retry::RetryPolicy;
use crate::time::Timestamp;
use crate::workflow::WorkflowItem;

/// The states of OJS core, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits for its time.
    Scheduled,
    /// May be claimed.
    Available,
    /// Waits for someone to activate it.
    Pending,
    /// Claimed: one worker holds it.
    Active,
    /// Ended well.
    Completed,
    /// Failed, and waits for its next attempt.
    Retryable,
    /// Ended by request.
    Cancelled,
    /// Ended without success.
    Discarded,
}

impl State {
    /// Every state, in the standard's order.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Available,
        Self::Pending,
        Self::Active,
        Self::Completed,
        Self::Retryable,
        Self::Cancelled,
        Self::Discarded,
    ];

    /// Returns the standard's word for the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Available => "available",
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Retryable => "retryable",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }

    /// Returns the state called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Returns whether a job in this state has ended (in this life).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled | Self::Discarded => true,
            Self::Scheduled | Self::Available | Self::Pending | Self::Active | Self::Retryable => {
                false
            }
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether two attempts of one job may ever run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overlap {
    /// They may, in a partition: the job moves on as soon as its worker is given up.
    #[default]
    Allowed,
    /// Never: the worker's side is ended before the job may move on.
    Forbidden,
}

/// What a job was asked to obey; fixed when it is enqueued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Retries, and what happens after the last one.
    pub retry: RetryPolicy,
    /// Whether attempts may overlap.
    pub overlap: Overlap,
    /// From when on the job must not be started any more.
    pub expires_at: Option<Timestamp>,
    /// What each attempt may use.
    pub resources: Resources,
    /// The item of a workflow that the job carries out.
    pub workflow: Option<WorkflowItem>,
}

impl Rules {
    /// Returns the rules of a job that asked for nothing.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            retry: RetryPolicy::standard(),
            overlap: Overlap::Allowed,
            expires_at: None,
            resources: Resources::NONE,
            workflow: None,
        }
    }

    /// Returns whether the job may be started at most once.
    #[must_use]
    pub const fn is_at_most_once(&self) -> bool {
        self.retry.max_attempts <= 1
    }
}

/// Who holds an active job's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The native worker, or the worker a plain OJS client named; `None` if it named none.
    pub worker: Option<WorkerId>,
    /// When the attempt started, once that is known.
    pub started: Option<Timestamp>,
}

/// The part of a job that moves, and the rules it moves by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Stored state.
    pub state: State,
    /// Epoch of the latest claim; zero before the first.
    pub epoch: Epoch,
    /// 1, and one more for every replay from the dead letters.
    pub life: NonZeroU32,
    /// Budgets used up in this life.
    pub spent: Spent,
    /// Whether the job must run alone on its worker.
    pub isolated: bool,
    /// Who holds the attempt. Also set on a cancelled job until its process tree is gone.
    pub holder: Option<Holder>,
    /// What the job was asked to obey.
    pub rules: Rules,
}

impl Job {
    /// Returns a new job under `rules`, in the state `state`.
    #[must_use]
    pub fn new(state: State, rules: Rules) -> Self {
        debug_assert!(!state.is_terminal(), "a job is not born in {state}");
        Self {
            state,
            epoch: Epoch::ZERO,
            life: NonZeroU32::MIN,
            spent: Spent::default(),
            isolated: false,
            holder: None,
            rules,
        }
    }

    /// Returns the attempt number on the OJS wire while an attempt is under way: charged
    /// attempts + 1.
    #[must_use]
    pub const fn running_attempt(&self) -> u32 {
        self.spent.failures.saturating_add(1)
    }
}

#[cfg(test)]
mod tests;
