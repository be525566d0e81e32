//! Opening the store that the configuration names. The only place that knows a backend.

mod transfer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_store::Store;
use outlast_store_postgres::PostgresStore;
use outlast_store_rules::migration::{Mismatch, SchemaStatus};
use outlast_store_sqlite::{OpenError, Options, Restoring, SqliteStore};

pub(super) use transfer::{AnySource, AnyTarget};

use crate::config::value::Database;

/// Hint for a store that an import left incomplete.
const HALF: &str = "run `outlast import` with the same folder again to resume it, or start with a \
                    new file or database";
/// Hint for a store that lacks migrations and is opened for reading only.
const BEHIND: &str = "run `outlast migrate` first; a server does so at its start";
/// Hint for a store with missing data.
const DAMAGED: &str = "nothing has changed; put back the missing files, or restore a backup with \
                       `outlast restore FILE`; `outlast restore --mark-only` accepts what is left; \
                       to start empty, remove its files, including .mark";
/// Longest that `migrate` waits for another process which has an embedded store open.
const OTHERS_LIMIT: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// Why a store was not opened.
pub(super) struct Unopened {
    pub(super) failure: Failure,
    /// Whether it may be opened later, without anybody's help.
    pub(super) may_pass: bool,
}

impl From<Unopened> for Failure {
    fn from(unopened: Unopened) -> Self {
        unopened.failure
    }
}

/// Opens a store and brings its schema up to date. Durable unless a flag says otherwise.
pub(super) async fn open(
    database: &Database,
    unsafe_no_fsync: bool,
) -> Result<Arc<dyn Store>, Unopened> {
    match database {
        Database::Sqlite(path) => {
            let options = Options { unsafe_no_fsync, ..Options::default() };
            let opened = SqliteStore::open(path, &options).map_err(|error| Unopened {
                failure: unopened(&error),
                may_pass: error.may_pass(),
            });
            Ok(Arc::new(opened?))
        }
        Database::Postgres(url) => {
            let options = outlast_store_postgres::Options { unsafe_no_fsync, clock: None };
            let opened = PostgresStore::open(url, &options).await.map_err(|error| Unopened {
                failure: unreached(&error),
                may_pass: error.may_pass(),
            });
            Ok(Arc::new(opened?))
        }
    }
}

/// Brings the schema up to date; returns which migrations ran.
pub(super) async fn migrate(database: &Database) -> Result<Vec<&'static str>, Failure> {
    match database {
        Database::Sqlite(path) => migrate_file(path).await,
        Database::Postgres(url) => {
            PostgresStore::migrate(url).await.map_err(|error| unreached(&error))
        }
    }
}

/// Returns which migrations would run; changes nothing.
pub(super) async fn schema_status(database: &Database) -> Result<SchemaStatus, Failure> {
    match database {
        Database::Sqlite(path) => {
            SqliteStore::schema_status(path).map_err(|error| unopened(&error))
        }
        Database::Postgres(url) => {
            PostgresStore::schema_status(url).await.map_err(|error| unreached(&error))
        }
    }
}

/// Copies an embedded store; returns the size of the copy.
pub(super) fn back_up(database: &Database, to: &Path) -> Result<u64, Failure> {
    match database {
        Database::Sqlite(path) => SqliteStore::back_up(path, to).map_err(|error| unopened(&error)),
        Database::Postgres(_) => {
            Err(Failure::usage("a PostgreSQL database is backed up by its own tools").with_hint(
                "pg_dump for a copy, pg_basebackup and WAL archiving for point-in-time recovery",
            ))
        }
    }
}

/// Accepts a store as it is and raises its generation, which it returns.
pub(super) async fn accept(database: &Database) -> Result<u64, Failure> {
    match database {
        Database::Sqlite(path) => SqliteStore::accept(path).map_err(|error| used(&error)),
        Database::Postgres(url) => {
            use outlast_store_postgres::OpenError;
            PostgresStore::accept(url).await.map_err(|error| match error {
                OpenError::InUse { .. } => Failure::new(Exit::Conflict, error.to_string())
                    .with_hint("stop the servers first; nothing has changed"),
                other => unreached(&other),
            })
        }
    }
}

