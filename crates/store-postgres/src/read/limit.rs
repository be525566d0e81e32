//! Limits, and the gates that count attempts.

use outlast_core::limit::GateId;
use outlast_store::limit::{GateHolder, GateQuery, GateRecord, LimitColumns, LimitRecord};
use outlast_store::{StoreError, limit_columns};
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{self, count, get};

/// What a gate counts, over all servers.
macro_rules! held {
    () => {
        "(select sum(h.n) from gate_held h where h.gate = g.id)"
    };
}

/// Reads a limit from [`limit_columns`].
pub(crate) fn record_of(row: &Row) -> Result<LimitRecord, StoreError> {
    LimitColumns {
        name: get(row, 0)?,
        scope: get(row, 1)?,
        of: get(row, 2)?,
        concurrency: get(row, 3)?,
        rate_starts: get(row, 4)?,
        rate_period_ms: get(row, 5)?,
        configured: get(row, 6)?,
        set_by: get(row, 7)?,
        set_at: get(row, 8)?,
    }
    .record()
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

/// Compares what gates count with who holds them, as of one moment. A gate that neither counts nor
/// is held is right, and one that does not exist any more may do either.
const MISCOUNTED: &str = "select k.id
     from (select gate, sum(n) as n from gate_held group by gate) h
     full join outlast.gate_counted c on c.id = h.gate
     cross join lateral (select coalesce(h.gate, c.id) as id) k
     where coalesce(h.n, 0) <> coalesce(c.in_flight, 0)
         and ($1::bigint is null or k.id > $1)
     order by k.id limit $2";

pub(crate) async fn miscounted(
    reader: &Reader,
    after: Option<GateId>,
    max: u32,
) -> Result<Vec<GateId>, StoreError> {
    let after = after.map(|gate| gate.0);
    let rows = reader.all(MISCOUNTED, &[&after, &i64::from(max)]).await?;
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
