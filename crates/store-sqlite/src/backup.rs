//! Copies of an embedded store, and the way back.
//!
//! ```text
//! back up:  store in use ─SQLite's online copy, one moment─▶ TO.partial ─checked, synced─▶ TO
//! restore:  backup ─copy─▶ STORE.restoring: checked, migrated, generation raised, workers given
//!           up ─▶ what was there is put aside ─▶ STORE, with a mark of its own
//! ```
//!
//! A restore that is cut off changes nothing, or leaves a store that is refused until the
//! restore is run again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use outlast_store_rules::cursor::{LANES_A_RESTORE, LANES_A_SECOND};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::connection::{lock, reader};
use crate::error::{OpenError, named};
use crate::guard::{check, latest_time};
use crate::look::{generation, open_to_look};
use crate::mark::{self, beside};
use crate::migrate::{look, migrate};
use crate::sqlite_store::SqliteStore;

/// What SQLite keeps beside a database.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

impl SqliteStore {
    /// Copies the store at `from` as it is at one moment into a new file; a server may be
    /// using it. Returns the size of the copy.
    ///
    /// # Errors
    /// Returns what is wrong with the store or with the place of the copy.
    pub fn back_up(from: &Path, to: &Path) -> Result<u64, OpenError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        File::open(from).map_err(at(from))?;
        if to.exists() {
            return Err(at(to)(io::ErrorKind::AlreadyExists.into()));
        }
        check(from)?;
        refuse_nothing(&reader(from)?, from)?;
        let partial = beside(to, ".partial");
        copy(&reader(from)?, &partial)?;
        let file = File::open(&partial).map_err(at(&partial))?;
        file.sync_all().map_err(at(&partial))?;
        std::fs::rename(&partial, to).map_err(at(to))?;
        sync_folder(to)?;
        Ok(file.metadata().map_err(at(to))?.len())
    }

    /// Takes the store at `path` as it is, whatever it has lost, and raises its generation.
    /// Returns the generation.
    ///
    /// # Errors
    /// Returns that there is no store that could be used.
    pub fn accept(path: &Path) -> Result<u64, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        File::open(path).map_err(io)?;
        let _lock = lock(path)?;
        let mut db = Connection::open(path)?;
        refuse_nothing(&db, path)?;
        refuse_broken(&db, path)?;
        migrate(&mut db).map_err(|error| named(error, path))?;
        let generation = renew(&db, Predecessor::default())?;
        db.close().map_err(|(_, error)| error)?;
        match std::fs::remove_file(mark::path_of(path)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(io(source)),
            _ => Ok(generation),
        }
    }
}

/// A backup on its way into the place of a store, which is locked meanwhile.
#[derive(Debug)]
pub struct Restoring {
    to: PathBuf,
    partial: PathBuf,
    generation: u64,
    _lock: File,
}

impl Restoring {
    /// Copies a backup next to the place where the store is to be, and raises its generation.
    ///
    /// # Errors
    /// Returns what is wrong with the backup, or that a server is using the store.
    pub fn begin(backup: &Path, to: &Path) -> Result<Self, OpenError> {
        File::open(backup).map_err(|source| OpenError::Io { path: backup.to_owned(), source })?;
        let lock = lock(to)?;
        check(backup)?;
        look(backup).map_err(|error| named(error, backup))?;
        let source = open_to_look(backup)?;
        refuse_nothing(&source, backup)?;
        let partial = beside(to, ".restoring");
        copy(&source, &partial)?;
        let mut db = Connection::open(&partial)?;
        migrate(&mut db)?;
        let generation = renew(&db, Predecessor::of(to))?;
        db.close().map_err(|(_, error)| error)?;
        Ok(Self { to: to.to_owned(), partial, generation, _lock: lock })
    }

    /// Returns where the copy is, to do to it what is left to do.
    #[must_use]
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Returns the generation of the restored store.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Puts aside what was in the store's place, and the copy into it. Returns where the old
    /// file is now, if there was one.
    ///
    /// # Errors
    /// Returns what the system says.
    pub fn finish(self) -> Result<Option<PathBuf>, OpenError> {
        let Self { to, partial, generation, _lock } = self;
        let io = |source| OpenError::Io { path: to.clone(), source };
        let aside = put_aside(&to, generation).map_err(io)?;
        File::open(&partial).and_then(|file| file.sync_all()).map_err(io)?;
        std::fs::rename(&partial, &to).map_err(io)?;
        // Last, so that a store which is not in its place yet is missed.
        std::fs::rename(mark::path_of(&partial), mark::path_of(&to)).map_err(io)?;
        sync_folder(&to)?;
        remove(&beside(&partial, ".lock")).map_err(io)?;
        Ok(aside)
    }
}

