//! Operations: one change of all jobs that a filter selects, done step by step.
//!
//! ```text
//! running ─▶ done      everything was looked at
//!         ─▶ stopped   someone stopped it; what was changed stays so
//!         ─▶ failed    it cannot go on
//! ```
//!
//! Which jobs belong to one, and how it goes on, is decided by the server.

use std::fmt;

use uuid::Uuid;

use crate::limits::OPERATION_TYPED_ABOVE;

/// The id of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub Uuid);

/// What is done with each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// It is cancelled, if it has not ended.
    Cancel,
    /// It lives again, if it ended without success.
    Retry,
}

impl OperationKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Cancel, Self::Retry];

    /// Returns the word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        }
    }

    /// Returns the kind called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns what has become of a job that was changed.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Retry => "retried",
        }
    }
}

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationStatus {
    /// It goes on.
    Running,
    /// Everything was looked at.
    Done,
    /// Someone stopped it.
    Stopped,
    /// It cannot go on.
    Failed,
}

impl OperationStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Running, Self::Done, Self::Stopped, Self::Failed];

    /// Returns the word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// Returns the status called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// Returns what someone types before so many jobs are changed: their number, or `all` where not all were
/// counted; nothing for a few.
#[must_use]
pub fn typed(matched: u64, is_exact: bool) -> Option<String> {
    match (is_exact, matched > OPERATION_TYPED_ABOVE) {
        (false, _) => Some("all".to_owned()),
        (true, true) => Some(matched.to_string()),
        (true, false) => None,
    }
}

/// Why a job that was found stayed as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// It waits to run.
    Waiting,
    /// A worker has it.
    Running,
    /// It completed.
    Completed,
    /// It is cancelled.
    Cancelled,
    /// It ended without success.
    Failed,
    /// It must not start any more.
    Expired,
    /// It is not stored any more.
    Gone,
    /// It changed after the operation began, so that it is not certain to have matched then.
    Changed,
    /// The store could not write a change to it.
    Unwritable,
}

impl Skip {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Running,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
        Self::Expired,
        Self::Gone,
        Self::Changed,
        Self::Unwritable,
    ];

    /// Returns the reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "already waiting",
            Self::Running => "already running",
            Self::Completed => "already completed",
            Self::Cancelled => "already cancelled",
            Self::Failed => "already failed",
            Self::Expired => "expired",
            Self::Gone => "deleted",
            Self::Changed => "changed since it began",
            Self::Unwritable => "cannot be written",
        }
    }

    /// Returns the reason of these words, if there is one.
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == words)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for OperationId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}
