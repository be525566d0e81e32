//! What a batch writes, gathered by table: one statement for all rows of a sort.
//!
//! A statement is written once, with `{rows}` for its rows: `unnest` of one array for each column,
//! under the name `k`. `{columns}` are the columns' names and `{count}` is how many rows there
//! are. Numbers and types of the arrays follow from the fields of the row.

use std::sync::LazyLock;

use outlast_core::job::State;
use uuid::Uuid;

use crate::connection::{Statement, Value, values};

/// A type of a column, as PostgreSQL calls it.
trait Column {
    const TYPE: &'static str;
}

macro_rules! columns {
    ($($type:ty: $name:literal),* $(,)?) => {
        $(impl Column for $type { const TYPE: &'static str = $name; })*
    };
}

columns! {
    bool: "boolean", i16: "smallint", i32: "integer", i64: "bigint", Uuid: "uuid",
    String: "text", &'static str: "text", Vec<u8>: "bytea",
}

impl<T: Column> Column for Option<T> {
    const TYPE: &'static str = T::TYPE;
}

/// Names and types of a row's columns.
type Columns = &'static [(&'static str, &'static str)];

/// Writes a statement out. Of several sorts of rows, those after the first are `{rows 2}` and so
/// on; each sort's arrays are followed by its count.
fn statement(template: &str, sorts: &[Columns]) -> String {
    let mut sql = template.to_owned();
    let mut number = 0;
    for (nth, columns) in (1..).zip(sorts) {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let arrays = columns.iter().map(|(_, of)| {
            number += 1;
            format!("${number}::{of}[]")
        });
        let arrays: Vec<String> = arrays.collect();
        number += 1;
        let rows = format!("unnest({}) k({names})", arrays.join(", "));
        for (what, text) in [("rows", rows), ("columns", names), ("count", format!("${number}"))] {
            let place = if nth == 1 { format!("{{{what}}}") } else { format!("{{{what} {nth}}}") };
            sql = sql.replace(&place, &text);
        }
    }
    sql
}

/// Declares the rows of one statement: a struct for a row, one for all of them as columns,
/// and the statement.
macro_rules! rows {
    ($(#[$doc:meta])* $row:ident, $rows:ident, $sql:expr, { $($column:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $row { $(pub(super) $column: $type),* }

        #[derive(Debug, Default)]
        pub(super) struct $rows { len: i64, $($column: Vec<$type>),* }

        impl $rows {
            const COLUMNS: Columns = &[$((stringify!($column), <$type as Column>::TYPE)),*];

            pub(super) fn push(&mut self, row: $row) {
                self.len += 1;
                $(self.$column.push(row.$column);)*
            }

            /// Takes the columns and how many rows there are, unless there are none.
            fn values(&mut self) -> Option<Vec<Value>> {
                if self.len == 0 {
                    return None;
                }
                let all = std::mem::take(self);
                Some(values![$(all.$column),*, all.len])
            }

            fn take(&mut self) -> Option<Statement> {
                static SQL: LazyLock<String> =
                    LazyLock::new(|| statement($sql, &[$rows::COLUMNS]));
                self.values().map(|values| Statement::new(&SQL, values))
            }
        }
    };
}

const ACTIVE_GONE: &str = "
     delete from active a using {rows}
     where a.seq = k.seq and a.epoch = k.epoch and a.cancelled = k.cancelled
         and a.started is not distinct from k.started
         and coalesce((select true from checkpoint c where c.seq = a.seq), false) = k.checkpoint
     returning 1";

rows! {
    /// A job leaves the claimable ones: the compare-and-set.
    ReadyGone, ReadyGones,
    "with gone as (
         delete from ready r using {rows}
         where r.class = k.class and r.rank = k.rank and r.seq = k.seq and r.epoch = k.epoch
         returning 1)
     select outlast.exactly(count(*), {count}) from gone",
    { class: i64, rank: i64, seq: i64, epoch: i64 }
}

rows! {
    /// A job leaves those that wait.
    WaitingGone, WaitingGones,
    "with gone as (
         delete from waiting w using {rows}
         where w.seq = k.seq and w.epoch = k.epoch and w.state = k.state
         returning 1)
     select outlast.exactly(count(*), {count}) from gone",
    { seq: i64, epoch: i64, state: &'static str }
}

rows! {
    /// An attempt is over. It goes if it is what the decision took it for.
    ActiveGone, ActiveGones,
    &format!("with gone as ({ACTIVE_GONE}) select outlast.exactly(count(*), {{count}}) from gone"),
    { seq: i64, epoch: i64, started: Option<i64>, cancelled: bool, checkpoint: bool }
}

rows! {
    /// An attempt stays held, changed.
    ActiveKept, ActiveKepts,
    "with kept as (
         update active a set started = k.started, cancelled = k.cancelled,
             pack_digest = k.pack_digest
         from {rows}
         where a.seq = k.seq and a.epoch = k.epoch and a.cancelled = k.was_cancelled
             and a.started is not distinct from k.was_started
         returning 1)
     select outlast.exactly(count(*), {count}) from kept",
    {
        seq: i64, epoch: i64, was_started: Option<i64>, was_cancelled: bool,
        started: Option<i64>, cancelled: bool, pack_digest: Option<String>,
    }
}

rows! {
    /// A job leaves those that have ended, to live again, with the dead letter that it is known
    /// to have.
    FinishedGone, FinishedGones,
    "with gone as (
         delete from finished f using {rows}
         where f.seq = k.seq and f.epoch = k.epoch and f.state = k.state
             and k.letter is not distinct from
                 (select d.reason from dead_letter_row d where d.seq = k.seq)
         returning k.seq),
     letters as (
         delete from dead_letter_row d using gone where d.seq = gone.seq)
     select outlast.exactly(count(*), {count}) from gone",
    { seq: i64, epoch: i64, state: &'static str, letter: Option<&'static str> }
}

