//! Source and target of a move, on either kind of store.

use outlast_cli_core::exit::{Exit, Failure};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store_postgres::{PostgresSource, PostgresTarget};
use outlast_store_rules::transfer::row::Row;
use outlast_store_rules::transfer::{PageQuery, Part, Progress, Source, SourceFacts, Target};
use outlast_store_sqlite::{Options, SqliteSource, SqliteTarget};

use super::{unopened, unreached};
use crate::config::value::Database;

/// A store of either kind.
#[derive(Debug)]
pub(crate) enum Either<S, P> {
    Sqlite(S),
    Postgres(P),
}

/// A store to export.
pub(crate) type AnySource = Either<SqliteSource, PostgresSource>;
/// A store to import into.
pub(crate) type AnyTarget = Either<SqliteTarget, PostgresTarget>;

impl AnySource {
    pub(crate) async fn open(database: &Database) -> Result<Self, Failure> {
        match database {
            Database::Sqlite(path) => {
                SqliteSource::open(path).map(Self::Sqlite).map_err(|error| unopened(&error))
            }
            Database::Postgres(url) => {
                PostgresSource::open(url, &outlast_store_postgres::Options::default())
                    .await
                    .map(Self::Postgres)
                    .map_err(|error| unreached(&error))
            }
        }
    }
}

impl AnyTarget {
    pub(crate) async fn open(database: &Database) -> Result<Self, Failure> {
        match database {
            Database::Sqlite(path) => SqliteTarget::open(path, &Options::default())
                .map(Self::Sqlite)
                .map_err(|error| match error {
                    outlast_store_sqlite::OpenError::InUse { .. } => in_use(&error),
                    other => unopened(&other),
                }),
            Database::Postgres(url) => {
                PostgresTarget::open(url, &outlast_store_postgres::Options::default())
                    .await
                    .map(Self::Postgres)
                    .map_err(|error| match error {
                        outlast_store_postgres::OpenError::InUse { .. } => in_use(&error),
                        other => unreached(&other),
                    })
            }
        }
    }
}

fn in_use(error: &impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Conflict, error.to_string()).with_hint(
        "stop the processes that use it, or import into another store; nothing has changed",
    )
}

impl<S: Source + Send, P: Source + Send> Source for Either<S, P> {
    fn facts(&self) -> SourceFacts {
        match self {
            Self::Sqlite(store) => store.facts(),
            Self::Postgres(store) => store.facts(),
        }
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(store) => store.page(query).await,
            Self::Postgres(store) => store.page(query).await,
        }
    }
}

impl<S: Target + Send, P: Target + Send> Target for Either<S, P> {
    async fn progress(&mut self) -> Result<Option<Progress>, StoreError> {
        match self {
            Self::Sqlite(store) => store.progress().await,
            Self::Postgres(store) => store.progress().await,
        }
    }

    async fn write(&mut self, part: Part<'_>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.write(part).await,
            Self::Postgres(store) => store.write(part).await,
        }
    }

    async fn complete(&mut self, time: Timestamp) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.complete(time).await,
            Self::Postgres(store) => store.complete(time).await,
        }
    }

    async fn keep(&mut self, progress: &Progress) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.keep(progress).await,
            Self::Postgres(store) => store.keep(progress).await,
        }
    }
}
