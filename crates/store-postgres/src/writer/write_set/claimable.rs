//! Jobs that are claimable as soon as they are stored, and never expire: most are, so they take a
//! shorter way. A batch that stores nothing else is one statement.

use std::sync::LazyLock;

use crate::connection::{Statement, Value};
use crate::writer::write_set::statement::{Columns, statement};

/// What is known of a job that is claimable as soon as it is stored, and never expires.
const CLAIMABLE: Columns = &[
    ("id", "uuid"),
    ("class", "bigint"),
    ("priority", "smallint"),
    ("rules", "text"),
    ("timeout_ms", "bigint"),
    ("visibility_ms", "bigint"),
    ("strand_ms", "bigint"),
    ("origin", "smallint"),
    ("created", "bigint"),
    ("args", "text"),
    ("meta", "text"),
    ("extra", "text"),
];

/// Stores such jobs; where they come from is filled in. `args` pass through no heap of rows.
macro_rules! store_claimable {
    ($from:literal) => {
        concat!(
            "stored as (
                 insert into job_row (seq, {columns})
                 select nextval('job_seq'), {columns} from ",
            $from,
            " returning seq, class, priority, created, strand_ms),
             blocks as (
                 insert into class_block (class, block, writer)
                 select distinct class, seq >> 10, pg_backend_pid() from stored
                 on conflict do nothing),
             claimable as (
                 insert into ready (class, rank, seq, epoch, life, failures, losses,
                                    interruptions, since, strand_ms)
                 select class, -2 * priority::bigint, seq, 0, 1, 0, 0, 0, created, strand_ms
                 from stored)"
        )
    };
}

pub(super) static ALL_CLAIMABLE: LazyLock<String> = LazyLock::new(|| {
    let template = concat!(
        "with ",
        store_claimable!("{rows}"),
        " select outlast.exactly(count(*), {count}) from stored"
    );
    statement(template, &[CLAIMABLE])
});

/// A whole batch that does nothing else, opening and commit included. All of it follows from the
/// row of `server_batch`: if that refuses the batch, no job is stored and the count is wrong.
static WHOLE_BATCH: LazyLock<String> = LazyLock::new(|| {
    let template = concat!(
        "with opened as (
             update server_batch set n = $15,
                 at = (extract(epoch from clock_timestamp()) * 1000)::bigint
             where server = $14 and n < $15 and lane is not null
             returning server, n, lane), ",
        store_claimable!("opened cross join {rows}"),
        ", counted as (
             insert into tally as t (class, server, scheduled, available, pending, active,
                                     completed, retryable, cancelled, discarded, started,
                                     exhausted, abandoned)
             select c.class, o.server, 0, c.available, 0, 0, 0, 0, 0, 0, 0, 0, 0
             from opened o cross join unnest($18::bigint[], $19::bigint[]) c(class, available)
             on conflict (class, server) do update set available = t.available + excluded.available),
         logged as (
             insert into event_batch (lane, n, server, at, body)
             select lane, n, server, $16, $17 from opened)
         select outlast.exactly(count(*), {count}) from stored"
    );
    statement(template, &[CLAIMABLE])
});

/// Whether all that a batch writes is jobs that are claimable at once.
pub(in crate::writer) fn only_store_claimable(writes: &[Statement]) -> bool {
    matches!(writes, [only] if only.sql.as_ptr() == ALL_CLAIMABLE.as_ptr())
}

/// Makes the statement of such a write that of the whole batch.
pub(in crate::writer) fn as_whole_batch(write: Statement, rest: Vec<Value>) -> Statement {
    let mut values = write.values;
    values.extend(rest);
    Statement::new(&WHOLE_BATCH, values)
}
