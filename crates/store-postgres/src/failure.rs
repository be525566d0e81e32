//! What PostgreSQL says, in the store's terms.

use outlast_store::StoreError;
use tokio_postgres::error::{Severity, SqlState};

/// What `outlast.exactly` says.
const MISSED: &str = "OL001";
/// What `outlast.open_batch` says of a batch that is there already.
const APPLIED: &str = "OL004";
/// What it says of a server whose lane of the event log was closed.
const NO_LANE: &str = "OL005";
/// The function that opens a batch. It locks the row that each batch of a server changes first.
const OPENING: &str = "open_batch(";

/// Why statements of a transaction were not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The transaction is rolled back for sure, and may go through if it is tried again: a
    /// deadlock, or a row that another transaction has just made.
    Again(Conflict, String),
    /// The transaction is rolled back for sure: it waited for a row that another one holds.
    Locked(String),
    /// The transaction is rolled back for sure: one of its statements took too long, or was
    /// cancelled by an operator.
    Slow(String),
    /// An earlier try of the batch took effect after all.
    Applied(String),
    /// The connection is gone or hangs, and the transaction was not committed on it yet.
    Broken(String),
    /// The transaction is rolled back for sure.
    Certain(StoreError),
}

/// With what a transaction collided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// With another transaction's locks.
    Locks,
    /// With a row of the same key.
    Key,
    /// With a prune that has deleted a class.
    Class,
    /// With what was taken for true without looking.
    Stale,
    /// With jobs that are longer than a claim expected.
    Length,
    /// With another server, which closed the lane of one that wrote nothing for long.
    Lane,
    /// With an earlier batch of the same server, which PostgreSQL has not ended yet.
    Slot,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Certain(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let words = words(&error);
        let Some(said) = error.as_db_error() else {
            // A value that does not fit its column never left this process. Everything else
            // that PostgreSQL did not say leaves open what it did.
            let ours = ["error serializing parameter", "error encoding message", "expected "];
            return if ours.iter().any(|start| words.starts_with(start)) {
                Self::Certain(StoreError::Rejected(words))
            } else {
                Self::Broken(words)
            };
        };
        let code = said.code();
        if *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
        {
            return Self::Again(Conflict::Locks, words);
        }
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            // No batch of this server goes through then, so no command is to blame.
            let opens = said.where_().is_some_and(|place| place.contains(OPENING));
            return if opens { Self::Again(Conflict::Slot, words) } else { Self::Locked(words) };
        }
        if *code == SqlState::QUERY_CANCELED {
            return Self::Slow(words);
        }
        // A compare-and-set hits what was locked, unless it was not locked: an attempt that
        // this server remembers, or a worker that two servers register.
        if code.code() == MISSED {
            return Self::Again(Conflict::Stale, words);
        }
        if code.code() == NO_LANE {
            return Self::Again(Conflict::Lane, words);
        }
        if code.code() == APPLIED {
            return Self::Applied(words);
        }
        if *code == SqlState::UNIQUE_VIOLATION {
            return Self::Again(Conflict::Key, words);
        }
        if *code == SqlState::FOREIGN_KEY_VIOLATION {
            return Self::Again(Conflict::Class, words);
        }
        if matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) {
            return Self::Broken(words);
        }
        Self::Certain(of_code(code, words))
    }
}

fn of_code(code: &SqlState, words: String) -> StoreError {
    if *code == SqlState::DISK_FULL {
        return StoreError::Full(words);
    }
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        return StoreError::ReadOnly(words);
    }
    let class = code.code().get(..2).unwrap_or_default();
    match class {
        // Connection, resources, intervention by an operator, the system, states of transactions.
        "08" | "53" | "57" | "58" | "25" => StoreError::Unavailable(words),
        "XX" | "OL" => StoreError::Corrupt(words),
        _ => StoreError::Rejected(words),
    }
}

/// Returns an error with what PostgreSQL itself said, which `Display` leaves out.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Again(_, words) | Failure::Applied(words) | Failure::Broken(words) => {
                Self::Unavailable(words)
            }
            Failure::Locked(words) => Self::Locked(words),
            Failure::Slow(words) => Self::Slow(words.into()),
            Failure::Certain(error) => error,
        }
    }
}
