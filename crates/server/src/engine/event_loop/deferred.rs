//! Commands whose rows another session of the database has locked, and reports that take too long.
//!
//! Such a command fails its batch. The batch is split until the command is alone; then it waits
//! here and is retried, less and less often. Later commands about the same job or worker wait
//! behind it. All others go on as usual.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::{BootTime, Span};
use outlast_store::Command;
use outlast_store::command::Claimant;

use super::EventLoop;
use crate::clock::{boot_time, millis};
use crate::engine::batcher::{Op, ReplyTo};
use crate::engine::error::Unavailable;

const LOCKED: &str = "another session of the database has locked its row";
/// Longest that a caller waits; it may ask again.
const CALLER_WAITS: Span = Span::from_secs(3);
/// Longest that output waits: its worker keeps it, and other reports may wait behind it.
const OUTPUT_WAITS: Span = Span::from_secs(20);
/// Shortest pause between two retries, of all commands and of each one.
const PAUSE: Span = Span(250);
/// Longest pause between two retries of one command. The store waits for a lock only briefly if
/// one was held in the last five seconds.
const PAUSE_MAX: Span = Span::from_secs(4);
/// Retries may take this part of the loop's time.
const SHARE: u64 = 5;
/// Most commands that are retried in one go.
const RETRIED_MAX: usize = 256;
/// Most retries in one go that may find a row locked. Enough to single out one command of
/// `RETRIED_MAX`.
const LOCKED_TRIES: usize = 16;

/// A command that is to be applied.
#[derive(Debug)]
pub(super) struct Attempted {
    pub(super) op: Op,
    /// The deferred commands that it is the first of, and since when it has waited.
    pub(super) retried: Option<(QueueId, BootTime)>,
}

/// The deferred commands.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    queues: BTreeMap<QueueId, Queue>,
    about: HashMap<Subject, QueueId>,
    last: QueueId,
    /// When the next look at them is due.
    next: BootTime,
}

/// Identifies commands that wait for the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct QueueId(u64);

/// Commands that wait for the same row, in order of arrival. Only the first is retried.
#[derive(Debug)]
struct Queue {
    about: Option<Subject>,
    ops: VecDeque<Waiting>,
    next: BootTime,
    pause: Span,
}

#[derive(Debug)]
struct Waiting {
    op: Op,
    since: BootTime,
}

/// What a command is about, and whose row it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Job(JobId),
    Worker(WorkerId),
}

/// Returns the job or worker that a command is about.
pub(crate) fn subject_of(command: &Command) -> Option<Subject> {
    Some(match command {
        Command::Start(start) => Subject::Job(start.job),
        Command::Finish(finish) => Subject::Job(finish.job),
        Command::Progress(progress) => Subject::Job(progress.job),
        Command::Log(chunk) => Subject::Job(chunk.job),
        Command::Order(order) => Subject::Job(order.job),
        Command::ForgetDeadLetter(order) => Subject::Job(order.job),
        Command::Register(registration) => Subject::Worker(registration.id),
        Command::Attach(attach) => Subject::Worker(attach.worker),
        Command::Worker(step) => Subject::Worker(step.worker),
        Command::Lapse(lapse) => Subject::Worker(lapse.worker),
        Command::ReportHealth(said) => Subject::Worker(said.worker),
        Command::ForgetWorker(order) => Subject::Worker(order.worker),
        Command::Claim(claim) => match &claim.claimant {
            Claimant::Native { worker, .. } => Subject::Worker(*worker),
            Claimant::Plain { .. } => return None,
        },
        _ => return None,
    })
}

impl Deferred {
    /// Returns how long to wait before the next look; `None` when nothing waits.
    pub(super) fn wait(&self) -> Option<Duration> {
        (!self.queues.is_empty()).then(|| millis(self.next.since(boot_time())))
    }

    /// Defers commands about a job or worker that others wait for already; returns the rest.
    pub(super) fn divert(&mut self, ops: Vec<Op>) -> Vec<Op> {
        if self.about.is_empty() {
            return ops;
        }
        let now = boot_time();
        ops.into_iter().filter_map(|op| self.wait_behind_others(op, now)).collect()
    }

    /// Defers a command if others about the same job or worker wait already.
    fn wait_behind_others(&mut self, op: Op, since: BootTime) -> Option<Op> {
        let waits = subject_of(&op.command).and_then(|about| self.about.get(&about));
        let Some(queue) = waits.and_then(|id| self.queues.get_mut(id)) else { return Some(op) };
        queue.ops.push_back(Waiting { op, since });
        None
    }

    /// Defers commands of a part if others about the same job or worker were deferred a moment
    /// ago; returns the rest.
    pub(super) fn divert_part(&mut self, part: Vec<Attempted>) -> Vec<Attempted> {
        if self.about.is_empty() {
            return part;
        }
        let now = boot_time();
        let divert = |it: Attempted| match it.retried {
            Some(_) => Some(it),
            None => self.wait_behind_others(it.op, now).map(|op| Attempted { op, retried: None }),
        };
        part.into_iter().filter_map(divert).collect()
    }

