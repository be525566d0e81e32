//! Queues, classes, and what is due next.

use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, OldestClaimable, QueuePause, QueueStats, looked_at,
};
use outlast_store::queue::QueueRecord;
use outlast_store::tally::{COLUMNS, ClassCounts, Counts, Second};
use outlast_store_rules::codec;
use rusqlite::{Connection, OptionalExtension as _};

use crate::row::{self, failed};
use crate::writer::class_of;

pub(crate) fn backlog(db: &Connection) -> Result<Vec<ClassBacklog>, StoreError> {
    Ok(tally(db)?.into_iter().map(ClassBacklog::from).collect())
}

/// Steps from class to class by the key of `ready`, whatever classes there are.
pub(crate) fn claimable(db: &Connection, max: u32) -> Result<Vec<Claimable>, StoreError> {
    let mut select = db
        .prepare_cached(
            "with recursive waits (class) as (
                 select min(class) from ready
                 union all
                 select (select min(r.class) from ready r where r.class > waits.class)
                 from waits where waits.class is not null)
             select c.id, c.queue, c.job_type, c.route, c.tenant, c.isolated, c.keyed,
                    (select count(*) from (select 1 from ready r where r.class = c.id limit ?1))
             from waits join class c on c.id = waits.class order by c.id",
        )
        .map_err(failed)?;
    let mut rows = select.query([max]).map_err(failed)?;
    let mut classes = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (id, key) = class_of(row)?;
        classes.push(Claimable { id, key, count: row.get(7).map_err(failed)? });
    }
    Ok(classes)
}

macro_rules! tally {
    ($rest:literal) => {
        concat!(
            "select c.id, c.queue, c.job_type, c.route, c.tenant, c.isolated, c.keyed,
                 t.scheduled, t.available, t.pending, t.active, t.completed, t.retryable,
                 t.cancelled, t.discarded, t.started, t.exhausted, t.abandoned
             from class c left join tally t on t.class = c.id ",
            $rest
        )
    };
}

/// Returns the counts of all classes.
pub(crate) fn tally(db: &Connection) -> Result<Vec<ClassCounts>, StoreError> {
    let mut select = db.prepare_cached(tally!("order by c.id")).map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut classes = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        classes.push(class_counts(row)?);
    }
    Ok(classes)
}

/// Returns the counts of those of these classes that there are.
pub(crate) fn tally_of(db: &Connection, ids: &[ClassId]) -> Result<Vec<ClassCounts>, StoreError> {
    let mut select = db.prepare_cached(tally!("where c.id = ?")).map_err(failed)?;
    let mut classes = Vec::new();
    for id in ids {
        let mut rows = select.query([id.0]).map_err(failed)?;
        classes.extend(rows.next().map_err(failed)?.map(class_counts).transpose()?);
    }
    classes.sort_unstable_by_key(|class| class.id);
    Ok(classes)
}

fn class_counts(row: &rusqlite::Row<'_>) -> Result<ClassCounts, StoreError> {
    let (id, key) = class_of(row)?;
    Ok(ClassCounts { id, key, counts: counts_at(row, 7)? })
}

fn counts_at(row: &rusqlite::Row<'_>, first: usize) -> Result<Counts, StoreError> {
    let mut values = [0; COLUMNS.len()];
    for (at, value) in (first..).zip(&mut values) {
        *value = row.get::<_, Option<i64>>(at).map_err(failed)?.unwrap_or(0);
    }
    Ok(Counts::of(values))
}

/// The counts of a queue.
const OF_QUEUE: &str = "select scheduled, available, pending, active, completed, retryable,
         cancelled, discarded, started, exhausted, abandoned
     from queue_tally where queue = ?1";

/// The counts of a tenant's jobs in a queue: one row, whatever classes there are.
const OF_TENANT: &str = "select sum(t.scheduled), sum(t.available), sum(t.pending), sum(t.active),
         sum(t.completed), sum(t.retryable), sum(t.cancelled), sum(t.discarded),
         sum(t.started), sum(t.exhausted), sum(t.abandoned)
     from class c cross join tally t on t.class = c.id
     where c.queue = ?1 and c.tenant = ?2 and c.tenant <> ''";

