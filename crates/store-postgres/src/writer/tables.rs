//! What a batch writes, gathered by table: one statement for all rows of a sort.

use outlast_core::job::State;
use uuid::Uuid;

use crate::link::{Ask, values};

/// Declares the rows of one statement: a struct for a row, one for all of them as columns,
/// and the statement that takes the columns in this order.
macro_rules! rows {
    ($(#[$doc:meta])* $row:ident, $rows:ident, $sql:expr, { $($column:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $row { $(pub(super) $column: $type),* }

        #[derive(Debug, Default)]
        pub(super) struct $rows { len: i64, $($column: Vec<$type>),* }

        impl $rows {
            pub(super) fn push(&mut self, row: $row) {
                self.len += 1;
                $(self.$column.push(row.$column);)*
            }

            fn take(&mut self) -> Option<Ask> {
                if self.len == 0 {
                    return None;
                }
                let all = std::mem::take(self);
                Some(Ask::new($sql, values![$(all.$column),*, all.len]))
            }
        }
    };
}

macro_rules! active_gone {
    () => {
        "delete from active a
         using unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::boolean[], $5::boolean[])
             k(seq, epoch, started, cancelled, checkpoint)
         where a.seq = k.seq and a.epoch = k.epoch and a.cancelled = k.cancelled
             and a.started is not distinct from k.started
             and coalesce((select true from checkpoint c where c.seq = a.seq), false) = k.checkpoint
         returning 1"
    };
}

macro_rules! finished {
    ($columns:literal) => {
        concat!(
            "insert into finished (seq, state, at, epoch, life, failures, losses, interruptions,
                                   isolated, attempt, shown, result, error, ended_by)
             select * from unnest(",
            $columns,
            ") returning 1"
        )
    };
}

macro_rules! attempt {
    ($columns:literal) => {
        concat!(
            "insert into attempt_row (seq, epoch, life, number, worker, plain, claimed, started,
                                      finished, outcome, next_state, error, exit_code, by,
                                      evidence, evidence_code, pack_digest)
             select * from unnest(",
            $columns,
            ") returning 1"
        )
    };
}

macro_rules! new_rows {
    () => {
        "unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::smallint[], $9::bigint[], $10::bigint[], $11::bigint[],
                $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
             u(id, class, priority, rules, timeout_ms, visibility_ms, strand_ms, origin, created,
               scheduled_for, expires_at, args, meta, extra, state, refusal)"
    };
}

rows! {
    /// A job leaves the claimable ones: the compare-and-set.
    ReadyGone, ReadyGones,
    "with gone as (
         delete from ready r using unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
             k(class, rank, seq, epoch)
         where r.class = k.class and r.rank = k.rank and r.seq = k.seq and r.epoch = k.epoch
         returning 1)
     select outlast.exactly(count(*), $5) from gone",
    { class: i64, rank: i64, seq: i64, epoch: i64 }
}

rows! {
    /// A job leaves those that wait.
    WaitingGone, WaitingGones,
    "with gone as (
         delete from waiting w using unnest($1::bigint[], $2::bigint[], $3::text[])
             k(seq, epoch, state)
         where w.seq = k.seq and w.epoch = k.epoch and w.state = k.state
         returning 1)
     select outlast.exactly(count(*), $4) from gone",
    { seq: i64, epoch: i64, state: &'static str }
}

rows! {
    /// An attempt is over. It goes if it is what the decision took it for.
    ActiveGone, ActiveGones,
    concat!("with gone as (", active_gone!(), ") select outlast.exactly(count(*), $6) from gone"),
    { seq: i64, epoch: i64, started: Option<i64>, cancelled: bool, checkpoint: bool }
}

rows! {
    /// An attempt stays held, changed.
    ActiveKept, ActiveKepts,
    "with kept as (
         update active a set started = k.started, cancelled = k.cancelled,
             pack_digest = k.pack_digest
         from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::boolean[], $5::bigint[],
                     $6::boolean[], $7::text[])
             k(seq, epoch, was_started, was_cancelled, started, cancelled, pack_digest)
         where a.seq = k.seq and a.epoch = k.epoch and a.cancelled = k.was_cancelled
             and a.started is not distinct from k.was_started
         returning 1)
     select outlast.exactly(count(*), $8) from kept",
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
         delete from finished f using unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])
             k(seq, epoch, state, letter)
         where f.seq = k.seq and f.epoch = k.epoch and f.state = k.state
             and k.letter is not distinct from
                 (select d.reason from dead_letter_row d where d.seq = k.seq)
         returning 1),
     letters as (
         delete from dead_letter_row d where d.seq = any($1::bigint[]))
     select outlast.exactly(count(*), $5) from gone",
    { seq: i64, epoch: i64, state: &'static str, letter: Option<&'static str> }
}

