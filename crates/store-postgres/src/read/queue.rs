//! Queues, classes, and what is due next.

use std::collections::HashMap;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, JobQuery, OLDEST_LOOKED_MAX, OLDEST_LOOKED_MIN,
    OldestClaimable, QueuePause, QueueStats, looked_at,
};
use outlast_store::queue::QueueRecord;
use outlast_store::tally::{COLUMNS, ClassCounts, Counts, Second};
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

/// Returns the counts of those of these classes that there are.
pub(crate) async fn tally_of(
    reader: &Reader,
    classes: &[ClassId],
) -> Result<Vec<ClassCounts>, StoreError> {
    if classes.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
    classes_of(&reader.all(tally_of!("c.id = any($1::bigint[])"), &[&ids]).await?)
}

/// Adds up the counts of some rows.
macro_rules! sums {
    ($from:literal) => {
        concat!(
            "select sum(scheduled)::bigint, sum(available)::bigint, sum(pending)::bigint,
             sum(active)::bigint, sum(completed)::bigint, sum(retryable)::bigint,
             sum(cancelled)::bigint, sum(discarded)::bigint, sum(started)::bigint,
             sum(exhausted)::bigint, sum(abandoned)::bigint
         from ",
            $from
        )
    };
}

const ALL_COUNTS: &str = sums!("live_queue_tally");
const OF_QUEUE: &str = sums!("live_queue_tally where queue = $1");
/// The counts of a tenant's jobs in a queue: one row, whatever classes there are.
const OF_TENANT: &str = sums!(
    "live_tally where class = any(array(
         select id from class where queue = $1 and tenant = $2 and tenant <> ''))"
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
    match tenant {
        Some(tenant) => sum(reader, OF_TENANT, &[&queue, &tenant]).await,
        None => sum(reader, OF_QUEUE, &[&queue]).await,
    }
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
    sum(reader, ALL_COUNTS, &[]).await
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

/// The names of all queues: it steps from one to the next, however many classes each has.
macro_rules! all_names {
    () => {
        "with recursive of_classes(name) as (
             (select c.queue from class c order by c.queue limit 1)
             union all
             select (select c.queue from class c where c.queue > n.name order by c.queue limit 1)
             from of_classes n where n.name is not null),
         names(name) as (
             select name from of_classes where name is not null union select name from queue),
         counted as materialized ("
    };
}

/// The name of one queue, if it is known.
macro_rules! one_name {
    () => {
        "with names(name) as (
             select $1::text where exists (select 1 from queue q where q.name = $1)
                 or exists (select 1 from class c where c.queue = $1)),
         counted as materialized ("
    };
}

/// The numbers of queues. The first second that counts a claimable job is believed if all seconds
/// together count as many jobs as are claimable.
macro_rules! stats {
    ($names:expr, $where:literal) => {
        concat!(
            $names,
            "select queue, sum(scheduled)::bigint as scheduled, sum(available)::bigint as available,
                 sum(pending)::bigint as pending, sum(active)::bigint as active,
                 sum(completed)::bigint as completed, sum(retryable)::bigint as retryable,
                 sum(cancelled)::bigint as cancelled, sum(discarded)::bigint as discarded,
                 sum(started)::bigint as started, sum(exhausted)::bigint as exhausted,
                 sum(abandoned)::bigint as abandoned
             from live_queue_tally ",
            $where,
            " group by queue)
             select n.name, coalesce(q.paused, false), o.second,
                 coalesce((select sum(a.jobs) from live_ready_second a
                           where a.queue = n.name and a.second = -1), 0)
                     = coalesce(t.available, 0),
                 t.scheduled, t.available, t.pending, t.active, t.completed, t.retryable,
                 t.cancelled, t.discarded, t.started, t.exhausted, t.abandoned
             from names n
             left join queue q on q.name = n.name
             left join counted t on t.queue = n.name
             left join lateral (
                 select s.second from live_ready_second s
                 where t.available > 0 and s.queue = n.name and s.second >= 0
                 group by s.second having sum(s.jobs) > 0 order by s.second limit 1) o on true
             order by n.name collate \"C\""
        )
    };
}

pub(crate) const ALL: &str = stats!(all_names!(), "");
pub(crate) const ONE: &str = stats!(one_name!(), "where queue = $1");

/// Reads the numbers of a queue from a row.
async fn stats_of(reader: &Reader, row: &Row) -> Result<QueueStats, StoreError> {
    let (name, paused) = (get(row, 0)?, get(row, 1)?);
    let mut stats = QueueStats { name, paused, ..QueueStats::default() };
    stats.add(&counts_of(row, 4)?);
    let second: Option<i64> = get(row, 2)?;
    if stats.available == 0 {
        return Ok(stats);
    }
    stats.oldest_available = match second.filter(|_| get(row, 3).unwrap_or(false)) {
        Some(second) => Some(Second(second).start()),
        None => oldest_of_classes(reader, &stats.name).await?,
    };
    Ok(stats)
}

/// Looks for the oldest claimable job in all classes of a queue: a server of the build before has
/// moved jobs without counting them by second.
async fn oldest_of_classes(reader: &Reader, queue: &str) -> Result<Option<Timestamp>, StoreError> {
    let row = reader.one(OLDEST_OF, &[&queue, &OLDEST_LOOKED_MAX, &OLDEST_LOOKED_MIN]).await?;
    let since = row.map_or(Ok(None), |row| row::time_opt(&row, 0))?;
    Ok(since.map(|since| Second::of(since).start()))
}

pub(crate) async fn all(reader: &Reader) -> Result<Vec<QueueStats>, StoreError> {
    let rows = reader.all(ALL, &[]).await?;
    let mut queues = Vec::with_capacity(rows.len());
    for row in &rows {
        queues.push(stats_of(reader, row).await?);
    }
    Ok(queues)
}

pub(crate) async fn one(reader: &Reader, name: &str) -> Result<Option<QueueStats>, StoreError> {
    // PostgreSQL takes no such text, and no queue has one.
    if name.contains('\0') {
        return Ok(None);
    }
    match reader.one(ONE, &[&name]).await? {
        Some(row) => Ok(Some(stats_of(reader, &row).await?)),
        None => Ok(None),
    }
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
