//! Workers and what they hold.

use outlast_core::id::WorkerId;
use outlast_store::StoreError;
use outlast_store::command::WorkerRole;
use outlast_store::record::{Held, WorkerRecord};
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{self, get};

pub(crate) async fn all(reader: &Reader) -> Result<Vec<WorkerRecord>, StoreError> {
    let rows = reader
        .all(
            "select w.id, w.name, w.worker_role, w.phase, w.liveness, w.concurrency, w.queues,
                    w.runtimes, w.labels, w.last_heartbeat_ms, w.created_ms, w.updated_ms,
                    w.renewal_seq, w.session_seq, w.lease_ms, w.lease_until_ms, w.evidence,
                    w.about, w.plain_id, w.attachment,
                    (select count(*) from active a where a.worker = w.id)
             from worker w order by w.created_ms desc, w.id desc",
            &[],
        )
        .await?;
    rows.iter().map(of_row).collect()
}

fn of_row(row: &Row) -> Result<WorkerRecord, StoreError> {
    let damaged = |what: &str| StoreError::Corrupt(format!("a worker's {what}"));
    let list = |at: usize, what: &str| -> Result<Vec<String>, StoreError> {
        serde_json::from_str(get(row, at)?).map_err(|_json| damaged(what))
    };
    Ok(WorkerRecord {
        id: WorkerId(get(row, 0)?),
        name: get(row, 1)?,
        role: row::parsed(row, 2, WorkerRole::parse)?,
        standing: row::standing(get(row, 3)?, get(row, 4)?),
        concurrency: u32::try_from(row::count(row, 5)?).unwrap_or(u32::MAX),
        queues: list(6, "queues")?,
        runtimes: list(7, "runtimes")?,
        labels: serde_json::from_str(get(row, 8)?).map_err(|_json| damaged("labels"))?,
        last_heartbeat: row::time(row, 9)?,
        created: row::time(row, 10)?,
        updated: row::time(row, 11)?,
        renewal: row::count(row, 12)?,
        session: row::count(row, 13)?,
        lease: row::span_opt(row, 14)?.unwrap_or_default(),
        lease_until: row::time(row, 15)?,
        evidence: get(row, 16)?,
        about: get(row, 17)?,
        plain_id: get(row, 18)?,
        attachment: row::count(row, 19)?,
        in_flight: u32::try_from(row::count(row, 20)?).unwrap_or(u32::MAX),
    })
}

pub(crate) async fn held_by(reader: &Reader, worker: WorkerId) -> Result<Vec<Held>, StoreError> {
    let rows = reader
        .all(
            "select j.id, a.epoch, a.started is not null, a.cancelled, a.claimed, a.isolated
             from active a join job_row j on j.seq = a.seq where a.worker = $1 order by a.seq",
            &[&worker.0],
        )
        .await?;
    let mut held = Vec::with_capacity(rows.len());
    for row in &rows {
        held.push(Held {
            job: row::job_id(row, 0)?,
            epoch: row::epoch(row, 1)?,
            started: get(row, 2)?,
            cancelled: get(row, 3)?,
            claimed: row::time(row, 4)?,
            isolated: get(row, 5)?,
        });
    }
    Ok(held)
}
