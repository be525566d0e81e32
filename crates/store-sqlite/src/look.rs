//! Looking into a store without changing it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

/// A write-ahead log holds what the file does not say yet. Without one no process has the store
/// open, and a look would leave files of SQLite's behind; `immutable` makes none.
pub(crate) fn open_to_look(path: &Path) -> Result<Connection, rusqlite::Error> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = std::fs::metadata(PathBuf::from(log)).is_ok_and(|found| found.len() > 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if has_log {
        return Connection::open_with_flags(path, flags);
    }
    let place = escaped(&path.display().to_string());
    let address = format!("file:{place}?immutable=1");
    Connection::open_with_flags(address, flags | OpenFlags::SQLITE_OPEN_URI)
}

/// Returns a path as an address has it.
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

/// Returns which restore the store is of: higher than that of any store before it. 1 if it was
/// never restored.
pub(crate) fn generation(db: &Connection) -> Result<u64, rusqlite::Error> {
    let select = "select coalesce(max(cast(value as integer)), 1) from meta
                  where key = 'generation'";
    db.query_row(select, [], |row| row.get(0))
}
