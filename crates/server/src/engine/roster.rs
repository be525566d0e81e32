//! The sessions attached here, what they hold, and which classes have claimable jobs.
//!
//! Counts of claimable jobs are estimates that may be too high and never too low: every
//! way into a class is seen by the loop that commits it, or by the backlog that monitors
//! read. A claim that gets fewer than it asked for sets them right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::lease::held_digest;
use outlast_core::time::{BootTime, Span};
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::{Deliveries, Orders, ReportAnswer, ReportAnswers, ServerMessage};
use outlast_store::command::{ClassId, ClassKey, Route, WorkerRole};

use tokio_util::sync::DropGuard;

use crate::engine::input::Push;

/// A worker whose loop last turned this long ago gets nothing new.
pub(crate) const DEAF_AFTER: Span = Span::from_secs(10);

/// One attached session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) number: u64,
    pub(crate) profile: Arc<Profile>,
    pub(crate) push: Push,
    /// Ends the stream when the session is dropped here.
    _closer: DropGuard,
    /// Slots, busy and free.
    pub(crate) slots: u32,
    /// Jobs beyond the slots, for short work.
    pub(crate) prefetch: u32,
    /// Whether the worker's phase allows new work.
    pub(crate) running: bool,
    pub(crate) held: HashMap<JobId, HeldHere>,
    /// Jobs asked of the store for it and not answered yet.
    pub(crate) pending: u32,
    /// How long ago its loop turned, by its latest beat.
    pub(crate) poll_age: Span,
    /// Which classes it can take, as found so far.
    fits: HashMap<ClassId, bool>,
    /// What this turn will push.
    outbox: Outbox,
}

/// What a worker can run.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Label.
    pub name: String,
    /// Kind.
    pub role: WorkerRole,
    /// Queues it serves; `*` is every queue.
    pub queues: Vec<String>,
    /// Runtimes it has.
    pub runtimes: Vec<String>,
    /// Labels it carries.
    pub labels: BTreeMap<String, String>,
    /// Types with a handler, or actions it has.
    pub types: HashSet<String>,
}

/// An attempt that a session holds.
#[derive(Debug)]
pub(crate) struct HeldHere {
    pub(crate) epoch: Epoch,
    pub(crate) delivered: BootTime,
    pub(crate) progress: HeldProgress,
    pub(crate) isolated: bool,
}

/// How far a delivered attempt has come, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldProgress {
    Delivered,
    /// Asked back because it did not start in time.
    Revoked,
    Started,
}

/// A session as others see it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its worker.
    pub worker: WorkerId,
    /// What the worker can run.
    pub profile: Arc<Profile>,
    /// Slots.
    pub slots: u32,
    /// Attempts held.
    pub held: usize,
    /// Whether it gets new work.
    pub running: bool,
    /// How long ago its loop turned, if that is too long.
    pub deaf: Option<Span>,
}

#[derive(Debug, Default)]
struct Outbox {
    deliveries: Deliveries,
    answers: Vec<ReportAnswer>,
    orders: Orders,
}

impl Profile {
    /// Returns whether the worker can run jobs of the class, else why not.
    pub(crate) fn fits(&self, key: &ClassKey) -> Result<(), Misfit> {
        match (&key.route, self.role) {
            (Route::Action { runtime, labels }, WorkerRole::Action) => {
                if !self.runtimes.contains(runtime) {
                    return Err(Misfit::Runtime);
                }
                if labels.iter().any(|(name, value)| self.labels.get(name) != Some(value)) {
                    return Err(Misfit::Labels);
                }
            }
            (Route::Plain, WorkerRole::Sdk) => {}
            (Route::Plain | Route::Action { .. }, _) => return Err(Misfit::Role),
        }
        if !self.types.contains(&key.job_type) {
            return Err(Misfit::Type);
        }
        if !self.queues.iter().any(|queue| queue == "*" || *queue == key.queue) {
            return Err(Misfit::Queue);
        }
        Ok(())
    }
}

/// Why a worker cannot run a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Misfit {
    /// It is of another kind.
    Role,
    /// It lacks the runtime.
    Runtime,
    /// It lacks a required label.
    Labels,
    /// It has no such action or handler.
    Type,
    /// It does not serve the queue.
    Queue,
}

impl Session {
    /// Returns a session that just attached.
    pub(crate) fn new(
        (worker, number): (WorkerId, u64),
        profile: Profile,
        push: Push,
        closer: DropGuard,
    ) -> Self {
        Self {
            worker,
            number,
            profile: Arc::new(profile),
            push,
            _closer: closer,
            slots: 0,
            prefetch: 0,
            running: true,
            held: HashMap::new(),
            pending: 0,
            poll_age: Span::ZERO,
            fits: HashMap::new(),
            outbox: Outbox::default(),
        }
    }

