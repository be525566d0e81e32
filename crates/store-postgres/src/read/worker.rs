//! Workers and what they hold.

use std::iter;

use outlast_core::id::WorkerId;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_store::StoreError;
use outlast_store::command::{WorkerRole, standing_order};
use outlast_store::query::{WorkerPage, WorkerQuery};
use outlast_store::record::{CancelledAttempt, InFlightJob, Unhealthy, WorkerBrief, WorkerRecord};
use outlast_store::store::GONE_SHOWN;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::floors::holders::{Holders, Search};
use crate::read::Reader;
use crate::row::{self, get};

macro_rules! columns {
    () => {
        "select w.id, w.name, w.worker_role, w.phase, w.liveness, w.concurrency, w.queues,
                w.runtimes, w.labels, w.last_heartbeat_ms, w.created_ms, w.updated_ms,
                w.renewal_seq, w.session_seq, w.lease_ms, w.lease_until_ms, w.evidence,
                w.about, w.plain_id, w.attachment,
                (select array[count(*), min(a.claimed)] from active a where a.worker = w.id),
                w.unhealthy, w.unhealthy_since_ms, w.ordered, w.ordered_ms, w.previous,
                w.evidence_code, w.followed_by "
    };
}

/// Selects workers; where they are found follows.
macro_rules! select_workers {
    ($from:literal) => {
        concat!(columns!(), $from, " order by w.created_ms desc, w.id desc")
    };
}

pub(crate) async fn all(reader: &Reader) -> Result<Vec<WorkerRecord>, StoreError> {
    let rows = reader.all(select_workers!("from worker w"), &[]).await?;
    rows.iter().map(of_row).collect()
}

/// The orders that hold for workers to come.
pub(crate) const STANDING_ORDERS: &str =
    "select selector, kind, set_by, set_at from worker_order order by selector collate \"C\"";

pub(crate) async fn standing_orders(reader: &Reader) -> Result<Vec<StandingOrder>, StoreError> {
    standing_orders_of(&reader.all(STANDING_ORDERS, &[]).await?)
}

/// Reads them from rows of [`STANDING_ORDERS`].
pub(crate) fn standing_orders_of(rows: &[Row]) -> Result<Vec<StandingOrder>, StoreError> {
    let of_row = |row: &Row| {
        let (selector, kind): (String, String) = (get(row, 0)?, get(row, 1)?);
        standing_order(&selector, &kind, get(row, 2)?, row::time(row, 3)?)
    };
    rows.iter().map(of_row).collect()
}

/// What is asked for of a page, in SQL; the values are the words of the query, in this order.
fn wheres(query: &WorkerQuery) -> (String, Vec<&String>) {
    let mut words = Vec::new();
    let wheres = query.conditions().map(|(condition, word)| {
        words.push(word);
        condition.replace('$', &format!("${}", words.len()))
    });
    let wheres: Vec<String> = iter::once("true".to_owned()).chain(wheres).collect();
    (wheres.join(" and "), words)
}

pub(crate) async fn page(reader: &Reader, query: &WorkerQuery) -> Result<WorkerPage, StoreError> {
    let (created, id) = query.before()?;
    let limit = i64::from(query.page.limit) + 1;
    let (mut wheres, words) = wheres(query);
    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(10);
    for word in words {
        values.push(word);
    }
    if let Some((first, last)) = &query.ids {
        values.extend::<[&(dyn ToSql + Sync); 2]>([&first.0, &last.0]);
        let (first, last) = (values.len() - 1, values.len());
        let condition = format!(" and w.id between ${first} and ${last}");
        wheres.push_str(&condition);
    }
    let n = values.len();
    let count = format!("select count(*) from worker w where {wheres}");
    let total = reader.one(&count, &values).await?;
    let total = total.map_or(Ok(0), |row| row::count(&row, 0))?;
    let (at, place, most) = (n + 1, n + 2, n + 3);
    let sql = format!(
        "{} from worker w where {wheres} and (w.created_ms, w.id) < (${at}, ${place})
         order by w.created_ms desc, w.id desc limit ${most}",
        columns!()
    );
    values.extend::<[&(dyn ToSql + Sync); 3]>([&created, &id.0, &limit]);
    let rows = reader.all(&sql, &values).await?;
    let workers = rows.iter().map(of_row).collect::<Result<_, _>>()?;
    Ok(WorkerPage::of(workers, total, &query.page))
}

