//! What a batch writes, gathered by table: one statement for all rows of a sort.
//!
//! - [`statement`]: rows as arrays of their columns, and the statement that takes them
//! - [`claimable`]: the short way of jobs that are claimable as soon as they are stored

mod claimable;
mod statement;

use std::sync::LazyLock;

use uuid::Uuid;

pub(super) use claimable::{as_whole_batch, only_store_claimable};
use statement::{Column, Columns, rows, statement};

use crate::connection::{Statement, Value, values};

const ACTIVE_GONE: &str = "
     delete from active a using {rows}
     where a.seq = any(array[k.seq]) and a.epoch = k.epoch and a.cancelled = k.cancelled
         and a.started is not distinct from k.started
         and coalesce((select true from checkpoint c where c.seq = a.seq), false) = k.checkpoint
     returning 1";

rows! {
    /// A job leaves the claimable ones: the compare-and-set.
    ReadyGone, ReadyGones,
    "with gone as (
         delete from ready r using {rows}
         where r.class = any(array[k.class]) and r.rank = k.rank and r.seq = k.seq
             and r.epoch = k.epoch
         returning 1)
     select outlast.exactly(count(*), {count}) from gone",
    { class: i64, rank: i64, seq: i64, epoch: i64 }
}

rows! {
    /// A job leaves those that wait.
    WaitingGone, WaitingGones,
    "with gone as (
         delete from waiting w using {rows}
         where w.seq = any(array[k.seq]) and w.epoch = k.epoch and w.state = k.state
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
         where a.seq = any(array[k.seq]) and a.epoch = k.epoch and a.cancelled = k.was_cancelled
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
         where f.seq = any(array[k.seq]) and f.epoch = k.epoch and f.state = k.state
             and k.letter is not distinct from
                 (select d.reason from dead_letter_row d where d.seq = k.seq)
         returning k.seq),
     letters as (
         delete from dead_letter_row d using gone where d.seq = any(array[gone.seq]))
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
                                  meta, extra, keys, lane)
             select seq, id, class, priority, rules, timeout_ms, visibility_ms, strand_ms, origin,
                    created, scheduled_for, expires_at, args, meta, extra, keys, lane
             from k
             returning 1),
         blocks as (
             insert into class_block (class, block, writer)
             select distinct class, seq >> 10, pg_backend_pid() from k
             on conflict do nothing),
         claimable as (
             insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions,
                                since, strand_ms, expires, lane)
             select class, -2 * priority::bigint, seq, 0, 1, 0, 0, 0, created, strand_ms,
                    expires_at, coalesce(lane, 0)
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
        extra: String, keys: Option<String>, lane: Option<i64>, state: &'static str,
        refusal: Option<String>,
    }
}

rows! {
    /// A job becomes claimable.
    ReadyRow, ReadyRows,
    "with put as (
         insert into ready ({columns}) select {columns} from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        class: i64, rank: i64, seq: i64, epoch: i64, life: i32, failures: i32, losses: i32,
        interruptions: i32, since: i64, strand_ms: Option<i64>, expires: Option<i64>,
        lane: i64,
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
         insert into active (seq, epoch, life, failures, losses, interruptions, isolated, worker,
                             plain, claimed, started, visible_until, visibility_ms, deadline,
                             gates, cancelled)
         select seq, epoch, life, failures, losses, interruptions, isolated, worker, plain, claimed,
                started, visible_until, visibility_ms, deadline, gates::bigint[], false
         from {rows} returning 1)
     select outlast.exactly(count(*), {count}) from put",
    {
        seq: i64, epoch: i64, life: i32, failures: i32, losses: i32, interruptions: i32,
        isolated: bool, worker: Option<Uuid>, plain: Option<String>, claimed: i64,
        started: Option<i64>, visible_until: Option<i64>, visibility_ms: Option<i64>,
        deadline: Option<i64>, gates: Option<String>,
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
        peak_memory: Option<i64>, cpu_ms: Option<i64>, charge: i16,
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
         on conflict (seq) do update set reason = excluded.reason, at = excluded.at,
             unhandled = excluded.unhandled
         returning 1)
     select outlast.exactly(count(*), {count}) from put",
    { seq: i64, reason: &'static str, at: i64, unhandled: bool }
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
         delete from checkpoint c using {rows} where c.seq = any(array[k.seq])
         returning 1)
     select outlast.exactly(count(*), {count}) from gone",
    { seq: i64 }
}

rows! {
    /// A unique key that no job had. In the order of keys, so that no two servers wait for each
    /// other.
    KeyTaken, KeysTaken,
    "with put as (
         insert into unique_key (fp, seq)
         select k.fp, j.seq from {rows} join job_row j on j.id = any(array[k.job])
         order by k.fp
         returning 1)
     select outlast.exactly(count(*), {count}) from put",
    { fp: Vec<u8>, job: Uuid }
}

