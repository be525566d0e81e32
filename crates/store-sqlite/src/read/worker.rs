//! Workers and what they hold.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use outlast_core::id::WorkerId;
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::Liveness;
use outlast_core::worker::order::StandingOrder;
use outlast_store::StoreError;
use outlast_store::command::{WorkerRole, standing_order};
use outlast_store::query::{WorkerPage, WorkerQuery};
use outlast_store::record::{CancelledAttempt, InFlightJob, Unhealthy, WorkerBrief, WorkerRecord};
use outlast_store::store::GONE_SHOWN;
use outlast_store_rules::backend::Labels;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use uuid::Uuid;

use crate::row::{self, failed};

/// Selects workers; which, and in which order, follows.
macro_rules! select_workers {
    ($rest:literal) => {
        concat!(
            "select w.id, w.name, w.worker_role, w.phase, w.liveness, w.concurrency, w.queues,
                    w.runtimes, w.labels, w.last_heartbeat_ms, w.created_ms, w.updated_ms,
                    w.renewal_seq, w.session_seq, w.lease_ms, w.lease_until_ms, w.evidence,
                    w.about, w.plain_id, w.attachment, w.unhealthy, w.unhealthy_since_ms,
                    w.ordered, w.ordered_ms, w.previous, w.evidence_code, w.followed_by
             from worker w ",
            $rest
        )
    };
}

/// Each found by an index that those which went long ago are not in, or not looked at in.
const LIVE: &str = select_workers!("where w.liveness < 2");
const GONE: &str =
    select_workers!("where w.liveness >= 2 order by w.updated_ms desc, w.id desc limit ?");
const ONE: &str = select_workers!("where w.id = ?");

pub(crate) fn all(db: &Connection) -> Result<Vec<WorkerRecord>, StoreError> {
    let mut workers = found(db, select_workers!(""), [])?;
    note_held(&holdings(db)?, &mut workers);
    Ok(workers)
}

/// Reads the orders that hold for workers to come, by selector.
pub(crate) fn standing_orders(db: &Connection) -> Result<Vec<StandingOrder>, StoreError> {
    let sql = "select selector, kind, set_by, set_at from worker_order order by selector";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |at| row.get::<_, String>(at).map_err(failed);
        let set_at = row::time(row, 3).map_err(failed)?;
        all.push(standing_order(&text(0)?, &text(1)?, text(2)?, set_at)?);
    }
    Ok(all)
}

/// Reads the workers that hold a lease, those that have lapsed and were ordered something, and those
/// whose rows have changed since this time, with their labels, by id.
pub(crate) fn living_or_changed(
    db: &Connection,
    since: Timestamp,
) -> Result<Vec<(WorkerId, Labels)>, StoreError> {
    let sql = "select id, labels from worker where liveness < 2
         union select id, labels from worker where liveness >= 2
             and (updated_ms >= ? or liveness = 2 and ordered is not null)
         order by id";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query([since.0]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (id, labels): (String, String) =
            (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let damaged = || StoreError::Corrupt(format!("worker {id} cannot be read"));
        let labels = serde_json::from_str(&labels).map_err(|_json| damaged())?;
        all.push((WorkerId(Uuid::try_parse(&id).map_err(|_text| damaged())?), labels));
    }
    Ok(all)
}

/// What is asked for of a page, in SQL, with the words of the query.
fn wheres(query: &WorkerQuery) -> (String, Vec<Value>) {
    let (mut wheres, mut words) = (vec!["true".to_owned()], Vec::new());
    for (condition, word) in query.conditions() {
        wheres.push(condition.replace('$', "?"));
        words.extend(condition.matches('$').map(|_| Value::from(word.clone())));
    }
    if let Some((first, last)) = query.ids {
        wheres.push("w.id between ? and ?".to_owned());
        words.extend([first, last].map(|id| Value::from(id.to_string())));
    }
    (wheres.join(" and "), words)
}