pub(crate) fn counts(
    db: &Connection,
    queue: &str,
    tenant: Option<&str>,
) -> Result<Counts, StoreError> {
    let sql = if tenant.is_some() { OF_TENANT } else { OF_QUEUE };
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = match tenant {
        Some(tenant) => select.query((queue, tenant)),
        None => select.query([queue]),
    }
    .map_err(failed)?;
    rows.next().map_err(failed)?.map_or_else(|| Ok(Counts::default()), |row| counts_at(row, 0))
}

pub(crate) fn pauses(db: &Connection, queue: Option<&str>) -> Result<Vec<QueuePause>, StoreError> {
    let sql = "select name, paused from queue where ?1 is null or name = ?1 order by name";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let rows = select
        .query_map([queue], |row| Ok(QueuePause { name: row.get(0)?, paused: row.get(1)? }))
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// The place of a job in its class.
macro_rules! own_place {
    () => {
        "(select own.rank, own.seq from job_row j join ready own
              on own.class = ?1 and own.rank in (?2, ?3) and own.seq = j.seq
              where j.id = ?4)"
    };
}

/// Jobs without keys are the whole of their class.
const AHEAD_OF_CLASS: &str = concat!(
    "select count(*) from (
         select 1 from ready r where r.class = ?1 and (r.rank, r.seq) < ",
    own_place!(),
    " limit ?5)"
);

const AHEAD_IN_LANE: &str = concat!(
    "select count(*) from (
         select 1 from ready r where r.class = ?1 and r.lane = ?6 and r.lane <> 0
             and (r.rank, r.seq) < ",
    own_place!(),
    " limit ?5)"
);

pub(crate) fn ahead(db: &Connection, query: &AheadQuery) -> Result<u64, StoreError> {
    let id = query.job.0.as_bytes().as_slice();
    let [front, in_order] = query.ranks();
    let of_class = (query.class.0, front, in_order, id, query.max);
    let count = |row: &rusqlite::Row<'_>| row.get(0);
    if query.lane == 0 {
        let mut select = db.prepare_cached(AHEAD_OF_CLASS).map_err(failed)?;
        return select.query_row(of_class, count).map_err(failed);
    }
    let (class, front, in_order, id, max) = of_class;
    let mut select = db.prepare_cached(AHEAD_IN_LANE).map_err(failed)?;
    select.query_row((class, front, in_order, id, max, query.lane), count).map_err(failed)
}

/// The settings of all queues; of one if it is named.
const SETTINGS: &str = "select name, settings, set_by, set_at from queue
     where settings is not null and (?1 is null or name = ?1) order by name";

pub(crate) fn settings(
    db: &Connection,
    queue: Option<&str>,
) -> Result<Vec<QueueRecord>, StoreError> {
    let mut select = db.prepare_cached(SETTINGS).map_err(failed)?;
    let mut rows = select.query([queue]).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let settings: String = row.get(1).map_err(failed)?;
        all.push(QueueRecord {
            queue: row.get(0).map_err(failed)?,
            settings: codec::settings_of(&settings)?,
            set_by: row.get(2).map_err(failed)?,
            set_at: row::time(row, 3).map_err(failed)?,
        });
    }
    Ok(all)
}

/// The names of all queues: it steps from one to the next, however many classes each has.
macro_rules! names {
    () => {
        "with recursive of_classes (name) as (
             select min(queue) from class
             union all
             select (select min(c.queue) from class c where c.queue > n.name)
             from of_classes n where n.name is not null),
         names (name) as (
             select name from of_classes where name is not null union select name from queue)"
    };
}

/// The numbers of queues, a row for each.
macro_rules! stats {
    ($names:expr, $where:literal) => {
        concat!(
            $names,
            " select n.name, coalesce(q.paused, 0),
                 (select min(r.second) from ready_second r where r.queue = n.name),
                 t.scheduled, t.available, t.pending, t.active, t.completed, t.retryable,
                 t.cancelled, t.discarded, t.started, t.exhausted, t.abandoned
             from names n
             left join queue q on q.name = n.name
             left join queue_tally t on t.queue = n.name ",
            $where,
            " order by n.name"
        )
    };
}