pub(crate) async fn named(
    reader: &Reader,
    ids: &[WorkerId],
) -> Result<Vec<WorkerRecord>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let sql = select_workers!("from worker w where w.id = any($1)");
    reader.all(sql, &[&ids]).await?.iter().map(of_row).collect()
}

/// Those that have a lease, those that hold something, and the last that went: each found by
/// an index of its own, which those that went long ago are not in. Which hold something and have no
/// lease is searched for before ([`HOLDERS`]).
macro_rules! live {
    () => {
        "from (
             select l.* from worker l where l.liveness < 2
             union all
             select g.*
             from (
                 (select id from worker where liveness >= 2
                  order by updated_ms desc, id desc limit $1)
                 union
                 select unnest($2::uuid[])) k
             cross join lateral (
                 select x.* from worker x where x.id = k.id and x.liveness >= 2 offset 0) g) w"
    };
}

/// How many pages of attempts and of their index by worker the transaction has read so far.
macro_rules! pages {
    () => {
        "coalesce(pg_stat_get_xact_blocks_fetched('active'::regclass), 0)
             + coalesce(pg_stat_get_xact_blocks_fetched('active_worker'::regclass), 0)"
    };
}

/// Workers that hold something and have no lease: in the gaps between those that have one, so that
/// no entry of an attempt of these is passed. Its columns are evaluated one after the other.
const HOLDERS: &str = concat!(
    "select ",
    pages!(),
    ", array(
         with recursive gaps(low, high) as materialized (
             select l.id, lead(l.id, 1, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                 over (order by l.id)
             from (select id from worker where liveness < 2
                   union all select '00000000-0000-0000-0000-000000000000'::uuid) l),
         holders(worker, high) as (
             select (select a.worker from active a
                     where a.worker > g.low and a.worker < g.high
                     order by a.worker limit 1), g.high
             from gaps g
             union all
             select (select a.worker from active a
                     where a.worker > h.worker and a.worker < h.high
                     order by a.worker limit 1), h.high
             from holders h where h.worker is not null)
         select h.worker from holders h where h.worker is not null), ",
    pages!(),
    ", (select count(*) + 1 from worker where liveness < 2)"
);

const LIVE: &str = concat!(columns!(), live!(), " order by w.created_ms desc, w.id desc");

/// The same, and of each only what changes while it works. Liveness 2 has lapsed.
const FLEET: &str = concat!(
    "select w.id, w.phase, w.liveness, w.renewal_seq, w.lease_ms, w.last_heartbeat_ms,
            w.updated_ms,
            w.liveness = 2 and coalesce(
                (select true from active a where a.worker = w.id limit 1), false),
            w.unhealthy is not null ",
    live!()
);

/// Returns the workers without a lease that hold something.
async fn holding(reader: &Reader, holders: &Holders) -> Result<Vec<Uuid>, StoreError> {
    let began = Instant::now();
    if let Some(known) = holders.known(began) {
        return Ok(known);
    }
    let Some(row) = reader.one(HOLDERS, &[]).await? else { return Ok(Vec::new()) };
    let (before, after): (i64, i64) = (get(&row, 0)?, get(&row, 2)?);
    let search = Search { found: get(&row, 1)?, gaps: get(&row, 3)?, pages: after - before, began };
    holders.keep(&search, Instant::now());
    Ok(search.found)
}