pub(crate) fn page(db: &Connection, query: &WorkerQuery) -> Result<WorkerPage, StoreError> {
    let (created, id) = query.before()?;
    let (wheres, mut words) = wheres(query);
    let count = format!("select count(*) from worker w where {wheres}");
    let mut count = db.prepare_cached(&count).map_err(failed)?;
    let total: u64 = count.query_row(params_from_iter(&words), |row| row.get(0)).map_err(failed)?;
    let sql = format!(
        "{} where {wheres} and (w.created_ms, w.id) < (?, ?)
         order by w.created_ms desc, w.id desc limit ?",
        select_workers!("")
    );
    words.extend([created.into(), id.to_string().into(), (i64::from(query.page.limit) + 1).into()]);
    let mut workers = found(db, &sql, params_from_iter(words))?;
    let sql = "select count(*), min(claimed) from active where worker = ?";
    let mut held = db.prepare_cached(sql).map_err(failed)?;
    for worker in &mut workers {
        let id = worker.id.0.as_bytes().as_slice();
        let found = held.query_row([id], |row| Ok((row.get(0)?, row::time_opt(row, 1)?)));
        (worker.in_flight, worker.oldest_claim) = found.map_err(failed)?;
    }
    Ok(WorkerPage::of(workers, total, &query.page))
}

/// Those that have a lease, those that hold something, and the last that went.
pub(crate) fn live(db: &Connection) -> Result<Vec<WorkerRecord>, StoreError> {
    let mut workers = found(db, LIVE, [])?;
    workers.extend(found(db, GONE, [GONE_SHOWN])?);
    let held = holdings(db)?;
    let known: HashSet<WorkerId> = workers.iter().map(|worker| worker.id).collect();
    for holder in held.keys().filter(|holder| !known.contains(holder)) {
        workers.extend(found(db, ONE, [holder.to_string()])?);
    }
    note_held(&held, &mut workers);
    Ok(workers)
}

/// These workers, those that are known.
pub(crate) fn named(db: &Connection, ids: &[WorkerId]) -> Result<Vec<WorkerRecord>, StoreError> {
    let mut workers = Vec::with_capacity(ids.len());
    for id in ids {
        for worker in found(db, ONE, [id.to_string()])? {
            let held = in_flight_of(db, *id)?;
            let in_flight = u32::try_from(held.len()).unwrap_or(u32::MAX);
            let oldest_claim = held.iter().map(|attempt| attempt.claimed).min();
            workers.push(WorkerRecord { in_flight, oldest_claim, ..worker });
        }
    }
    Ok(workers)
}

/// Selects what changes while a worker works; which workers follows.
macro_rules! select_briefs {
    ($rest:literal) => {
        concat!(
            "select w.id, w.phase, w.liveness, w.renewal_seq, w.lease_ms, w.last_heartbeat_ms,
                    w.updated_ms, w.unhealthy is not null
             from worker w ",
            $rest
        )
    };
}

/// Those that [`live`] lists, in brief.
pub(crate) fn fleet(db: &Connection) -> Result<Vec<WorkerBrief>, StoreError> {
    let mut fleet = briefs(db, select_briefs!("where w.liveness < 2"), [])?;
    let gone =
        select_briefs!("where w.liveness >= 2 order by w.updated_ms desc, w.id desc limit ?");
    fleet.extend(briefs(db, gone, [GONE_SHOWN])?);
    let known: HashSet<WorkerId> = fleet.iter().map(|worker| worker.id).collect();
    let holders = holders(db)?;
    for holder in holders.iter().filter(|holder| !known.contains(holder)) {
        fleet.extend(briefs(db, select_briefs!("where w.id = ?"), [holder.to_string()])?);
    }
    for worker in fleet.iter_mut().filter(|it| it.standing.liveness == Liveness::Lapsed) {
        worker.lapsed_holding = holders.contains(&worker.id);
    }
    Ok(fleet)
}

/// Steps from holder to holder, whatever each holds.
fn holders(db: &Connection) -> Result<HashSet<WorkerId>, StoreError> {
    let mut select = db
        .prepare_cached(
            "with recursive holders (worker) as (
                 select min(worker) from active where worker is not null
                 union all
                 select (select min(a.worker) from active a where a.worker > holders.worker)
                 from holders where holders.worker is not null)
             select worker from holders where worker is not null",
        )
        .map_err(failed)?;
    let rows = select.query_map([], |row| row::worker_opt(row, 0)).map_err(failed)?;
    let holders: Vec<Option<WorkerId>> = rows.collect::<Result<_, _>>().map_err(failed)?;
    Ok(holders.into_iter().flatten().collect())
}

