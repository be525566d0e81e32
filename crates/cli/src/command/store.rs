//! Opening the store that the configuration names. The only place that knows a backend.

use outlast_store::Store as _;
use outlast_store_sqlite::{OpenError, Options, SqliteStore};

use crate::config::value::Database;
use crate::exit::Failure;

/// Opens the embedded store.
pub(super) fn open(database: &Database) -> Result<SqliteStore, Failure> {
    match database {
        Database::Sqlite(path) => {
            SqliteStore::open(path, &Options::default()).map_err(|error| unopened(&error))
        }
        Database::Postgres(_) => Err(no_postgres()),
    }
}

/// Brings the schema up to date; opening does it.
pub(super) async fn migrate(database: &Database) -> Result<(), Failure> {
    let store = open(database)?;
    store.close().await.map_err(|error| Failure::failed(error.to_string()))
}

fn unopened(error: &OpenError) -> Failure {
    let failure = Failure::failed(error.to_string());
    match error {
        OpenError::InUse { .. } => {
            failure.with_hint("stop the other server, or give this one a file of its own")
        }
        OpenError::Io { .. } => failure.with_hint("--database sqlite:PATH takes another file"),
        _ => failure,
    }
}

// The address is not repeated: it may hold a password.
fn no_postgres() -> Failure {
    Failure::usage("this version has no PostgreSQL store")
        .with_hint("use the embedded store: --database sqlite:PATH")
}
