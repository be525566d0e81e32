//! Why a store could not do what it was asked.

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
    Slow(String),
    /// What was read back breaks an invariant.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}
