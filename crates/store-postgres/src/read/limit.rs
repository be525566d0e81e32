//! Limits, and the gates that count attempts.

use outlast_core::limit::GateId;
use outlast_store::StoreError;
use outlast_store::limit::{GateHolder, GateQuery, GateRecord, LimitColumns, LimitRecord};
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{self, count, get};

/// The columns that [`record_of`] reads.
macro_rules! limit_columns {
    () => {
        "name, scope, of, concurrency, rate_starts, rate_period_ms, configured, set_by, set_at"
    };
}
pub(crate) use limit_columns;

/// What a gate counts, over all servers.
macro_rules! held {
    () => {
        "(select sum(h.n) from gate_held h where h.gate = g.id)"
    };
}

/// Reads a limit.
pub(crate) fn record_of(row: &Row) -> Result<LimitRecord, StoreError> {
    let columns = LimitColumns {
        name: get(row, 0)?,
        scope: get(row, 1)?,
        of: get(row, 2)?,
        concurrency: get(row, 3)?,
        rate_starts: get(row, 4)?,
        rate_period_ms: get(row, 5)?,
    };
    Ok(LimitRecord {
        limit: columns.limit()?,
        configured: get(row, 6)?,
        set_by: get(row, 7)?,
        set_at: row::time(row, 8)?,
    })
}

pub(crate) async fn all(reader: &Reader) -> Result<Vec<LimitRecord>, StoreError> {
    let sql = concat!("select ", limit_columns!(), " from limit_rule order by name collate \"C\"");
    reader.all(sql, &[]).await?.iter().map(record_of).collect()
}

/// Reads id, value, `in_flight` and `used_until`.
fn gate_of(row: &Row) -> Result<GateRecord, StoreError> {
    Ok(GateRecord {
        id: GateId(get(row, 0)?),
        value: get(row, 1)?,
        in_flight: count(row, 2)?,
        used_until: get(row, 3)?,
    })
}

pub(crate) async fn gates(
    reader: &Reader,
    query: &GateQuery,
) -> Result<Vec<GateRecord>, StoreError> {
    let sql = "select g.id, g.value, sum(h.n)::bigint, g.used_until
               from gate g join gate_held h on h.gate = g.id
               where g.limit_name = $1
               group by g.id, g.value, g.used_until having sum(h.n) > 0
               order by sum(h.n) desc, g.value collate \"C\" limit $2";
    let name = query.name.to_string();
    let rows = reader.all(sql, &[&name, &i64::from(query.limit)]).await?;
    rows.iter().map(gate_of).collect()
}

pub(crate) async fn states(
    reader: &Reader,
    gates: &[GateId],
) -> Result<Vec<GateRecord>, StoreError> {
    let sql = concat!(
        "select g.id, g.value, coalesce(",
        held!(),
        ", 0)::bigint, g.used_until from gate g where g.id = any($1::bigint[])"
    );
    let ids: Vec<i64> = gates.iter().map(|gate| gate.0).collect();
    reader.all(sql, &[&ids]).await?.iter().map(gate_of).collect()
}

/// Compares what gates count with who holds them, as of one moment.
const MISCOUNTED: &str = "select g.id from gate g
     left join (select gate, sum(n) as n from gate_held group by gate) h on h.gate = g.id
     left join outlast.gate_counted c on c.id = g.id
     where coalesce(h.n, 0) <> coalesce(c.in_flight, 0) order by g.id limit $1";

pub(crate) async fn miscounted(reader: &Reader, max: u32) -> Result<Vec<GateId>, StoreError> {
    let rows = reader.all(MISCOUNTED, &[&i64::from(max)]).await?;
    rows.iter().map(|row| Ok(GateId(get(row, 0)?))).collect()
}

pub(crate) async fn holders(
    reader: &Reader,
    gate: GateId,
    max: u32,
) -> Result<Vec<GateHolder>, StoreError> {
    let sql = "select j.id, a.worker, a.plain, a.claimed
               from active a join job_row j on j.seq = a.seq
               where a.gates @> array[$1::bigint] order by a.claimed, j.id limit $2";
    let rows = reader.all(sql, &[&gate.0, &i64::from(max)]).await?;
    let holder = |row: &Row| {
        Ok(GateHolder {
            job: row::job_id(row, 0)?,
            worker: row::worker_opt(row, 1)?,
            plain: get(row, 2)?,
            claimed: row::time(row, 3)?,
        })
    };
    rows.iter().map(holder).collect()
}
