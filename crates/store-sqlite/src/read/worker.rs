//! Workers and what they hold.

use outlast_core::id::WorkerId;
use outlast_store::StoreError;
use outlast_store::command::WorkerRole;
use outlast_store::record::{Held, WorkerRecord};
use rusqlite::{Connection, Row};
use uuid::Uuid;

use crate::row::{self, failed};

pub(crate) fn all(db: &Connection) -> Result<Vec<WorkerRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select w.id, w.name, w.worker_role, w.phase, w.liveness, w.concurrency, w.queues,
                    w.runtimes, w.labels, w.last_heartbeat_ms, w.created_ms, w.updated_ms,
                    w.renewal_seq, w.session_seq, w.lease_ms, w.lease_until_ms, w.evidence,
                    w.about, w.plain_id, w.attachment
             from worker w order by w.created_ms desc, w.id desc",
        )
        .map_err(failed)?;
    let rows = select.query_map([], of_row).map_err(failed)?;
    let mut workers: Vec<WorkerRecord> = rows.collect::<Result<_, _>>().map_err(failed)?;
    let mut count = db
        .prepare_cached(
            "select worker, count(*) from active where worker is not null group by worker",
        )
        .map_err(failed)?;
    let mut held = count.query([]).map_err(failed)?;
    let mut counts = std::collections::HashMap::new();
    while let Some(row) = held.next().map_err(failed)? {
        let worker = row::worker_opt(row, 0).map_err(failed)?;
        let n: u32 = row.get(1).map_err(failed)?;
        counts.insert(worker, n);
    }
    for worker in &mut workers {
        worker.in_flight = counts.get(&Some(worker.id)).copied().unwrap_or(0);
    }
    Ok(workers)
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<WorkerRecord> {
    let damaged = |at: usize| {
        rusqlite::Error::InvalidColumnType(at, "worker".into(), rusqlite::types::Type::Text)
    };
    let list = |at: usize| -> rusqlite::Result<Vec<String>> {
        serde_json::from_str(row.get_ref(at)?.as_str()?).map_err(|_json| damaged(at))
    };
    Ok(WorkerRecord {
        id: row::parsed(row, 0, |text| Uuid::parse_str(text).ok().map(WorkerId))?,
        name: row.get(1)?,
        role: row::parsed(row, 2, WorkerRole::parse)?,
        standing: row::standing(row.get(3)?, row.get(4)?),
        concurrency: row.get(5)?,
        queues: list(6)?,
        runtimes: list(7)?,
        labels: serde_json::from_str(row.get_ref(8)?.as_str()?).map_err(|_json| damaged(8))?,
        last_heartbeat: row::time(row, 9)?,
        created: row::time(row, 10)?,
        updated: row::time(row, 11)?,
        renewal: row.get(12)?,
        session: row.get(13)?,
        lease: row::span_opt(row, 14)?.unwrap_or_default(),
        lease_until: row::time(row, 15)?,
        in_flight: 0,
        evidence: row.get(16)?,
        about: row.get(17)?,
        plain_id: row.get(18)?,
        attachment: row.get(19)?,
    })
}

pub(crate) fn held_by(db: &Connection, worker: WorkerId) -> Result<Vec<Held>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select j.id, a.epoch, a.started is not null, a.cancelled, a.claimed,
                    a.isolated
             from active a join job_row j on j.seq = a.seq where a.worker = ? order by a.seq",
        )
        .map_err(failed)?;
    let rows = select
        .query_map([worker.0.as_bytes().as_slice()], |row| {
            Ok(Held {
                job: row::job_id(row, 0)?,
                epoch: row::epoch(row, 1)?,
                started: row.get(2)?,
                cancelled: row.get(3)?,
                claimed: row::time(row, 4)?,
                isolated: row.get(5)?,
            })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