fn briefs(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<WorkerBrief>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let rows = select.query_map(params, brief_of).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

fn brief_of(row: &Row<'_>) -> rusqlite::Result<WorkerBrief> {
    Ok(WorkerBrief {
        id: row::parsed(row, 0, |text| Uuid::parse_str(text).ok().map(WorkerId))?,
        standing: row::standing(row.get(1)?, row.get(2)?),
        renewal: row.get(3)?,
        lease: row::span_opt(row, 4)?.unwrap_or_default(),
        last_heartbeat: row::time(row, 5)?,
        updated: row::time(row, 6)?,
        lapsed_holding: false,
        unhealthy: row.get(7)?,
    })
}

fn found(
    db: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<WorkerRecord>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let rows = select.query_map(params, of_row).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// How many attempts a worker holds, and when the first of them was claimed.
#[derive(Clone, Copy, Default)]
struct Held {
    count: u32,
    oldest: Option<Timestamp>,
}

fn holdings(db: &Connection) -> Result<HashMap<WorkerId, Held>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select worker, count(*), min(claimed) from active
             where worker is not null group by worker",
        )
        .map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut held = HashMap::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let count: u32 = row.get(1).map_err(failed)?;
        let oldest = row::time_opt(row, 2).map_err(failed)?;
        if let Some(worker) = row::worker_opt(row, 0).map_err(failed)? {
            held.insert(worker, Held { count, oldest });
        }
    }
    Ok(held)
}

/// Notes what each holds, and puts the latest registered first.
fn note_held(held: &HashMap<WorkerId, Held>, workers: &mut [WorkerRecord]) {
    for worker in &mut *workers {
        let Held { count, oldest } = held.get(&worker.id).copied().unwrap_or_default();
        (worker.in_flight, worker.oldest_claim) = (count, oldest);
    }
    workers.sort_by_key(|worker| Reverse((worker.created, worker.id)));
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
        oldest_claim: None,
        evidence: row.get(16)?,
        about: row.get(17)?,
        plain_id: row.get(18)?,
        attachment: row.get(19)?,
        unhealthy: match row.get::<_, Option<String>>(20)? {
            Some(reason) => Some(Unhealthy { reason, since: row::time(row, 21)? }),
            None => None,
        },
        given: row::given_order(row, 22)?,
        previous: row::worker_text_opt(row, 24)?,
        evidence_code: row::evidence_code(row, 25)?,
        followed_by: row::worker_text_opt(row, 26)?,
    })
}

/// Each worker is one step in the index, whatever others hold.
const CANCELLED: &str = "
    select a.worker, j.id, a.epoch
    from json_each(?) w cross join active a on a.worker = unhex(w.value)
    join job_row j on j.seq = a.seq where a.cancelled";

pub(crate) fn cancelled_of(
    db: &Connection,
    workers: &[WorkerId],
) -> Result<Vec<CancelledAttempt>, StoreError> {
    let ids: Vec<String> = workers.iter().map(|id| format!("\"{}\"", id.0.simple())).collect();
    let mut select = db.prepare_cached(CANCELLED).map_err(failed)?;
    let rows = select
        .query_map([format!("[{}]", ids.join(","))], |row| {
            let (job, epoch) = (row::job_id(row, 1)?, row::epoch(row, 2)?);
            let worker = row::worker_opt(row, 0)?;
            Ok(worker.map(|worker| CancelledAttempt { worker, job, epoch }))
        })
        .map_err(failed)?;
    let found: Vec<Option<CancelledAttempt>> = rows.collect::<Result<_, _>>().map_err(failed)?;
    Ok(found.into_iter().flatten().collect())
}

pub(crate) fn in_flight_of(
    db: &Connection,
    worker: WorkerId,
) -> Result<Vec<InFlightJob>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select j.id, a.epoch, a.started is not null, a.cancelled, a.claimed,
                    a.isolated
             from active a join job_row j on j.seq = a.seq where a.worker = ? order by a.seq",
        )
        .map_err(failed)?;
    let rows = select
        .query_map([worker.0.as_bytes().as_slice()], |row| {
            Ok(InFlightJob {
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
