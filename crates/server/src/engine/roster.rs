//! The sessions attached here, what they hold, and which classes have claimable jobs.
//!
//! Counts of claimable jobs are estimates: every way into a class is seen by the loop that
//! commits it, told by another server, or found by the look that monitors take. A claim that
//! gets fewer than it asked for sets them right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::lease::held_digest;
use outlast_core::limits::{CONCURRENCY_MAX, SESSION_MESSAGE_BYTES_AIM};
use outlast_core::time::{BootTime, Span};
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::{Deliveries, Delivery, Orders, ReportAnswer, ReportAnswers, ServerMessage};
use outlast_store::command::{ClassId, ClassKey};

use prost::Message as _;
use tokio_util::sync::DropGuard;

use crate::engine::estimate::Estimate;
use crate::engine::fleet::Condition;
use crate::engine::input::Push;
use crate::engine::profile::Profile;

/// A worker whose loop last turned this long ago gets nothing new.
pub(crate) const DEAF_AFTER: Span = Span::from_secs(10);

/// One attached session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) number: u64,
    pub(crate) profile: Arc<Profile>,
    pub(crate) facts: Arc<SessionFacts>,
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
    /// Which classes it can take, as found so far.
    fits: HashMap<ClassId, bool>,
    /// What this turn will push.
    outbox: Outbox,
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

/// A session as others see it, as it is now. The loop writes it, and beats their age.
#[derive(Debug)]
pub(crate) struct SessionFacts {
    pub(crate) worker: WorkerId,
    pub(crate) name: Arc<str>,
    pub(crate) profile: Arc<Profile>,
    running: AtomicBool,
    /// How many attempts it holds, and their digest.
    held: AtomicUsize,
    slots: AtomicUsize,
    digest: AtomicU64,
    /// How long ago its loop turned, by its latest beat, in milliseconds.
    poll_age: AtomicU64,
}

impl SessionFacts {
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns how many attempts it runs at a time.
    pub(crate) fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Acquire)
    }

    /// Returns how long its loop has stood still, if that is too long.
    pub(crate) fn deaf(&self) -> Option<Span> {
        let age = Span(self.poll_age.load(Ordering::Relaxed));
        (age >= DEAF_AFTER).then_some(age)
    }

    /// Notes what a beat said; returns whether the session gets work again, or no more.
    pub(crate) fn polled(&self, age: Span) -> bool {
        let before = self.poll_age.swap(age.0, Ordering::Relaxed);
        (before >= DEAF_AFTER.0) != (age >= DEAF_AFTER)
    }

    pub(crate) fn condition(&self) -> Condition {
        match self.deaf() {
            _ if !self.running.load(Ordering::Relaxed) => Condition::Quiet,
            Some(age) => Condition::Deaf(age),
            None => Condition::Active,
        }
    }
}

#[derive(Debug, Default)]
struct Outbox {
    deliveries: Deliveries,
    answers: Vec<ReportAnswer>,
    orders: Orders,
}

impl Session {
    /// Returns a session that just attached.
    pub(crate) fn new(
        (worker, number): (WorkerId, u64),
        (name, profile): (&str, Arc<Profile>),
        push: Push,
        closer: DropGuard,
    ) -> Self {
        let facts = SessionFacts {
            worker,
            name: name.into(),
            profile: Arc::clone(&profile),
            running: AtomicBool::new(true),
            held: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            digest: AtomicU64::new(0),
            poll_age: AtomicU64::new(0),
        };
        Self {
            worker,
            number,
            profile,
            facts: Arc::new(facts),
            push,
            _closer: closer,
            slots: 0,
            prefetch: 0,
            running: true,
            held: HashMap::new(),
            pending: 0,
            fits: HashMap::new(),
            outbox: Outbox::default(),
        }
    }