rows! {
    /// A unique key that passes from one job to another, if that one still has it.
    KeyPassed, KeysPassed,
    "with held as materialized (
         select u.ctid as place, k.job
         from {rows}
             join job_row b on b.id = any(array[k.before])
             join unique_key u on u.fp = any(array[k.fp]) and u.seq = any(array[b.seq])
         order by u.fp for update of u),
     passed as (
         update unique_key u set seq = j.seq
         from held h join job_row j on j.id = any(array[h.job])
         where u.ctid = h.place
         returning 1)
     select outlast.exactly(count(*), {count}) from passed",
    { fp: Vec<u8>, before: Uuid, job: Uuid }
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
         where w.id = any(array[k.id]) and w.renewal_seq = k.renewal
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

    pub(super) fn into_statement(mut self) -> Option<Statement> {
        self.take()
    }

    pub(super) fn has(&self, worker: Uuid) -> bool {
        self.id.contains(&worker)
    }
}

impl WriteSet {
    /// Gives a key to a later job of the batch, if the one before it has yet to be written.
    pub(super) fn pass_on(&mut self, key: &[u8], job: Uuid) -> bool {
        let of = |keys: &[Vec<u8>]| keys.iter().position(|fp| fp == key);
        let noted = match of(&self.keys.passed.fp) {
            Some(at) => self.keys.passed.job.get_mut(at),
            None => of(&self.keys.taken.fp).and_then(|at| self.keys.taken.job.get_mut(at)),
        };
        let Some(noted) = noted else { return false };
        *noted = job;
        true
    }
}

/// All that a batch has yet to write.
#[derive(Debug, Default)]
pub(super) struct WriteSet {
    pub(super) removed: Removed,
    pub(super) active_kept: ActiveKepts,
    pub(super) new: NewRows,
    pub(super) placed: Placed,
    pub(super) attempts: AttemptRows,
    pub(super) dead_letters: DeadLetterRows,
    pub(super) checkpoints: CheckpointRows,
    pub(super) expiries: ExpiryRows,
    pub(super) keys: UniqueKeys,
    /// Before any other statement about workers.
    pub(super) renewals: Renewals,
    /// Statements about workers, queues and other tables, in order.
    pub(super) others: Vec<Statement>,
}

/// Rows that go, each from where its job was.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) ready: ReadyGones,
    pub(super) waiting: WaitingGones,
    pub(super) active: ActiveGones,
    pub(super) finished: FinishedGones,
    pub(super) checkpoints: CheckpointGones,
}

/// Rows that come, each where its job now is.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) ready: ReadyRows,
    pub(super) waiting: WaitingRows,
    pub(super) active: ActiveRows,
    pub(super) finished: FinishedRows,
}

/// Unique keys that get another job.
#[derive(Debug, Default)]
pub(super) struct UniqueKeys {
    pub(super) taken: KeysTaken,
    pub(super) passed: KeysPassed,
}

impl WriteSet {
    /// Takes the statements that write all of it: rows go before others come, since a job
    /// may come back to the table that it left.
    pub(super) fn take(&mut self) -> Vec<Statement> {
        let ended = self.take_ended();
        let by_table = [
            self.removed.ready.take(),
            self.removed.waiting.take(),
            ended,
            self.removed.active.take(),
            self.removed.finished.take(),
            self.removed.checkpoints.take(),
            self.active_kept.take(),
            self.take_new(),
            self.placed.ready.take(),
            self.placed.waiting.take(),
            self.placed.active.take(),
            self.placed.finished.take(),
            self.attempts.take(),
            self.dead_letters.take(),
            self.checkpoints.take(),
            self.expiries.take(),
            self.keys.taken.take(),
            self.keys.passed.take(),
            self.renewals.take(),
        ];
        let mut statements: Vec<Statement> = by_table.into_iter().flatten().collect();
        statements.append(&mut self.others);
        statements
    }

    /// Attempts that ended with their jobs, if nothing else was noted about either.
    fn take_ended(&mut self) -> Option<Statement> {
        let alone = self.removed.active.len == self.placed.finished.len
            && self.placed.finished.len == self.attempts.len
            && self.removed.finished.len == 0;
        if !alone {
            return None;
        }
        let mut all = self.removed.active.values()?;
        all.append(&mut self.placed.finished.values()?);
        all.append(&mut self.attempts.values()?);
        Some(Statement::new(&ALL_ENDED, all))
    }

    fn take_new(&mut self) -> Option<Statement> {
        if self.new.are_claimable() { self.new.take_claimable() } else { self.new.take() }
    }
}