rows! {
    /// A job is stored: claimable, waiting, or refused. Its number is drawn here, in this order.
    NewRow, NewRows,
    "with k as materialized (
             select nextval('job_seq') as seq, k.* from {rows}),
         stored as (
             insert into job_row (seq, id, class, priority, rules, timeout_ms, visibility_ms,
                                  strand_ms, origin, created, scheduled_for, expires_at, args,
                                  meta, extra)
             select seq, id, class, priority, rules, timeout_ms, visibility_ms, strand_ms, origin,
                    created, scheduled_for, expires_at, args, meta, extra
             from k
             returning 1),
         blocks as (
             insert into class_block (class, block, writer)
             select distinct class, seq >> 10, pg_backend_pid() from k
             on conflict do nothing),
         claimable as (
             insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions,
                                since, strand_ms, expires)
             select class, -2 * priority::bigint, seq, 0, 1, 0, 0, 0, created, strand_ms, expires_at
             from k where state = 'available'),
         later as (
             insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions,
                                  isolated, since)
             select seq, state, scheduled_for, 0, 1, 0, 0, 0, false, created
             from k where state not in ('available', 'discarded')),
         expiries as (
             insert into expiry (at, seq)
             select expires_at, seq from k where expires_at is not null and state <> 'discarded'),
         refused as (
             insert into finished (seq, state, at, epoch, life, failures, losses, interruptions,
                                   isolated, attempt, shown, error, ended_by)
             select seq, state, created, 0, 1, 0, 0, 0, false, 0, true, refusal, 'refused'
             from k where state = 'discarded')
         select outlast.exactly(count(*), {count}) from stored",
    {
        id: Uuid, class: i64, priority: i16, rules: Option<String>, timeout_ms: Option<i64>,
        visibility_ms: Option<i64>, strand_ms: Option<i64>, origin: i16, created: i64,
        scheduled_for: Option<i64>, expires_at: Option<i64>, args: String, meta: String,
        extra: String, state: &'static str, refusal: Option<String>,
    }
}

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

static ALL_CLAIMABLE: LazyLock<String> = LazyLock::new(|| {
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

rows! {
    /// A job becomes claimable.
    ReadyRow, ReadyRows,
    "with put as (
         insert into ready ({columns}) select {columns} from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        class: i64, rank: i64, seq: i64, epoch: i64, life: i32, failures: i32, losses: i32,
        interruptions: i32, since: i64, strand_ms: Option<i64>, expires: Option<i64>,
    }
}

rows! {
    /// A job waits for its time, or for someone.
    WaitingRow, WaitingRows,
    "with put as (
         insert into waiting ({columns}) select {columns} from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        seq: i64, state: &'static str, due: Option<i64>, epoch: i64, life: i32, failures: i32,
        losses: i32, interruptions: i32, isolated: bool, since: i64,
    }
}

