//! Commands that took too long alone while the writer waits briefly.
//!
//! Some are always slow, others only need longer than most, such as a claim that looks at many rows.
//! So each gets several times as long at its next try, up to the whole limit once. One that goes
//! through is given twice the time that it took, also in batches with others.

use std::collections::{BTreeSet, HashMap};
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use outlast_core::id::JobId;
use outlast_store::Command;
use outlast_store::command::{ClaimFrom, ClassId, NewJob};
use tokio::time::Instant;

/// How many times as long a command gets at its next try.
const GROWTH: u32 = 4;
/// How long a command gets no more than others after the whole limit was too short for it.
const SPENT: Duration = Duration::from_secs(300);
/// How much longer than it took a command gets.
const MARGIN: u32 = 2;
/// How many are remembered.
const KNOWN_MAX: usize = 1_024;

/// By what a command is known again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    /// It claims from this class.
    Class(ClassId),
    /// It claims from this queue.
    Queue(String),
    /// It stores jobs of these queues and types, in order.
    New(Vec<(String, String)>),
    /// It is about this job.
    Job(JobId),
    /// It is of this kind.
    Kind(Discriminant<Command>),
}

#[derive(Clone, Copy, Debug)]
struct SlowOne {
    /// What the command gets when it is tried alone.
    next: Duration,
    /// What a batch gets for it beside its usual limit. Zero until it has gone through.
    needs: Duration,
    /// Until when it gets no more than others.
    spent: Option<Instant>,
}

/// What is known of slow commands.
#[derive(Debug, Default)]
pub(super) struct SlowOnes {
    known: HashMap<Subject, SlowOne>,
    /// Until when a claim that comes alone may meet a job that is slow to take.
    slow_job: Option<Instant>,
}

fn subjects_of(command: &Command) -> Vec<Subject> {
    match command {
        Command::Claim(claim) => match &claim.from {
            ClaimFrom::Classes(classes) => classes.iter().copied().map(Subject::Class).collect(),
            ClaimFrom::Queues { queues, .. } => {
                queues.iter().cloned().map(Subject::Queue).collect()
            }
        },
        Command::Enqueue(_) | Command::EnqueueAll(_) | Command::EnqueueOnce(_) => {
            vec![stores(command.new_jobs().iter())]
        }
        Command::EnqueueArrived(order) => vec![stores(order.jobs.iter().map(|it| &it.job))],
        Command::Start(start) => vec![Subject::Job(start.job)],
        Command::Finish(finish) => vec![Subject::Job(finish.job)],
        Command::Progress(progress) => vec![Subject::Job(progress.job)],
        Command::Log(chunk) => vec![Subject::Job(chunk.job)],
        Command::Order(order) => vec![Subject::Job(order.job)],
        Command::ForgetDeadLetter(order) => vec![Subject::Job(order.job)],
        other => vec![Subject::Kind(discriminant(other))],
    }
}

fn stores<'a>(jobs: impl Iterator<Item = &'a NewJob>) -> Subject {
    let types: BTreeSet<(&str, &str)> =
        jobs.map(|job| (&*job.class.queue, &*job.class.job_type)).collect();
    let owned = |(queue, job_type): (&str, &str)| (queue.to_owned(), job_type.to_owned());
    Subject::New(types.into_iter().map(owned).collect())
}

impl SlowOnes {
    /// Whether something is known of each of these commands.
    pub(super) fn know_all(&self, commands: &[Command]) -> bool {
        self.all_are(commands, |_| true)
    }

    /// Whether the whole limit was too short for each of these commands a while ago.
    pub(super) fn are_spent(&self, commands: &[Command], now: Instant) -> bool {
        self.all_are(commands, |one| one.spent.is_some_and(|until| now < until))
    }

    /// Notes that it took too long to take a job.
    pub(super) fn met_slow_job(&mut self, now: Instant) {
        self.slow_job = Some(now + SPENT);
    }

    /// Whether the commands are one claim, and a job was slow to take a while ago: such jobs are
    /// tried again that way.
    pub(super) fn expect_slow_job(&self, commands: &[Command], now: Instant) -> bool {
        matches!(commands, [Command::Claim(_)]) && self.slow_job.is_some_and(|until| now < until)
    }

    fn all_are(&self, commands: &[Command], are: impl Fn(&SlowOne) -> bool) -> bool {
        let is = |subject| self.known.get(&subject).is_some_and(&are);
        !self.known.is_empty()
            && !commands.is_empty()
            && commands.iter().all(|command| subjects_of(command).into_iter().any(is))
    }

    /// Returns how long a statement of these commands may take, of which others get `brief`.
    pub(super) fn limit_for(
        &self,
        commands: &[Command],
        brief: Duration,
        now: Instant,
    ) -> Duration {
        if self.known.is_empty() {
            return brief;
        }
        let alone = commands.len() == 1;
        let all = commands.iter().flat_map(subjects_of);
        let known = all.filter_map(|subject| self.known.get(&subject));
        let gets = known.map(|one| match one.spent {
            Some(until) if now < until => brief,
            _ if alone => one.next.max(brief + one.needs),
            _ => brief + one.needs,
        });
        gets.fold(brief, Duration::max)
    }

    /// Notes that a command took longer than it was given; returns whether that was known of it
    /// before.
    pub(super) fn failed(
        &mut self,
        command: &Command,
        given: Duration,
        limit: Duration,
        now: Instant,
    ) -> bool {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let mut was_known = false;
        for subject in subjects_of(command) {
            was_known |= self.known.contains_key(&subject);
            let fresh = SlowOne { next: given, needs: Duration::ZERO, spent: None };
            let one = self.known.entry(subject).or_insert(fresh);
            if one.spent.is_some_and(|until| now < until) {
                continue;
            }
            *one = if given >= limit {
                SlowOne { next: Duration::ZERO, spent: Some(now + SPENT), ..fresh }
            } else {
                SlowOne { next: given * GROWTH, ..fresh }
            };
        }
        was_known
    }

    /// Notes that a command went through alone, and how long it took.
    pub(super) fn went_through(&mut self, command: &Command, took: Duration) {
        if self.known.is_empty() {
            return;
        }
        for subject in subjects_of(command) {
            if let Some(one) = self.known.get_mut(&subject) {
                one.needs = one.needs.max(took * MARGIN);
            }
        }
    }
}
