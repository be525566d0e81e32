//! The shared store: PostgreSQL 15 or later, for any number of servers.
//!
//! Every batch is one transaction on a connection that writes: one for work, one for heartbeats.
//! What a batch needs is loaded and locked set-wise, decided in memory, and written set-wise: a
//! batch of a thousand commands costs a handful of statements and three round trips.
//!
//! ```text
//! apply ─batch─▶ begin, lock, load ─▶ decide in order ─▶ writes by table, events, commit ─▶ replies
//! reads ───────▶ a pool of connections with a time limit
//! ```
//!
//! - [`connection`]: one connection, its prepared statements, and pipelining
//! - [`connect`]: addresses, session settings, durability; [`hosts`]: which host is the primary
//! - [`diagnostics`]: what PostgreSQL says about itself, for `outlast doctor`
//! - [`generation`]: how often the store was restored
//! - [`lineage`]: whether the store still has what was acknowledged; [`recovery`]: what if not
//! - [`floors`]: where scans begin, so that they do not walk over what was deleted
//! - [`tls`]: which server is trusted, as libpq's `sslmode` says
//! - [`notify`]: signals between servers
//! - [`migrate`]: forward-only migrations under an advisory lock
//! - [`partitions`]: history by day, created ahead and dropped whole
//! - [`transfer`]: moving a store
//! - [`writer`] obeys commands, [`read`] answers queries
//!
//! Nothing here decides: jobs are loaded, `outlast_core` is asked, and its answer is
//! applied as a compare-and-set on (seq, epoch).

mod connect;
mod connection;
mod diagnostics;
mod error;
mod failure;
mod floors;
mod generation;
mod hosts;
mod lineage;
mod migrate;
mod notify;
mod partitions;
mod postgres_store;
mod read;
mod recovery;
mod row;
mod silence;
mod tls;
mod transfer;
mod writer;

pub use connect::{Options, connect};
pub use diagnostics::{Diagnostics, diagnose};
pub use error::OpenError;
pub use migrate::SCHEMA_VERSION;
pub use postgres_store::PostgresStore;
pub use transfer::{PostgresSource, PostgresTarget};
