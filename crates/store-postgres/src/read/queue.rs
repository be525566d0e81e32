//! Queues, classes, and what is due next.

use std::collections::BTreeMap;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::query::{ClassBacklog, QueueStats};

use crate::read::Reader;
use crate::row::{self, class_of, get};

pub(crate) async fn backlog(reader: &Reader) -> Result<Vec<ClassBacklog>, StoreError> {
    let rows = reader
        .all(
            "select id, queue, job_type, route, tenant, isolated,
                    exists (select 1 from ready r where r.class = class.id)
             from class order by id",
            &[],
        )
        .await?;
    let mut classes = Vec::with_capacity(rows.len());
    for row in &rows {
        let (id, key) = class_of(row)?;
        classes.push(ClassBacklog { id, key, ready: get(row, 6)? });
    }
    Ok(classes)
}

/// Queue, state and count: each table is read once.
const COUNTS: &str = "
    select c.queue, 'available', sum(x.n)::bigint from
        (select r.class, count(*) as n from ready r group by 1) x
    join class c on c.id = x.class group by 1
    union all
    select c.queue, 'active', sum(x.n)::bigint from
        (select j.class, count(*) as n from active a join job_row j on j.seq = a.seq
         where not a.cancelled group by 1) x
    join class c on c.id = x.class group by 1
    union all
    select c.queue, x.state, sum(x.n)::bigint from
        (select j.class, w.state, count(*) as n
         from waiting w join job_row j on j.seq = w.seq group by 1, 2) x
    join class c on c.id = x.class group by 1, 2
    union all
    select c.queue, x.state, sum(x.n)::bigint from
        (select j.class, f.state, count(*) as n
         from finished f join job_row j on j.seq = f.seq group by 1, 2) x
    join class c on c.id = x.class group by 1, 2";

const fn count_of(stats: &mut QueueStats, state: State) -> &mut u64 {
    match state {
        State::Scheduled => &mut stats.scheduled,
        State::Available => &mut stats.available,
        State::Pending => &mut stats.pending,
        State::Active => &mut stats.active,
        State::Completed => &mut stats.completed,
        State::Retryable => &mut stats.retryable,
        State::Cancelled => &mut stats.cancelled,
        State::Discarded => &mut stats.discarded,
    }
}

pub(crate) async fn all(reader: &Reader) -> Result<Vec<QueueStats>, StoreError> {
    let mut queues: BTreeMap<String, QueueStats> = BTreeMap::new();
    let names = reader
        .all(
            "select q.name, q.paused from queue q
             union
             select c.queue, coalesce((select q.paused from queue q where q.name = c.queue), false)
             from class c",
            &[],
        )
        .await?;
    for row in &names {
        let name: String = get(row, 0)?;
        let stats = QueueStats { name: name.clone(), paused: get(row, 1)?, ..Default::default() };
        queues.insert(name, stats);
    }
    for row in &reader.all(COUNTS, &[]).await? {
        let (name, state) = (get::<&str>(row, 0)?, row::state(row, 1)?);
        if let Some(stats) = queues.get_mut(name) {
            *count_of(stats, state) = row::count(row, 2)?;
        }
    }
    let oldest = reader
        .all(
            "select c.queue, min(r.since) from ready r join class c on c.id = r.class
             group by c.queue",
            &[],
        )
        .await?;
    for row in &oldest {
        if let Some(stats) = queues.get_mut(get::<&str>(row, 0)?) {
            stats.oldest_available = row::time_opt(row, 1)?;
        }
    }
    Ok(queues.into_values().collect())
}

pub(crate) async fn next_due(reader: &Reader) -> Result<Option<Timestamp>, StoreError> {
    let row = reader
        .one(
            "select least(
                 (select min(due) from waiting where due is not null),
                 (select min(visible_until) from active where visible_until is not null),
                 (select min(deadline) from active where deadline is not null and not cancelled),
                 (select e.at from expiry e
                     where not exists (select 1 from active a where a.seq = e.seq)
                     order by e.at, e.seq limit 1))",
            &[],
        )
        .await?;
    row.map_or(Ok(None), |row| row::time_opt(&row, 0))
}

/// A job that is being taken in is an arrival or stored in what one statement sees.
pub(crate) async fn arrivals(reader: &Reader, only: Option<JobId>) -> Result<bool, StoreError> {
    let row = match only {
        None => reader.one("select exists (select 1 from arrival)", &[]).await?,
        Some(id) => {
            let sql = "select exists (select 1 from arrival a where a.id = $1)
                 or exists (select 1 from job_row j where j.id = $1)";
            reader.one(sql, &[&id.0]).await?
        }
    };
    row.map_or(Ok(false), |row| get(&row, 0))
}
