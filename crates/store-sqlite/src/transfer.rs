//! Moving an embedded store: reading it as it is at one moment, and filling an empty one.
//!
//! Reading takes no lock that a running server would feel, but holds back its write-ahead
//! log until it ends. Filling takes the store for this process alone, as a server does.
//!
//! Calls block: they are for a command that has nothing else to do.

mod sql;

use std::path::Path;

use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store_rules::transfer::row::Row;
use outlast_store_rules::transfer::{PageQuery, Part, Progress, Source, SourceFacts, Target};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::clock::persisted_time;
use crate::connection::{Options, Owned, half_imported, own, reader};
use crate::error::{OpenError, named};
use crate::migrate::{SCHEMA_VERSION, schema_status_of};
use crate::row::failed;

/// A store as it was when it was opened for this.
#[derive(Debug)]
pub struct SqliteSource {
    db: Connection,
    time: Timestamp,
}

impl SqliteSource {
    /// Opens the store at `path` for reading; a server may be using it.
    ///
    /// # Errors
    /// Returns what is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if let Err(source) = std::fs::File::open(path) {
            return Err(OpenError::Io { path: path.to_owned(), source });
        }
        let db = reader(path)?;
        // The view begins with the first read.
        db.execute_batch("begin")?;
        let standing = schema_status_of(&db).map_err(|error| named(error, path))?;
        if !standing.pending.is_empty() {
            let pending = standing.pending;
            return Err(OpenError::Behind { path: path.to_owned(), pending });
        }
        if half_imported(&db)? {
            return Err(OpenError::HalfImported { path: path.to_owned() });
        }
        let time = persisted_time(&db)?;
        Ok(Self { db, time })
    }
}

impl Source for SqliteSource {
    fn facts(&self) -> SourceFacts {
        SourceFacts { kind: "sqlite", schema: SCHEMA_VERSION, time: self.time }
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        sql::page(&self.db, query)
    }
}

/// A store that is being filled.
#[derive(Debug)]
pub struct SqliteTarget {
    owned: Owned,
}

impl SqliteTarget {
    /// Opens the store at `path`, making it if there is none, and takes it for this process
    /// alone.
    ///
    /// # Errors
    /// Returns what is wrong with the file, or that a server is using it.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        Ok(Self { owned: own(path, options)? })
    }

    /// Gives the store up.
    ///
    /// # Errors
    /// Returns what SQLite says; what was written stands.
    pub fn close(self) -> Result<(), StoreError> {
        let Owned { writer, lock, .. } = self.owned;
        writer.close().map_err(|(_, error)| failed(error))?;
        flock(&lock, FlockOperation::Unlock)
            .map_err(|errno| StoreError::Unavailable(errno.to_string()))
    }

    fn db(&self) -> &Connection {
        &self.owned.writer
    }
}

impl Source for SqliteTarget {
    fn facts(&self) -> SourceFacts {
        let time = persisted_time(self.db()).unwrap_or_default();
        SourceFacts { kind: "sqlite", schema: SCHEMA_VERSION, time }
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        sql::page(self.db(), query)
    }
}

impl Target for SqliteTarget {
    async fn progress(&mut self) -> Result<Option<Progress>, StoreError> {
        progress(self.db())
    }

    async fn write(&mut self, part: Part<'_>) -> Result<(), StoreError> {
        let writer = &mut self.owned.writer;
        let step =
            writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        sql::insert(&step, part.section, &part.rows)?;
        keep(&step, part.progress)?;
        step.commit().map_err(failed)
    }

    async fn complete(&mut self, time: Timestamp) -> Result<(), StoreError> {
        // Counts are not moved: they follow from the rows.
        let counted = "delete from tally; insert into tally select * from tally_counted;
             delete from queue_tally; insert into queue_tally select * from queue_tally_counted;
             delete from ready_second; insert into ready_second select * from ready_second_counted;
             delete from class_block;
             insert into class_block select distinct class, seq >> 10 from job_row";
        self.db().execute_batch(counted).map_err(failed)?;
        let latest = persisted_time(self.db()).map_err(failed)?.max(time);
        let kept = self.db().execute(
            "insert into meta (key, value) values ('time', ?1)
             on conflict (key) do update set value = ?1",
            [latest.0.to_string()],
        );
        kept.map(|_| ()).map_err(failed)
    }

    async fn keep(&mut self, at: &Progress) -> Result<(), StoreError> {
        keep(self.db(), at)
    }
}

fn progress(db: &Connection) -> Result<Option<Progress>, StoreError> {
    let row = db.query_row(
        "select export, section, stored, done from transfer order by done, export desc limit 1",
        [],
        |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    );
    let Some((export, section, stored, done)) = row.optional().map_err(failed)? else {
        return Ok(None);
    };
    let export = Uuid::parse_str(&export)
        .map_err(|error| StoreError::Corrupt(format!("export `{export}`: {error}")))?;
    Ok(Some(Progress { export, section, stored, done }))
}

fn keep(db: &Connection, at: &Progress) -> Result<(), StoreError> {
    let kept = db.execute(
        "insert into transfer (export, section, stored, done) values (?1, ?2, ?3, ?4)
         on conflict (export) do update set section = ?2, stored = ?3, done = ?4",
        (at.export.to_string(), &at.section, at.stored, at.done),
    );
    kept.map(|_| ()).map_err(failed)
}
