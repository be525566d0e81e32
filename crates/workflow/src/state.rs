//! How far a workflow is: a status, and counters for each step.
//!
//! ```text
//!               ┌──────────── replay, retry ────────────┐
//!               ▼                                       │
//!  Waiting ─▶ Running ─▶ Completed Failed TimedOut Abandoned Cancelled
//!     └──────▶ Skipped                                  ▲
//!     └───────────────── cancel, or an expression fails ┘
//! ```
//!
//! The items of a step are counted, not listed, so that the end of one of 10,000 costs as much as
//! the end of one of one. Which item is where, the rows of jobs say.
//!
//! ```text
//!  total = held + running + completed + failed + timed_out + cancelled + abandoned
//! ```

#[cfg(test)]
mod tests;

use std::fmt;

pub use outlast_core::workflow::ItemOutcome as Outcome;

use crate::definition::Definition;
use crate::limits::REASON_BYTES_MAX;

/// The state of one workflow. A store keeps a row for it and one for each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowState {
    /// Whether it runs, or how it ended.
    pub status: WorkflowStatus,
    /// Why it is ending while jobs still run.
    pub stop: Option<Stop>,
    /// Steps that have not ended.
    pub open: u32,
    /// Its steps, by index.
    pub steps: Vec<StepState>,
}

/// Whether a workflow runs, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkflowStatus {
    /// Something runs, or is to run.
    Running,
    /// Every step succeeded or was not to run.
    Completed,
    /// A step failed, and its failure counts.
    Failed,
    /// A user cancelled it.
    Cancelled,
    /// It took longer than its timeout.
    Timeout,
}

/// Why a workflow is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// A user cancelled it.
    Cancel,
    /// It took longer than its timeout.
    Timeout,
}

/// The state of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepState {
    /// Where it is.
    pub status: StepStatus,
    /// Its items, once it has started; one without `for_each`.
    pub total: u32,
    /// Items that wait for their turn.
    pub held: u32,
    /// Items that are enqueued or run.
    pub running: u32,
    /// Items that succeeded.
    pub completed: u32,
    /// Items that failed, or never ran.
    pub failed: u32,
    /// Items that took too long.
    pub timed_out: u32,
    /// Items that were cancelled.
    pub cancelled: u32,
    /// Items that were given up after losses.
    pub abandoned: u32,
    /// Whether it was skipped since a step before it failed.
    pub after_failure: bool,
    /// Why it failed: of the first item that did, or of an expression.
    pub reason: Option<Reason>,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The item; `None` if the step itself failed.
    pub item: Option<u32>,
    /// What happened.
    pub text: String,
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepStatus {
    /// A step before it has not ended.
    Waiting,
    /// Some of its items have not ended.
    Running,
    /// All of its items succeeded.
    Completed,
    /// An item failed, or an expression had no value.
    Failed,
    /// An item took too long.
    TimedOut,
    /// An item was given up after losses.
    Abandoned,
    /// An item was cancelled, or the workflow before it started.
    Cancelled,
    /// It was not to run.
    Skipped,
}

impl WorkflowState {
    /// Returns the state of a workflow that has not begun.
    #[must_use]
    pub fn new(definition: &Definition) -> Self {
        let steps = vec![StepState::new(); definition.steps().len()];
        let open = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        Self { status: WorkflowStatus::Running, stop: None, open, steps }
    }
}

impl StepState {
    /// Returns the state of a step that waits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            status: StepStatus::Waiting,
            total: 0,
            held: 0,
            running: 0,
            completed: 0,
            failed: 0,
            timed_out: 0,
            cancelled: 0,
            abandoned: 0,
            after_failure: false,
            reason: None,
        }
    }

    /// Returns how many items ended without success.
    #[must_use]
    pub const fn unsuccessful(&self) -> u32 {
        self.failed + self.timed_out + self.cancelled + self.abandoned
    }

    /// Returns how many items have ended.
    #[must_use]
    pub const fn ended(&self) -> u32 {
        self.completed + self.unsuccessful()
    }

    /// Says whether the counters agree with each other and with the status.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        let counted = self.held + self.running + self.ended() == self.total;
        let status = match self.status {
            StepStatus::Running => self.running > 0,
            StepStatus::Completed => self.running + self.held + self.unsuccessful() == 0,
            StepStatus::Waiting
            | StepStatus::Failed
            | StepStatus::TimedOut
            | StepStatus::Abandoned
            | StepStatus::Cancelled
            | StepStatus::Skipped => self.running + self.held == 0,
        };
        counted && status
    }

    /// Returns the counter for items that ended so.
    pub(crate) const fn counter(&mut self, outcome: Outcome) -> &mut u32 {
        match outcome {
            Outcome::Completed => &mut self.completed,
            Outcome::TimedOut => &mut self.timed_out,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::Abandoned => &mut self.abandoned,
            Outcome::Failed
            | Outcome::Discarded
            | Outcome::Expired
            | Outcome::QueueFull
            | Outcome::Duplicate
            | Outcome::Purged => &mut self.failed,
        }
    }

    /// Returns the status of a step whose items have all ended. The order of their ends is the same
    /// to it: the gravest counts.
    pub(crate) const fn status_of_items(&self) -> StepStatus {
        if self.failed > 0 {
            StepStatus::Failed
        } else if self.abandoned > 0 {
            StepStatus::Abandoned
        } else if self.timed_out > 0 {
            StepStatus::TimedOut
        } else if self.cancelled > 0 {
            StepStatus::Cancelled
        } else {
            StepStatus::Completed
        }
    }

    /// Keeps a reason, if it is of an earlier item than the one that is kept.
    pub(crate) fn blame(&mut self, item: Option<u32>, text: &str) {
        let known = self.reason.as_ref().is_some_and(|reason| reason.item <= item);
        if !known {
            let end = text.floor_char_boundary(REASON_BYTES_MAX);
            self.reason = Some(Reason { item, text: text[..end].to_owned() });
        }
    }
}

impl Default for StepState {
    fn default() -> Self {
        Self::new()
    }
}

impl WorkflowStatus {
    /// Every status.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Completed, Self::Failed, Self::Cancelled, Self::Timeout];

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    /// Returns the status with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Says whether nothing more happens by itself.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        !matches!(self, Self::Running)
    }

    /// Returns what this end is to a step that started the workflow; `None` while it runs.
    #[must_use]
    pub const fn as_outcome(self) -> Option<Outcome> {
        match self {
            Self::Running => None,
            Self::Completed => Some(Outcome::Completed),
            Self::Failed => Some(Outcome::Failed),
            Self::Cancelled => Some(Outcome::Cancelled),
            Self::Timeout => Some(Outcome::TimedOut),
        }
    }
}

impl StepStatus {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Abandoned,
        Self::Cancelled,
        Self::Skipped,
    ];

    /// Returns the name, the same as of executions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timeout",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    /// Returns the status with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Says whether the step has ended.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }

    /// Says whether it ended without success, and not by being skipped.
    #[must_use]
    pub const fn is_unsuccessful(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut | Self::Abandoned | Self::Cancelled)
    }
}

impl fmt::Display for WorkflowStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
