//! A job's attempts: the ended ones, and the one under way.

use outlast_core::budget::Charge;
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::JobId;
use outlast_core::job::{Outcome, State};
use outlast_core::limits::PAGE_BYTES_MAX;
use outlast_core::resources::Usage;
use outlast_core::time::Span;
use outlast_store::StoreError;
use outlast_store::record::AttemptRecord;
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{self, get};

pub(crate) async fn of_job(reader: &Reader, id: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
    let rows = reader
        .all(
            "select x.epoch, x.life, x.number, x.worker, coalesce(w.name, x.plain), x.claimed,
                    x.started, x.finished, x.outcome, x.next_state, x.error, x.exit_code, x.by,
                    x.evidence, x.evidence_code, x.pack_digest, x.omitted,
                    x.peak_memory, x.cpu_ms, x.charge
             from job_row j
             cross join lateral (
                 select t.epoch, t.life, t.number, t.worker, t.plain, t.claimed, t.started,
                        t.finished, t.outcome, t.next_state,
                        case when t.upto <= $2::bigint then t.error end as error, t.exit_code,
                        t.by, t.evidence, t.evidence_code, t.pack_digest,
                        case when t.upto > $2 then octet_length(t.error)::bigint end as omitted,
                        t.peak_memory, t.cpu_ms, t.charge
                 from (select t.*, sum(octet_length(t.error)) over (
                           order by t.epoch desc rows unbounded preceding) as upto
                       from attempt_row t where t.seq = j.seq) t
                 union all
                 select a.epoch, a.life, a.failures + 1, a.worker, a.plain, a.claimed, a.started,
                        null, null, null, null, null, '', '', null, a.pack_digest, null,
                        null, null, null
                 from active a where a.seq = j.seq) x
             left join worker w on w.id = x.worker
             where j.id = $1 order by x.epoch",
            &[&id.0, &i64::try_from(PAGE_BYTES_MAX).unwrap_or(i64::MAX)],
        )
        .await?;
    rows.iter().map(attempt).collect()
}

fn charge(bits: i16) -> Charge {
    Charge::from_bits(u8::try_from(bits).unwrap_or_default())
}

fn attempt(row: &Row) -> Result<AttemptRecord, StoreError> {
    let outcome: Option<&str> = get(row, 8)?;
    let next_state: Option<&str> = get(row, 9)?;
    let code: Option<&str> = get(row, 14)?;
    let pack_digest: Option<&str> = get(row, 15)?;
    Ok(AttemptRecord {
        epoch: row::epoch(row, 0)?,
        life: row::life(row, 1)?,
        attempt: row::small(row, 2)?,
        worker: row::worker_opt(row, 3)?,
        worker_name: get(row, 4)?,
        claimed: row::time(row, 5)?,
        started: row::time_opt(row, 6)?,
        finished: row::time_opt(row, 7)?,
        outcome: outcome.and_then(Outcome::parse),
        charge: get::<Option<i16>>(row, 19)?.map(charge),
        next_state: next_state.and_then(State::parse),
        error: get(row, 10)?,
        omitted: get::<Option<i64>>(row, 16)?.map(i64::unsigned_abs),
        exit_code: get(row, 11)?,
        by: get(row, 12)?,
        evidence: Evidence { code: code.and_then(EvidenceCode::parse), text: get(row, 13)? },
        pack_digest: pack_digest.map(Into::into),
        usage: Usage {
            peak_memory: get::<Option<i64>>(row, 17)?.map(i64::unsigned_abs),
            cpu: get::<Option<i64>>(row, 18)?.map(|ms| Span(ms.unsigned_abs())),
        },
    })
}
