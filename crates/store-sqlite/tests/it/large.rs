//! Reads of a large store take no more steps than those of a small one. Steps of SQLite's
//! machine are counted, so the speed of this machine says nothing.

use outlast_store_sqlite::{Options, SqliteStore};
use outlast_store_testkit::conformance::large::{reads, sized};
use rusqlite::Connection;

/// A walk through all jobs takes three million; through as many blocks as a page may, half of it.
const STEPS_MAX: u64 = 1_600_000;

#[tokio::test]
async fn no_read_scans_a_store_of_200_000_ended_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    SqliteStore::migrate(&path).unwrap();
    let db = Connection::open(&path).unwrap();
    let fill = sized(include_str!("../large.sql"), 200_000, 40_000, 1_000, 1_800_000_000_000);
    db.execute_batch(&format!("pragma synchronous = off; begin; {fill} commit")).unwrap();
    drop(db);
    let store = SqliteStore::open(&path, &Options { unsafe_no_fsync: true, clock: None }).unwrap();
    let mut slow = Vec::new();
    for read in reads() {
        let before = store.read_steps();
        let answer = read.run(&store).await.unwrap();
        let steps = store.read_steps() - before;
        println!("{}: {answer}, {steps} steps", read.name());
        if steps > STEPS_MAX {
            slow.push(format!("{}: {answer}, {steps} steps", read.name()));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
