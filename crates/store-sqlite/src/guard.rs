//! Checks a file before SQLite opens it for writing: that it is an Outlast store, and that it
//! still has all of its data. SQLite itself would take a database that was truncated, or whose
//! write-ahead log is gone, for an older one, and continue.
//!
//! Nothing is changed here, so that a repair finds everything as it was.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use outlast_core::time::Timestamp;
use rusqlite::Connection;

use crate::clock::persisted_time;
use crate::error::{OpenError, named};
use crate::look::open_to_look;
use crate::mark::{self, Said};

/// What the file says it belongs to: `OUTL`.
pub const APPLICATION_ID: i32 = 0x4f55_544c;
/// Tables that every version of the store has; versions before the application id are known
/// by them.
const OURS: [&str; 3] = ["meta", "job_row", "event_batch"];
/// How many names of another application's tables are shown.
const NAMES_SHOWN: u32 = 5;
/// The head of a write-ahead log, and how it begins.
const LOG_HEAD: usize = 32;
const LOG_MAGIC: u32 = 0x377f_0682;
/// How much of a database's head is looked at, and how it begins.
const HEAD: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// What was found at a place that is fit to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What the mark says from now on.
    pub(crate) said: Said,
    /// Whether the file is shorter than it says: the log may hold the rest, or not.
    pub(crate) short: bool,
}

/// The write-ahead log beside a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// There is none, or nothing in it.
    Missing,
    /// Its head cannot be read, so SQLite passes over all of it.
    Broken,
    /// SQLite reads it.
    Readable,
}

/// Looks at the store at `path`.
///
/// # Errors
/// Returns that it belongs to another application, or what it has lost.
pub(crate) fn check(path: &Path) -> Result<Found, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let said = mark::read(path).map_err(io)?;
    let (log, size) = (log(path).map_err(io)?, size(path).map_err(io)?);
    let Some(size) = size.filter(|size| *size > 0) else {
        let gone = if size.is_none() { "it is gone" } else { "it is empty" };
        return match (said, log) {
            (Some(said), _) => Err(damaged(format!(
                "{gone}, but a store was there, with data up to {}",
                shown(said.time)
            ))),
            (None, Log::Missing) => Ok(Found::default()),
            (None, _) => Err(damaged(format!("{gone}, but its write-ahead log is there"))),
        };
    };
    let short = size < stated_size(path).map_err(io)?;
    if short && log != Log::Readable {
        return Err(damaged(format!("the file was cut to {size} bytes")));
    }
    if said.is_some_and(|said| said.log) && log == Log::Broken {
        return Err(damaged(
            "the head of its write-ahead log cannot be read, so what is in it is lost".into(),
        ));
    }
    let db = open_to_look(path)?;
    let latest_time = latest_time(&db, path).map_err(|error| match named(error, path) {
        OpenError::Damaged { .. } if short => damaged(format!(
            "the file was cut to {size} bytes, and its write-ahead log does not hold the rest"
        )),
        other => other,
    })?;
    match (said, latest_time) {
        (Some(said), Some(latest_time)) if latest_time < said.time => {
            let log = match log {
                Log::Missing => "its write-ahead log is gone",
                Log::Broken => "its write-ahead log cannot be read",
                Log::Readable => "its write-ahead log was cut, or the file is an older copy",
            };
            Err(damaged(format!(
                "it holds what was stored up to {}, and there was more up to {}: {log}",
                shown(latest_time),
                shown(said.time)
            )))
        }
        (Some(said), None) => Err(damaged(format!(
            "there is nothing in it, but a store was there, with data up to {}",
            shown(said.time)
        ))),
        (_, latest_time) => {
            let said = Said { time: latest_time.unwrap_or_default(), log: log == Log::Readable };
            Ok(Found { said, short })
        }
    }
}

/// Returns the time of the latest batch, or `None` for a database with nothing in it.
pub(crate) fn latest_time(db: &Connection, path: &Path) -> Result<Option<Timestamp>, OpenError> {
    match refuse_foreign(db, path)? {
        true => Ok(Some(persisted_time(db)?)),
        false => Ok(None),
    }
}

