//! The embedded store: SQLite with one writer thread.
//!
//! Every batch is one transaction on the one connection that writes, with WAL and
//! `synchronous=FULL`: when it returns, it survives the power cord. Reads have their own
//! connections and never wait for the writer.
//!
//! ```text
//! apply ─batch─▶ writer thread: begin ─ commands in order ─ event row ─ commit ─▶ replies
//! reads ───────▶ read connections (query-only, with a time limit)
//! ```
//!
//! - [`clock`]: the store's clock, which never runs backwards
//! - [`connection`]: opening, durability, exclusive ownership, migrations
//! - [`backup`]: copies and the way back; [`diagnostics`]: whether a store is whole
//! - [`guard`] and [`mark`]: a foreign or damaged file is refused
//! - [`writer`] obeys commands, [`read`] answers queries
//! - [`transfer`]: moving a store
//!
//! Nothing here decides: jobs are loaded, `outlast_core` is asked, and its answer is
//! applied as a compare-and-set on (seq, epoch).

mod backup;
mod clock;
mod connection;
mod diagnostics;
mod error;
mod guard;
mod look;
mod mark;
mod migrate;
mod read;
mod row;
mod sqlite_store;
mod transfer;
mod writer;

pub use backup::Restoring;
pub use clock::BootClock;
pub use connection::Options;
pub use diagnostics::{Diagnostics, diagnose};
pub use error::OpenError;
pub use guard::APPLICATION_ID;
pub use migrate::{SCHEMA_VERSION, migrate};
pub use sqlite_store::SqliteStore;
pub use transfer::{SqliteSource, SqliteTarget};
