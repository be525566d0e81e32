//! The live counts that a batch changes, by class and by queue, and the events that it logs: one
//! statement for all of it.
//!
//! A server writes rows of its own and no other's, in the order of classes, and other ones in each
//! of its slots. What servers that are gone have left is taken over now and then.

use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::BatchId;
use outlast_store::command::ClassId;
use outlast_store::tally::{COLUMNS, Counts};

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

/// The depth of queues changes, too.
macro_rules! and_deepen {
    ($rows:literal, $keep:expr) => {
        concat!(
            "deeper as (
                 insert into depth_slot as d (server, slot, queue, n) ",
            $rows,
            " on conflict (server, slot, queue) do update set n = d.n + excluded.n),
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
            " insert into event_batch (lane, n, server, at, body)
             select b.lane, $15, b.server, $16, $17 from batch_slot b
             where b.server = $1 and b.slot = $2"
        )
    };
}

const KEEP_ONE: &str = alone!(keep_one!());
const KEEP: &str = alone!(keep!());
const KEEP_ONE_AND_LOG: &str = and_log!(keep_one!());
const KEEP_AND_LOG: &str = and_log!(keep!());
const LOG: &str = "insert into event_batch (lane, n, server, at, body)
     select b.lane, $3, b.server, $4, $5 from batch_slot b where b.server = $1 and b.slot = $2";

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
    /// Its events, as they are stored.
    pub(super) events: Option<String>,
}

impl Ending {
    /// Returns the statement that writes it, if there is anything to be written.
    pub(super) fn into_statement(self) -> Option<Statement> {
        let log = self.events.map(|body| values![int(self.id.n), self.at.0, body]);
        let sql = match (self.changes.len(), log.is_some()) {
            (0, false) => return None,
            (0, true) => LOG,
            (1, false) => KEEP_ONE,
            (1, true) => KEEP_ONE_AND_LOG,
            (_, false) => KEEP,
            (_, true) => KEEP_AND_LOG,
        };
        let mut all = values![self.id.server, self.slot];
        all.append(&mut changed(self.changes));
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
        if !self.changes.iter().all(|(_, counts)| is_plain(counts)) {
            return None;
        }
        let mut classes = Vec::with_capacity(self.changes.len());
        let mut available = Vec::with_capacity(self.changes.len());
        for (class, counts) in &self.changes {
            classes.push(class.0);
            available.push(int(counts.state(State::Available)));
        }
        let (server, n) = (self.id.server, int(self.id.n));
        Some(values![server, n, self.at.0, events, classes, available, bounds, self.slot])
    }
}

/// Returns the values of changed counts: those of one class, or columns of several.
fn changed(changes: Vec<(ClassId, Counts)>) -> Vec<Value> {
    if let [(class, counts)] = changes.as_slice() {
        let mut all = values![class.0];
        all.extend(counts.values().iter().map(|count| Box::new(*count) as Value));
        return all;
    }
    if changes.is_empty() {
        return Vec::new();
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

impl Tx<'_> {
    /// Takes over what servers that are gone have counted; returns how many rows of the sort that
    /// has more.
    pub(super) async fn take_tallies_over(&mut self, limit: i64) -> Result<usize, Failure> {
        let silent = self.batch.context.now.0 - SILENT_MS;
        self.write(END_SLOTS, values![self.server, silent]);
        let theirs = || values![self.server, silent, limit];
        let taking = [TAKE_TALLIES, TAKE_DEPTHS].map(|sql| Statement::new(sql, theirs()));
        let mut most = 0;
        for rows in self.query_all(taking.into()).await? {
            let taken = rows.first().map(|row| row::count(row, 0)).transpose()?;
            most = most.max(taken.unwrap_or_default());
        }
        Ok(usize::try_from(most).unwrap_or(usize::MAX))
    }
}
