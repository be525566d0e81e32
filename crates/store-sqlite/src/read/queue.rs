//! Queues, classes, and what is due next.

use std::collections::BTreeMap;

use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::query::{ClassBacklog, QueueStats};
use rusqlite::Connection;

use crate::row::{self, failed};
use crate::writer::class_of;

pub(crate) fn backlog(db: &Connection) -> Result<Vec<ClassBacklog>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select id, queue, job_type, route, tenant, isolated,
                    exists (select 1 from ready r where r.class = class.id)
             from class order by id",
        )
        .map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    let mut classes = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (id, key) = class_of(row)?;
        classes.push(ClassBacklog { id, key, ready: row.get(6).map_err(failed)? });
    }
    Ok(classes)
}

/// Queue, state and count: each table is read once.
const COUNTS: [&str; 4] = [
    "select c.queue, 'available', count(*) from ready x join class c on c.id = x.class
     group by c.queue",
    "select c.queue, 'active', count(*) from active x join job_row j on j.seq = x.seq
     join class c on c.id = j.class where not x.cancelled group by c.queue",
    "select c.queue, x.state, sum(x.n) from
         (select j.class as class, w.state as state, count(*) as n
          from waiting w join job_row j on j.seq = w.seq group by 1, 2) x
     join class c on c.id = x.class group by 1, 2",
    "select c.queue, x.state, sum(x.n) from
         (select j.class as class, f.state as state, count(*) as n
          from finished f join job_row j on j.seq = f.seq group by 1, 2) x
     join class c on c.id = x.class group by 1, 2",
];

fn count_of(stats: &mut QueueStats, state: State) -> &mut u64 {
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

pub(crate) fn all(db: &Connection) -> Result<Vec<QueueStats>, StoreError> {
    let mut queues: BTreeMap<String, QueueStats> = BTreeMap::new();
    let mut names = db
        .prepare_cached(
            "select q.name, q.paused from queue q
             union select c.queue, coalesce((select paused from queue where name = c.queue), 0)
             from class c",
        )
        .map_err(failed)?;
    let mut rows = names.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let name: String = row.get(0).map_err(failed)?;
        let paused: bool = row.get(1).map_err(failed)?;
        queues.insert(name.clone(), QueueStats { name, paused, ..QueueStats::default() });
    }
    for sql in COUNTS {
        let mut count = db.prepare_cached(sql).map_err(failed)?;
        let mut rows = count.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let name: String = row.get(0).map_err(failed)?;
            let state = row::state(row, 1).map_err(failed)?;
            if let Some(stats) = queues.get_mut(&name) {
                *count_of(stats, state) = row.get(2).map_err(failed)?;
            }
        }
    }
    oldest(db, &mut queues)?;
    Ok(queues.into_values().collect())
}

fn oldest(db: &Connection, queues: &mut BTreeMap<String, QueueStats>) -> Result<(), StoreError> {
    let mut select = db
        .prepare_cached(
            "select c.queue, min(r.since) from ready r join class c on c.id = r.class
             group by c.queue",
        )
        .map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let name: String = row.get(0).map_err(failed)?;
        if let Some(stats) = queues.get_mut(&name) {
            stats.oldest_available = row.get::<_, Option<i64>>(1).map_err(failed)?.map(Timestamp);
        }
    }
    Ok(())
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
