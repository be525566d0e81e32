//! A job's attempts: the ended ones, and the one under way.

use outlast_core::budget::Charge;
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::JobId;
use outlast_core::job::{Outcome, State};
use outlast_core::limits::PAGE_BYTES_MAX;
use outlast_core::resources::Usage;
use outlast_store::StoreError;
use outlast_store::record::AttemptRecord;
use rusqlite::Connection;

use crate::read::job::{seq_of, worker_name};
use crate::row::{self, failed, int};

pub(crate) fn of_job(db: &Connection, id: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
    let Some(seq) = seq_of(db, id)? else { return Ok(Vec::new()) };
    let mut attempts = ended(db, seq)?;
    attempts.extend(under_way(db, seq)?);
    for attempt in &mut attempts {
        if let Some(worker) = attempt.worker {
            attempt.worker_name = worker_name(db, worker)?;
        }
    }
    Ok(attempts)
}

fn ended(db: &Connection, seq: i64) -> Result<Vec<AttemptRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select epoch, life, number, worker, plain, claimed, started, finished, outcome,
                    next_state, case when upto <= ?2 then error end, exit_code, by, evidence,
                    evidence_code, pack_digest, peak_memory, cpu_ms,
                    case when upto > ?2 then octet_length(error) end, charge
             from (select *, sum(octet_length(error)) over (
                       order by epoch desc rows unbounded preceding) as upto
                   from attempt_row where seq = ?1)
             order by epoch",
        )
        .map_err(failed)?;
    let rows = select
        .query_map((seq, int(u64::try_from(PAGE_BYTES_MAX).unwrap_or(u64::MAX))), |row| {
            Ok(AttemptRecord {
                omitted: row.get(18)?,
                epoch: row::epoch(row, 0)?,
                life: row::life(row, 1)?,
                attempt: row.get(2)?,
                worker: row::worker_opt(row, 3)?,
                worker_name: row.get(4)?,
                claimed: row::time(row, 5)?,
                started: row::time_opt(row, 6)?,
                finished: row::time_opt(row, 7)?,
                outcome: row::parsed_opt(row, 8, Outcome::parse)?,
                charge: row.get::<_, Option<u8>>(19)?.map(Charge::from_bits),
                next_state: row::parsed_opt(row, 9, State::parse)?,
                error: row.get(10)?,
                exit_code: row.get(11)?,
                by: row.get(12)?,
                evidence: Evidence {
                    code: row::parsed_opt(row, 14, EvidenceCode::parse)?,
                    text: row.get(13)?,
                },
                pack_digest: row.get(15)?,
                usage: Usage {
                    peak_memory: row.get::<_, Option<i64>>(16)?.map(i64::unsigned_abs),
                    cpu: row::span_opt(row, 17)?,
                },
            })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

fn under_way(db: &Connection, seq: i64) -> Result<Option<AttemptRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select epoch, life, failures + 1, worker, plain, claimed, started,
                    pack_digest
             from active where seq = ?",
        )
        .map_err(failed)?;
    let mut rows = select
        .query_map([seq], |row| {
            Ok(AttemptRecord {
                epoch: row::epoch(row, 0)?,
                life: row::life(row, 1)?,
                attempt: row.get(2)?,
                worker: row::worker_opt(row, 3)?,
                worker_name: row.get(4)?,
                claimed: row::time(row, 5)?,
                started: row::time_opt(row, 6)?,
                finished: None,
                outcome: None,
                charge: None,
                next_state: None,
                error: None,
                omitted: None,
                exit_code: None,
                by: String::new(),
                evidence: Evidence::default(),
                pack_digest: row.get(7)?,
                usage: Usage::default(),
            })
        })
        .map_err(failed)?;
    rows.next().transpose().map_err(failed)
}
