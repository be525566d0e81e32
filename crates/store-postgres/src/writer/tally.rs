//! The live counts that a batch changes, and the events that it logs: one statement for all of it.
//! The end of a slot adds the counts of its classes up by queue.
//!
//! A server writes rows of its own and no other's, in the order of classes, and other ones in each
//! of its slots. What servers that are gone have left is taken over now and then.

use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::BatchId;
use outlast_store::command::ClassId;
use outlast_store::tally::{COLUMNS, Counts, ReadyChange, Second};

use crate::connection::{Statement, Value, values};
use crate::failure::Failure;
use crate::row::{self, int};
use crate::writer::Tx;

/// Adds rows to those that are there.
macro_rules! upsert {
    ($table:literal, $key:literal, $rows:literal) => {
        concat!(
            "insert into ",
            $table,
            " as t (",
            $key,
            ", scheduled, available, pending, active, completed, retryable, cancelled, discarded,
                 started, exhausted, abandoned) ",
            $rows,
            " on conflict (",
            $key,
            ") do update set
                 scheduled = t.scheduled + excluded.scheduled,
                 available = t.available + excluded.available,
                 pending = t.pending + excluded.pending,
                 active = t.active + excluded.active,
                 completed = t.completed + excluded.completed,
                 retryable = t.retryable + excluded.retryable,
                 cancelled = t.cancelled + excluded.cancelled,
                 discarded = t.discarded + excluded.discarded,
                 started = t.started + excluded.started,
                 exhausted = t.exhausted + excluded.exhausted,
                 abandoned = t.abandoned + excluded.abandoned"
        )
    };
}

/// The depth of queues changes, too, and how many jobs have been claimable since which second; -1
/// stands for all seconds together.
macro_rules! and_deepen {
    ($rows:literal, $keep:expr) => {
        concat!(
            "deeper as (
                 insert into depth_slot as d (server, slot, queue, n) ",
            $rows,
            " on conflict (server, slot, queue) do update set n = d.n + excluded.n),
             aged as (
                 insert into ready_second_slot as r (server, slot, queue, second, jobs)
                 select $1::uuid, $2::bigint, c.queue, v.second, sum(k.jobs)
                 from unnest($15::bigint[], $16::bigint[], $17::bigint[]) k(class, second, jobs)
                 cross join lateral (
                     select c.queue from class c where c.id = k.class offset 0) c
                 cross join lateral (values (k.second), (-1::bigint)) v(second)
                 group by c.queue, v.second having sum(k.jobs) <> 0
                 on conflict (server, slot, queue, second)
                     do update set jobs = r.jobs + excluded.jobs),
             counted as (",
            $keep,
            ")"
        )
    };
}

/// Of one class: most batches touch no other.
macro_rules! keep_one {
    () => {
        and_deepen!(
            "select $1::uuid, $2::bigint, c.queue, $4::bigint + $5::bigint + $6::bigint + $9::bigint
             from class c
             where c.id = $3 and $4::bigint + $5::bigint + $6::bigint + $9::bigint <> 0",
            upsert!(
                "tally_slot",
                "server, slot, class",
                "values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
            )
        )
    };
}

/// Of several classes.
macro_rules! keep {
    () => {
        and_deepen!(
            "select $1::uuid, $2::bigint, c.queue, sum(k.n)
             from (select u.class, u.scheduled + u.available + u.pending + u.retryable as n
                   from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $9::bigint[])
                       u(class, scheduled, available, pending, retryable)) k
             cross join lateral (select c.queue from class c where c.id = k.class offset 0) c
             where k.n <> 0
             group by c.queue",
            upsert!(
                "tally_slot",
                "server, slot, class",
                "select $1, $2, k.class, k.scheduled, k.available, k.pending, k.active,
                     k.completed, k.retryable, k.cancelled, k.discarded, k.started, k.exhausted,
                     k.abandoned
                 from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                             $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
                             $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
                     k(class, scheduled, available, pending, active, completed, retryable,
                       cancelled, discarded, started, exhausted, abandoned)
                 order by k.class"
            )
        )
    };
}

