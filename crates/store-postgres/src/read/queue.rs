//! Queues, classes, and what is due next.

use std::collections::HashMap;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, JobQuery, OLDEST_LOOKED_MAX, OLDEST_LOOKED_MIN,
    OldestClaimable, QueuePause, QueueStats, claimable_classes, looked_at, queue_stats,
};
use outlast_store::queue::QueueRecord;
use outlast_store::tally::{COLUMNS, ClassCounts, Counts};
use outlast_store_rules::codec;
use outlast_store_rules::list::{is_narrow, names_claimable};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::floors::Floors;
use crate::floors::look::Columns;
use crate::floors::sweeps::Sweeps;
use crate::read::Reader;
use crate::row::{self, class_of, get};

pub(crate) async fn backlog(reader: &Reader) -> Result<Vec<ClassBacklog>, StoreError> {
    Ok(tally(reader).await?.into_iter().map(ClassBacklog::from).collect())
}

/// Steps from class to class by the key of `ready`, whatever classes there are: in the gaps between
/// the classes that have floors. These are counted range by range.
const CLAIMABLE: &str = "with recursive waits(class, high) as (
         select (select r.class from ready r where r.class > g.low and r.class < g.high
                 order by r.class limit 1), g.high
         from unnest($2::bigint[], $3::bigint[]) g(low, high)
         union all
         select (select r.class from ready r where r.class > w.class and r.class < w.high
                 order by r.class limit 1), w.high
         from waits w where w.class is not null),
     counted(class, n) as materialized (
         select w.class, (select count(*) from
             (select 1 from ready r where r.class = w.class limit $1) counted)
         from waits w where w.class is not null
         union all
         select w.class, sum((select count(*) from
             (select 1 from ready r
              where r.class = w.class and (r.rank, r.seq) >= (w.rank, w.seq)
                  and (r.rank, r.seq) < (w.to_rank, w.to_seq)
              limit $1) counted))::bigint
         from unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
             w(class, rank, seq, to_rank, to_seq)
         group by w.class)
     select c.id, c.queue, c.job_type, c.route, c.tenant, c.isolated, c.keyed, least(n.n, $1)
     from counted n join class c on c.id = n.class where n.n > 0 order by c.id";

/// Classes in these gaps; no more than one look reads.
const CLASSES_IN_GAPS: &str = "select c.id from unnest($1::bigint[], $2::bigint[]) g(low, high)
     cross join lateral (
         select c.id from class c where c.id > g.low and c.id < g.high order by c.id limit 1000) c
     limit 1000";

pub(crate) async fn claimable(
    reader: &Reader,
    floors: &Floors<i64>,
    max: u32,
) -> Result<Vec<Claimable>, StoreError> {
    let ranges = floors.all_ranges(|_class| true);
    let (mut low, mut high, mut last) = (Vec::new(), Vec::new(), i64::MIN);
    for class in ranges.iter().map(|range| range.key).chain([i64::MAX]) {
        if class.saturating_sub(1) > last {
            low.push(last);
            high.push(class);
        }
        last = class;
    }
    let w = Columns::of(&ranges);
    let max = i64::from(max);
    let rows = reader
        .all(CLAIMABLE, &[&max, &low, &high, &w.keys, &w.ranks, &w.seqs, &w.to_ranks, &w.to_seqs])
        .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        found.push(get(row, 0)?);
    }
    floors.use_keys(found);
    // Entries of jobs that were taken from a class without a floor are passed each time, though it
    // may have no jobs any more.
    if floors.wants_all_keys(Instant::now()) {
        let mut passed = Vec::new();
        for row in &reader.all(CLASSES_IN_GAPS, &[&low, &high]).await? {
            passed.push(get(row, 0)?);
        }
        floors.use_keys(passed);
    }
    let mut classes = Vec::with_capacity(rows.len());
    for row in &rows {
        let (id, key) = class_of(row)?;
        let count = u32::try_from(row::count(row, 7)?).unwrap_or(u32::MAX);
        classes.push(Claimable { id, key, count });
    }
    Ok(classes)
}

