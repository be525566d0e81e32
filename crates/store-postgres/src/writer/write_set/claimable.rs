//! Jobs that are claimable as soon as they are stored, and never expire: most are, so they take a
//! shorter way. A batch that stores nothing else is one statement.
//!
//! There are two texts of each statement. The one for jobs without keys does not mention keys.

use std::sync::LazyLock;

use outlast_core::job::State;

use crate::connection::{Statement, Value, values};
use crate::writer::write_set::NewRows;
use crate::writer::write_set::statement::{Columns, statement};

/// What is known of such a job; that of jobs without keys is all but the last [`OF_KEYS`].
const COLUMNS: Columns = &[
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
    ("keys", "text"),
    ("lane", "bigint"),
];

/// How many of the columns jobs without keys do not have.
const OF_KEYS: usize = 2;

/// Stores the jobs; where they come from and their lane are filled in. `args` pass through no heap
/// of rows.
macro_rules! store {
    ($from:literal, [$lane:literal, $in_ready:literal]) => {
        concat!(
            "stored as (
                 insert into job_row (seq, {columns})
                 select nextval('job_seq'), {columns} from ",
            $from,
            " returning seq, class, priority, created, strand_ms",
            $lane,
            "),
             blocks as (
                 insert into class_block (class, block, writer)
                 select distinct class, seq >> 10, pg_backend_pid() from stored
                 on conflict do nothing),
             claimable as (
                 insert into ready (class, rank, seq, epoch, life, failures, losses,
                                    interruptions, since, strand_ms",
            $lane,
            ")
                 select class, -2 * priority::bigint, seq, 0, 1, 0, 0, 0, created, strand_ms",
            $in_ready,
            " from stored)"
        )
    };
}

macro_rules! alone {
    ($lane:tt) => {
        concat!(
            "with ",
            store!("{rows}", $lane),
            " select outlast.exactly(count(*), {count}) from stored"
        )
    };
}

/// A whole batch that does nothing else, opening and commit included. All of it follows from the
/// row of `batch_slot`: if that refuses the batch, no job is stored and the count is wrong.
macro_rules! whole_batch {
    ($lane:tt) => {
        concat!(
            "with opened as (
                 update batch_slot set n = {rest 2},
                     at = (extract(epoch from clock_timestamp()) * 1000)::bigint
                 where server = {rest 1} and slot = {rest 8} and n < {rest 2}
                     and bounds = {rest 7}
                 returning server, slot, n, lane as event_lane), ",
            store!("opened cross join {rows}", $lane),
            ", counted as (
                 insert into tally_slot as t (class, server, slot, scheduled, available, pending,
                                              active, completed, retryable, cancelled, discarded,
                                              started, exhausted, abandoned)
                 select c.class, o.server, o.slot, 0, c.available, 0, 0, 0, 0, 0, 0, 0, 0, 0
                 from opened o
                 cross join unnest({rest 5}::bigint[], {rest 6}::bigint[]) c(class, available)
                 on conflict (server, slot, class)
                     do update set available = t.available + excluded.available),
             by_queue as materialized (
                 select o.server, o.slot, q.queue, sum(c.available)::bigint as n
                 from opened o
                 cross join unnest({rest 5}::bigint[], {rest 6}::bigint[]) c(class, available)
                 cross join lateral (
                     select q.queue from class q where q.id = c.class offset 0) q
                 group by o.server, o.slot, q.queue),
             deeper as (
                 insert into depth_slot as d (server, slot, queue, n)
                 select server, slot, queue, n from by_queue
                 on conflict (server, slot, queue) do update set n = d.n + excluded.n),
             aged as (
                 insert into ready_second_slot as r (server, slot, queue, second, jobs)
                 select q.server, q.slot, q.queue, v.second, q.n from by_queue q
                 cross join (values ({rest 3}::bigint / 1000), (-1::bigint)) v(second)
                 on conflict (server, slot, queue, second)
                     do update set jobs = r.jobs + excluded.jobs),
             logged as (
                 insert into event_batch (lane, n, server, at, body, rare)
                 select event_lane, n, server, {rest 3}, {rest 4}, {rest 9} from opened)
             select outlast.exactly(count(*), {count}) from stored"
        )
    };
}

/// The statements for jobs of one sort.
struct Texts {
    alone: String,
    whole_batch: String,
}

impl Texts {
    fn new(columns: Columns, alone: &str, whole_batch: &str) -> Self {
        let mut whole_batch = statement(whole_batch, &[columns]);
        // The values of the rest follow the columns and the count.
        for nth in 1..=9 {
            let number = format!("${}", columns.len() + 1 + nth);
            whole_batch = whole_batch.replace(&format!("{{rest {nth}}}"), &number);
        }
        Self { alone: statement(alone, &[columns]), whole_batch }
    }
}

static PLAIN: LazyLock<Texts> = LazyLock::new(|| {
    let columns = COLUMNS.split_at(COLUMNS.len() - OF_KEYS).0;
    Texts::new(columns, alone!(["", ""]), whole_batch!(["", ""]))
});

static KEYED: LazyLock<Texts> = LazyLock::new(|| {
    // Some of the jobs may have none.
    Texts::new(
        COLUMNS,
        alone!([", lane", ", coalesce(lane, 0)"]),
        whole_batch!([", lane", ", coalesce(lane, 0)"]),
    )
});

impl NewRows {
    /// Whether all are claimable at once, and none expires.
    pub(super) fn are_claimable(&self) -> bool {
        self.state.iter().all(|state| *state == State::Available.as_str())
            && self.expires_at.iter().all(Option::is_none)
    }

    /// Takes the statement that stores such jobs, unless there are none.
    pub(super) fn take_claimable(&mut self) -> Option<Statement> {
        if self.len == 0 {
            return None;
        }
        let all = std::mem::take(self);
        let keyed = all.keys.iter().any(Option::is_some);
        let mut values = values![
            all.id,
            all.class,
            all.priority,
            all.rules,
            all.timeout_ms,
            all.visibility_ms,
            all.strand_ms,
            all.origin,
            all.created,
            all.args,
            all.meta,
            all.extra,
        ];
        if keyed {
            values.extend(values![all.keys, all.lane]);
        }
        values.extend(values![all.len]);
        let texts = if keyed { &KEYED } else { &PLAIN };
        Some(Statement::new(&texts.alone, values))
    }
}

/// Whether all that a batch writes is jobs that are claimable at once.
pub(in crate::writer) fn only_store_claimable(writes: &[Statement]) -> bool {
    matches!(writes, [only] if texts_of(only).is_some())
}

/// Makes the statement of such a write that of the whole batch.
pub(in crate::writer) fn as_whole_batch(write: Statement, rest: Vec<Value>) -> Statement {
    let Some(texts) = texts_of(&write) else { return write };
    let mut values = write.values;
    values.extend(rest);
    Statement::new(&texts.whole_batch, values)
}

fn texts_of(write: &Statement) -> Option<&'static Texts> {
    let is = |texts: &Texts| write.sql.as_ptr() == texts.alone.as_ptr();
    [&*PLAIN, &*KEYED].into_iter().find(|texts| is(texts))
}