rows! {
    /// An attempt is held.
    ActiveRow, ActiveRows,
    "with put as (
         insert into active ({columns}, cancelled) select {columns}, false from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        seq: i64, epoch: i64, life: i32, failures: i32, losses: i32, interruptions: i32,
        isolated: bool, worker: Option<Uuid>, plain: Option<String>, claimed: i64,
        started: Option<i64>, visible_until: Option<i64>, visibility_ms: Option<i64>,
        deadline: Option<i64>,
    }
}

rows! {
    /// A job has ended.
    FinishedRow, FinishedRows,
    "with put as (
         insert into finished ({columns}) select {columns} from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        seq: i64, state: &'static str, at: i64, epoch: i64, life: i32, failures: i32, losses: i32,
        interruptions: i32, isolated: bool, attempt: i32, shown: bool, result: Option<String>,
        error: Option<String>, ended_by: &'static str,
    }
}

rows! {
    /// An attempt that has ended.
    AttemptRow, AttemptRows,
    "with put as (
         insert into attempt_row ({columns}) select {columns} from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        seq: i64, epoch: i64, life: i32, number: i32, worker: Option<Uuid>, plain: Option<String>,
        claimed: i64, started: Option<i64>, finished: i64, outcome: &'static str,
        next_state: &'static str, error: Option<String>, exit_code: Option<i32>, by: String,
        evidence: String, evidence_code: Option<&'static str>, pack_digest: Option<String>,
    }
}

/// Attempts end, and their jobs with them: what most batches do is one statement.
static ALL_ENDED: LazyLock<String> = LazyLock::new(|| {
    let template = format!(
        "with gone as ({ACTIVE_GONE}), ended as (
             insert into finished ({{columns 2}}) select {{columns 2}} from {{rows 2}}
             returning 1), tried as (
             insert into attempt_row ({{columns 3}}) select {{columns 3}} from {{rows 3}}
             returning 1)
         select outlast.exactly((select count(*) from gone), {{count}}),
             outlast.exactly((select count(*) from ended), {{count 2}}),
             outlast.exactly((select count(*) from tried), {{count 3}})"
    );
    statement(&template, &[ActiveGones::COLUMNS, FinishedRows::COLUMNS, AttemptRows::COLUMNS])
});

rows! {
    /// A job becomes a dead letter.
    DeadLetterRow, DeadLetterRows,
    "with put as (
         insert into dead_letter_row ({columns}) select {columns} from {rows}
         on conflict (seq) do update set reason = excluded.reason, at = excluded.at
         returning 1)
     select outlast.exactly(count(*), {count}) from put",
    { seq: i64, reason: &'static str, at: i64 }
}

rows! {
    /// What an attempt leaves to the next.
    CheckpointRow, CheckpointRows,
    "with put as (
         insert into checkpoint ({columns}) select {columns} from {rows}
         on conflict (seq) do update set bytes = excluded.bytes
         returning 1)
     select outlast.exactly(count(*), {count}) from put",
    { seq: i64, bytes: Vec<u8> }
}

rows! {
    /// A job that needs its checkpoint no more.
    CheckpointGone, CheckpointGones,
    "with gone as (
         delete from checkpoint c using {rows} where c.seq = k.seq
         returning 1)
     select outlast.exactly(count(*), {count}) from gone",
    { seq: i64 }
}

rows! {
    /// A job that must not be started after a time. It may be there already.
    ExpiryRow, ExpiryRows,
    "insert into expiry (at, seq)
     select k.at, k.seq from {rows}
     where {count}::bigint > 0
     on conflict do nothing",
    { at: i64, seq: i64 }
}

rows! {
    /// A lease that is renewed, by the number of the renewal before.
    Renewal, Renewals,
    "with renewed as (
         update worker w set renewal_seq = w.renewal_seq + 1, lease_ms = k.lease_ms,
             lease_until_ms = k.lease_until, last_heartbeat_ms = k.at, status = k.status,
             state = k.state, liveness = k.liveness
         from {rows}
         where w.id = k.id and w.renewal_seq = k.renewal
         returning 1)
     select outlast.exactly(count(*), {count}) from renewed",
    {
        id: Uuid, renewal: i64, lease_ms: i64, lease_until: i64, at: i64, status: &'static str,
        state: &'static str, liveness: i16,
    }
}

impl Renewals {
    pub(super) fn of(one: Renewal) -> Self {
        let mut all = Self::default();
        all.push(one);
        all
    }