/// The rows of all servers and slots, which are put together here: groups would take longer than all else.
macro_rules! tally {
    ($where:literal) => {
        concat!(
            "select c.id, c.queue, c.job_type, c.route, c.tenant, c.isolated, c.keyed,
                t.scheduled, t.available, t.pending, t.active, t.completed, t.retryable,
                t.cancelled, t.discarded, t.started, t.exhausted, t.abandoned
             from class c left join live_tally t on t.class = c.id ",
            $where,
            " order by c.id"
        )
    };
}

/// The same of some classes, found by these alone.
macro_rules! tally_of {
    ($where:literal) => {
        concat!(
            "with c as materialized (
                 select id, queue, job_type, route, tenant, isolated, keyed from class c where ",
            $where,
            ")
             select c.id, c.queue, c.job_type, c.route, c.tenant, c.isolated, c.keyed,
                t.scheduled, t.available, t.pending, t.active, t.completed, t.retryable,
                t.cancelled, t.discarded, t.started, t.exhausted, t.abandoned
             from c left join live_tally t
                 on t.class = c.id and t.class = any(array(select id from c))
             order by c.id"
        )
    };
}

pub(crate) async fn tally(reader: &Reader) -> Result<Vec<ClassCounts>, StoreError> {
    classes_of(&reader.all(tally!(""), &[]).await?)
}

/// Adds up all counts, or those that follow.
macro_rules! sums {
    () => {
        "select sum(scheduled)::bigint, sum(available)::bigint, sum(pending)::bigint,
             sum(active)::bigint, sum(completed)::bigint, sum(retryable)::bigint,
             sum(cancelled)::bigint, sum(discarded)::bigint, sum(started)::bigint,
             sum(exhausted)::bigint, sum(abandoned)::bigint
         from live_tally"
    };
}

/// The counts of a queue, or of a tenant's jobs in it: one row, whatever classes there are.
const COUNTS: &str = concat!(
    sums!(),
    " where class = any(array(
         select id from class
         where queue = $1 and ($2::text is null or tenant = $2 and tenant <> '')))"
);

pub(crate) async fn counts(
    reader: &Reader,
    queue: &str,
    tenant: Option<&str>,
) -> Result<Counts, StoreError> {
    // PostgreSQL takes no such text, and no class has one.
    if queue.contains('\0') || tenant.is_some_and(|tenant| tenant.contains('\0')) {
        return Ok(Counts::default());
    }
    sum(reader, COUNTS, &[&queue, &tenant]).await
}

fn classes_of(rows: &[Row]) -> Result<Vec<ClassCounts>, StoreError> {
    let mut classes: Vec<ClassCounts> = Vec::with_capacity(rows.len());
    for row in rows {
        let counts = counts_of(row, 7)?;
        match classes.last_mut() {
            Some(last) if last.id.0 == get::<i64>(row, 0)? => last.counts.add(&counts),
            _ => {
                let (id, key) = class_of(row)?;
                classes.push(ClassCounts { id, key, counts });
            }
        }
    }
    Ok(classes)
}

fn counts_of(row: &Row, first: usize) -> Result<Counts, StoreError> {
    let mut values = [0; COLUMNS.len()];
    for (at, value) in (first..).zip(&mut values) {
        *value = get::<Option<i64>>(row, at)?.unwrap_or(0);
    }
    Ok(Counts::of(values))
}

/// All counts together.
pub(crate) async fn sums(reader: &Reader) -> Result<Counts, StoreError> {
    sum(reader, sums!(), &[]).await
}

async fn sum(
    reader: &Reader,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Counts, StoreError> {
    let row = reader.one(sql, values).await?;
    row.map_or_else(|| Ok(Counts::default()), |row| counts_of(&row, 0))
}

/// The counts of those classes that the plan of a list needs ([`Tallied::classes`]).
///
/// [`Tallied::classes`]: outlast_store_rules::list::Tallied
pub(crate) async fn tally_for(
    reader: &Reader,
    query: &JobQuery,
) -> Result<Vec<ClassCounts>, StoreError> {
    if is_narrow(query) {
        let of = tally_of!(
            "($1::text is null or c.queue = $1) and ($2::text is null or c.job_type = $2)
                and ($3::text is null or c.tenant = $3 and c.tenant <> '')"
        );
        // PostgreSQL takes no such text, and no class has one.
        let words = [&query.queue, &query.job_type, &query.tenant];
        if words.into_iter().flatten().any(|word| word.contains('\0')) {
            return Ok(Vec::new());
        }
        classes_of(&reader.all(of, &[&query.queue, &query.job_type, &query.tenant]).await?)
    } else if names_claimable(query) {
        let mut classes = classes_of(&reader.all(tally!("where t.available <> 0"), &[]).await?)?;
        classes.retain(|class| class.counts.state(State::Available) > 0);
        Ok(classes)
    } else {
        Ok(Vec::new())
    }
}

pub(crate) async fn pauses(reader: &Reader) -> Result<Vec<QueuePause>, StoreError> {
    let sql = "select name, paused from queue order by name collate \"C\"";
    let rows = reader.all(sql, &[]).await?;
    rows.iter().map(|row| Ok(QueuePause { name: get(row, 0)?, paused: get(row, 1)? })).collect()
}

/// The place of a job in its class.
macro_rules! own_place {
    () => {
        "(select own.rank, own.seq from job_row j join ready own
              on own.class = $1 and own.rank in ($2, $3) and own.seq = j.seq
              where j.id = $4)"
    };
}