rows! {
    /// A job is stored: claimable, waiting, or refused. Its number is drawn here, in this order.
    NewRow, NewRows,
    concat!(
        "with k as materialized (
             select nextval('job_seq') as seq, u.* from ", new_rows!(), "),
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
         select outlast.exactly(count(*), $17) from stored"
    ),
    {
        id: Uuid, class: i64, priority: i16, rules: Option<String>, timeout_ms: Option<i64>,
        visibility_ms: Option<i64>, strand_ms: Option<i64>, origin: i16, created: i64,
        scheduled_for: Option<i64>, expires_at: Option<i64>, args: String, meta: String,
        extra: String, state: &'static str, refusal: Option<String>,
    }
}

/// The same, when all are claimable and none expires: `args` pass through no heap of rows.
const ALL_CLAIMABLE: &str = concat!(
    "with stored as (
         insert into job_row (seq, id, class, priority, rules, timeout_ms, visibility_ms,
                              strand_ms, origin, created, args, meta, extra)
         select nextval('job_seq'), id, class, priority, rules, timeout_ms, visibility_ms,
                strand_ms, origin, created, args, meta, extra
         from ",
    new_rows!(),
    "    returning seq, class, priority, created, strand_ms),
     blocks as (
         insert into class_block (class, block, writer)
         select distinct class, seq >> 10, pg_backend_pid() from stored
         on conflict do nothing),
     claimable as (
         insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since,
                            strand_ms)
         select class, -2 * priority::bigint, seq, 0, 1, 0, 0, 0, created, strand_ms from stored)
     select outlast.exactly(count(*), $17) from stored"
);

rows! {
    /// A job becomes claimable.
    ReadyRow, ReadyRows,
    "with put as (
         insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since,
                            strand_ms, expires)
         select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[],
                              $6::int[], $7::int[], $8::int[], $9::bigint[], $10::bigint[],
                              $11::bigint[])
         returning 1)
     select outlast.exactly(count(*), $12) from put",
    {
        class: i64, rank: i64, seq: i64, epoch: i64, life: i32, failures: i32, losses: i32,
        interruptions: i32, since: i64, strand_ms: Option<i64>, expires: Option<i64>,
    }
}

rows! {
    /// A job waits for its time, or for someone.
    WaitingRow, WaitingRows,
    "with put as (
         insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions,
                              isolated, since)
         select * from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::int[],
                              $6::int[], $7::int[], $8::int[], $9::boolean[], $10::bigint[])
         returning 1)
     select outlast.exactly(count(*), $11) from put",
    {
        seq: i64, state: &'static str, due: Option<i64>, epoch: i64, life: i32, failures: i32,
        losses: i32, interruptions: i32, isolated: bool, since: i64,
    }
}

rows! {
    /// An attempt is held.
    ActiveRow, ActiveRows,
    "with put as (
         insert into active (seq, epoch, life, failures, losses, interruptions, isolated, worker,
                             plain, claimed, started, visible_until, visibility_ms, deadline,
                             cancelled)
         select k.*, false
         from unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[],
                     $7::boolean[], $8::uuid[], $9::text[], $10::bigint[], $11::bigint[],
                     $12::bigint[], $13::bigint[], $14::bigint[]) k
         returning 1)
     select outlast.exactly(count(*), $15) from put",
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
    concat!(
        "with put as (",
        finished!(
            "$1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::int[], $6::int[],
             $7::int[], $8::int[], $9::boolean[], $10::int[], $11::boolean[], $12::text[],
             $13::text[], $14::text[]"
        ),
        ") select outlast.exactly(count(*), $15) from put"
    ),
    {
        seq: i64, state: &'static str, at: i64, epoch: i64, life: i32, failures: i32, losses: i32,
        interruptions: i32, isolated: bool, attempt: i32, shown: bool, result: Option<String>,
        error: Option<String>, ended_by: &'static str,
    }
}

rows! {
    /// An attempt that has ended.
    AttemptRow, AttemptRows,
    concat!(
        "with put as (",
        attempt!(
            "$1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::uuid[], $6::text[],
             $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[],
             $13::int[], $14::text[], $15::text[], $16::text[], $17::text[]"
        ),
        ") select outlast.exactly(count(*), $18) from put"
    ),
    {
        seq: i64, epoch: i64, life: i32, number: i32, worker: Option<Uuid>, plain: Option<String>,
        claimed: i64, started: Option<i64>, finished: i64, outcome: &'static str,
        next_state: &'static str, error: Option<String>, exit_code: Option<i32>, by: String,
        evidence: String, evidence_code: Option<&'static str>, pack_digest: Option<String>,
    }
}