    /// Defers a command for this time.
    pub(super) fn defer_for(&mut self, op: Op, pause: Span) {
        self.defer(Attempted { op, retried: None });
        if let Some(queue) = self.queues.get_mut(&self.last) {
            queue.next = boot_time().after(pause);
        }
    }

    /// Defers a command that was found to wait for a locked row.
    pub(super) fn defer(&mut self, Attempted { op, retried }: Attempted) {
        let now = boot_time();
        if let Some((id, since)) = retried
            && let Some(queue) = self.queues.get_mut(&id)
        {
            queue.ops.push_front(Waiting { op, since });
            queue.pause = Span(queue.pause.0.saturating_mul(2)).min(PAUSE_MAX);
            queue.next = now.after(queue.pause);
            return;
        }
        if self.queues.is_empty() {
            self.next = now.after(PAUSE);
        }
        self.last = QueueId(self.last.0 + 1);
        let about = subject_of(&op.command);
        self.about.extend(about.map(|about| (about, self.last)));
        let ops = VecDeque::from([Waiting { op, since: now }]);
        let queue = Queue { about, ops, next: now.after(PAUSE), pause: PAUSE };
        self.queues.insert(self.last, queue);
    }

    /// Puts back a command that was not retried after all.
    pub(super) fn put_back(&mut self, op: Op, id: QueueId, since: BootTime) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.ops.push_front(Waiting { op, since });
        }
    }

    /// The first command of a queue has been applied, or has failed for another reason: returns
    /// those behind it. A session that released one row has likely released others.
    pub(super) fn released(&mut self, id: QueueId) -> Vec<Op> {
        let Some(queue) = self.queues.remove(&id) else { return Vec::new() };
        if let Some(about) = queue.about {
            self.about.remove(&about);
        }
        let now = boot_time();
        self.queues.values_mut().for_each(|queue| queue.next = queue.next.min(now));
        queue.ops.into_iter().map(|waiting| waiting.op).collect()
    }

    /// Takes the commands to retry, those that are due for longest first.
    fn take(&mut self, now: BootTime) -> Vec<Attempted> {
        let mut due: Vec<(BootTime, QueueId)> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.next <= now)
            .map(|(id, queue)| (queue.next, *id))
            .collect();
        due.sort_unstable();
        due.truncate(RETRIED_MAX);
        let first = |(_, id): (BootTime, QueueId)| {
            let Waiting { op, since } = self.queues.get_mut(&id)?.ops.pop_front()?;
            Some(Attempted { op, retried: Some((id, since)) })
        };
        due.into_iter().filter_map(first).collect()
    }

    /// Answers callers that have waited too long.
    fn refuse_overdue(&mut self, now: BootTime) {
        let mut empty = Vec::new();
        for (id, queue) in &mut self.queues {
            let overdue = |waiting: &Waiting| {
                let is_output = matches!(waiting.op.command, Command::Log(_));
                let limit = if is_output { OUTPUT_WAITS } else { CALLER_WAITS };
                waiting.op.reply_to.is_caller() && now.since(waiting.since) >= limit
            };
            if !queue.ops.iter().any(overdue) {
                continue;
            }
            let (over, rest): (VecDeque<_>, _) = queue.ops.drain(..).partition(overdue);
            queue.ops = rest;
            over.into_iter().for_each(|waiting| refuse(waiting.op.reply_to, LOCKED));
            if queue.ops.is_empty() {
                empty.push(*id);
            }
        }
        for id in empty {
            if let Some(about) = self.queues.remove(&id).and_then(|queue| queue.about) {
                self.about.remove(&about);
            }
        }
    }
}

/// Answers a caller with why its command was not carried out.
pub(super) fn refuse(reply_to: ReplyTo, why: &str) {
    let error = Unavailable::alone(why);
    match reply_to {
        ReplyTo::Caller(caller) | ReplyTo::Queue { caller, .. } | ReplyTo::Lapse { caller, .. } => {
            drop(caller.send(Err(error)))
        }
        ReplyTo::Report(_)
        | ReplyTo::Session(_)
        | ReplyTo::Isolation(_)
        | ReplyTo::Unclaimable(_)
        | ReplyTo::None => {}
    }
}

impl EventLoop {
    /// Retries deferred commands, if it is time.
    pub(super) async fn retry_deferred(&mut self) {
        let began = boot_time();
        if self.deferred.queues.is_empty() || began < self.deferred.next {
            return;
        }
        self.deferred.refuse_overdue(began);
        let due = self.deferred.take(began);
        if !due.is_empty() {
            // Those that failed have their answers.
            drop(self.commit_in_parts(vec![due], LOCKED_TRIES).await);
        }
        let now = boot_time();
        let pause = Span(now.since(began).0.saturating_mul(SHARE - 1)).max(PAUSE);
        self.deferred.next = now.after(pause);
    }
}

#[cfg(test)]
mod tests;