/// Jobs without keys are the whole of their class.
const AHEAD_OF_CLASS: &str = concat!(
    "select count(*) from (
         select 1 from ready r where r.class = $1 and (r.rank, r.seq) < ",
    own_place!(),
    " limit $5) counted"
);

const AHEAD_IN_LANE: &str = concat!(
    "select count(*) from (
         select 1 from ready r where r.class = $1 and r.lane = $6 and r.lane <> 0
             and (r.rank, r.seq) < ",
    own_place!(),
    " limit $5) counted"
);

pub(crate) async fn ahead(reader: &Reader, query: &AheadQuery) -> Result<u64, StoreError> {
    let ([front, in_order], max) = (query.ranks(), i64::from(query.max));
    let (class, job, lane) = (query.class.0, query.job.0, query.lane);
    let row = if lane == 0 {
        reader.one(AHEAD_OF_CLASS, &[&class, &front, &in_order, &job, &max]).await?
    } else {
        reader.one(AHEAD_IN_LANE, &[&class, &front, &in_order, &job, &max, &lane]).await?
    };
    row.map_or(Ok(0), |row| row::count(&row, 0))
}

/// The settings of all queues.
pub(crate) const SETTINGS: &str = "select name, settings, set_by, set_at from queue
     where settings is not null order by name collate \"C\"";

/// Reads the settings of a queue.
pub(crate) fn settings_of(row: &Row) -> Result<QueueRecord, StoreError> {
    Ok(QueueRecord {
        queue: get(row, 0)?,
        settings: codec::settings_of(get(row, 1)?)?,
        set_by: get(row, 2)?,
        set_at: row::time(row, 3)?,
    })
}

pub(crate) async fn settings(reader: &Reader) -> Result<Vec<QueueRecord>, StoreError> {
    reader.all(SETTINGS, &[]).await?.iter().map(settings_of).collect()
}

/// The ranks `k` of the claimable jobs of classes `c`: a skip scan of the index.
macro_rules! ranks {
    () => {
        " cross join lateral (
             with recursive ranks(rank) as (
                 (select r.rank from ready r where r.class = c.class
                  order by r.class, r.rank limit 1)
                 union all
                 select (select r.rank from ready r where r.class = c.class and r.rank > k.rank
                         order by r.class, r.rank limit 1)
                 from ranks k where k.rank is not null)
             select k.rank from ranks k where k.rank is not null) k"
    };
}
pub(super) use ranks;

/// Those that are next in line at each priority of classes `c`.
macro_rules! next_in_line {
    ($looked:literal) => {
        concat!(
            ranks!(),
            " cross join lateral (
                 select r.since, r.seq from ready r where r.class = c.class and r.rank = k.rank
                 order by r.class, r.rank, r.seq limit ",
            $looked,
            ") h "
        )
    };
}

const OLDEST: &str = concat!(
    "select distinct on (c.class) c.class, h.since, h.seq
     from unnest($1::bigint[]) c(class)",
    next_in_line!("$2"),
    "order by c.class, h.since, h.seq"
);

