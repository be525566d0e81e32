//! Files that cannot be opened say why.

use std::path::Path;

use outlast_store_sqlite::{Options, SqliteStore};

fn check(path: &Path, expected: &str) {
    let error = SqliteStore::open(path, &Options::default()).unwrap_err().to_string();
    assert!(error.contains(expected), "`{error}` should contain `{expected}`");
}

#[test]
fn file_that_is_no_database_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "x".repeat(4096)).unwrap();
    check(&path, "notes.txt is not a SQLite database");
}

#[test]
fn folder_in_place_of_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    check(folder.path(), "cannot open");
}

#[test]
fn store_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let _first = SqliteStore::open(&path, &Options::default()).unwrap();
    check(&path, "in use by another server");
}

/// The writer's thread once kept the lock for a moment after the store was dropped.
#[test]
fn store_that_was_dropped_can_be_opened_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    for _ in 0..200 {
        drop(SqliteStore::open(&path, &Options::default()).unwrap());
    }
}

#[test]
fn store_of_a_newer_outlast_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    drop(SqliteStore::open(&path, &Options::default()).unwrap());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 999).unwrap();
    drop(db);
    check(&path, "made by a newer outlast");
}

/// A mistyped path once made folders, as root even at the root of the file system.
#[test]
fn folder_that_does_not_exist_is_named_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    check(&missing.join("outlast.db"), "missing does not exist");
    assert!(!missing.exists());
}

#[test]
fn files_of_a_store_are_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let _store = SqliteStore::open(&path, &Options::default()).unwrap();
    let mut files: Vec<(String, u32)> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    files.sort();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["outlast.db", "outlast.db-shm", "outlast.db-wal", "outlast.db.lock", "outlast.db.mark"]
    );
    assert!(files.iter().all(|(_, mode)| *mode == 0o600), "{files:?}");
}
