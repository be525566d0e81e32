//! What is whole is opened, however it was left; what has lost something is refused.

use std::path::{Path, PathBuf};

use outlast_core::id::JobId;
use outlast_store::Store as _;
use outlast_store::event::EventQuery;
use outlast_store_sqlite::{APPLICATION_ID, OpenError, Options, Restoring, SqliteStore, diagnose};
use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

use crate::hand::{batch, enqueue};

/// The files of a store whose server was killed: taken while it was open, log and mark too.
struct Killed {
    folder: TempDir,
}

impl Killed {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        write(&path, 1).await.close().await.unwrap();
        let store = write(&path, 2).await;
        let killed = Self { folder: tempfile::tempdir().unwrap() };
        for suffix in ["", "-wal", ".mark"] {
            let name = format!("outlast.db{suffix}");
            std::fs::copy(folder.path().join(&name), killed.folder.path().join(&name)).unwrap();
        }
        store.close().await.unwrap();
        killed
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("outlast.db{suffix}"))
    }

    #[track_caller]
    fn is_refused(&self, why: &str) {
        for error in [
            SqliteStore::open(&self.file(""), &Options::default()).map(drop).unwrap_err(),
            diagnose(&self.file("")).map(drop).unwrap_err(),
            SqliteStore::back_up(&self.file(""), &self.file(".copy")).map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(why), "`{error}` should contain `{why}`");
        }
    }

    async fn is_whole(&self) {
        is_whole(&self.file("")).await;
    }
}

async fn write(path: &Path, n: u64) -> SqliteStore {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    let jobs = (0..20).map(|i| enqueue(job(n, i))).collect();
    store.apply(batch(n, jobs).into()).await.unwrap();
    store
}

fn job(n: u64, i: u32) -> JobId {
    JobId(Uuid::from_u128((u128::from(n) << 80) | 0x7000_8000_0000_0000_0000 | u128::from(i)))
}

async fn is_whole(path: &Path) {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    for n in 1..=2 {
        assert!(store.job(job(n, 19)).await.unwrap().is_some(), "batch {n}");
    }
    store.close().await.unwrap();
    let found = diagnose(path).unwrap().unwrap();
    assert_eq!((found.faults, found.broken), (Some(Vec::new()), Some(Vec::new())));
}

#[tokio::test]
async fn a_store_that_lost_something_is_refused_by_what_is_missing() {
    let killed = Killed::new().await;
    std::fs::write(killed.file(""), b"").unwrap();
    killed.is_refused("it is empty, but a store was there");
    std::fs::remove_file(killed.file(".mark")).unwrap();
    killed.is_refused("it is empty, but its write-ahead log is there");

    let killed = Killed::new().await;
    std::fs::remove_file(killed.file("-wal")).unwrap();
    killed.is_refused("its write-ahead log is gone");

    let killed = Killed::new().await;
    let length = std::fs::metadata(killed.file("-wal")).unwrap().len();
    std::fs::write(killed.file("-wal"), vec![0; usize::try_from(length).unwrap()]).unwrap();
    killed.is_refused("the head of its write-ahead log cannot be read");

    let killed = Killed::new().await;
    let mut log = std::fs::read(killed.file("-wal")).unwrap();
    log[20] ^= 1;
    std::fs::write(killed.file("-wal"), &log).unwrap();
    killed.is_refused("the head of its write-ahead log cannot be read");
    log[20] ^= 1;
    std::fs::write(killed.file("-wal"), &log[..log.len() / 3]).unwrap();
    killed.is_refused("its write-ahead log was cut");

    let killed = Killed::new().await;
    let file = std::fs::read(killed.file("")).unwrap();
    std::fs::write(killed.file(""), &file[..file.len() / 2]).unwrap();
    let error = SqliteStore::open(&killed.file(""), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("was cut"), "{error}");
}