    /// Returns how many more jobs it takes, prefetch included or not.
    pub(crate) fn room(&self, with_prefetch: bool) -> u32 {
        let gets_work = self.running
            && self.poll_age < DEAF_AFTER
            && !self.held.values().any(|held| held.isolated);
        if !gets_work {
            return 0;
        }
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX).saturating_add(self.pending);
        let limit = self.slots + if with_prefetch { self.prefetch } else { 0 };
        limit.saturating_sub(held)
    }

    pub(crate) fn can_take(&mut self, id: ClassId, key: &ClassKey) -> bool {
        let profile = &self.profile;
        *self.fits.entry(id).or_insert_with(|| profile.fits(key).is_ok())
    }

    pub(crate) fn deliver(&mut self, delivery: outlast_proto::v1::Delivery) {
        self.outbox.deliveries.deliveries.push(delivery);
    }

    pub(crate) fn answer(&mut self, answer: ReportAnswer) {
        self.outbox.answers.push(answer);
    }

    pub(crate) fn order(&mut self, what: outlast_proto::v1::order::What) {
        self.outbox.orders.orders.push(outlast_proto::v1::Order { what: Some(what) });
    }

    /// Sends what has gathered; each sort as one message.
    pub(crate) fn flush(&mut self) {
        let outbox = std::mem::take(&mut self.outbox);
        let bodies = [
            (!outbox.answers.is_empty())
                .then_some(Body::Answers(ReportAnswers { answers: outbox.answers })),
            (!outbox.deliveries.deliveries.is_empty())
                .then_some(Body::Deliveries(outbox.deliveries)),
            (!outbox.orders.orders.is_empty()).then_some(Body::Orders(outbox.orders)),
        ];
        for body in bodies.into_iter().flatten() {
            self.send(body);
        }
    }

    pub(crate) fn send(&self, body: Body) {
        let message = ServerMessage { session: self.number, body: Some(body) };
        // A closed stream is noticed by its reader, which detaches the session.
        drop(self.push.send(Ok(message)));
    }

    pub(crate) fn digest(&self) -> u64 {
        held_digest(self.held.iter().map(|(job, held)| (*job, held.epoch)))
    }

    fn view(&self) -> SessionView {
        SessionView {
            worker: self.worker,
            profile: Arc::clone(&self.profile),
            slots: self.slots,
            held: self.held.len(),
            running: self.running,
            deaf: (self.poll_age >= DEAF_AFTER).then_some(self.poll_age),
        }
    }
}

/// A class and how many claimable jobs it has, as far as is known.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) key: ClassKey,
    pub(crate) ready: u64,
}

/// Everything that dispatch looks at.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) sessions: HashMap<WorkerId, Session>,
    pub(crate) classes: BTreeMap<ClassId, Class>,
    ids: HashMap<ClassKey, ClassId>,
    /// Classes with `ready` above zero.
    pub(crate) waiting: HashSet<ClassId>,
}

impl Roster {
    /// Makes a class known and returns how many claimable jobs it has, as far as is known.
    pub(crate) fn learn(&mut self, id: ClassId, key: &ClassKey) -> u64 {
        let Self { classes, ids, .. } = self;
        let class = classes.entry(id).or_insert_with(|| {
            ids.insert(key.clone(), id);
            Class { key: key.clone(), ready: 0 }
        });
        class.ready
    }

    pub(crate) fn class_of(&self, key: &ClassKey) -> Option<ClassId> {
        self.ids.get(key).copied()
    }

    /// Notes that a class has `count` more claimable jobs. Returns false when the class is
    /// not known here, so that the backlog must be read.
    pub(crate) fn add_ready(&mut self, id: ClassId, count: u64) -> bool {
        let Some(class) = self.classes.get_mut(&id) else { return false };
        class.ready = class.ready.saturating_add(count);
        self.waiting.insert(id);
        true
    }

    /// Notes that a claim of these classes got `got` jobs of `asked`.
    pub(crate) fn claimed(&mut self, ids: &[ClassId], got: &[ClassId], asked: u32) {
        if got.len() < usize::try_from(asked).unwrap_or(usize::MAX) {
            for id in ids {
                self.set_ready(*id, 0);
            }
            return;
        }
        for id in got {
            let left = self.classes.get(id).map_or(0, |class| class.ready.saturating_sub(1));
            // An estimate never falls to zero by counting alone: only a claim that came
            // back short proves that nothing is left.
            self.set_ready(*id, left.max(1));
        }
    }

    pub(crate) fn set_ready(&mut self, id: ClassId, ready: u64) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.ready = ready;
        if ready == 0 {
            self.waiting.remove(&id);
        } else {
            self.waiting.insert(id);
        }
    }

    pub(crate) fn current(&mut self, worker: WorkerId, number: u64) -> Option<&mut Session> {
        self.sessions.get_mut(&worker).filter(|session| session.number == number)
    }

    pub(crate) fn views(&self) -> Vec<SessionView> {
        self.sessions.values().map(Session::view).collect()
    }
}
