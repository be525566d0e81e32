//! Why a store could not do what it was asked.

use std::fmt;

use outlast_core::id::JobId;

use crate::command::ClassId;

/// Why a store could not do what it was asked. Nothing has changed, unless it is
/// [`StoreError::Ambiguous`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached now; the same call may go through later.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// The database takes no writes, such as a standby in recovery.
    #[error("store is read-only: {0}")]
    ReadOnly(String),
    /// The disk is full.
    #[error("store is full: {0}")]
    Full(String),
    /// The commit was sent and its outcome is unknown.
    #[error("outcome of the commit is unknown: {0}")]
    Ambiguous(String),
    /// A command of the batch cannot be applied, by a fault of ours: split the batch.
    #[error("batch could not be applied: {0}")]
    Rejected(String),
    /// Another session of the database holds a row that a command of the batch needs: split
    /// the batch, and try that command again later.
    #[error("another session of the database holds what is needed: {0}")]
    Locked(String),
    /// A statement took too long, for certain without effect: split the batch, and refuse the
    /// command that takes too long alone.
    #[error("took too long: {0}")]
    Slow(SlowStatement),
    /// What was read back breaks an invariant.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// The store went back in time since it was opened: it was restored, or lost what it had
    /// acknowledged. It must be opened again, by a server that starts from scratch.
    #[error("store was replaced: {0}")]
    Replaced(String),
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}

/// A statement of a batch that took too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowStatement {
    /// What the database said.
    pub words: String,
    /// The jobs that claims of the batch had chosen by then: taking one of them may be what took so
    /// long.
    pub chosen: Vec<ChosenJob>,
}

/// A job that a claim was about to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenJob {
    /// The job.
    pub job: JobId,
    /// The class in which it is claimable.
    pub class: ClassId,
}

impl<T: Into<String>> From<T> for SlowStatement {
    fn from(words: T) -> Self {
        Self { words: words.into(), chosen: Vec::new() }
    }
}

impl fmt::Display for SlowStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
