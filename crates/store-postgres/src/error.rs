//! Why a store could not be opened.

use outlast_store::StoreError;
use outlast_store_rules::migration::Mismatch;

use crate::failure::words;

/// Why a store could not be opened. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is not one.
    #[error(
        "`{url}` is not a PostgreSQL address: {reason}; it looks like postgres://user:password@host:5432/database"
    )]
    Address {
        /// The address, its password left out.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server cannot be reached, or does not let us in.
    #[error("cannot connect to PostgreSQL at {place}: {reason}")]
    Connect {
        /// Host and port.
        place: String,
        /// What was said.
        reason: String,
    },
    /// The server cannot be reached in the way that was asked for.
    #[error("no connection to PostgreSQL at {place} with sslmode={mode}: {reason}")]
    Tls {
        /// Host and port.
        place: String,
        /// How connections were to be encrypted.
        mode: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A statement of the opening failed.
    #[error("cannot use the database: {0}")]
    Refused(String),
    /// The server is too old.
    #[error("PostgreSQL is version {found}; 15 or later is needed")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// The server would acknowledge what a power cut loses.
    #[error(
        "PostgreSQL runs with {setting} = off: acknowledged jobs would be lost in a crash; \
         switch it on"
    )]
    NotDurable {
        /// The setting.
        setting: String,
    },
    /// The database cannot hold every text.
    #[error(
        "the database's encoding is {found}: it must be UTF8, else text that it lacks could not be \
         stored"
    )]
    Encoding {
        /// Its encoding.
        found: String,
    },
    /// It takes no writes: it follows a primary.
    #[error("PostgreSQL at {place} is read-only (standby)")]
    ReadOnly {
        /// Host and port.
        place: String,
    },
    /// It was the primary once, and another one has taken its place.
    #[error(
        "PostgreSQL at {place} was replaced by another primary: it is on timeline {timeline}, the \
         new one on {known}"
    )]
    Replaced {
        /// Host and port.
        place: String,
        /// Its timeline.
        timeline: u32,
        /// The highest timeline that was seen.
        known: u32,
    },
    /// None of several hosts is a primary.
    #[error("no primary among PostgreSQL at {place}: {said}")]
    NoPrimary {
        /// Hosts and ports.
        place: String,
        /// What each of them said.
        said: String,
        /// Whether one of them is a standby.
        has_standby: bool,
    },
    /// A pooler lends sessions for a transaction at a time.
    #[error(
        "the pooler at {place} lends its connections to PostgreSQL for one transaction at a time \
         (PgBouncer: pool_mode=transaction or statement): a server needs sessions of its own; set \
         pool_mode=session for its database, or name PostgreSQL itself"
    )]
    TransactionPooling {
        /// Host and port.
        place: String,
    },
    /// The store was made by another build of Outlast.
    #[error(transparent)]
    Schema(#[from] Mismatch),
    /// Migrations have to wait too long.
    #[error("the database cannot be migrated now: {why}, for more than {seconds} s")]
    Busy {
        /// What is in the way.
        why: &'static str,
        /// How long was waited.
        seconds: u32,
    },
    /// The store was made by an older Outlast, and is only to be read.
    #[error("the store lacks migrations: {}", pending.join(", "))]
    Behind {
        /// What it lacks.
        pending: Vec<&'static str>,
    },
    /// What programs stored by SQL is in no export.
    #[error(
        "{waiting} jobs that programs stored by SQL wait for a server: let one run on this store \
         until it has taken them in"
    )]
    Arrivals {
        /// How many.
        waiting: i64,
    },
    /// An import into the store was not finished.
    #[error("the store is half imported: it holds a part of an export")]
    HalfImported,
    /// It went back in time while a server had it open: it was restored, or a standby took the
    /// primary's place that lacked some commits.
    #[error(
        "the store at {place} was restored or lost commits since this server opened it (generation \
         {found}, the server knows {known})"
    )]
    Restored {
        /// Host and port.
        place: String,
        /// The generation that was read when it was opened.
        known: u64,
        /// Its generation now.
        found: u64,
    },
    /// A standby took the primary's place, and it is not known yet what it lacks.
    #[error("{0}")]
    FailedOver(String),
    /// An import needs a store that no server uses.
    #[error("the store at {place} is in use: a server or another import is connected to it")]
    InUse {
        /// Host and port.
        place: String,
    },
}

impl OpenError {
    /// Whether it may be opened later, without anybody's help.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Refused(_)
            | Self::ReadOnly { .. }
            | Self::Replaced { .. }
            | Self::NoPrimary { .. }
            | Self::Busy { .. }
            | Self::Restored { .. }
            | Self::FailedOver(_)
            | Self::InUse { .. } => true,
            Self::Address { .. }
            | Self::TooOld { .. }
            | Self::NotDurable { .. }
            | Self::Encoding { .. }
            | Self::TransactionPooling { .. }
            | Self::Schema(_)
            | Self::Behind { .. }
            | Self::Arrivals { .. }
            | Self::HalfImported => false,
        }
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::ReadOnly { .. } | OpenError::NoPrimary { has_standby: true, .. } => {
                Self::ReadOnly(error.to_string())
            }
            OpenError::Restored { .. } => Self::Replaced(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for OpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Refused(words(&error))
    }
}