/// Returns whether the database is an Outlast store; an empty one may become one.
pub(crate) fn refuse_foreign(db: &Connection, path: &Path) -> Result<bool, OpenError> {
    let id: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let ours: usize = db.query_row(
        "select count(*) from sqlite_schema where type = 'table' and name in (?1, ?2, ?3)",
        OURS,
        |row| row.get(0),
    )?;
    if ours == OURS.len() && (id == APPLICATION_ID || id == 0) {
        return Ok(true);
    }
    let tables: u32 = db.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 && (id == APPLICATION_ID || id == 0) {
        return Ok(false);
    }
    let names: Option<String> = db.query_row(
        "select group_concat(name, ', ') from
             (select name from sqlite_schema where type = 'table' order by name limit ?1)",
        [NAMES_SHOWN],
        |row| row.get(0),
    )?;
    let id = if id == 0 { "no application id".to_owned() } else { format!("application id {id}") };
    let what = format!("{id}, tables {}", names.as_deref().unwrap_or("none"));
    Err(OpenError::Foreign { path: path.to_owned(), what })
}

/// Formats a time for a message.
fn shown(time: Timestamp) -> String {
    let text = Connection::open_in_memory().and_then(|db| {
        let select = "select strftime('%Y-%m-%dT%H:%M:%fZ', ?1 / 1000.0, 'unixepoch')";
        db.query_row(select, [time.0], |row| row.get(0))
    });
    text.unwrap_or_else(|_| format!("{} ms", time.0))
}

/// Returns the size of a file, if there is one.
fn size(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn head(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(most);
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    match File::open(path) {
        Ok(file) => file.take(most).read_to_end(&mut head).map(|_| head),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(head),
        Err(error) => Err(error),
    }
}

/// Returns how long the file is by its own account, as far as that can be known.
fn stated_size(path: &Path) -> io::Result<u64> {
    let head = head(path, HEAD)?;
    if !head.starts_with(MAGIC) {
        return Ok(0);
    }
    let number = |at: usize| -> u64 {
        let bytes = head.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map_or(0, |bytes| u64::from(u32::from_be_bytes(bytes)))
    };
    let page = head.get(16..18).map_or(0, |bytes| u64::from(bytes[0]) << 8 | u64::from(bytes[1]));
    let page = if page == 1 { 65_536 } else { page };
    // The count of pages is valid if the last writer also wrote it.
    let holds = number(24) == number(92);
    Ok(if holds { page * number(28) } else { 0 })
}

fn log(path: &Path) -> io::Result<Log> {
    let head = head(&mark::beside(path, "-wal"), LOG_HEAD)?;
    Ok(match head.as_slice() {
        [] => Log::Missing,
        head if is_log_head(head) => Log::Readable,
        _ => Log::Broken,
    })
}

/// Whether SQLite takes this for the head of a write-ahead log: its magic number, and the sum
/// over all of it.
fn is_log_head(head: &[u8]) -> bool {
    let words: Vec<[u8; 4]> =
        head.chunks_exact(4).filter_map(|word| <[u8; 4]>::try_from(word).ok()).collect();
    let [magic, .., first, second] = words.as_slice() else { return false };
    let magic = u32::from_be_bytes(*magic);
    if words.len() * 4 != LOG_HEAD || magic & !1 != LOG_MAGIC {
        return false;
    }
    let number = |word: [u8; 4]| {
        if magic & 1 == 1 { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    let (mut one, mut two) = (0_u32, 0_u32);
    for pair in words[..words.len() - 2].chunks_exact(2) {
        one = one.wrapping_add(number(pair[0])).wrapping_add(two);
        two = two.wrapping_add(number(pair[1])).wrapping_add(one);
    }
    (one, two) == (u32::from_be_bytes(*first), u32::from_be_bytes(*second))
}
