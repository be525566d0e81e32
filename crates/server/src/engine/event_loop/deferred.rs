//! Commands whose rows another session of the database has locked.
//!
//! Such a command fails its batch. The batch is split until the command is alone; then it waits
//! here and is retried. Later commands about the same job or worker wait behind it.

use std::collections::{HashSet, VecDeque};
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
/// Pause between two retries.
const PAUSE: Span = Span(250);
/// Most commands that are retried in one go.
const RETRIED_MAX: usize = 256;

/// The deferred commands.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    ops: VecDeque<Waiting>,
    about: HashSet<Subject>,
    /// When they are retried.
    next: BootTime,
}

#[derive(Debug)]
struct Waiting {
    op: Op,
    since: BootTime,
}

/// What a command is about, and whose row it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Job(JobId),
    Worker(WorkerId),
}

pub(super) fn subject_of(command: &Command) -> Option<Subject> {
    Some(match command {
        Command::Start(start) => Subject::Job(start.job),
        Command::Finish(finish) => Subject::Job(finish.job),
        Command::Progress(progress) => Subject::Job(progress.job),
        Command::Log(chunk) => Subject::Job(chunk.job),
        Command::Cancel(order)
        | Command::Activate(order)
        | Command::Replay(order)
        | Command::ForgetDeadLetter(order) => Subject::Job(order.job),
        Command::Register(registration) => Subject::Worker(registration.id),
        Command::Attach(attach) => Subject::Worker(attach.worker),
        Command::Worker(step) => Subject::Worker(step.worker),
        Command::Lapse(lapse) => Subject::Worker(lapse.worker),
        Command::ForgetWorker(worker) => Subject::Worker(*worker),
        Command::Claim(claim) => match &claim.claimant {
            Claimant::Native { worker, .. } => Subject::Worker(*worker),
            Claimant::Plain { .. } => return None,
        },
        _ => return None,
    })
}

impl Deferred {
    /// Returns how long to wait before the next retry; `None` when nothing waits.
    pub(super) fn wait(&self) -> Option<Duration> {
        (!self.ops.is_empty()).then(|| millis(self.next.since(boot_time())))
    }

    /// Defers commands about a job or worker that others wait for already; returns the rest.
    pub(super) fn divert(&mut self, ops: Vec<Op>) -> Vec<Op> {
        if self.about.is_empty() {
            return ops;
        }
        let waits =
            |op: &Op| subject_of(&op.command).is_some_and(|about| self.about.contains(&about));
        let (locked, free): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(waits);
        let now = boot_time();
        self.extend(locked.into_iter().map(|op| (op, now)));
        free
    }

    /// Defers commands, each with the time since which it waits.
    pub(super) fn extend(&mut self, ops: impl IntoIterator<Item = (Op, BootTime)>) {
        ops.into_iter().for_each(|(op, since)| self.push(op, since));
    }

    fn push(&mut self, op: Op, since: BootTime) {
        if self.ops.is_empty() {
            self.next = boot_time().after(PAUSE);
        }
        self.about.extend(subject_of(&op.command));
        self.ops.push_back(Waiting { op, since });
    }

    /// Takes the commands to retry, if it is time.
    fn take(&mut self) -> Vec<Waiting> {
        let now = boot_time();
        if self.ops.is_empty() || now < self.next {
            return Vec::new();
        }
        let count = self.ops.len().min(RETRIED_MAX);
        let taken = self.ops.drain(..count).collect();
        self.about = self.ops.iter().filter_map(|it| subject_of(&it.op.command)).collect();
        self.next = now.after(PAUSE);
        taken
    }
}

impl EventLoop {
    /// Retries deferred commands, if it is time.
    pub(super) async fn retry_deferred(&mut self) {
        let taken = self.deferred.take();
        if taken.is_empty() {
            return;
        }
        let now = boot_time();
        let mut ops = Vec::with_capacity(taken.len());
        for Waiting { op, since } in taken {
            match op.reply_to {
                ReplyTo::Caller(caller)
                | ReplyTo::Queue { caller, .. }
                | ReplyTo::Lapse { caller, .. }
                    if now.since(since) >= CALLER_WAITS =>
                {
                    drop(caller.send(Err(Unavailable::new(LOCKED))));
                }
                ReplyTo::CallerKeeping(caller) if now.since(since) >= CALLER_WAITS => {
                    drop(caller.send(Err(Unavailable::new(LOCKED))));
                }
                reply_to => ops.push((Op { command: op.command, reply_to }, since)),
            }
        }
        if !ops.is_empty() {
            self.commit_in_parts(ops).await;
        }
    }
}
