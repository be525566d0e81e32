//! One batch under way: what every command needs, and the one place that moves a job.

use outlast_core::budget::Charge;
use outlast_core::id::JobId;
use outlast_core::job::{
    Event as JobEvent, EventKind, Hold, Outcome, Place, Refusal, State, Transition,
};
use outlast_core::time::Timestamp;
use outlast_store::command::{Batch, BatchId, ClassId, ClassKey, EndDetail};
use outlast_store::event::Event;
use outlast_store::record::AttemptRecord;
use outlast_store::reply::{Applied, MoveRefusal, Moved, Reply};
use outlast_store::workflow::ItemEnd;
use outlast_store_rules::apply::claim::fair::Ended;
use outlast_store_rules::apply::workflow::{JobMove, end_of};
use outlast_store_rules::rules::{Context, Facts, events_of};

use crate::model::tables::{ActiveRow, Row, Seq, Tables};

/// A batch under way.
pub(super) struct Tx<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) bench: Context,
    events: Vec<Event>,
    /// Whether attempts ended that limits counted.
    pub(super) freed: bool,
    /// What happened to items of workflows.
    pub(super) item_ends: Vec<ItemEnd>,
}

/// Why a job moves.
#[derive(Clone, Copy)]
pub(super) struct Cause<'a> {
    pub(super) kind: EventKind,
    pub(super) by: &'a str,
    /// What is known besides; its evidence is that of the move.
    pub(super) detail: &'a EndDetail,
}

impl<'a> Tx<'a> {
    pub(super) fn new(tables: &'a mut Tables, batch: &'a Batch, now: Timestamp) -> Self {
        let bench = Context { budgets: batch.budgets, seed: batch.jitter_seed, command: 0, now };
        Self { tables, bench, events: Vec::new(), freed: false, item_ends: Vec::new() }
    }

    pub(super) const fn begin(&mut self, command: usize) {
        self.bench.command = command;
    }

    pub(super) const fn now(&self) -> Timestamp {
        self.bench.now
    }

    /// Forgets what this batch told: the log is dropped with the rest.
    pub(super) fn untell(&mut self) {
        self.events.clear();
        self.item_ends.clear();
    }

    pub(super) fn log_event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Stores the events of the batch and the ends of its items; returns what the batch did.
    pub(super) fn commit(mut self, id: BatchId, replies: Vec<Reply>) -> Applied {
        let at = self.now();
        let workflows = self.note_item_ends();
        if !self.events.is_empty() {
            self.tables.events.entry(id.server).or_default().insert(id.n, self.events);
        }
        Applied { at, replies, freed: self.freed, workflows }
    }

    pub(super) fn find(&self, id: JobId) -> Result<(Seq, Row), MoveRefusal> {
        let (seq, row) = self.tables.find(id).ok_or(MoveRefusal::NotFound)?;
        Ok((seq, row.clone()))
    }

    /// Decides and applies one event; `nth` counts the jobs that the command moves.
    pub(super) fn play(
        &mut self,
        seq: Seq,
        event: JobEvent<'_>,
        nth: usize,
        cause: &Cause<'_>,
    ) -> Result<Moved, MoveRefusal> {
        let row = self.tables.rows.get(&seq).ok_or(MoveRefusal::NotFound)?;
        let step = self.bench.decide(&row.job, event, nth)?;
        self.apply_transition(seq, &step, cause, None).ok_or(MoveRefusal::NotFound)
    }

    /// Isolated jobs are claimable in a class of their own, made when one needs it.
    fn class_after(&mut self, before: &Row, step: &Transition) -> ClassId {
        if step.isolated && matches!(step.place, Place::Ready(_)) {
            let key = ClassKey { isolated: true, ..before.stored.key.as_ref().clone() };
            self.tables.class(&key)
        } else {
            before.stored.class
        }
    }

    /// Applies a transition. Nothing can refuse it: the lock is held since it was decided.
    pub(super) fn apply_transition(
        &mut self,
        seq: Seq,
        step: &Transition,
        cause: &Cause<'_>,
        taker: Option<ActiveRow>,
    ) -> Option<Moved> {
        let now = self.now();
        let before = self.tables.rows.get(&seq)?.clone();
        debug_assert_eq!((before.job.state, before.job.epoch), (step.from, step.epoch));
        let class = self.class_after(&before, step);
        let moved = self.tables.change(seq, |row| {
            row.class = class;
            end_attempt(row, step, cause, now);
            move_row(row, step, cause.kind, now);
            if let Some(taker) = taker {
                row.in_flight = Some(taker);
            }
            moved(row, step, now)
        })?;
        if let (Some(_), Some(attempt)) = (moved.outcome, &before.in_flight) {
            self.freed |= self.tables.release(&attempt.gates);
            let has_started = moved.outcome != Some(Outcome::Undelivered);
            let ran = before.began().filter(|_| has_started).map(|began| now.since(began));
            self.tables.shares.ended(Ended { seq: number(seq), ran }, now);
        }
        let ran = moved.outcome.and_then(|_| before.began()).map(|began| now.since(began));
        let moved = Moved { ran, ..moved };
        if let Some(of) = before.stored.rules.workflow {
            let moved = JobMove {
                job: before.stored.id,
                transition: step,
                kind: cause.kind,
                result: cause.detail.result.as_deref(),
                error: cause.detail.error.as_deref(),
            };
            self.item_ends.extend(end_of(of, &moved));
        }
        let worker = before.in_flight.as_ref().and_then(|attempt| attempt.worker);
        let facts = Facts {
            job: &before.stored,
            kind: cause.kind,
            worker: worker.or(match step.hold {
                Hold::Take(holder) | Hold::Keep(holder) => holder.worker,
                Hold::None | Hold::Drop(_) => None,
            }),
            has_started: before.started().is_some(),
            began: before.began(),
            at: now,
            by: cause.by,
            evidence: &cause.detail.evidence,
        };
        self.events.extend(events_of(&facts, step));
        Some(moved)
    }
}

