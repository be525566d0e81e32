//! Opening the store that the configuration names. The only place that knows a backend.

mod any;

use outlast_store::Store as _;
use outlast_store_postgres::PostgresStore;
use outlast_store_sqlite::{OpenError, Options, SqliteStore};

pub(super) use any::AnyStore;

use crate::config::value::Database;
use crate::exit::Failure;

/// Opens a store, and brings its schema up to date.
pub(super) async fn open(database: &Database) -> Result<AnyStore, Failure> {
    match database {
        Database::Sqlite(path) => SqliteStore::open(path, &Options::default())
            .map(AnyStore::Sqlite)
            .map_err(|error| unopened(&error)),
        Database::Postgres(url) => {
            PostgresStore::open(url, &outlast_store_postgres::Options::default())
                .await
                .map(AnyStore::Postgres)
                .map_err(|error| unreached(&error))
        }
    }
}

/// Brings the schema up to date; opening does it.
pub(super) async fn migrate(database: &Database) -> Result<(), Failure> {
    let store = open(database).await?;
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

fn unreached(error: &outlast_store_postgres::OpenError) -> Failure {
    use outlast_store_postgres::OpenError;
    match error {
        OpenError::Address { .. } => Failure::usage(error.to_string()),
        OpenError::Connect { .. } => Failure::failed(error.to_string())
            .with_hint("is PostgreSQL running there, and is the user let in?"),
        _ => Failure::failed(error.to_string()),
    }
}
