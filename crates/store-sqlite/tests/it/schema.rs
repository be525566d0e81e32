//! The schema is what the snapshot says: a change of it is seen in review.

use std::path::Path;

use outlast_store::migration::Mismatch;
use outlast_store_sqlite::{OpenError, Options, SqliteStore};
use rusqlite::Connection;

fn schema(db: &Connection) -> String {
    let mut select = db
        .prepare("select sql from sqlite_schema where sql is not null order by type, name")
        .unwrap();
    let rows = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|sql| format!("{};\n\n", sql.unwrap())).collect()
}

#[test]
fn migrations_from_empty_make_the_schema_of_the_snapshot() {
    let mut db = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut db).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    let snapshot = std::fs::read_to_string(path).unwrap_or_default();
    let found = schema(&db);
    if found != snapshot {
        let fresh = std::env::temp_dir().join("outlast-schema.sql");
        std::fs::write(&fresh, found).unwrap();
        panic!("schema.sql is out of date: review and copy {}", fresh.display());
    }
}

/// A store of the first version has data in it; what comes later must not need it empty.
#[test]
fn migrations_from_the_first_version_make_the_same_schema() {
    let mut old = Connection::open_in_memory().unwrap();
    old.execute_batch(include_str!("../../migrations/0001_first.sql")).unwrap();
    old.execute_batch("insert into queue (name, paused) values ('q', 1)").unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let ran = outlast_store_sqlite::migrate(&mut old).unwrap();
    assert_eq!(ran.len(), outlast_store_sqlite::SCHEMA_VERSION - 1);
    let mut new = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut new).unwrap();
    assert_eq!(schema(&old), schema(&new));
    let queues: u32 = old.query_row("select count(*) from queue", [], |row| row.get(0)).unwrap();
    assert_eq!(queues, 1);
}

#[test]
fn migrating_twice_changes_nothing() {
    let mut db = Connection::open_in_memory().unwrap();
    let ran = outlast_store_sqlite::migrate(&mut db).unwrap();
    assert_eq!(ran.len(), outlast_store_sqlite::SCHEMA_VERSION);
    assert!(outlast_store_sqlite::migrate(&mut db).unwrap().is_empty());
}

fn pending(path: &Path) -> usize {
    SqliteStore::standing(path).unwrap().pending.len()
}

fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn looking_at_a_store_changes_nothing_whether_it_is_absent_old_or_open() {
    let folder = tempfile::tempdir().unwrap();
    // What an address would take for more than a name.
    let path = folder.path().join("out?last%20#.db");
    assert_eq!(pending(&path), outlast_store_sqlite::SCHEMA_VERSION);
    assert!(files(folder.path()).is_empty());
    let old = Connection::open(&path).unwrap();
    old.execute_batch(include_str!("../../migrations/0001_first.sql")).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    drop(old);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(pending(&path), outlast_store_sqlite::SCHEMA_VERSION - 1);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(files(folder.path()), ["out?last%20#.db"]);
    // What is applied may still be in the log alone.
    let open = SqliteStore::open(&path, &Options::default()).unwrap();
    assert_eq!(pending(&path), 0);
    drop(open);
    assert_eq!(pending(&path), 0);
}

#[test]
fn store_that_another_build_migrated_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    assert!(!SqliteStore::migrate(&path).unwrap().is_empty());
    let db = Connection::open(&path).unwrap();
    let change = "update meta set value = 'another' where key = 'migration 2'";
    assert_eq!(db.execute(change, []).unwrap(), 1);
    drop(db);
    let opened = SqliteStore::open(&path, &Options::default()).map(|_| ());
    for refused in [SqliteStore::standing(&path).map(|_| ()), opened] {
        let error = refused.unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, OpenError::Schema(Mismatch::Different { .. })), "{words}");
        assert!(words.contains("0002_idempotency"), "{words}");
    }
}
