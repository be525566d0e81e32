//! Why a store could not be opened.

use std::io;
use std::path::{Path, PathBuf};

use outlast_store_rules::migration::Mismatch;
use rusqlite::ErrorCode;

/// Why a store could not be opened. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder or file cannot be made or read.
    #[error("cannot open {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Another process has the store open.
    #[error("{path} is in use by another server; an embedded store has one server at a time")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The place does not allow what durability needs.
    #[error(
        "store cannot be made durable here (journal mode {journal}, synchronous {synchronous}): \
         put it on a local disk"
    )]
    NotDurable {
        /// Journal mode that SQLite gave.
        journal: String,
        /// Level of synchronisation that SQLite gave.
        synchronous: i64,
    },
    /// The file is something else.
    #[error("{path} is not a SQLite database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another program.
    #[error("{path} is a SQLite database of another program ({what}), not an Outlast store")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What tells whose it is.
        what: String,
    },
    /// The store has lost data that was acknowledged.
    #[error("store {path} is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The store was made by another build of Outlast.
    #[error(transparent)]
    Schema(#[from] Mismatch),
    /// The store was made by an older Outlast, and is only to be read.
    #[error("{path} lacks migrations: {}", pending.join(", "))]
    Behind {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        pending: Vec<&'static str>,
    },
    /// An import into the store was not finished.
    #[error("{path} is half imported: it holds a part of an export")]
    HalfImported {
        /// The file.
        path: PathBuf,
    },
    /// SQLite refuses.
    #[error("cannot open the store: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl OpenError {
    /// Whether it may be opened later, without anybody's help.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Io { .. } | Self::InUse { .. } | Self::Sqlite(_) => true,
            Self::NotDurable { .. }
            | Self::NotADatabase { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. }
            | Self::Schema(_)
            | Self::Behind { .. }
            | Self::HalfImported { .. } => false,
        }
    }
}

/// Says which file an error of SQLite is about.
pub(crate) fn named(error: OpenError, path: &Path) -> OpenError {
    match error {
        OpenError::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            OpenError::NotADatabase { path: path.to_owned() }
        }
        OpenError::Sqlite(error)
            if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) =>
        {
            OpenError::Damaged { path: path.to_owned(), what: error.to_string() }
        }
        other => other,
    }
}
