//! Queues, classes, and what is due next.

use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, OldestClaimable, QueuePause, QueueStats,
    claimable_classes, looked_at, queue_stats,
};
use outlast_store::queue::QueueRecord;
use outlast_store::tally::{COLUMNS, ClassCounts, Counts};
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

/// Returns the counts of all classes.
pub(crate) fn tally(db: &Connection) -> Result<Vec<ClassCounts>, StoreError> {
    let sql =
            "select c.id, c.queue, c.job_type, c.route, c.tenant, c.isolated, c.keyed,
                    t.scheduled, t.available, t.pending, t.active, t.completed, t.retryable, t.cancelled,
                    t.discarded, t.started, t.exhausted, t.abandoned
             from class c left join tally t on t.class = c.id order by c.id";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut classes = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (id, key) = class_of(row)?;
        classes.push(ClassCounts { id, key, counts: counts_at(row, 7)? });
    }
    Ok(classes)
}

fn counts_at(row: &rusqlite::Row<'_>, first: usize) -> Result<Counts, StoreError> {
    let mut values = [0; COLUMNS.len()];
    for (at, value) in (first..).zip(&mut values) {
        *value = row.get::<_, Option<i64>>(at).map_err(failed)?.unwrap_or(0);
    }
    Ok(Counts::of(values))
}

/// The counts of a queue, or of a tenant's jobs in it: one row, whatever classes there are.
pub(crate) fn counts(
    db: &Connection,
    queue: &str,
    tenant: Option<&str>,
) -> Result<Counts, StoreError> {
    let sql = "select sum(t.scheduled), sum(t.available), sum(t.pending), sum(t.active),
             sum(t.completed), sum(t.retryable), sum(t.cancelled), sum(t.discarded),
             sum(t.started), sum(t.exhausted), sum(t.abandoned)
         from class c cross join tally t on t.class = c.id
         where c.queue = ?1 and (?2 is null or c.tenant = ?2 and c.tenant <> '')";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query((queue, tenant)).map_err(failed)?;
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

pub(crate) fn all(db: &Connection) -> Result<Vec<QueueStats>, StoreError> {
    let tally = tally(db)?;
    let oldest = oldest(db, &claimable_classes(&tally))?;
    let since = oldest.into_iter().map(|(class, (since, _))| (class, Timestamp(since))).collect();
    Ok(queue_stats(pauses(db, None)?, &tally, &since))
}

pub(crate) fn one(db: &Connection, name: &str) -> Result<Option<QueueStats>, StoreError> {
    let pause = pauses(db, Some(name))?.pop();
    if pause.is_none() && !has_class(db, name)? {
        return Ok(None);
    }
    let paused = pause.is_some_and(|pause| pause.paused);
    let mut stats = QueueStats { name: name.to_owned(), paused, ..QueueStats::default() };
    stats.add(&counts(db, name, None)?);
    stats.oldest_available = oldest_of(db, name)?;
    Ok(Some(stats))
}

fn has_class(db: &Connection, queue: &str) -> Result<bool, StoreError> {
    let sql = "select exists (select 1 from class where queue = ?)";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    select.query_row([queue], |row| row.get(0)).map_err(failed)
}

/// Classes of a queue that have claimable jobs.
const CLAIMABLE_OF: &str = "select count(*) from class c cross join tally t on t.class = c.id
     where c.queue = ? and t.available > 0";

/// Those of classes that have so few claimable jobs that all are looked at.
const OLDEST_OF_FEW: &str = "select min(r.since)
     from class c cross join tally t on t.class = c.id cross join ready r on r.class = c.id
     where c.queue = ?1 and t.available between 1 and ?2";

/// Classes that have more.
const MANY: &str = "select c.id from class c cross join tally t on t.class = c.id
     where c.queue = ?1 and t.available > ?2";

/// Since when the oldest claimable job of a queue waits.
fn oldest_of(db: &Connection, queue: &str) -> Result<Option<Timestamp>, StoreError> {
    let mut claimable = db.prepare_cached(CLAIMABLE_OF).map_err(failed)?;
    let classes: usize = claimable.query_row([queue], |row| row.get(0)).map_err(failed)?;
    if classes == 0 {
        return Ok(None);
    }
    let looked = looked_at(classes);
    let mut few = db.prepare_cached(OLDEST_OF_FEW).map_err(failed)?;
    let of_few: Option<i64> = few.query_row((queue, looked), |row| row.get(0)).map_err(failed)?;
    let mut many = db.prepare_cached(MANY).map_err(failed)?;
    let many = many.query_map((queue, looked), |row| Ok(ClassId(row.get(0)?))).map_err(failed)?;
    let many = many.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let of_many = oldest_at(db, &many, looked)?.into_iter().map(|(_, (since, _))| since);
    Ok(of_many.chain(of_few).min().map(Timestamp))
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