/// Copies a whole database in one step, so that it is as it was at one moment.
fn copy(from: &Connection, to: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { path: to.to_owned(), source };
    remove(to).map_err(io)?;
    for suffix in SIDE_FILES.into_iter().chain([".mark", ".lock"]) {
        remove(&beside(to, suffix)).map_err(io)?;
    }
    // It holds parameters in plain.
    drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(io)?);
    let mut target = Connection::open(to)?;
    match Backup::new(from, &mut target)?.step(-1)? {
        StepResult::Done => {}
        other => {
            let what = format!("it could not be copied: {other:?}");
            return Err(OpenError::Damaged { path: to.to_owned(), what });
        }
    }
    refuse_broken(&target, to)?;
    target.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn refuse_nothing(db: &Connection, path: &Path) -> Result<(), OpenError> {
    match latest_time(db, path).map_err(|error| named(error, path))? {
        Some(_) => Ok(()),
        None => {
            let what = "there is nothing in it".to_owned();
            Err(OpenError::Damaged { path: path.to_owned(), what })
        }
    }
}

fn refuse_broken(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let found: String = db.query_row("pragma integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    Err(OpenError::Damaged { path: path.to_owned(), what: found })
}

/// How far a store has come that another takes the place of.
#[derive(Clone, Copy, Debug, Default)]
struct Predecessor {
    generation: u64,
    lane: i64,
}

impl Predecessor {
    /// Of the store at `path`: nothing if it is gone or damaged.
    fn of(path: &Path) -> Self {
        let read = || -> Result<Self, rusqlite::Error> {
            let db = open_to_look(path)?;
            let select = "select coalesce(max(latest), 0) from event_lane";
            let lane = db.query_row(select, [], |row| row.get(0))?;
            Ok(Self { generation: generation(&db)?, lane })
        };
        read().unwrap_or_default()
    }
}

/// Makes a restored store tell itself apart from the one that was lost, and from one that was made
/// of the same backup before: by its generation, which it returns, and by lanes of the event log
/// that no reader has seen.
fn renew(db: &Connection, replaced: Predecessor) -> Result<u64, rusqlite::Error> {
    db.execute(
        "insert into event_lane (id, latest) values (1, max(?1 + ?2, cast(unixepoch('subsec') * ?3 as integer)))
         on conflict (id) do update set latest =
             max(latest + ?1, ?1 + ?2, cast(unixepoch('subsec') * ?3 as integer))",
        [LANES_A_RESTORE, replaced.lane, LANES_A_SECOND],
    )?;
    db.query_row(
        "insert into meta (key, value) values ('generation', cast(max(2, ?1, cast(unixepoch('subsec') * 1000000 as integer)) as text))
         on conflict (key) do update set
             value = cast(max(cast(value as integer) + 1, ?1,
                 cast(unixepoch('subsec') * 1000000 as integer)) as text)
         returning cast(value as integer)",
        [replaced.generation + 1],
        |row| row.get(0),
    )
}

/// Renames the store in this place and its log, to a name that is free.
fn put_aside(path: &Path, generation: u64) -> io::Result<Option<PathBuf>> {
    let log = beside(path, "-wal");
    let holds = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let (has_file, has_log) = (holds(path), holds(&log));
    if !has_file && !has_log {
        remove(path)?;
    }
    for suffix in ["-shm", "-journal"] {
        remove(&beside(path, suffix))?;
    }
    let mut aside = beside(path, &format!(".before-{generation}"));
    let mut n = 1;
    while aside.exists() || beside(&aside, "-wal").exists() {
        n += 1;
        aside = beside(path, &format!(".before-{generation}-{n}"));
    }
    if has_log {
        std::fs::rename(&log, beside(&aside, "-wal"))?;
    } else {
        remove(&log)?;
    }
    if has_file {
        std::fs::rename(path, &aside)?;
    }
    Ok((has_file || has_log).then_some(aside))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_folder(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| OpenError::Io { path: folder.to_owned(), source })
}
