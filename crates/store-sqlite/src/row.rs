//! Columns to and from the store's types.

use std::num::NonZeroU32;

use outlast_core::budget::Spent;
use outlast_core::evidence::EvidenceCode;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::limit::GateId;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::order::{GivenOrder, WorkerOrder};
use outlast_store::StoreError;
use outlast_store_rules::codec;
pub(crate) use outlast_store_rules::codec::number::{
    int, liveness_number, origin_number, origin_of, phase_number, scheduled_timeout, span,
    standing, strand_ms, stream_number, stream_of,
};
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

pub(crate) fn uuid(row: &Row<'_>, at: usize) -> rusqlite::Result<Uuid> {
    let bytes: [u8; 16] = row.get(at)?;
    Ok(Uuid::from_bytes(bytes))
}

pub(crate) fn uuid_opt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Uuid>> {
    let bytes: Option<[u8; 16]> = row.get(at)?;
    Ok(bytes.map(Uuid::from_bytes))
}

pub(crate) fn worker_opt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<WorkerId>> {
    let bytes: Option<[u8; 16]> = row.get(at)?;
    Ok(bytes.map(|bytes| WorkerId(Uuid::from_bytes(bytes))))
}

pub(crate) fn worker_text_opt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<WorkerId>> {
    parsed_opt(row, at, |text| Uuid::parse_str(text).ok().map(WorkerId))
}

/// Reads an order to one worker, and when it was given.
pub(crate) fn given_order(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<GivenOrder>> {
    let Some(order) = parsed_opt(row, at, WorkerOrder::parse)? else { return Ok(None) };
    Ok(Some(GivenOrder { order, at: time(row, at + 1)? }))
}

pub(crate) fn evidence_code(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<EvidenceCode>> {
    parsed_opt(row, at, EvidenceCode::parse)
}

/// Returns the gates of an attempt as they are stored; `None` without any.
pub(crate) fn gates_text(gates: &[GateId]) -> Option<String> {
    codec::gates_text(gates).map(|numbers| format!("[{numbers}]"))
}

pub(crate) fn gates_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Vec<GateId>> {
    let text: Option<String> = row.get(at)?;
    let Some(text) = text else { return Ok(Vec::new()) };
    let numbers = text.trim_matches(['[', ']']).split(',');
    let gates: Option<Vec<GateId>> =
        numbers.map(|number| number.parse().ok().map(GateId)).collect();
    let wrong =
        || rusqlite::Error::InvalidColumnType(at, text.clone(), rusqlite::types::Type::Text);
    gates.ok_or_else(wrong)
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