/// Attempts end, and their jobs with them: what most batches do is one statement.
const ALL_ENDED: &str = concat!(
    "with gone as (",
    active_gone!(),
    "), ended as (",
    finished!(
        "$7::bigint[], $8::text[], $9::bigint[], $10::bigint[], $11::int[], $12::int[],
         $13::int[], $14::int[], $15::boolean[], $16::int[], $17::boolean[], $18::text[],
         $19::text[], $20::text[]"
    ),
    "), tried as (",
    attempt!(
        "$22::bigint[], $23::bigint[], $24::int[], $25::int[], $26::uuid[], $27::text[],
         $28::bigint[], $29::bigint[], $30::bigint[], $31::text[], $32::text[], $33::text[],
         $34::int[], $35::text[], $36::text[], $37::text[], $38::text[]"
    ),
    ") select outlast.exactly((select count(*) from gone), $6),
              outlast.exactly((select count(*) from ended), $21),
              outlast.exactly((select count(*) from tried), $39)"
);

rows! {
    /// A job waits for a person.
    DeadLetterRow, DeadLetterRows,
    "with put as (
         insert into dead_letter_row (seq, reason, at)
         select * from unnest($1::bigint[], $2::text[], $3::bigint[])
         on conflict (seq) do update set reason = excluded.reason, at = excluded.at
         returning 1)
     select outlast.exactly(count(*), $4) from put",
    { seq: i64, reason: &'static str, at: i64 }
}

rows! {
    /// What an attempt leaves to the next.
    CheckpointRow, CheckpointRows,
    "with put as (
         insert into checkpoint (seq, bytes)
         select * from unnest($1::bigint[], $2::bytea[])
         on conflict (seq) do update set bytes = excluded.bytes
         returning 1)
     select outlast.exactly(count(*), $3) from put",
    { seq: i64, bytes: Vec<u8> }
}

rows! {
    /// A job that needs its checkpoint no more.
    CheckpointGone, CheckpointGones,
    "with gone as (
         delete from checkpoint c using unnest($1::bigint[]) k(seq) where c.seq = k.seq
         returning 1)
     select outlast.exactly(count(*), $2) from gone",
    { seq: i64 }
}

rows! {
    /// A job that must not be started after a time. It may be there already.
    ExpiryRow, ExpiryRows,
    "insert into expiry (at, seq)
     select k.at, k.seq from unnest($1::bigint[], $2::bigint[]) k(at, seq)
     where $3::bigint > 0
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
         from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                     $6::text[], $7::text[], $8::smallint[])
             k(id, renewal, lease_ms, lease_until, at, status, state, liveness)
         where w.id = k.id and w.renewal_seq = k.renewal
         returning 1)
     select outlast.exactly(count(*), $9) from renewed",
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

    pub(super) fn into_ask(mut self) -> Option<Ask> {
        self.take()
    }

    pub(super) fn has(&self, worker: Uuid) -> bool {
        self.id.contains(&worker)
    }
}

/// All that a batch has yet to write.
#[derive(Debug, Default)]
pub(super) struct Tables {
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
    /// Statements about workers, queues and the like, in order.
    pub(super) others: Vec<Ask>,
}

impl Tables {
    /// Takes the statements that write all of it: rows go before others come, since a job
    /// may come back to the table that it left.
    pub(super) fn take(&mut self) -> Vec<Ask> {
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
        let mut asks: Vec<Ask> = by_table.into_iter().flatten().collect();
        asks.append(&mut self.others);
        asks
    }

    /// Attempts that ended with their jobs, if nothing else was noted about either.
    fn take_ended(&mut self) -> Option<Ask> {
        let alone = self.active_gone.len == self.finished.len
            && self.finished.len == self.attempts.len
            && self.finished_gone.len == 0;
        if !alone {
            return None;
        }
        let mut all = self.active_gone.take()?;
        for more in [self.finished.take()?, self.attempts.take()?] {
            all.values.extend(more.values);
        }
        Some(Ask::new(ALL_ENDED, all.values))
    }

    fn take_new(&mut self) -> Option<Ask> {
        let plain = self.new.state.iter().all(|state| *state == State::Available.as_str())
            && self.new.expires_at.iter().all(Option::is_none);
        let all = self.new.take()?;
        Some(if plain { Ask::new(ALL_CLAIMABLE, all.values) } else { all })
    }
}
