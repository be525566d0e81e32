//! Commands of kinds that are slow. They are tried apart from all others, so that many of them cost
//! the others no more than one does.
//!
//! ```text
//! command of a known kind ─▶ waits ──a try goes through──▶ answered; the next try is of twice as many
//!                            │   ▲
//!       refused in time ◀────┘   └──a try is too slow: the next is of one; one alone is refused
//! ```
//!
//! Each slow try is followed by a pause, so that all of them take a part of the time. A kind
//! is known from the time when a command of it took too long alone until none has for a while.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use outlast_core::time::{BootTime, Span};
use outlast_store::Command;
use outlast_store::command::NewJob;

use crate::clock::{boot_time, millis};
use crate::engine::command_facts::weight_of;
use crate::engine::event_loop::{Subject, subject_of};

const WAITED: &str =
    "took too long: commands like it did lately, so they are tried a few at a time";
const TOO_MANY: &str = "took too long: too many commands like it wait to be tried";
/// Longest that a command waits; its caller may ask again.
const WAITS: Span = Span::from_secs(3);
/// How long a kind is known after a command of it took too long.
const KNOWN_FOR: Span = Span::from_secs(60);
/// How many kinds are known at most.
const KNOWN_MAX: usize = 1_024;
/// By how many queues and types a command with several jobs is known again.
const TYPES_OF_ONE_MAX: usize = 16;
/// Most commands in one try.
const TOGETHER_MAX: usize = 256;
/// How much may wait: as much as eight full batches.
const WEIGHT_MAX: usize = 16_000;
/// How many tries may go through in one go.
pub(crate) const TRIES_MAX: usize = 4;
/// Slow tries may take this part of the time.
const SHARE: u64 = 5;
/// Shortest and longest pause after a slow try.
const PAUSE_MIN: Span = Span(250);
const PAUSE_MAX: Span = Span::from_secs(10);

/// A command that may wait for a try.
pub(crate) trait Submitted {
    fn command(&self) -> &Command;
    /// Whether a caller waits that may ask again.
    fn has_caller(&self) -> bool;
    /// Answers the caller with why it was not carried out.
    fn refuse(self, why: &str);
}

/// What slow commands have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// They store jobs of these queues and types, in order, and of no others.
    New(Vec<(String, String)>),
    /// They are about this job or worker.
    About(Subject),
    /// They are the same command.
    Same(Discriminant<Command>),
}

/// Returns the kind of a command that may wait.
fn kind_of(it: &impl Submitted) -> Option<Kind> {
    if !it.has_caller() {
        return None;
    }
    match it.command() {
        // Output stays in order. A claim is slow for the jobs that it takes.
        Command::Log(_) | Command::Claim(_) => None,
        Command::Enqueue(_)
        | Command::EnqueueAll(_)
        | Command::EnqueueOnce(_)
        | Command::WriteSchedule(_)
        | Command::WriteWorkflow(_) => kind_of_new(it.command().new_jobs().iter()),
        Command::EnqueueArrived(order) => kind_of_new(order.jobs.iter().map(|it| &it.job)),
        Command::Queue(_)
        | Command::SetQueue(_)
        | Command::SetLimit(_)
        | Command::RemoveLimit(_)
        | Command::BeginSession(_)
        | Command::RenewSession(_)
        | Command::EndSessions(_)
        | Command::OrderWorkers(_) => Some(Kind::Same(discriminant(it.command()))),
        other => subject_of(other).map(Kind::About),
    }
}

fn kind_of_new<'a>(jobs: impl Iterator<Item = &'a NewJob>) -> Option<Kind> {
    let mut all = BTreeSet::new();
    for job in jobs {
        all.insert((&*job.class.queue, &*job.class.job_type));
        if all.len() >= TYPES_OF_ONE_MAX {
            break;
        }
    }
    let owned = |(queue, job_type): (&str, &str)| (queue.to_owned(), job_type.to_owned());
    (!all.is_empty()).then(|| Kind::New(all.into_iter().map(owned).collect()))
}

impl Kind {
    /// Returns the kinds of commands that store only one of the jobs.
    fn parts(&self) -> impl Iterator<Item = Self> {
        let types = match self {
            Self::New(types) => types.as_slice(),
            Self::About(_) | Self::Same(_) => &[],
        };
        types.iter().map(|one| Self::New(vec![one.clone()]))
    }
}

/// The known kinds, and the commands that wait for a try.
#[derive(Debug)]
pub(crate) struct SlowKinds<T> {
    known: HashMap<Kind, Known<T>>,
    /// When the next try is due.
    next: BootTime,
    /// How many tries there were.
    tries: u64,
    /// How much waits.
    weight: usize,
}

#[derive(Debug)]
struct Known<T> {
    waiting: VecDeque<Waiting<T>>,
    /// When a command took too long alone.
    failed: BootTime,
    /// How many commands the next try is of.
    together: usize,
    /// Which try was its last one.
    tried: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    op: T,
    since: BootTime,
}