/// Does nothing else.
macro_rules! alone {
    ($keep:expr) => {
        concat!("with ", $keep, " select 1")
    };
}

/// Logs the batch's events, too.
macro_rules! and_log {
    ($keep:expr) => {
        concat!(
            "with ",
            $keep,
            " insert into event_batch (lane, n, server, at, body, rare)
             select b.lane, $18, b.server, $19, $20, $21 from batch_slot b
             where b.server = $1 and b.slot = $2"
        )
    };
}

const KEEP_ONE: &str = alone!(keep_one!());
const KEEP: &str = alone!(keep!());
const KEEP_ONE_AND_LOG: &str = and_log!(keep_one!());
const KEEP_AND_LOG: &str = and_log!(keep!());
const LOG: &str = "insert into event_batch (lane, n, server, at, body, rare)
     select b.lane, $3, b.server, $4, $5, $6 from batch_slot b where b.server = $1 and b.slot = $2";

/// Whether rows `t` count nothing together.
macro_rules! all_zero {
    () => {
        "sum(t.scheduled) = 0 and sum(t.available) = 0 and sum(t.pending) = 0
             and sum(t.active) = 0 and sum(t.completed) = 0 and sum(t.retryable) = 0
             and sum(t.cancelled) = 0 and sum(t.discarded) = 0 and sum(t.started) = 0
             and sum(t.exhausted) = 0 and sum(t.abandoned) = 0"
    };
}

/// Ends the slots of servers that have not written for a while.
const END_SLOTS: &str = "select outlast.close_lanes($1, $2)";

/// Makes rows of such servers ours; the sums stay. A server that is alive all the same begins with
/// new ones.
const TAKE_TALLIES: &str = concat!(
    "with old as materialized (
         select t.ctid as place from tally t
         where t.server <> $1 and not exists (
             select 1 from server_batch b
             where b.server = t.server and (b.lane is not null or b.at >= $2))
         order by t.class, t.server limit $3 for update skip locked),
     gone as (
         delete from tally where ctid = any(array(select place from old)) returning *),
     ours as (",
    upsert!(
        "tally",
        "class, server",
        "select class, $1::uuid, sum(scheduled), sum(available), sum(pending), sum(active),
             sum(completed), sum(retryable), sum(cancelled), sum(discarded), sum(started),
             sum(exhausted), sum(abandoned)
         from gone group by class order by class"
    ),
    ")
     select count(*) from old"
);

const TAKE_QUEUES: &str = concat!(
    "with old as materialized (
         select t.ctid as place from queue_tally t
         where t.server <> $1 and not exists (
             select 1 from server_batch b
             where b.server = t.server and (b.lane is not null or b.at >= $2))
         order by t.queue, t.server limit $3 for update skip locked),
     gone as (
         delete from queue_tally where ctid = any(array(select place from old)) returning *),
     ours as (",
    upsert!(
        "queue_tally",
        "queue, server",
        "select queue, $1::uuid, sum(scheduled), sum(available), sum(pending), sum(active),
             sum(completed), sum(retryable), sum(cancelled), sum(discarded), sum(started),
             sum(exhausted), sum(abandoned)
         from gone group by queue order by queue"
    ),
    ")
     select count(*) from old"
);

const TAKE_SECONDS: &str = "with old as materialized (
         select r.ctid as place from ready_second r
         where r.server <> $1 and not exists (
             select 1 from server_batch b
             where b.server = r.server and (b.lane is not null or b.at >= $2))
         order by r.queue, r.second, r.server limit $3 for update skip locked),
     gone as (
         delete from ready_second where ctid = any(array(select place from old)) returning *),
     ours as (
         insert into ready_second as r (queue, second, server, jobs)
         select queue, second, $1::uuid, sum(jobs) from gone
         group by queue, second order by queue, second
         on conflict (queue, second, server) do update set jobs = r.jobs + excluded.jobs)
     select count(*) from old";