    pub(super) fn into_ask(mut self) -> Option<Statement> {
        self.take()
    }

    pub(super) fn has(&self, worker: Uuid) -> bool {
        self.id.contains(&worker)
    }
}

/// All that a batch has yet to write.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    pub(super) ready_gone: ReadyGones,
    pub(super) waiting_gone: WaitingGones,
    pub(super) active_gone: ActiveGones,
    pub(super) finished_gone: FinishedGones,
    pub(super) checkpoint_gone: CheckpointGones,
    pub(super) active_kept: ActiveKepts,
    pub(super) new: NewRows,
    pub(super) ready: ReadyRows,
    pub(super) waiting: WaitingRows,
    pub(super) active: ActiveRows,
    pub(super) finished: FinishedRows,
    pub(super) attempts: AttemptRows,
    pub(super) dead_letters: DeadLetterRows,
    pub(super) checkpoints: CheckpointRows,
    pub(super) expiries: ExpiryRows,
    /// Before any other statement about workers.
    pub(super) renewals: Renewals,
    /// Statements about workers, queues and other tables, in order.
    pub(super) others: Vec<Statement>,
}

impl WriteSet {
    /// Takes the statements that write all of it: rows go before others come, since a job
    /// may come back to the table that it left.
    pub(super) fn take(&mut self) -> Vec<Statement> {
        let ended = self.take_ended();
        let by_table = [
            self.ready_gone.take(),
            self.waiting_gone.take(),
            ended,
            self.active_gone.take(),
            self.finished_gone.take(),
            self.checkpoint_gone.take(),
            self.active_kept.take(),
            self.take_new(),
            self.ready.take(),
            self.waiting.take(),
            self.active.take(),
            self.finished.take(),
            self.attempts.take(),
            self.dead_letters.take(),
            self.checkpoints.take(),
            self.expiries.take(),
            self.renewals.take(),
        ];
        let mut statements: Vec<Statement> = by_table.into_iter().flatten().collect();
        statements.append(&mut self.others);
        statements
    }

    /// Attempts that ended with their jobs, if nothing else was noted about either.
    fn take_ended(&mut self) -> Option<Statement> {
        let alone = self.active_gone.len == self.finished.len
            && self.finished.len == self.attempts.len
            && self.finished_gone.len == 0;
        if !alone {
            return None;
        }
        let mut all = self.active_gone.values()?;
        all.append(&mut self.finished.values()?);
        all.append(&mut self.attempts.values()?);
        Some(Statement::new(&ALL_ENDED, all))
    }

    fn take_new(&mut self) -> Option<Statement> {
        if self.new.are_claimable() {
            let values = self.new.take_claimable()?;
            return Some(Statement::new(&ALL_CLAIMABLE, values));
        }
        self.new.take()
    }
}

impl NewRows {
    /// Whether all are claimable at once, and none expires.
    fn are_claimable(&self) -> bool {
        self.state.iter().all(|state| *state == State::Available.as_str())
            && self.expires_at.iter().all(Option::is_none)
    }

    /// Takes the values of [`CLAIMABLE`].
    fn take_claimable(&mut self) -> Option<Vec<Value>> {
        if self.len == 0 {
            return None;
        }
        let all = std::mem::take(self);
        Some(values![
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
            all.len,
        ])
    }
}

/// Whether all that a batch writes is jobs that are claimable at once.
pub(super) fn only_store_claimable(writes: &[Statement]) -> bool {
    matches!(writes, [only] if only.sql.as_ptr() == ALL_CLAIMABLE.as_ptr())
}

/// Makes the statement of such a write that of the whole batch.
pub(super) fn as_whole_batch(write: Statement, rest: Vec<Value>) -> Statement {
    let mut values = write.values;
    values.extend(rest);
    Statement::new(&WHOLE_BATCH, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_numbered_through_all_sorts_of_rows() {
        let first: Columns = &[("seq", "bigint"), ("state", "text")];
        let second: Columns = &[("id", "uuid")];
        let sql = statement(
            "{rows}; {columns}; {count}; {rows 2}; {columns 2}; {count 2}",
            &[first, second],
        );
        let wanted = "unnest($1::bigint[], $2::text[]) k(seq, state); seq, state; $3; \
            unnest($4::uuid[]) k(id); id; $5";
        assert_eq!(sql, wanted);
    }
}
