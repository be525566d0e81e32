//! The live counts that a batch changes: one statement for all classes that it touched.
//!
//! A server writes rows of its own and no other's, in the order of classes. What servers that
//! are gone have left is taken over now and then.

use outlast_store::command::ClassId;
use outlast_store::tally::{COLUMNS, Counts};
use uuid::Uuid;

use crate::connection::{Statement, Value, values};
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;

/// Adds rows to those that are there.
macro_rules! upsert {
    ($rows:literal) => {
        concat!(
            "insert into tally as t (class, server, scheduled, available, pending, active,
                             completed, retryable, cancelled, discarded, started,
                             exhausted, abandoned) ",
            $rows,
            " on conflict (class, server) do update set
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

/// Most batches touch one class.
const KEEP_ONE: &str = upsert!("values ($2, $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)");

const KEEP: &str = upsert!(
    "select k.class, $1, k.scheduled, k.available, k.pending, k.active, k.completed, k.retryable,
         k.cancelled, k.discarded, k.started, k.exhausted, k.abandoned
     from unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                 $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[],
                 $11::bigint[], $12::bigint[], $13::bigint[])
         k(class, scheduled, available, pending, active, completed, retryable, cancelled,
           discarded, started, exhausted, abandoned)
     order by k.class"
);

/// Rows of servers that have not written for a while. One that is alive all the same begins
/// with new ones.
const LEFT: &str = "with old as materialized (
         select t.ctid as place from tally t
         where t.server <> $1 and not exists (
             select 1 from server_batch b where b.server = t.server and b.at >= $2)
         order by t.class, t.server limit $3 for update skip locked)
     delete from tally where ctid = any(array(select place from old))
     returning class, scheduled, available, pending, active, completed, retryable, cancelled,
         discarded, started, exhausted, abandoned";

/// How long a server is silent before its rows are taken over.
const SILENT_MS: i64 = 60 * 60 * 1000;

/// Writes by how much a batch changed the counts, if it did.
pub(super) fn keep(server: Uuid, changes: Vec<(ClassId, Counts)>) -> Option<Statement> {
    if changes.is_empty() {
        return None;
    }
    if let [(class, counts)] = changes.as_slice() {
        let mut all = values![server, class.0];
        all.extend(counts.values().iter().map(|count| Box::new(*count) as Value));
        return Some(Statement::new(KEEP_ONE, all));
    }
    let mut classes = Vec::with_capacity(changes.len());
    let mut columns: [Vec<i64>; COLUMNS.len()] = Default::default();
    for (class, counts) in changes {
        classes.push(class.0);
        for (column, count) in columns.iter_mut().zip(counts.values()) {
            column.push(*count);
        }
    }
    let mut all = values![server, classes];
    all.extend(columns.into_iter().map(|column| Box::new(column) as Value));
    Some(Statement::new(KEEP, all))
}

impl Tx<'_> {
    /// Takes over what servers that are gone have counted; returns how many rows.
    pub(super) async fn take_tallies_over(&mut self, limit: i64) -> Result<usize, Failure> {
        let silent = self.context.now.0 - SILENT_MS;
        let rows = self.query(LEFT, values![self.server, silent, limit]).await?;
        for row in &rows {
            let mut counts = [0; COLUMNS.len()];
            for (at, count) in (1..).zip(&mut counts) {
                *count = get(row, at)?;
            }
            self.outbox.tally.taken_over(ClassId(get(row, 0)?), &Counts::of(counts));
        }
        Ok(rows.len())
    }
}
