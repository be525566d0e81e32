//! Limits, and the gates that count attempts.

use outlast_core::limit::GateId;
use outlast_store::limit::{GateHolder, GateQuery, GateRecord, LimitColumns, LimitRecord};
use outlast_store::{StoreError, limit_columns};
use rusqlite::{Connection, Row};

use crate::row::{self, failed};

/// Reads a limit from [`limit_columns`].
pub(crate) fn record_of(row: &Row<'_>) -> Result<LimitRecord, StoreError> {
    let text = |at| row.get::<_, String>(at).map_err(failed);
    let (name, kind, of) = (text(0)?, text(1)?, text(2)?);
    LimitColumns {
        name: &name,
        scope: &kind,
        of: &of,
        concurrency: row.get(3).map_err(failed)?,
        rate_starts: row.get(4).map_err(failed)?,
        rate_period_ms: row.get(5).map_err(failed)?,
        configured: row.get(6).map_err(failed)?,
        set_by: text(7)?,
        set_at: row.get(8).map_err(failed)?,
    }
    .record()
}

pub(crate) fn all(db: &Connection) -> Result<Vec<LimitRecord>, StoreError> {
    let sql = concat!("select ", limit_columns!(), " from limit_rule order by name");
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        all.push(record_of(row)?);
    }
    Ok(all)
}

/// Reads id, value, `in_flight` and `used_until`.
fn gate_of(row: &Row<'_>) -> rusqlite::Result<GateRecord> {
    Ok(GateRecord {
        id: GateId(row.get(0)?),
        value: row.get(1)?,
        in_flight: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
        used_until: row.get(3)?,
    })
}

pub(crate) fn gates(db: &Connection, query: &GateQuery) -> Result<Vec<GateRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select id, value, in_flight, used_until from gate
             where limit_name = ? and in_flight > 0 order by in_flight desc, value limit ?",
        )
        .map_err(failed)?;
    let rows = select.query_map((query.name.as_str(), query.limit), gate_of).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn states(db: &Connection, gates: &[GateId]) -> Result<Vec<GateRecord>, StoreError> {
    let mut select = db
        .prepare_cached("select id, value, in_flight, used_until from gate where id = ?")
        .map_err(failed)?;
    let mut all = Vec::new();
    for gate in gates {
        let rows = select.query_map([gate.0], gate_of).map_err(failed)?;
        for row in rows {
            all.push(row.map_err(failed)?);
        }
    }
    Ok(all)
}

/// Compares what gates count with who holds them, as of one moment.
pub(crate) fn miscounted(
    db: &Connection,
    after: Option<GateId>,
    max: u32,
) -> Result<Vec<GateId>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select g.id from gate g left join gate_counted c on c.id = g.id
             where g.in_flight <> coalesce(c.in_flight, 0) and (?1 is null or g.id > ?1)
             order by g.id limit ?2",
        )
        .map_err(failed)?;
    let after = after.map(|gate| gate.0);
    let rows = select.query_map((after, max), |row| row.get(0).map(GateId)).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn holders(
    db: &Connection,
    gate: GateId,
    max: u32,
) -> Result<Vec<GateHolder>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select j.id, a.worker, a.plain, a.claimed from active a join job_row j on j.seq = a.seq
             where a.gates is not null
                 and exists (select 1 from json_each(a.gates) g where g.value = ?1)
             order by a.claimed, j.id limit ?2",
        )
        .map_err(failed)?;
    let rows = select
        .query_map((gate.0, max), |row| {
            Ok(GateHolder {
                job: row::job_id(row, 0)?,
                worker: row::worker_opt(row, 1)?,
                plain: row.get(2)?,
                claimed: row::time(row, 3)?,
            })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
