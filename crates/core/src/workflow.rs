//! Names of workflows and of their items, and how an item ends.
//!
//! What follows from an end is decided in the crate `outlast-workflow`.

use std::fmt;

use uuid::Uuid;

/// The id of a workflow; a UUIDv7.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkflowId(pub Uuid);

/// The item of a workflow that a job carries out. Its end is noted for the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkflowItem {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The step, by its index.
    pub step: u32,
    /// The item of the step, from zero.
    pub item: u32,
    /// Whether the workflow needs the result.
    pub keeps_result: bool,
}

/// How an item of a workflow ended. Every end of a job is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemOutcome {
    /// The job completed, or the workflow.
    Completed,
    /// It failed.
    Failed,
    /// Its last attempt took too long, or the workflow.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It was discarded, such as for a handler that asked for it.
    Discarded,
    /// It expired before it ran.
    Expired,
    /// It was made a dead letter after losses.
    Abandoned,
    /// Its queue was full.
    QueueFull,
    /// It was a duplicate of another job.
    Duplicate,
    /// An operator removed it.
    Purged,
}

impl ItemOutcome {
    /// Every outcome.
    pub const ALL: [Self; 10] = [
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Discarded,
        Self::Expired,
        Self::Abandoned,
        Self::QueueFull,
        Self::Duplicate,
        Self::Purged,
    ];

    /// Returns the word for it in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timeout",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
            Self::Expired => "expired",
            Self::Abandoned => "abandoned",
            Self::QueueFull => "queue_full",
            Self::Duplicate => "duplicate",
            Self::Purged => "purged",
        }
    }

    /// Returns the outcome called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }

    /// Returns what is said of an item that has no error of its own.
    #[must_use]
    pub const fn as_text(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "took longer than its time limit",
            Self::Cancelled => "was cancelled",
            Self::Discarded => "was discarded",
            Self::Expired => "expired before it ran",
            Self::Abandoned => "was given up after losses",
            Self::QueueFull => "was refused: its queue is full",
            Self::Duplicate => "was refused: it is a duplicate",
            Self::Purged => "was removed by an operator",
        }
    }
}

impl fmt::Display for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for WorkflowId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}
