//! The schema is what the snapshot says: a change of it is seen in review.

use std::path::Path;

use outlast_store_rules::migration::Mismatch;
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

#[test]
fn migrating_twice_changes_nothing() {
    let mut db = Connection::open_in_memory().unwrap();
    let ran = outlast_store_sqlite::migrate(&mut db).unwrap();
    assert_eq!(ran.len(), outlast_store_sqlite::SCHEMA_VERSION);
    assert!(outlast_store_sqlite::migrate(&mut db).unwrap().is_empty());
}

fn pending(path: &Path) -> usize {
    SqliteStore::schema_status(path).unwrap().pending.len()
}

fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn looking_at_a_store_changes_nothing_whether_it_is_absent_closed_or_open() {
    let folder = tempfile::tempdir().unwrap();
    // What an address would take for more than a name.
    let path = folder.path().join("out?last%20#.db");
    assert_eq!(pending(&path), outlast_store_sqlite::SCHEMA_VERSION);
    assert!(files(folder.path()).is_empty());
    assert!(!SqliteStore::migrate(&path).unwrap().is_empty());
    let before = (std::fs::read(&path).unwrap(), files(folder.path()));
    assert_eq!(pending(&path), 0);
    assert_eq!((std::fs::read(&path).unwrap(), files(folder.path())), before);
    // What is applied may still be in the log alone.
    let open = SqliteStore::open(&path, &Options::default()).unwrap();
    assert_eq!(pending(&path), 0);
    drop(open);
    assert_eq!(pending(&path), 0);
}

#[test]
fn store_of_an_older_build_is_refused_with_the_way_out_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    assert!(!SqliteStore::migrate(&path).unwrap().is_empty());
    for older in [
        "update meta set value = 'another' where key = 'migration 1'; pragma user_version = 13",
        "delete from meta where key like 'migration %'; pragma user_version = 4",
    ] {
        let db = Connection::open(&path).unwrap();
        db.execute_batch(older).unwrap();
        drop(db);
        let opened = SqliteStore::open(&path, &Options::default()).map(|_| ());
        for refused in [SqliteStore::schema_status(&path).map(|_| ()), opened] {
            let error = refused.unwrap_err();
            let words = error.to_string();
            assert!(matches!(error, OpenError::Schema(Mismatch::Older)), "{words}");
            assert!(
                words.contains("outlast export") && words.contains("outlast import"),
                "{words}"
            );
        }
    }
}

/// A store that this build made when its schema was first written must open forever.
#[test]
fn store_of_the_first_schema_opens_and_its_jobs_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(include_str!("../fixtures/first.sql")).unwrap();
    drop(db);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&path, &Options::default()).unwrap();
        outlast_store_testkit::conformance::fixture::check(&store).await;
    });
}