    /// Takes note of how much the worker takes, as far as any worker may.
    pub(crate) fn offer(&mut self, slots: u32, prefetch: u32) {
        let (slots, prefetch) = (slots.min(CONCURRENCY_MAX), prefetch.min(CONCURRENCY_MAX));
        (self.slots, self.prefetch) = (slots, prefetch);
        self.facts.slots.store(usize::try_from(slots).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Returns how many more jobs it takes, prefetch included or not.
    pub(crate) fn room(&self, with_prefetch: bool) -> u32 {
        let gets_work = self.running
            && self.facts.deaf().is_none()
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

    pub(crate) fn deliver(&mut self, delivery: Delivery) {
        self.outbox.deliveries.deliveries.push(delivery);
    }

    pub(crate) fn answer(&mut self, answer: ReportAnswer) {
        self.outbox.answers.push(answer);
    }

    pub(crate) fn order(&mut self, what: outlast_proto::v1::order::What) {
        self.outbox.orders.orders.push(outlast_proto::v1::Order { what: Some(what) });
    }

    /// Sends what has gathered: each sort as one message, and large deliveries as several.
    pub(crate) fn flush(&mut self) {
        let outbox = std::mem::take(&mut self.outbox);
        if !outbox.answers.is_empty() {
            self.send(Body::Answers(ReportAnswers { answers: outbox.answers }));
        }
        for deliveries in in_messages(outbox.deliveries.deliveries) {
            self.send(Body::Deliveries(Deliveries { deliveries }));
        }
        if !outbox.orders.orders.is_empty() {
            self.send(Body::Orders(outbox.orders));
        }
    }

    pub(crate) fn send(&self, body: Body) {
        let message = ServerMessage { session: self.number, body: Some(body) };
        // A closed stream is noticed by its reader, which detaches the session.
        drop(self.push.send(Ok(message)));
    }

    pub(crate) fn set_running(&mut self, running: bool) {
        self.running = running;
        self.facts.running.store(running, Ordering::Relaxed);
    }

    /// Notes that it holds an attempt.
    pub(crate) fn hold(&mut self, job: JobId, held: HeldHere) {
        let epoch = held.epoch;
        let before = self.held.insert(job, held).map(|before| (job, before.epoch));
        self.show_held(before.into_iter().chain([(job, epoch)]));
    }

    /// Notes that an attempt ended, unless the session holds a later one.
    pub(crate) fn ended(&mut self, job: JobId, epoch: Epoch) {
        let Some(held) = self.held.get(&job).map(|held| held.epoch) else { return };
        if held <= epoch {
            self.held.remove(&job);
            self.show_held([(job, held)]);
        }
    }

    fn show_held(&self, changed: impl IntoIterator<Item = (JobId, Epoch)>) {
        self.facts.held.store(self.held.len(), Ordering::Relaxed);
        self.facts.digest.fetch_xor(held_digest(changed), Ordering::AcqRel);
    }
}

/// Splits deliveries by what they take on the wire: a message over the limit would end the
/// stream, the same claims would follow on the next one, and nothing would ever run.
fn in_messages(deliveries: Vec<Delivery>) -> Vec<Vec<Delivery>> {
    let (mut messages, mut message, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for delivery in deliveries {
        let size = delivery.encoded_len();
        if bytes > 0 && bytes.saturating_add(size) > SESSION_MESSAGE_BYTES_AIM {
            messages.push(std::mem::take(&mut message));
            bytes = 0;
        }
        bytes = bytes.saturating_add(size);
        message.push(delivery);
    }
    if !message.is_empty() {
        messages.push(message);
    }
    messages
}

/// A class and how many claimable jobs it has, as far as is known.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) key: ClassKey,
    pub(crate) ready: Estimate,
    /// When something was last known of its jobs.
    used: BootTime,
}

/// Everything that dispatch looks at.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) sessions: HashMap<WorkerId, Session>,
    pub(crate) classes: BTreeMap<ClassId, Class>,
    ids: HashMap<ClassKey, ClassId>,
    /// Classes that have claimable jobs.
    pub(crate) waiting: HashSet<ClassId>,
    /// Sessions that are told something at the end of this turn.
    pub(crate) told: HashSet<WorkerId>,
}

impl Roster {
    /// Returns a worker's session, to be told something in this turn.
    pub(crate) fn tell(&mut self, worker: WorkerId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&worker)?;
        self.told.insert(worker);
        Some(session)
    }

    /// Sends what has gathered for sessions in this turn.
    pub(crate) fn flush(&mut self) {
        for worker in self.told.drain() {
            if let Some(session) = self.sessions.get_mut(&worker) {
                session.flush();
            }
        }
    }

    /// Makes a class known.
    pub(crate) fn learn(&mut self, id: ClassId, key: &ClassKey, now: BootTime) -> &mut Class {
        let Self { classes, ids, .. } = self;
        classes.entry(id).or_insert_with(|| {
            ids.insert(key.clone(), id);
            Class { key: key.clone(), ready: Estimate::None, used: now }
        })
    }

    /// Forgets classes without claimable jobs that nothing was heard of since `before`: what
    /// comes of them later makes them known again.
    pub(crate) fn forget_unused(&mut self, before: BootTime) {
        let Self { classes, ids, sessions, .. } = self;
        let known = classes.len();
        classes.retain(|_, class| {
            let keep = class.ready != Estimate::None || class.used >= before;
            if !keep {
                ids.remove(&class.key);
            }
            keep
        });
        if classes.len() < known {
            for session in sessions.values_mut() {
                session.fits.retain(|id, _| classes.contains_key(id));
            }
        }
    }

    pub(crate) fn class_of(&self, key: &ClassKey) -> Option<ClassId> {
        self.ids.get(key).copied()
    }

    /// Notes that a class has `count` more claimable jobs. Returns false when the class is
    /// not known here, so that the backlog must be read.
    pub(crate) fn add_ready(&mut self, id: ClassId, count: u64, now: BootTime) -> bool {
        let Some(class) = self.classes.get_mut(&id) else { return false };
        class.used = now;
        let ready = class.ready.more(count);
        self.set_ready(id, ready);
        true
    }

    /// Notes that a claim of these classes got `got` jobs of `asked`. That it came back short
    /// proves nothing about classes that it passed over jobs of. While it gets some, it is made
    /// again at once.
    pub(crate) fn claimed(
        &mut self,
        ids: &[ClassId],
        got: &[ClassId],
        asked: u32,
        passed_over: &[ClassId],
    ) {
        if got.len() < usize::try_from(asked).unwrap_or(usize::MAX) {
            for id in ids.iter().filter(|id| got.is_empty() || !passed_over.contains(id)) {
                self.set_ready(*id, Estimate::None);
            }
            return;
        }
        let mut counts: BTreeMap<ClassId, u64> = BTreeMap::new();
        for id in got {
            *counts.entry(*id).or_default() += 1;
        }
        for (id, count) in counts {
            let Some(class) = self.classes.get(&id) else { continue };
            self.set_ready(id, class.ready.took(count));
        }
    }

    pub(crate) fn set_ready(&mut self, id: ClassId, ready: Estimate) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.ready = ready;
        if ready == Estimate::None {
            self.waiting.remove(&id);
        } else {
            self.waiting.insert(id);
        }
    }