/// Records the attempt that a transition ends, and what is left of it.
fn end_attempt(row: &mut Row, step: &Transition, cause: &Cause<'_>, now: Timestamp) {
    let Hold::Drop(outcome) = step.hold else { return };
    let started = row.started();
    let Some(attempt) = row.in_flight.take() else { return };
    let detail = cause.detail;
    row.attempts.push(AttemptRecord {
        epoch: row.job.epoch,
        life: row.job.life,
        attempt: row.job.running_attempt(),
        worker: attempt.worker,
        worker_name: attempt.plain,
        claimed: attempt.claimed,
        started,
        finished: Some(now),
        outcome: Some(outcome),
        charge: Some(Charge::of(row.job.spent, step.spent)),
        next_state: Some(step.to),
        error: detail.error.clone(),
        omitted: None,
        exit_code: detail.exit_code,
        by: cause.by.to_owned(),
        evidence: detail.evidence.clone(),
        pack_digest: detail.pack_digest.clone().or(attempt.pack_digest),
        usage: detail.usage,
    });
    if outcome == Outcome::Completed {
        row.result.clone_from(&detail.result);
    }
    if detail.checkpoint.is_some() {
        row.checkpoint.clone_from(&detail.checkpoint);
    }
}

fn move_row(row: &mut Row, step: &Transition, kind: EventKind, now: Timestamp) {
    if step.to != step.from {
        row.since = now;
    }
    if step.to.is_terminal() {
        row.checkpoint = None;
    }
    if step.to.is_terminal() && !step.from.is_terminal() {
        row.finished = (kind != EventKind::Expire).then_some(now);
        row.ended_by = match kind {
            EventKind::Cancel => "cancelled",
            EventKind::Expire => "expired",
            EventKind::Strand => "stranded",
            EventKind::Activate
            | EventKind::Due
            | EventKind::Claim
            | EventKind::Start
            | EventKind::Complete
            | EventKind::Fail
            | EventKind::TimeOut
            | EventKind::Interrupt
            | EventKind::CutOff
            | EventKind::Release
            | EventKind::Requeue
            | EventKind::Lose
            | EventKind::ExpireVisibility
            | EventKind::Replay => "",
        };
    }
    if kind == EventKind::Replay {
        row.finished = None;
        row.ended_by = "";
        row.stranded = None;
        row.result = None;
        row.dead_letter = None;
    }
    if let Some(reason) = step.dead_letter {
        row.dead_letter = Some((reason, now));
        row.unhandled = true;
    }
    row.attempt = step.attempt;
    row.job.state = step.to;
    row.job.epoch = step.next_epoch;
    row.job.life = step.life;
    row.job.spent = step.spent;
    row.job.isolated = step.isolated;
    row.place = step.place;
    match step.hold {
        Hold::None => {}
        Hold::Take(holder) | Hold::Keep(holder) => row.job.holder = Some(holder),
        Hold::Drop(_) => row.job.holder = None,
    }
}

fn moved(row: &Row, step: &Transition, at: Timestamp) -> Moved {
    Moved {
        job: row.stored.id,
        class: row.class,
        from: step.from,
        state: step.to,
        epoch: step.next_epoch,
        attempt: step.attempt,
        max_attempts: row.stored.rules.retry.max_attempts,
        due: match step.place {
            Place::Timer(due) => Some(due),
            Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
        },
        outcome: match step.hold {
            Hold::Drop(outcome) => Some(outcome),
            Hold::None | Hold::Take(_) | Hold::Keep(_) => None,
        },
        ran: None,
        holder: row.job.holder.and_then(|holder| holder.worker),
        dead_letter: step.dead_letter.is_some(),
        workflow: row.stored.rules.workflow.map(|it| it.workflow),
        at,
    }
}

/// Refuses what is about an attempt of a job that is not active.
pub(super) const fn must_be_active(state: State) -> Result<(), Refusal> {
    match state {
        State::Active => Ok(()),
        State::Completed | State::Cancelled | State::Discarded => Err(Refusal::Terminal(state)),
        State::Scheduled | State::Available | State::Pending | State::Retryable => {
            Err(Refusal::WrongState(state))
        }
    }
}

/// Returns the number of a job as the stores have it.
pub(super) fn number(seq: Seq) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