/// Copies a backup next to the store that it is to replace.
pub(super) fn begin_restore(backup: &Path, store: &Path) -> Result<Restoring, Failure> {
    Restoring::begin(backup, store).map_err(|error| used(&error))
}

fn used(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::InUse { .. } => Exit::Conflict,
        OpenError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Exit::NotFound
        }
        _ => return unopened(error),
    };
    let hint = "stop the server first; nothing has changed";
    let failure = Failure::new(exit, error.to_string());
    if exit == Exit::Conflict { failure.with_hint(hint) } else { failure }
}

/// Another process that has the store open migrates it: then there is nothing left to do.
async fn migrate_file(path: &Path) -> Result<Vec<&'static str>, Failure> {
    let begun = clock::moment();
    loop {
        let error = match SqliteStore::migrate(path) {
            Err(error @ OpenError::InUse { .. }) => error,
            ended => return ended.map_err(|error| unopened(&error)),
        };
        // It may be incomplete while it is created, so errors count only at the end.
        let standing = SqliteStore::schema_status(path);
        if standing.is_ok_and(|standing| standing.pending.is_empty()) {
            return Ok(Vec::new());
        }
        if clock::moment().since(begun) > OTHERS_LIMIT {
            return Err(unopened(&error));
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) fn unopened(error: &OpenError) -> Failure {
    let failure = Failure::failed(error.to_string());
    match error {
        OpenError::InUse { .. } => failure.with_hint("stop the other server, or use another file"),
        OpenError::Io { .. } => failure.with_hint("--database sqlite:PATH names another file"),
        OpenError::Schema(mismatch) => failure.with_hint(other_build(mismatch)),
        OpenError::Behind { .. } => failure.with_hint(BEHIND),
        OpenError::HalfImported { .. } => failure.with_hint(HALF),
        OpenError::Damaged { .. } => failure.with_hint(DAMAGED),
        OpenError::Foreign { .. } => {
            failure.with_hint("nothing has changed; --database sqlite:PATH names another file")
        }
        _ => failure,
    }
}

pub(super) const ENCODING_FIX: &str = "make another one: `createdb -T template0 -E UTF8 NAME`";

fn unreached(error: &outlast_store_postgres::OpenError) -> Failure {
    use outlast_store_postgres::OpenError;
    let failure = Failure::failed(error.to_string());
    match error {
        OpenError::Address { .. } => Failure::usage(error.to_string()),
        OpenError::Connect { .. } => {
            failure.with_hint("is PostgreSQL running there, and may the user connect?")
        }
        OpenError::Tls { .. } => failure.with_hint(
            "sslrootcert names the file with the authority that signed PostgreSQL's certificate; \
             verify-full also wants the host's name in it; sslmode=disable turns TLS off",
        ),
        OpenError::Schema(mismatch) => failure.with_hint(other_build(mismatch)),
        OpenError::Behind { .. } => failure.with_hint(BEHIND),
        OpenError::Encoding { .. } => failure.with_hint(ENCODING_FIX),
        OpenError::ReadOnly { .. } => {
            failure.with_hint("name the primary in --database, or wait until this one is promoted")
        }
        OpenError::HalfImported => failure.with_hint(HALF),
        OpenError::Busy { .. } => failure.with_hint(
            "nothing has changed; see pg_stat_activity and pg_locks for what holds it, and try again",
        ),
        _ => failure,
    }
}

fn other_build(mismatch: &Mismatch) -> &'static str {
    match mismatch {
        Mismatch::Older => "nothing has changed; docs/operate/moving.md shows both steps",
        Mismatch::Newer { .. } => {
            "nothing has changed; run that version or a later one: migrations go forward only"
        }
        _ => "nothing has changed; run the version that created the store, or restore a backup",
    }
}
