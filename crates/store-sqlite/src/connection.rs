//! Opening: durability, exclusive ownership, and read connections.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_store::Clock;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};

use crate::error::{OpenError, named};
use crate::guard::check;
use crate::mark::Mark;
use crate::migrate::migrate;

/// Prepared statements kept by each connection: more than we have.
const STATEMENTS_MAX: usize = 256;
/// Pages in the write-ahead log before they are moved into the database (4 KiB each).
const CHECKPOINT_PAGES: u32 = 4_000;
/// Page cache of a connection, in KiB, as SQLite wants it: negative.
const WRITER_CACHE_KIB: i32 = -16_384;
const READER_CACHE_KIB: i32 = -2_048;
/// How long a reader waits for a lock that only a schema change takes.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// How to open a store.
#[derive(Debug, Default)]
pub struct Options {
    /// Runs without waiting for the disk: a power cut loses acknowledged jobs. For
    /// experiments only.
    pub unsafe_no_fsync: bool,
    /// A clock to use instead of the real one, for tests.
    pub clock: Option<Arc<dyn Clock>>,
}

/// A database that this process owns.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) writer: Connection,
    pub(crate) path: PathBuf,
    /// Migrations that ran.
    pub(crate) migrated: Vec<&'static str>,
    /// What the store is known to hold.
    pub(crate) mark: Mark,
    /// Released by the kernel when the process ends, however it ends.
    pub(crate) lock: File,
}

/// Opens the database at `path` for writing, brings its schema up to date and takes it for
/// this process alone.
pub(crate) fn own(path: &Path, options: &Options) -> Result<Owned, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
        && !folder.is_dir()
    {
        let what = format!("folder {} does not exist", folder.display());
        return Err(io(io::Error::new(io::ErrorKind::NotFound, what)));
    }
    let lock = lock(path)?;
    let found = check(path)?;
    // SQLite's own message for a file it cannot open does not say why; and it gives its log
    // and index the rights of the file that it finds.
    let mut file = private();
    drop(file.read(true).append(true).open(path).map_err(io)?);
    let mut writer = Connection::open(path)?;
    if found.short {
        refuse_holes(&writer, path).map_err(|error| named(error, path))?;
    }
    let prepared = prepare_writer(&mut writer, options);
    let migrated = prepared.map_err(|error| named(error, path))?;
    // From here on there is a store, and it may be missed.
    let mark = Mark::open(path, found.said, !options.unsafe_no_fsync).map_err(io)?;
    Ok(Owned { writer, path: path.to_owned(), migrated, mark, lock })
}

/// A file that is shorter than it says is whole if its log holds the rest.
fn refuse_holes(writer: &Connection, path: &Path) -> Result<(), OpenError> {
    let found: String = writer.query_row("pragma quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    let what = format!("the file was cut, and its write-ahead log does not hold the rest: {found}");
    Err(OpenError::Damaged { path: path.to_owned(), what })
}

/// Returns which migrations ran.
fn prepare_writer(
    writer: &mut Connection,
    options: &Options,
) -> Result<Vec<&'static str>, OpenError> {
    keep_plans(writer)?;
    writer.busy_timeout(BUSY_WAIT)?;
    // Both pragmas fail silently where they are not supported, so the result is checked.
    let journal: String =
        writer.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    let (synchronous, level) = if options.unsafe_no_fsync { ("off", 0) } else { ("full", 2) };
    writer.pragma_update(None, "synchronous", synchronous)?;
    let found: i64 = writer.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if journal != "wal" || found != level {
        return Err(OpenError::NotDurable { journal, synchronous: found });
    }
    writer.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    writer.pragma_update(None, "cache_size", WRITER_CACHE_KIB)?;
    writer.pragma_update(None, "temp_store", "memory")?;
    migrate(writer)
}

/// Prepares each statement once. Without the planner's promise of stability SQLite prepares
/// a statement that a partial index could serve again whenever a value is bound to it,
/// which was half the cost of a report.
fn keep_plans(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// A file that is made if it is not there, for this user alone: it holds parameters of jobs.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// Takes the store at `path` for this process alone.
pub(crate) fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let file = private()
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|source| OpenError::Io { path: lock_path.clone(), source })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(errno) => Err(OpenError::Io { path: lock_path, source: errno.into() }),
    }
}

/// Opens a connection that only reads.
pub(crate) fn reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    keep_plans(&connection)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "cache_size", READER_CACHE_KIB)?;
    Ok(connection)
}

/// Returns whether an import into the store was begun and not finished.
pub(crate) fn half_imported(connection: &Connection) -> Result<bool, rusqlite::Error> {
    connection
        .query_row("select exists (select 1 from transfer where not done)", [], |row| row.get(0))
}