const TAKE_DEPTHS: &str = "with old as materialized (
         select d.ctid as place from depth d
         where d.server <> $1 and not exists (
             select 1 from server_batch b
             where b.server = d.server and (b.lane is not null or b.at >= $2))
         order by d.queue, d.server limit $3 for update skip locked),
     gone as (
         delete from depth where ctid = any(array(select place from old)) returning *),
     ours as (
         insert into depth as d (queue, server, n)
         select queue, $1::uuid, sum(n) from gone group by queue order by queue
         on conflict (queue, server) do update set n = d.n + excluded.n)
     select count(*) from old";

/// Deletes the rows of seconds since which no job has been claimable any more, up to the first since
/// which one has: a look for the oldest job passes them.
const LEAVE_SECONDS: &str = "with recursive queues(name) as (
         (select queue from ready_second order by queue limit 1)
         union all
         select (select r.queue from ready_second r where r.queue > q.name order by r.queue limit 1)
         from queues q where q.name is not null),
     none as materialized (
         select q.name as queue, s.second from queues q
         cross join lateral (
             select r.second from ready_second r
             where r.queue = q.name and r.second < coalesce((
                 select l.second from live_ready_second l
                 where l.queue = q.name and l.second >= 0
                 group by l.second having sum(l.jobs) > 0 order by l.second limit 1),
                 9223372036854775807)
             group by r.second having sum(r.jobs) = 0 order by r.second limit $1) s
         where q.name is not null limit $1),
     locked as materialized (
         select r.ctid as place, r.queue, r.second, r.jobs from none n
         join ready_second r on r.queue = n.queue and r.second = n.second
         order by r.queue, r.second, r.server for update of r skip locked),
     whole as (
         select l.queue, l.second, array_agg(l.place) as places from locked l
         group by l.queue, l.second
         having sum(l.jobs) = 0 and count(*) = (
             select count(*) from ready_second r where r.queue = l.queue and r.second = l.second))
     delete from ready_second where ctid = any(array(
         select place from whole cross join lateral unnest(places) place))";

/// Deletes the rows of queues that count nothing, unless a batch is changing one of them.
const LEAVE_QUEUES: &str = concat!(
    "with none as materialized (
         select t.queue from queue_tally t group by t.queue having ",
    all_zero!(),
    " order by t.queue limit $1),
     locked as materialized (
         select t.ctid as place, t.* from queue_tally t
         where t.queue = any(array(select queue from none))
         order by t.queue, t.server for update skip locked),
     whole as (
         select t.queue, array_agg(t.place) as places from locked t group by t.queue having ",
    all_zero!(),
    " and count(*) = (select count(*) from queue_tally q where q.queue = t.queue))
     delete from queue_tally where ctid = any(array(
         select place from whole cross join lateral unnest(places) place))"
);

/// How long a server is silent before its rows are taken over.
const SILENT_MS: i64 = 60 * 60 * 1000;

/// What a batch counts and logs.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) id: BatchId,
    pub(super) slot: i64,
    /// When it was applied.
    pub(super) at: Timestamp,
    /// By how much it changed the counts.
    pub(super) changes: Vec<(ClassId, Counts)>,
    /// And those of claimable jobs by second.
    pub(super) ready: Vec<ReadyChange>,
    /// Its events, as they are stored.
    pub(super) events: Option<String>,
    /// Which rare ones are among them.
    pub(super) rare: i64,
}

