//! What waits for a row that another session of the database holds, or that cannot be read.
//!
//! One such row must cost its own callers an answer and nobody else anything: the batch is
//! split until the commands about it are alone, and they wait here, tried again now and then.
//! Commands about the same job or worker that come meanwhile wait behind them.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::command::Claimant;
use outlast_store::{Command, StoreError};

use super::Turn;
use crate::clock::boot_time;
use crate::engine::gather::{Op, Sink, due_of};
use crate::engine::{Unavailable, millis};

/// Longest that a caller waits; he may ask again.
const CALLER_WAITS: Span = Span::from_secs(3);
/// Pause between two tries.
const PAUSE: Span = Span(250);
/// Most commands that are found to be held in one go: each costs a moment of everyone's.
const HELD_MAX: usize = 8;
/// Most that are tried again in one go.
const TRIED_MAX: usize = 256;

/// Commands that wait.
#[derive(Debug, Default)]
pub(super) struct Aside {
    ops: VecDeque<Waiting>,
    about: HashSet<Key>,
    /// When they are tried again.
    next: BootTime,
}

#[derive(Debug)]
struct Waiting {
    op: Op,
    since: BootTime,
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Job(JobId),
    Worker(WorkerId),
}

fn key_of(command: &Command) -> Option<Key> {
    Some(match command {
        Command::Start(start) => Key::Job(start.job),
        Command::Finish(finish) => Key::Job(finish.job),
        Command::Progress(progress) => Key::Job(progress.job),
        Command::Log(chunk) => Key::Job(chunk.job),
        Command::Cancel(order)
        | Command::Activate(order)
        | Command::Replay(order)
        | Command::ForgetDeadLetter(order) => Key::Job(order.job),
        Command::Register(registration) => Key::Worker(registration.id),
        Command::Attach(attach) => Key::Worker(attach.worker),
        Command::Worker(step) => Key::Worker(step.worker),
        Command::Lapse(lapse) => Key::Worker(lapse.worker),
        Command::ForgetWorker(worker) => Key::Worker(*worker),
        Command::Claim(claim) => match &claim.claimant {
            Claimant::Native { worker, .. } => Key::Worker(*worker),
            Claimant::Plain { .. } => return None,
        },
        _ => return None,
    })
}

impl Aside {
    /// Returns how long nothing has to be tried; `None` when nothing waits.
    pub(super) fn wait(&self) -> Option<Duration> {
        (!self.ops.is_empty()).then(|| millis(self.next.since(boot_time())))
    }

    /// Keeps what is about something that is held already, and returns the rest.
    pub(super) fn divert(&mut self, ops: Vec<Op>) -> Vec<Op> {
        if self.about.is_empty() {
            return ops;
        }
        let (held, free) = ops
            .into_iter()
            .partition(|op| key_of(&op.command).is_some_and(|key| self.about.contains(&key)));
        let held: Vec<Op> = held;
        held.into_iter().for_each(|op| self.keep(op, boot_time()));
        free
    }

    fn keep(&mut self, op: Op, since: BootTime) {
        if self.ops.is_empty() {
            self.next = boot_time().after(PAUSE);
        }
        self.about.extend(key_of(&op.command));
        self.ops.push_back(Waiting { op, since });
    }

    /// Takes what is to be tried, if it is time.
    fn take(&mut self) -> Vec<Waiting> {
        let now = boot_time();
        if self.ops.is_empty() || now < self.next {
            return Vec::new();
        }
        let count = self.ops.len().min(TRIED_MAX);
        let taken = self.ops.drain(..count).collect();
        self.about = self.ops.iter().filter_map(|it| key_of(&it.op.command)).collect();
        self.next = now.after(PAUSE);
        taken
    }
}

impl Turn {
    /// Tries what waits, if it is time.
    pub(super) async fn retry_aside(&mut self) {
        let taken = self.aside.take();
        if taken.is_empty() {
            return;
        }
        let now = boot_time();
        let mut ops = Vec::with_capacity(taken.len());
        for Waiting { op, since } in taken {
            match op.sink {
                Sink::Caller(caller) | Sink::Queue { caller, .. } | Sink::Lapse { caller, .. }
                    if now.since(since) >= CALLER_WAITS =>
                {
                    let why = "another session of the database holds what this is about";
                    drop(caller.send(Err(Unavailable::new(why))));
                }
                sink => ops.push((Op { command: op.command, sink }, since)),
            }
        }
        if !ops.is_empty() {
            self.commit_in_parts(ops).await;
        }
    }

    /// Applies what could not be applied as one batch in parts: halves, halves of those, until
    /// what is held, or cannot be applied at all, is alone.
    pub(super) async fn commit_in_parts(&mut self, ops: Vec<(Op, BootTime)>) {
        let mut held = 0;
        let mut parts = vec![ops];
        while let Some(mut part) = parts.pop() {
            if held >= HELD_MAX {
                part.into_iter().for_each(|(op, since)| self.aside.keep(op, since));
                continue;
            }
            let due: Option<Timestamp> =
                part.iter().filter_map(|(op, _)| due_of(&op.command)).min();
            let commands = part.iter().map(|(op, _)| op.command.clone()).collect();
            match self.apply_as_one(commands).await {
                Ok(applied) => {
                    if let Some(due) = due {
                        self.board.due_at(due);
                    }
                    self.answer(applied, part.into_iter().map(|(op, _)| op.sink).collect());
                }
                Err(error) if !is_of_one(&error) => {
                    // The other parts would fail as this one did, each after a long wait.
                    let rest = parts.drain(..).rev().flatten();
                    let all = part.into_iter().chain(rest);
                    self.fail(&error, all.map(|(op, _)| op.sink).collect());
                }
                Err(_) if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Err(StoreError::Held(why)) => {
                    tracing::debug!(why, "a row is held by another session");
                    held += 1;
                    part.into_iter().for_each(|(op, since)| self.aside.keep(op, since));
                }
                Err(error) => {
                    for (op, _) in part {
                        self.fail_one(&error, op);
                    }
                }
            }
        }
    }

    /// A command cannot be applied, whatever is tried: it alone fails. The session that it came
    /// from stays.
    fn fail_one(&mut self, error: &StoreError, Op { command, sink }: Op) {
        tracing::error!(%error, about = ?key_of(&command), "a command could not be applied");
        match sink {
            Sink::Caller(caller) | Sink::Queue { caller, .. } | Sink::Lapse { caller, .. } => {
                drop(caller.send(Err(Unavailable::new(error.to_string()))));
            }
            Sink::Session { worker, session, classes, max } => {
                if let Some(session) = self.roster.current(worker, session) {
                    session.pending = session.pending.saturating_sub(max);
                }
                // Tried again when the backlog is next looked at.
                self.roster.claimed(&classes, &[], max, &[]);
            }
            Sink::Strand(class) => self.stranded.looked(class, self.board.store_time()),
            Sink::Report { .. } | Sink::None => {}
        }
    }
}

/// Returns whether an error is about some command of a batch, and not about the store.
pub(in crate::engine) const fn is_of_one(error: &StoreError) -> bool {
    matches!(error, StoreError::Rejected(_) | StoreError::Corrupt(_) | StoreError::Held(_))
}
