//! Columns to and from the store's types.

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::evidence::EvidenceCode;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::leadership::Leadership;
use outlast_core::limit::GateId;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::order::{GivenOrder, WorkerOrder};
use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey, Payload};
use outlast_store::record::StoredJob;
use outlast_store_rules::codec;
pub(crate) use outlast_store_rules::codec::number::{
    int, liveness_number, origin_number, phase_number, span, standing, strand_ms, stream_number,
    stream_of,
};
use outlast_store_rules::codec::number::{origin_of, scheduled_timeout};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

/// Reads a column; one of another type than the schema has is damage.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, StoreError> {
    row.try_get(at).map_err(|error| StoreError::Corrupt(format!("column {at}: {error}")))
}

/// Returns a small count as PostgreSQL keeps it.
pub(crate) fn int4(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Returns text that PostgreSQL takes: it knows no NUL.
pub(crate) fn text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

pub(crate) fn count(row: &Row, at: usize) -> Result<u64, StoreError> {
    Ok(u64::try_from(get::<i64>(row, at)?).unwrap_or(0))
}

pub(crate) fn small(row: &Row, at: usize) -> Result<u32, StoreError> {
    Ok(u32::try_from(get::<i32>(row, at)?).unwrap_or(0))
}

pub(crate) fn time(row: &Row, at: usize) -> Result<Timestamp, StoreError> {
    get(row, at).map(Timestamp)
}

pub(crate) fn time_opt(row: &Row, at: usize) -> Result<Option<Timestamp>, StoreError> {
    Ok(get::<Option<i64>>(row, at)?.map(Timestamp))
}

pub(crate) fn span_opt(row: &Row, at: usize) -> Result<Option<Span>, StoreError> {
    Ok(get::<Option<i64>>(row, at)?.map(|ms| Span(u64::try_from(ms).unwrap_or(0))))
}

pub(crate) fn epoch(row: &Row, at: usize) -> Result<Epoch, StoreError> {
    count(row, at).map(Epoch)
}

pub(crate) fn life(row: &Row, at: usize) -> Result<NonZeroU32, StoreError> {
    Ok(NonZeroU32::new(small(row, at)?).unwrap_or(NonZeroU32::MIN))
}

/// Reads failures, losses and interruptions, in this order, from column `at` on.
pub(crate) fn spent(row: &Row, at: usize) -> Result<Spent, StoreError> {
    Ok(Spent {
        failures: small(row, at)?,
        losses: small(row, at + 1)?,
        interruptions: small(row, at + 2)?,
    })
}

pub(crate) fn job_id(row: &Row, at: usize) -> Result<JobId, StoreError> {
    get(row, at).map(JobId)
}

pub(crate) fn worker_opt(row: &Row, at: usize) -> Result<Option<WorkerId>, StoreError> {
    Ok(get::<Option<Uuid>>(row, at)?.map(WorkerId))
}

/// Reads an order to one worker, and when it was given.
pub(crate) fn given_order(row: &Row, at: usize) -> Result<Option<GivenOrder>, StoreError> {
    let Some(order) = parsed_opt(row, at, WorkerOrder::parse)? else { return Ok(None) };
    Ok(Some(GivenOrder { order, at: time(row, at + 1)? }))
}

pub(crate) fn evidence_code(row: &Row, at: usize) -> Result<Option<EvidenceCode>, StoreError> {
    parsed_opt(row, at, EvidenceCode::parse)
}

/// Returns the gates of an attempt as they are written; `None` without any.
pub(crate) fn gates_text(gates: &[GateId]) -> Option<String> {
    codec::gates_text(gates).map(|numbers| format!("{{{numbers}}}"))
}

pub(crate) fn gates(row: &Row, at: usize) -> Result<Vec<GateId>, StoreError> {
    let gates: Option<Vec<i64>> = get(row, at)?;
    Ok(gates.unwrap_or_default().into_iter().map(GateId).collect())
}

pub(crate) fn state(row: &Row, at: usize) -> Result<State, StoreError> {
    parsed(row, at, State::parse)
}

/// Reads a word; one that is not known is damage.
pub(crate) fn parsed<T>(
    row: &Row,
    at: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, StoreError> {
    let word: &str = get(row, at)?;
    parse(word).ok_or_else(|| StoreError::Corrupt(format!("`{word}` is not a word of column {at}")))
}

pub(crate) fn parsed_opt<T>(
    row: &Row,
    at: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let found: Option<&str> = get(row, at)?;
    found.map(|_| parsed(row, at, parse)).transpose()
}

/// Reads holder, epoch and end of a lease of leadership, in this order.
pub(crate) fn leadership(row: &Row) -> Result<Leadership, StoreError> {
    Ok(Leadership { holder: get(row, 0)?, epoch: epoch(row, 1)?, until: time(row, 2)? })
}

/// The columns that [`stored`] reads, with the three of the payload: `args`, `meta`, `extra`.
macro_rules! stored_columns {
    ($($payload:literal),+) => {
        concat!(
            "j.seq, j.id, j.class, j.priority, j.rules, j.timeout_ms, j.visibility_ms, j.strand_ms,
             j.origin, j.created, j.scheduled_for, ",
            $($payload, ", ",)+
            "j.keys"
        )
    };
}
pub(crate) use stored_columns;

/// The columns that [`stored`] reads, without the payload, which no move looks at.
macro_rules! moving_columns {
    () => {
        "j.seq, j.id, j.class, j.priority, j.rules, j.timeout_ms, j.visibility_ms, j.strand_ms,
         j.origin, j.created, j.scheduled_for, '', '', '', j.keys"
    };
}
pub(crate) use moving_columns;

/// How many columns [`stored`] reads.
pub(crate) const STORED: usize = 15;

/// Reads the immutable part of a job and its number.
pub(crate) fn stored(
    row: &Row,
    key_of: impl FnOnce(ClassId) -> Result<Arc<ClassKey>, StoreError>,
) -> Result<(i64, StoredJob), StoreError> {
    let class = ClassId(get(row, 2)?);
    let job = StoredJob {
        id: job_id(row, 1)?,
        class,
        key: key_of(class)?,
        keys: codec::keys_of(get(row, 14)?)?,
        priority: i8::try_from(get::<i16>(row, 3)?).unwrap_or(0),
        payload: Payload { args: get(row, 11)?, meta: get(row, 12)?, extra: get(row, 13)? },
        rules: codec::rules_of(get(row, 4)?)?,
        timeout: span_opt(row, 5)?,
        visibility: span_opt(row, 6)?,
        scheduled_timeout: scheduled_timeout(get(row, 7)?),
        origin: origin_of(get(row, 8)?),
        created: time(row, 9)?,
        scheduled_for: time_opt(row, 10)?,
    };
    Ok((get(row, 0)?, job))
}

/// Reads a class from columns id, queue, `job_type`, route, tenant, isolated, keyed.
pub(crate) fn class_of(row: &Row) -> Result<(ClassId, ClassKey), StoreError> {
    let tenant: String = get(row, 4)?;
    let (route, placement) = codec::route_of(get(row, 3)?)?;
    let key = ClassKey {
        queue: get(row, 1)?,
        job_type: get(row, 2)?,
        route,
        tenant: (!tenant.is_empty()).then_some(tenant),
        isolated: get(row, 5)?,
        keyed: get(row, 6)?,
        placement,
    };
    Ok((ClassId(get(row, 0)?), key))
}