impl Ending {
    /// Returns the statement that writes it, if there is anything to be written.
    pub(super) fn into_statement(self) -> Option<Statement> {
        let log = self.events.map(|body| values![int(self.id.n), self.at.0, body, self.rare]);
        let sql = match (self.changes.len(), log.is_some()) {
            (0, false) if self.ready.is_empty() => return None,
            (0, true) if self.ready.is_empty() => LOG,
            (1, false) => KEEP_ONE,
            (1, true) => KEEP_ONE_AND_LOG,
            (_, false) => KEEP,
            (_, true) => KEEP_AND_LOG,
        };
        let mut all = values![self.id.server, self.slot];
        if !self.changes.is_empty() || !self.ready.is_empty() {
            all.append(&mut changed(self.changes));
            all.append(&mut changed_seconds(self.ready));
        }
        all.extend(log.into_iter().flatten());
        Some(Statement::new(sql, all))
    }

    /// Returns the values for a statement that also opens the batch: if jobs became claimable, and
    /// nothing else is to be counted. `bounds` is what the server knows of bounded queues.
    pub(super) fn of_claimable(&self, bounds: i64) -> Option<Vec<Value>> {
        let is_plain = |counts: &Counts| {
            counts.values().iter().filter(|count| **count != 0).count() == 1
                && counts.state(State::Available) > 0
        };
        let events = self.events.clone()?;
        let now = Second::of(self.at);
        let is_new = |change: &ReadyChange| change.second == now;
        if !self.changes.iter().all(|(_, counts)| is_plain(counts))
            || !self.ready.iter().all(is_new)
        {
            return None;
        }
        let mut classes = Vec::with_capacity(self.changes.len());
        let mut available = Vec::with_capacity(self.changes.len());
        for (class, counts) in &self.changes {
            classes.push(class.0);
            available.push(int(counts.state(State::Available)));
        }
        let (server, n, at) = (self.id.server, int(self.id.n), self.at.0);
        let rare = self.rare;
        Some(values![server, n, at, events, classes, available, bounds, self.slot, rare])
    }
}

/// Returns the values of changed counts: those of one class, or columns of several.
fn changed(changes: Vec<(ClassId, Counts)>) -> Vec<Value> {
    if let [(class, counts)] = changes.as_slice() {
        let mut all = values![class.0];
        all.extend(counts.values().iter().map(|count| Box::new(*count) as Value));
        return all;
    }
    let mut classes = Vec::with_capacity(changes.len());
    let mut columns: [Vec<i64>; COLUMNS.len()] = Default::default();
    for (class, counts) in changes {
        classes.push(class.0);
        for (column, count) in columns.iter_mut().zip(counts.values()) {
            column.push(*count);
        }
    }
    let mut all = values![classes];
    all.extend(columns.into_iter().map(|column| Box::new(column) as Value));
    all
}

/// Returns the columns of changes by second.
fn changed_seconds(changes: Vec<ReadyChange>) -> Vec<Value> {
    let (mut classes, mut seconds, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        classes.push(change.class.0);
        seconds.push(change.second.0);
        more.push(change.more);
    }
    values![classes, seconds, more]
}

impl Tx<'_> {
    /// Deletes rows that count nothing any more.
    pub(super) fn leave_counts(&mut self, limit: i64) {
        self.leave_empty_depths(limit);
        self.write(LEAVE_QUEUES, values![limit]);
        self.write(LEAVE_SECONDS, values![limit]);
    }

    /// Takes over what servers that are gone have counted; returns how many rows of the sort that
    /// has more.
    pub(super) async fn take_tallies_over(&mut self, limit: i64) -> Result<usize, Failure> {
        let silent = self.batch.context.now.0 - SILENT_MS;
        self.write(END_SLOTS, values![self.server, silent]);
        let theirs = || values![self.server, silent, limit];
        let taking = [TAKE_TALLIES, TAKE_QUEUES, TAKE_SECONDS, TAKE_DEPTHS]
            .map(|sql| Statement::new(sql, theirs()));
        let mut most = 0;
        for rows in self.query_all(taking.into()).await? {
            let taken = rows.first().map(|row| row::count(row, 0)).transpose()?;
            most = most.max(taken.unwrap_or_default());
        }
        Ok(usize::try_from(most).unwrap_or(usize::MAX))
    }
}