/// The oldest of a queue. A class of few claimable jobs is read as a whole, all such classes in one
/// walk of the index.
const OLDEST_OF: &str = concat!(
    "with counted as materialized (
         select t.class, sum(t.available) as n from live_tally t
         where t.class = any(array(select id from class where queue = $1)) and t.available <> 0
         group by t.class having sum(t.available) > 0),
     looked as materialized (
         select greatest($2::bigint / greatest(count(*), 1), $3::bigint) as n from counted)
     select least(
         (select min(r.since) from ready r where r.class = any(array(
             select c.class from counted c where c.n <= (select l.n from looked l)))),
         (select min(h.since) from (
             select c.class from counted c where c.n > (select l.n from looked l)) c",
    next_in_line!("(select l.n from looked l)"),
    "))"
);

/// The number of the job of each class that has been claimable for longest, and since when.
async fn oldest(
    reader: &Reader,
    classes: &[ClassId],
) -> Result<HashMap<ClassId, (i64, Timestamp)>, StoreError> {
    let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
    let mut oldest = HashMap::new();
    for row in &reader.all(OLDEST, &[&ids, &looked_at(ids.len())]).await? {
        oldest.insert(ClassId(get(row, 0)?), (get(row, 2)?, row::time(row, 1)?));
    }
    Ok(oldest)
}

pub(crate) async fn oldest_claimable(
    reader: &Reader,
    classes: &[ClassId],
) -> Result<Vec<OldestClaimable>, StoreError> {
    let oldest = oldest(reader, classes).await?;
    let numbers: Vec<i64> = oldest.values().map(|(seq, _)| *seq).collect();
    let sql = "select seq, id from job_row where seq = any($1::bigint[])";
    let mut ids: HashMap<i64, JobId> = HashMap::new();
    for row in &reader.all(sql, &[&numbers]).await? {
        ids.insert(get(row, 0)?, row::job_id(row, 1)?);
    }
    // One that a worker took and that was deleted meanwhile waits no more.
    let found = oldest.into_iter().filter_map(|(class, (seq, since))| {
        Some(OldestClaimable { class, job: *ids.get(&seq)?, since })
    });
    Ok(found.collect())
}

pub(crate) async fn all(reader: &Reader) -> Result<Vec<QueueStats>, StoreError> {
    let tally = tally(reader).await?;
    let pauses = pauses(reader).await?;
    let oldest = oldest(reader, &claimable_classes(&tally)).await?;
    let since = oldest.into_iter().map(|(class, (_, since))| (class, since)).collect();
    Ok(queue_stats(pauses, &tally, &since))
}

pub(crate) async fn one(reader: &Reader, name: &str) -> Result<Option<QueueStats>, StoreError> {
    // PostgreSQL takes no such text, and no queue has one.
    if name.contains('\0') {
        return Ok(None);
    }
    let sql = "select (select q.paused from queue q where q.name = $1),
             exists (select 1 from queue q where q.name = $1)
                 or exists (select 1 from class c where c.queue = $1)";
    let Some(row) = reader.one(sql, &[&name]).await? else { return Ok(None) };
    if !get::<bool>(&row, 1)? {
        return Ok(None);
    }
    let paused = get::<Option<bool>>(&row, 0)?.unwrap_or(false);
    let mut stats = QueueStats { name: name.to_owned(), paused, ..QueueStats::default() };
    stats.add(&counts(reader, name, None).await?);
    if stats.available > 0 {
        let row = reader.one(OLDEST_OF, &[&name, &OLDEST_LOOKED_MAX, &OLDEST_LOOKED_MIN]).await?;
        stats.oldest_available = row.map_or(Ok(None), |row| row::time_opt(&row, 0))?;
    }
    Ok(Some(stats))
}

pub(crate) async fn next_due(
    reader: &Reader,
    sweeps: &Sweeps,
) -> Result<Option<Timestamp>, StoreError> {
    let begin = sweeps.begin_read(Instant::now());
    let [timers, expiries, visibilities, deadlines] = &begin.from;
    let row = reader
        .one(
            "select least(
                 (select min(due) from waiting where due >= $1),
                 (select min(visible_until) from active where visible_until >= $3),
                 (select min(deadline) from active where deadline >= $4 and not cancelled),
                 (select e.at from expiry e
                     where e.at >= $2 and not exists (select 1 from active a where a.seq = e.seq)
                     order by e.at, e.seq limit 1))",
            &[timers, expiries, visibilities, deadlines],
        )
        .await?;
    sweeps.end_read(begin, Instant::now());
    row.map_or(Ok(None), |row| row::time_opt(&row, 0))
}
