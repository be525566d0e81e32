//! Columns to and from the store's types.

use std::num::NonZeroU32;

use outlast_core::budget::{ScheduledTimeout, Spent};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::{Liveness, Phase, Standing};
use outlast_store::StoreError;
use outlast_store::command::Origin;
use rusqlite::{ErrorCode, Row};
use uuid::Uuid;

/// What SQLite says, in the store's terms.
pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::ReadOnly
            | ErrorCode::OperationInterrupted,
        ) => StoreError::Unavailable(error.to_string()),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        _ => StoreError::Rejected(error.to_string()),
    }
}

/// Returns a count as SQLite keeps it.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn span(value: Option<Span>) -> Option<i64> {
    value.map(|span| int(span.0))
}

pub(crate) fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    row.get(at).map(Timestamp)
}

pub(crate) fn time_opt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(Timestamp))
}

pub(crate) fn span_opt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Span>> {
    Ok(row.get::<_, Option<u64>>(at)?.map(Span))
}

pub(crate) fn epoch(row: &Row<'_>, at: usize) -> rusqlite::Result<Epoch> {
    row.get(at).map(Epoch)
}

pub(crate) fn life(row: &Row<'_>, at: usize) -> rusqlite::Result<NonZeroU32> {
    Ok(NonZeroU32::new(row.get(at)?).unwrap_or(NonZeroU32::MIN))
}

/// Reads failures, losses and interruptions, in this order, from column `at` on.
pub(crate) fn spent(row: &Row<'_>, at: usize) -> rusqlite::Result<Spent> {
    Ok(Spent { failures: row.get(at)?, losses: row.get(at + 1)?, interruptions: row.get(at + 2)? })
}

pub(crate) fn job_id(row: &Row<'_>, at: usize) -> rusqlite::Result<JobId> {
    uuid(row, at).map(JobId)
}

fn uuid(row: &Row<'_>, at: usize) -> rusqlite::Result<Uuid> {
    let bytes: [u8; 16] = row.get(at)?;
    Ok(Uuid::from_bytes(bytes))
}

pub(crate) fn worker_opt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<WorkerId>> {
    let bytes: Option<[u8; 16]> = row.get(at)?;
    Ok(bytes.map(|bytes| WorkerId(Uuid::from_bytes(bytes))))
}

pub(crate) fn state(row: &Row<'_>, at: usize) -> rusqlite::Result<State> {
    parsed(row, at, State::parse)
}

/// Reads a word; one that is not known is damage.
pub(crate) fn parsed<T>(
    row: &Row<'_>,
    at: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let word = row.get_ref(at)?.as_str()?;
    parse(word).ok_or_else(|| {
        rusqlite::Error::InvalidColumnType(at, word.to_owned(), rusqlite::types::Type::Text)
    })
}

pub(crate) fn parsed_opt<T>(
    row: &Row<'_>,
    at: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    if row.get_ref(at)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    parsed(row, at, parse).map(Some)
}

pub(crate) const fn origin_number(origin: Origin) -> i64 {
    match origin {
        Origin::Ojs => 0,
        Origin::Execution => 1,
    }
}

pub(crate) const fn origin_of(number: i64) -> Origin {
    if number == 0 { Origin::Ojs } else { Origin::Execution }
}

pub(crate) fn strand_ms(timeout: ScheduledTimeout) -> Option<i64> {
    match timeout {
        ScheduledTimeout::Never => None,
        ScheduledTimeout::After(span) => Some(int(span.0)),
    }
}

pub(crate) fn scheduled_timeout(ms: Option<u64>) -> ScheduledTimeout {
    ms.map_or(ScheduledTimeout::Never, |ms| ScheduledTimeout::After(Span(ms)))
}

pub(crate) const fn phase_number(phase: Phase) -> i64 {
    match phase {
        Phase::Running => 0,
        Phase::Quiet => 1,
        Phase::Draining => 2,
    }
}

pub(crate) const fn liveness_number(liveness: Liveness) -> i64 {
    match liveness {
        Liveness::Live => 0,
        Liveness::Suspect => 1,
        Liveness::Lapsed => 2,
        Liveness::Gone => 3,
    }
}

pub(crate) const fn standing(phase: i64, liveness: i64) -> Standing {
    let phase = match phase {
        0 => Phase::Running,
        1 => Phase::Quiet,
        _ => Phase::Draining,
    };
    let liveness = match liveness {
        0 => Liveness::Live,
        1 => Liveness::Suspect,
        2 => Liveness::Lapsed,
        _ => Liveness::Gone,
    };
    Standing { phase, liveness }
}
