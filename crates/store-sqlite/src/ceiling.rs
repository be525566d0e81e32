//! What SQLite itself manages with the durability that the store asks for: the ceiling that
//! the store's own figures are held against.
//!
//! A table of two columns stands in for the schema, so nothing that this crate does on top of
//! SQLite is in the figure.

use std::path::Path;

use rusqlite::Connection;

use crate::connection::OpenError;

/// As long as a small job's row.
const BODY: [u8; 120] = [b'x'; 120];

/// Commits rows to a new database at `path`, `rows_a_commit` a transaction, one after the
/// other while `go_on` says so, and returns how many rows were committed.
///
/// # Errors
/// When the file cannot be made, or not made durable.
pub fn commit_rows(
    path: &Path,
    rows_a_commit: usize,
    mut go_on: impl FnMut() -> bool,
) -> Result<usize, OpenError> {
    let mut connection = Connection::open(path)?;
    let journal: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "full")?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if journal != "wal" || synchronous != 2 {
        return Err(OpenError::NotDurable { journal, synchronous });
    }
    connection.execute_batch("create table ceiling (seq integer primary key, body blob)")?;
    let mut committed = 0;
    while go_on() {
        let transaction = connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("insert into ceiling (body) values (?1)")?;
            for _ in 0..rows_a_commit {
                insert.execute([BODY])?;
            }
        }
        transaction.commit()?;
        committed += rows_a_commit;
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    #[test]
    fn rows_said_to_be_committed_are_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ceiling.db");
        let mut commits = 3;
        let go_on = || {
            commits -= 1;
            commits >= 0
        };
        assert_eq!(super::commit_rows(&path, 7, go_on).unwrap(), 21);
        let rows: usize = Connection::open(&path)
            .unwrap()
            .query_row("select count(*) from ceiling", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 21);
    }
}