    pub(crate) fn current(&mut self, worker: WorkerId, number: u64) -> Option<&mut Session> {
        self.sessions.get_mut(&worker).filter(|session| session.number == number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use outlast_core::id::WorkerId;
    use outlast_core::limits::{BODY_BYTES_MAX, CONCURRENCY_MAX, SESSION_MESSAGE_BYTES_MAX};
    use outlast_proto::v1::Delivery;
    use outlast_store::command::WorkerRole;
    use prost::Message as _;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::{Session, in_messages};
    use crate::engine::profile::Profile;

    /// The sum of both once overflowed.
    #[test]
    fn a_worker_that_offers_more_than_any_may_gets_what_any_may() {
        let profile = Profile {
            role: WorkerRole::Sdk,
            queues: Vec::new(),
            runtimes: Vec::new(),
            labels: BTreeMap::new(),
            types: BTreeSet::new(),
        };
        let (push, _pushed) = mpsc::unbounded_channel();
        let closer = CancellationToken::new().drop_guard();
        let worker = WorkerId(Uuid::nil());
        let mut session = Session::new((worker, 1), ("w", Arc::new(profile)), push, closer);
        session.offer(u32::MAX, u32::MAX);
        assert_eq!(
            (session.room(false), session.room(true)),
            (CONCURRENCY_MAX, 2 * CONCURRENCY_MAX)
        );
    }

    #[test]
    fn deliveries_are_split_by_size_and_none_is_left_out() {
        let large =
            Delivery { args_json: vec![b'1'; BODY_BYTES_MAX].into(), ..Delivery::default() };
        let small = Delivery { queue: "q".into(), ..Delivery::default() };
        let all: Vec<_> = (0..90).flat_map(|_| [large.clone(), small.clone()]).collect();
        let messages = in_messages(all.clone());
        for message in &messages {
            let bytes: usize = message.iter().map(Delivery::encoded_len).sum();
            assert!(bytes <= SESSION_MESSAGE_BYTES_MAX / 8, "{bytes}");
        }
        assert_eq!(messages.concat(), all);
        assert_eq!(in_messages(vec![small; 1000]).len(), 1);
        assert!(in_messages(Vec::new()).is_empty());
    }
}