pub(crate) async fn live(
    reader: &Reader,
    holders: &Holders,
) -> Result<Vec<WorkerRecord>, StoreError> {
    let holding = holding(reader, holders).await?;
    let rows = reader.all(LIVE, &[&i64::from(GONE_SHOWN), &holding]).await?;
    rows.iter().map(of_row).collect()
}

pub(crate) async fn fleet(
    reader: &Reader,
    holders: &Holders,
) -> Result<Vec<WorkerBrief>, StoreError> {
    let holding = holding(reader, holders).await?;
    let rows = reader.all(FLEET, &[&i64::from(GONE_SHOWN), &holding]).await?;
    rows.iter().map(brief_of).collect()
}

fn brief_of(row: &Row) -> Result<WorkerBrief, StoreError> {
    Ok(WorkerBrief {
        id: WorkerId(get(row, 0)?),
        standing: row::standing(get(row, 1)?, get(row, 2)?),
        renewal: row::count(row, 3)?,
        lease: row::span_opt(row, 4)?.unwrap_or_default(),
        last_heartbeat: row::time(row, 5)?,
        updated: row::time(row, 6)?,
        lapsed_holding: get(row, 7)?,
        unhealthy: get(row, 8)?,
    })
}

fn of_row(row: &Row) -> Result<WorkerRecord, StoreError> {
    let damaged = |what: &str| StoreError::Corrupt(format!("a worker's {what}"));
    let list = |at: usize, what: &str| -> Result<Vec<String>, StoreError> {
        serde_json::from_str(get(row, at)?).map_err(|_json| damaged(what))
    };
    let held: Vec<Option<i64>> = get(row, 20)?;
    let unhealthy = match get::<Option<String>>(row, 21)? {
        Some(reason) => Some(Unhealthy { reason, since: row::time(row, 22)? }),
        None => None,
    };
    let held_at = |at: usize| held.get(at).copied().flatten();
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
        unhealthy,
        given: row::given_order(row, 23)?,
        previous: get::<Option<Uuid>>(row, 25)?.map(WorkerId),
        evidence_code: row::evidence_code(row, 26)?,
        followed_by: get::<Option<Uuid>>(row, 27)?.map(WorkerId),
        in_flight: held_at(0).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        oldest_claim: held_at(1).map(Timestamp),
    })
}

pub(crate) async fn in_flight_of(
    reader: &Reader,
    worker: WorkerId,
) -> Result<Vec<InFlightJob>, StoreError> {
    let rows = reader
        .all(
            "select j.id, a.epoch, a.started is not null, a.cancelled, a.claimed, a.isolated
             from active a join job_row j on j.seq = a.seq where a.worker = $1 order by a.seq",
            &[&worker.0],
        )
        .await?;
    let mut in_flight = Vec::with_capacity(rows.len());
    for row in &rows {
        in_flight.push(InFlightJob {
            job: row::job_id(row, 0)?,
            epoch: row::epoch(row, 1)?,
            started: get(row, 2)?,
            cancelled: get(row, 3)?,
            claimed: row::time(row, 4)?,
            isolated: get(row, 5)?,
        });
    }
    Ok(in_flight)
}

/// Each worker is one step in the index, however many there are.
const CANCELLED: &str = "select a.worker, j.id, a.epoch
     from unnest($1::uuid[]) k(worker)
     cross join lateral (
         select a.worker, a.seq, a.epoch from active a
         where a.worker = k.worker and a.cancelled offset 0) a
     join job_row j on j.seq = a.seq";

pub(crate) async fn cancelled_of(
    reader: &Reader,
    workers: &[WorkerId],
) -> Result<Vec<CancelledAttempt>, StoreError> {
    let ids: Vec<Uuid> = workers.iter().map(|id| id.0).collect();
    let rows = reader.all(CANCELLED, &[&ids]).await?;
    let attempt = |row: &Row| {
        Ok(CancelledAttempt {
            worker: WorkerId(get(row, 0)?),
            job: row::job_id(row, 1)?,
            epoch: row::epoch(row, 2)?,
        })
    };
    rows.iter().map(attempt).collect()
}