const ALL: &str = stats!(names!(), "");
const ONE: &str = stats!(
    "with names (name) as (select ?1)",
    "where q.name is not null or exists (select 1 from class c where c.queue = n.name)"
);

fn stats(row: &rusqlite::Row<'_>) -> Result<QueueStats, StoreError> {
    let (name, paused) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
    let mut stats = QueueStats { name, paused, ..QueueStats::default() };
    let second: Option<i64> = row.get(2).map_err(failed)?;
    stats.oldest_available = second.map(|second| Second(second).start());
    stats.add(&counts_at(row, 3)?);
    Ok(stats)
}

pub(crate) fn all(db: &Connection) -> Result<Vec<QueueStats>, StoreError> {
    let mut select = db.prepare_cached(ALL).map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut queues = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        queues.push(stats(row)?);
    }
    Ok(queues)
}

pub(crate) fn one(db: &Connection, name: &str) -> Result<Option<QueueStats>, StoreError> {
    let mut select = db.prepare_cached(ONE).map_err(failed)?;
    let mut rows = select.query([name]).map_err(failed)?;
    rows.next().map_err(failed)?.map(stats).transpose()
}

pub(crate) fn oldest_claimable(
    db: &Connection,
    classes: &[ClassId],
) -> Result<Vec<OldestClaimable>, StoreError> {
    let mut id = db.prepare_cached("select id from job_row where seq = ?").map_err(failed)?;
    let mut found = Vec::new();
    for (class, (since, seq)) in oldest(db, classes)? {
        let job = id.query_row([seq], |row| row::job_id(row, 0)).map_err(failed)?;
        found.push(OldestClaimable { class, job, since: Timestamp(since) });
    }
    Ok(found)
}

/// A class; since when its oldest job has been claimable, and the job's number.
type Oldest = (ClassId, (i64, i64));

fn oldest(db: &Connection, classes: &[ClassId]) -> Result<Vec<Oldest>, StoreError> {
    oldest_at(db, classes, looked_at(classes.len()))
}

/// Looks at so many jobs at each priority of each class.
fn oldest_at(db: &Connection, classes: &[ClassId], looked: i64) -> Result<Vec<Oldest>, StoreError> {
    let mut next = db
        .prepare_cached("select rank from ready where class = ? and rank > ? order by rank limit 1")
        .map_err(failed)?;
    let mut head = db
        .prepare_cached(
            "select since, seq from
                 (select since, seq from ready where class = ? and rank = ? order by seq limit ?)
             order by since, seq limit 1",
        )
        .map_err(failed)?;
    let mut found = Vec::new();
    for class in classes {
        let mut oldest: Option<(i64, i64)> = None;
        let mut rank = i64::MIN;
        let mut step = |after: i64| next.query_row((class.0, after), |row| row.get(0));
        while let Some(after) = step(rank).optional().map_err(failed)? {
            rank = after;
            let first = head
                .query_row((class.0, rank, looked), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
                .map_err(failed)?;
            oldest = [oldest, first].into_iter().flatten().min();
        }
        found.extend(oldest.map(|oldest| (*class, oldest)));
    }
    Ok(found)
}

pub(crate) fn next_due(db: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select min(at) from (
                 select min(due) as at from waiting where due is not null
                 union all
                 select min(visible_until) from active where visible_until is not null
                 union all
                 select min(deadline) from active where deadline is not null and not cancelled
                 union all
                 select at from (select at from expiry e
                     where not exists (select 1 from active a where a.seq = e.seq)
                     order by at limit 1)
             )",
        )
        .map_err(failed)?;
    let due: Option<i64> = select.query_row([], |row| row.get(0)).map_err(failed)?;
    Ok(due.map(Timestamp))
}

#[cfg(test)]
mod tests;
