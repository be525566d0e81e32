//! The live counts that a batch changes, and the events that it logs: one statement for both.
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
use crate::row::{get, int};
use crate::writer::Tx;

/// Adds rows to those that are there.
macro_rules! upsert {
    ($rows:literal) => {
        concat!(
            "insert into tally_slot as t (class, server, slot, scheduled, available, pending, active,
                             completed, retryable, cancelled, discarded, started,
                             exhausted, abandoned) ",
            $rows,
            " on conflict (server, slot, class) do update set
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

/// Of one class: most batches touch no other.
macro_rules! keep_one {
    () => {
        upsert!("values ($3, $1, $2, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)")
    };
}

/// Of several classes.
macro_rules! keep {
    () => {
        upsert!(
            "select k.class, $1, $2, k.scheduled, k.available, k.pending, k.active, k.completed,
                 k.retryable, k.cancelled, k.discarded, k.started, k.exhausted, k.abandoned
             from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
                         $12::bigint[], $13::bigint[], $14::bigint[])
                 k(class, scheduled, available, pending, active, completed, retryable, cancelled,
                   discarded, started, exhausted, abandoned)
             order by k.class"
        )
    };
}

/// Logs the batch's events, too.
macro_rules! and_log {
    ($keep:expr) => {
        concat!(
            "with counted as (",
            $keep,
            ") insert into event_batch (lane, n, server, at, body)
             select b.lane, $15, b.server, $16, $17 from batch_slot b
             where b.server = $1 and b.slot = $2"
        )
    };
}

const KEEP_ONE: &str = keep_one!();
const KEEP: &str = keep!();
const KEEP_ONE_AND_LOG: &str = and_log!(keep_one!());
const KEEP_AND_LOG: &str = and_log!(keep!());
const LOG: &str = "insert into event_batch (lane, n, server, at, body)
     select b.lane, $3, b.server, $4, $5 from batch_slot b where b.server = $1 and b.slot = $2";

/// Ends the slots of servers that have not written for a while.
const END_SLOTS: &str = "select outlast.close_lanes($1, $2)";

/// Rows of such servers. One that is alive all the same begins with new ones.
const LEFT: &str = "with old as materialized (
         select t.ctid as place from tally t
         where t.server <> $1 and not exists (
             select 1 from server_batch b
             where b.server = t.server and (b.lane is not null or b.at >= $2))
         order by t.class, t.server limit $3 for update skip locked)
     delete from tally where ctid = any(array(select place from old))
     returning class, scheduled, available, pending, active, completed, retryable, cancelled,
         discarded, started, exhausted, abandoned";

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
    /// Takes over what servers that are gone have counted; returns how many rows.
    pub(super) async fn take_tallies_over(&mut self, limit: i64) -> Result<usize, Failure> {
        let silent = self.batch.context.now.0 - SILENT_MS;
        self.write(END_SLOTS, values![self.server, silent]);
        let rows = self.query(LEFT, values![self.server, silent, limit]).await?;
        self.forget_depths();
        for row in &rows {
            let mut counts = [0; COLUMNS.len()];
            for (at, count) in (1..).zip(&mut counts) {
                *count = get(row, at)?;
            }
            self.batch.outbox.tally.taken_over(ClassId(get(row, 0)?), &Counts::of(counts));
        }
        Ok(rows.len())
    }
}