/// Commands of one kind that are to be tried together.
#[derive(Debug)]
pub(crate) struct Trial<T> {
    kind: Kind,
    pub(crate) ops: Vec<T>,
    since: Vec<BootTime>,
}

impl<T> Default for SlowKinds<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), next: BootTime::default(), tries: 0, weight: 0 }
    }
}

impl<T: Submitted> SlowKinds<T> {
    /// Returns how long to wait before the next look; `None` when nothing waits.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let fronts = self.known.values().filter_map(|known| known.waiting.front());
        let overdue = fronts.map(|first| first.since.after(WAITS)).min()?;
        Some(millis(overdue.min(self.next).since(boot_time())))
    }

    /// Whether no kind is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Keeps the commands of known kinds for a try; returns the rest.
    pub(crate) fn divert(&mut self, ops: Vec<T>, now: BootTime) -> Vec<T> {
        if self.known.is_empty() {
            return ops;
        }
        ops.into_iter().filter_map(|op| self.divert_one(op, now)).collect()
    }

    /// Keeps a command of a known kind for a try, or returns it.
    pub(crate) fn divert_one(&mut self, op: T, now: BootTime) -> Option<T> {
        let Some(known) = self.known_of(&op) else { return Some(op) };
        let Some(known) = self.known.get_mut(&known) else { return Some(op) };
        let weight = weight_of(op.command());
        if self.weight > 0 && self.weight + weight > WEIGHT_MAX {
            op.refuse(TOO_MANY);
            return None;
        }
        self.weight += weight;
        known.waiting.push_back(Waiting { op, since: now });
        None
    }

    /// Returns the known kind of a command: its own, or that of some of its jobs.
    fn known_of(&self, op: &T) -> Option<Kind> {
        let kind = kind_of(op)?;
        if self.known.contains_key(&kind) {
            return Some(kind);
        }
        kind.parts().find(|part| self.known.contains_key(part))
    }

    /// Notes that a command took too long alone.
    pub(crate) fn failed_alone(&mut self, op: &T, now: BootTime) {
        let Some(kind) = kind_of(op) else { return };
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&kind) {
            return;
        }
        match self.known.entry(kind) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                (known.failed, known.together) = (now, 1);
            }
            Entry::Vacant(unknown) => {
                tracing::warn!(kind = ?unknown.key(),
                    "command took too long; others of its kind are tried apart for a while");
                let waiting = VecDeque::new();
                unknown.insert(Known { waiting, failed: now, together: 1, tried: self.tries });
            }
        }
    }

    /// Refuses commands that have waited too long, and forgets kinds that are slow no longer.
    pub(crate) fn tidy(&mut self, now: BootTime) {
        if self.known.is_empty() {
            return;
        }
        for known in self.known.values_mut() {
            let is_over = |first: &mut Waiting<T>| now.since(first.since) >= WAITS;
            while let Some(Waiting { op, .. }) = known.waiting.pop_front_if(is_over) {
                self.weight = self.weight.saturating_sub(weight_of(op.command()));
                op.refuse(WAITED);
            }
        }
        self.known
            .retain(|_, known| !known.waiting.is_empty() || now.since(known.failed) < KNOWN_FOR);
    }

    /// Takes what is to be tried next, if it is time: of the kind that was not tried for longest.
    pub(crate) fn take(&mut self, now: BootTime) -> Option<Trial<T>> {
        if now < self.next {
            return None;
        }
        let waiting = self.known.iter_mut().filter(|(_, known)| !known.waiting.is_empty());
        let (kind, known) = waiting.min_by_key(|(_, known)| known.tried)?;
        self.tries += 1;
        known.tried = self.tries;
        let count = known.together.min(known.waiting.len());
        let mut trial = Trial { kind: kind.clone(), ops: Vec::new(), since: Vec::new() };
        for Waiting { op, since } in known.waiting.drain(..count) {
            self.weight = self.weight.saturating_sub(weight_of(op.command()));
            trial.ops.push(op);
            trial.since.push(since);
        }
        Some(trial)
    }

    /// A try went through.
    pub(crate) fn went_through(&mut self, trial: &Trial<T>) {
        if let Some(known) = self.known.get_mut(&trial.kind) {
            known.together = (known.together * 2).min(TOGETHER_MAX);
        }
    }

    /// A try of several did not go through: they wait for smaller ones.
    pub(crate) fn put_back(&mut self, trial: Trial<T>) {
        let Some(known) = self.known.get_mut(&trial.kind) else { return };
        known.together = 1;
        for (op, since) in trial.ops.into_iter().zip(trial.since).rev() {
            self.weight += weight_of(op.command());
            known.waiting.push_front(Waiting { op, since });
        }
    }

    /// A try took so long, and did not go through.
    pub(crate) fn pause(&mut self, took: Span, now: BootTime) {
        let pause = Span(took.0.saturating_mul(SHARE - 1));
        self.next = now.after(pause.max(PAUSE_MIN).min(PAUSE_MAX));
    }
}

#[cfg(test)]
mod tests;
