//! Rows that SQLite commits with the durability that the store asks for.
//!
//! A table of two columns stands in for the schema, so nothing that the store does on top of
//! SQLite is in the figure.

use std::path::Path;
use std::time::Duration;

use outlast_cli_core::clock;
use outlast_cli_core::exit::Failure;
use rusqlite::Connection;

use crate::figures::rate;

/// As long as a small job's row.
const BODY: [u8; 120] = [b'x'; 120];

/// Commits to a new database at `path` for `length`; returns rows per second.
pub(super) fn rows(path: &Path, rows_a_commit: usize, length: Duration) -> Result<f64, Failure> {
    let (begun, mut asked) = (clock::moment(), 0_usize);
    let go_on = || {
        asked += 1;
        // However short the time is, one commit is measured.
        asked == 1 || clock::moment().since(begun) < length
    };
    let count = commit_rows(path, rows_a_commit, go_on)
        .map_err(|error| Failure::failed(format!("cannot measure SQLite: {error}")))?;
    Ok(rate(count, clock::moment().since(begun)))
}

/// Commits `rows_a_commit` rows per transaction, one transaction after the other, while `go_on`
/// returns true. Returns how many rows were committed.
fn commit_rows(
    path: &Path,
    rows_a_commit: usize,
    mut go_on: impl FnMut() -> bool,
) -> rusqlite::Result<usize> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch("create table baseline (seq integer primary key, body blob)")?;
    let mut committed = 0;
    while go_on() {
        let transaction = connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("insert into baseline (body) values (?1)")?;
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
    fn rows_said_to_be_committed_are_in_a_durable_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.db");
        let mut commits = 3;
        let go_on = || {
            commits -= 1;
            commits >= 0
        };
        assert_eq!(super::commit_rows(&path, 7, go_on).unwrap(), 21);
        let connection = Connection::open(&path).unwrap();
        let rows: usize =
            connection.query_row("select count(*) from baseline", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 21);
        let journal: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(journal, "wal");
    }
}