#[tokio::test]
async fn a_store_that_is_whole_is_opened_however_it_was_left() {
    // A kill.
    Killed::new().await.is_whole().await;

    // A power cut took what the mark said last, or all of it, or left a torn line.
    let killed = Killed::new().await;
    std::fs::write(killed.file(".mark"), "outlast mark 1 time=00000").unwrap();
    killed.is_whole().await;
    std::fs::remove_file(killed.file(".mark")).unwrap();
    killed.is_whole().await;

    // Another program looked at what the kill left, which moves the log into the file.
    let killed = Killed::new().await;
    let other = Connection::open(killed.file("")).unwrap();
    other.execute_batch("pragma journal_mode = delete; vacuum").unwrap();
    drop(other);
    assert!(!killed.file("-wal").exists());
    killed.is_whole().await;

    // SQLite's own copy, and ours, at another place and in the old one.
    let killed = Killed::new().await;
    let (theirs, ours) = (killed.file(".theirs"), killed.file(".ours"));
    let source = Connection::open(killed.file("")).unwrap();
    source.backup("main", &theirs, None::<fn(rusqlite::backup::Progress)>).unwrap();
    SqliteStore::back_up(&killed.file(""), &ours).unwrap();
    is_whole(&theirs).await;
    is_whole(&ours).await;
}

#[tokio::test]
async fn a_store_of_an_older_version_is_taken_over_and_marked() {
    let killed = Killed::new().await;
    std::fs::remove_file(killed.file(".mark")).unwrap();
    let db = Connection::open(killed.file("")).unwrap();
    db.pragma_update(None, "application_id", 0).unwrap();
    drop(db);
    killed.is_whole().await;
    let db = Connection::open(killed.file("")).unwrap();
    let id: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
    assert_eq!(id, APPLICATION_ID);
    drop(db);
    assert!(killed.file(".mark").exists());
}

#[tokio::test]
async fn the_database_of_another_program_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("places.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("create table moz_places (id integer primary key)").unwrap();
    for (id, words) in [(0, "no application id"), (7, "application id 7")] {
        db.pragma_update(None, "application_id", id).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let error = SqliteStore::open(&path, &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(words) && said.contains("moz_places"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

/// A reader who had followed the store that was lost once saw nothing of the restored one, until
/// that had been opened as often.
#[tokio::test]
async fn what_is_written_after_a_restore_comes_after_all_that_was_read_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("outlast.db"), folder.path().join("backup.db"));
    write(&path, 1).await.close().await.unwrap();
    SqliteStore::back_up(&path, &backup).unwrap();
    for n in 2..5 {
        write(&path, n).await.close().await.unwrap();
    }
    let lost = SqliteStore::open(&path, &Options::default()).unwrap();
    let cursor = lost.events_end().await.unwrap();
    lost.close().await.unwrap();
    let restoring = Restoring::begin(&backup, &path).unwrap();
    let copy = SqliteStore::open(restoring.partial(), &Options::default()).unwrap();
    copy.close().await.unwrap();
    restoring.finish().unwrap();
    let restored = write(&path, 6).await;
    let read = async |after: Option<String>| {
        let names = vec!["job.enqueued".to_owned()];
        let query = EventQuery { after, names, ..EventQuery::all(100) };
        restored.events(query).await.unwrap().events.len()
    };
    assert_eq!((read(Some(cursor)).await, read(None).await), (20, 40));
}

/// Workers and readers of the store that was restored first were taken for those of the second.
#[tokio::test]
async fn restores_of_the_same_backup_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (path, backup) = (folder.path().join("outlast.db"), folder.path().join("backup.db"));
    write(&path, 1).await.close().await.unwrap();
    SqliteStore::back_up(&path, &backup).unwrap();
    let mut generations = Vec::new();
    let mut cursor = None;
    for n in 2..4 {
        let restoring = Restoring::begin(&backup, &path).unwrap();
        generations.push(restoring.generation());
        let copy = SqliteStore::open(restoring.partial(), &Options::default()).unwrap();
        copy.close().await.unwrap();
        restoring.finish().unwrap();
        let restored = write(&path, n).await;
        if let Some(after) = cursor.take() {
            let names = vec!["job.enqueued".to_owned()];
            let after = Some(after);
            let query = EventQuery { after, names, ..EventQuery::all(100) };
            assert_eq!(restored.events(query).await.unwrap().events.len(), 20);
        }
        cursor = Some(restored.events_end().await.unwrap());
        restored.close().await.unwrap();
    }
    assert!(generations[0] < generations[1], "{generations:?}");
}

/// As after two restores of one backup by other tools, within one second.
#[tokio::test]
async fn copies_that_are_accepted_have_generations_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.db"), folder.path().join("other.db"));
    write(&one, 1).await.close().await.unwrap();
    SqliteStore::back_up(&one, &other).unwrap();
    let generations = [&one, &other].map(|path| SqliteStore::accept(path).unwrap());
    assert!(generations[0] < generations[1], "{generations:?}");
}
