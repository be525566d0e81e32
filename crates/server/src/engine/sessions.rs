//! The workers' sessions attached to this server, and what they hold.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::labels::short_digest;
use outlast_core::lease::in_flight_digest;
use outlast_core::limits::CONCURRENCY_MAX;
use outlast_core::time::BootTime;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::record::StoredJob;
use outlast_store::reply::Claimed;
use outlast_wire::json;
use tokio_util::sync::DropGuard;

use crate::engine::asked::{Asked, Merit};
use crate::engine::output::{
    CloseReason, Output, OutputSender, ReportAnswer, SessionOrder, SessionOutput,
};
use crate::engine::profile::Profile;
use crate::engine::session_facts::SessionFacts;
use crate::intake::execution::VALIDATED_WITH;

/// One attached session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) number: u64,
    pub(crate) profile: Arc<Profile>,
    pub(crate) facts: Arc<SessionFacts>,
    stream: Stream,
    pub(crate) capacity: Capacity,
    /// Whether the worker's phase allows new work.
    pub(crate) running: bool,
    pub(crate) in_flight: HashMap<JobId, InFlightAttempt>,
    /// How many of them the worker has run to the end. The report is not stored yet, but the slot is
    /// free.
    completed: u32,
    /// Jobs claimed for it whose claim is still under way.
    pub(crate) pending: u32,
    pub(crate) restrictions: Restrictions,
    /// Which classes workers of its profile can take.
    fits: Arc<Fits>,
}

/// How many jobs a worker takes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    /// Slots, busy and free.
    pub(crate) slots: u32,
    /// Jobs beyond the slots, for short work.
    pub(crate) prefetch: u32,
}

/// What keeps a session from jobs that its worker could run.
#[derive(Debug)]
pub(crate) struct Restrictions {
    /// How it stands to jobs that must run alone.
    pub(crate) alone: Alone,
    /// The class whose job it is kept free for: it gets nothing else.
    pub(crate) reserved: Option<ClassId>,
    /// The classes of retries that avoid it now.
    pub(crate) avoided: HashMap<ClassId, Avoided>,
}

/// The way to the worker.
#[derive(Debug)]
struct Stream {
    outputs: OutputSender,
    outbox: Outbox,
    /// Ends the stream when the session is dropped here.
    _closer: DropGuard,
}

/// Which classes workers of a profile can take, and how much they have of what these prefer, as
/// determined so far. The sessions of a profile share it.
#[derive(Debug, Default)]
struct Fits {
    known: Mutex<HashMap<ClassId, Option<Merit>>>,
    /// From which class on the next plan looks for jobs for free slots, if there are many.
    next: AtomicI64,
    /// As `next`, for jobs ahead of free slots. One turn for both could skip classes each time.
    next_ahead: AtomicI64,
    /// How often a class was looked up.
    #[cfg(test)]
    looks: std::sync::atomic::AtomicUsize,
}

impl Fits {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClassId, Option<Merit>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn next_of(&self, is_ahead: bool) -> &AtomicI64 {
        if is_ahead { &self.next_ahead } else { &self.next }
    }
}

/// The retries of a class that avoid a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Avoided {
    /// The jobs, first due first.
    pub(crate) jobs: Vec<JobId>,
    /// Whether a worker of another server may take them meanwhile.
    pub(crate) waits: bool,
}

/// How a session stands to jobs that must run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// Neither of these.
    No,
    /// A claim of one is under way.
    Claiming,
    /// Its last job was one: others come first now.
    Ran,
}

/// An attempt that a session holds.
#[derive(Debug)]
pub(crate) struct InFlightAttempt {
    pub(crate) epoch: Epoch,
    pub(crate) delivered: BootTime,
    pub(crate) progress: AttemptProgress,
    pub(crate) isolated: bool,
    /// With which files of its pack its parameters were validated, until it is known whether it
    /// runs with the same.
    pub(crate) validated: Option<Box<Validated>>,
}

/// With which files of its pack a job's parameters were validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validated {
    pub(crate) digest: String,
    pub(crate) class: Arc<ClassKey>,
}

impl Validated {
    pub(crate) fn of(job: &StoredJob) -> Option<Box<Self>> {
        let digest = json::field(&job.payload.extra, VALIDATED_WITH)?;
        let digest = digest.get().trim_matches('"');
        let is_known = !digest.is_empty() && digest != "null";
        let class = Arc::clone(&job.key);
        is_known.then(|| Box::new(Self { digest: digest.to_owned(), class }))
    }
}

/// How far a delivered attempt has come, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptProgress {
    Delivered,
    /// Asked back because it did not start in time.
    Revoked,
    Started,
    /// It was reported as completed, and that is not stored yet.
    Completed,
}

/// What a session is given in one turn of the loop.
#[derive(Debug, Default)]
struct Outbox {
    answers: Vec<ReportAnswer>,
    deliveries: Vec<Claimed>,
    orders: Vec<SessionOrder>,
}

/// Whose session it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttachedAs<'a> {
    pub(crate) worker: WorkerId,
    /// The session's number.
    pub(crate) number: u64,
    /// The worker's name.
    pub(crate) name: &'a str,
}

impl Session {
    /// Returns a session that just attached.
    pub(crate) fn new(
        AttachedAs { worker, number, name }: AttachedAs<'_>,
        profile: Arc<Profile>,
        outputs: OutputSender,
        closer: DropGuard,
    ) -> Self {
        let facts = SessionFacts::new(worker, name, Arc::clone(&profile));
        Self {
            worker,
            number,
            profile,
            facts: Arc::new(facts),
            stream: Stream { outputs, outbox: Outbox::default(), _closer: closer },
            capacity: Capacity::default(),
            running: true,
            in_flight: HashMap::new(),
            completed: 0,
            pending: 0,
            restrictions: Restrictions {
                alone: Alone::No,
                reserved: None,
                avoided: HashMap::new(),
            },
            fits: Arc::default(),
        }
    }

    /// Sets how much the worker takes, up to what any worker may take.
    pub(crate) fn set_capacity(&mut self, slots: u32, prefetch: u32) {
        let (slots, prefetch) = (slots.min(CONCURRENCY_MAX), prefetch.min(CONCURRENCY_MAX));
        self.capacity = Capacity { slots, prefetch };
        self.facts.set_slots(slots);
    }

    /// Whether the worker takes new work at all.
    pub(crate) fn gets_work(&self) -> bool {
        self.running && self.facts.not_polling_for().is_none()
    }

    /// Whether a job that must run alone is on the worker, or on its way to it.
    pub(crate) fn runs_alone(&self) -> bool {
        self.restrictions.alone == Alone::Claiming
            || self.in_flight.values().any(|attempt| attempt.isolated)
    }

    /// Returns how many jobs take room of it, or are about to.
    pub(crate) fn busy(&self) -> u32 {
        let in_flight = u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX);
        in_flight.saturating_sub(self.completed).saturating_add(self.pending)
    }

    /// Whether a job that must run alone may come now.
    pub(crate) fn is_free_alone(&self) -> bool {
        self.gets_work()
            && self.capacity.slots > 0
            && self.in_flight.is_empty()
            && self.pending == 0
    }

    /// Returns how many more jobs it takes, prefetch included or not.
    pub(crate) fn room(&self, with_prefetch: bool) -> u32 {
        if !self.gets_work() || self.restrictions.reserved.is_some() || self.runs_alone() {
            return 0;
        }
        let limit = self.capacity.slots + if with_prefetch { self.capacity.prefetch } else { 0 };
        limit.saturating_sub(self.busy())
    }

    pub(crate) fn can_take(&self, id: ClassId, asked: &Asked<'_>) -> bool {
        self.merit(id, asked).is_some()
    }

    /// Returns how much it has of what is preferred for jobs of a class, if it can take them.
    pub(crate) fn merit(&self, id: ClassId, asked: &Asked<'_>) -> Option<Merit> {
        // Of very many queues, a worker serves few.
        if !self.profile.serves(&asked.key.queue) {
            return None;
        }
        #[cfg(test)]
        self.fits.looks.fetch_add(1, Ordering::Relaxed);
        let mut fits = self.fits.lock();
        let judge = || self.profile.fits(asked).is_ok().then(|| self.profile.merit(asked));
        *fits.entry(id).or_insert_with(judge)
    }

    /// Returns how often a class was looked up for workers of its profile.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> usize {
        self.fits.looks.load(Ordering::Relaxed)
    }

    /// Returns from which class on a plan looks for jobs for workers of its profile, for their slots
    /// or ahead of these.
    pub(crate) fn next_class(&self, is_ahead: bool) -> ClassId {
        ClassId(self.fits.next_of(is_ahead).load(Ordering::Relaxed))
    }

    pub(crate) fn set_next_class(&self, is_ahead: bool, id: ClassId) {
        self.fits.next_of(is_ahead).store(id.0, Ordering::Relaxed);
    }

    /// Delivers a claimed job, which it holds from now on.
    pub(crate) fn deliver(&mut self, claimed: Claimed, now: BootTime) {
        let attempt = InFlightAttempt {
            epoch: claimed.epoch,
            delivered: now,
            progress: AttemptProgress::Delivered,
            isolated: claimed.isolated,
            validated: Validated::of(&claimed.job),
        };
        self.restrictions.alone = if claimed.isolated { Alone::Ran } else { Alone::No };
        self.hold(claimed.job.id, attempt);
        self.stream.outbox.deliveries.push(claimed);
    }

    pub(crate) fn answer(&mut self, answer: ReportAnswer) {
        self.stream.outbox.answers.push(answer);
    }

    pub(crate) fn order(&mut self, order: SessionOrder) {
        self.stream.outbox.orders.push(order);
    }

    /// Sends the outbox, each kind of output at once.
    fn flush(&mut self) {
        let Outbox { answers, deliveries, orders } = std::mem::take(&mut self.stream.outbox);
        if !answers.is_empty() {
            self.send(Output::Answers(answers));
        }
        if !deliveries.is_empty() {
            self.send(Output::Deliveries(deliveries));
        }
        if !orders.is_empty() {
            self.send(Output::Orders(orders));
        }
    }

    /// Ends the session.
    pub(crate) fn close(&self, reason: CloseReason, message: impl Into<String>) {
        self.send(Output::Closed { reason, message: message.into() });
    }

    fn send(&self, output: Output) {
        // The reader of a closed stream notices, and detaches the session.
        drop(self.stream.outputs.send(SessionOutput { session: self.number, output }));
    }

    fn overdue(&mut self, before: BootTime) -> Vec<(JobId, Epoch)> {
        let late = |attempt: &InFlightAttempt| {
            attempt.progress == AttemptProgress::Delivered && attempt.delivered < before
        };
        self.in_flight
            .iter_mut()
            .filter(|(_, attempt)| late(attempt))
            .map(|(job, attempt)| {
                attempt.progress = AttemptProgress::Revoked;
                (*job, attempt.epoch)
            })
            .collect()
    }

    pub(crate) fn set_running(&mut self, running: bool) {
        self.running = running;
        self.facts.set_running(running);
    }

    /// Records that the session holds an attempt.
    pub(crate) fn hold(&mut self, job: JobId, attempt: InFlightAttempt) {
        let epoch = attempt.epoch;
        let before = self.in_flight.insert(job, attempt);
        let before = before.map(|before| (job, self.forget(&before)));
        self.publish_in_flight(before.into_iter().chain([(job, epoch)]));
    }

    /// The worker reports on an attempt: it has started, and perhaps `completed`. Its slot is free
    /// then, so that the next claim can be part of the batch that stores the report. After a failure
    /// it waits: another worker may be better for the retry.
    pub(crate) fn reported(&mut self, job: JobId, epoch: Epoch, completed: bool) {
        let attempt = self.in_flight.get_mut(&job).filter(|attempt| attempt.epoch == epoch);
        let Some(attempt) = attempt.filter(|it| it.progress != AttemptProgress::Completed) else {
            return;
        };
        attempt.progress = if completed {
            self.completed += 1;
            AttemptProgress::Completed
        } else {
            AttemptProgress::Started
        };
    }

    /// The worker says with which files of its pack an attempt runs; returns what the job was
    /// validated with if that is something else, once.
    pub(crate) fn runs_pack(
        &mut self,
        job: JobId,
        epoch: Epoch,
        digest: &str,
    ) -> Option<Box<Validated>> {
        let attempt = self.in_flight.get_mut(&job).filter(|attempt| attempt.epoch == epoch)?;
        let validated = attempt.validated.take()?;
        (short_digest(digest) != short_digest(&validated.digest)).then_some(validated)
    }

    /// Records that an attempt ended, unless the session holds a later one.
    pub(crate) fn release(&mut self, job: JobId, epoch: Epoch) {
        let ended = self.in_flight.get(&job).is_some_and(|attempt| attempt.epoch <= epoch);
        if ended && let Some(attempt) = self.in_flight.remove(&job) {
            let epoch = self.forget(&attempt);
            self.publish_in_flight([(job, epoch)]);
        }
    }

    /// An attempt was removed; returns its epoch.
    const fn forget(&mut self, attempt: &InFlightAttempt) -> Epoch {
        if matches!(attempt.progress, AttemptProgress::Completed) {
            self.completed -= 1;
        }
        attempt.epoch
    }

    fn publish_in_flight(&self, changed: impl IntoIterator<Item = (JobId, Epoch)>) {
        self.facts.set_in_flight(self.in_flight.len(), in_flight_digest(changed));
    }
}

/// The attached sessions, one per worker.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_worker: HashMap<WorkerId, Session>,
    fits: HashMap<Arc<Profile>, Weak<Fits>>,
    /// Workers whose sessions have output to send at the end of this turn.
    unflushed: HashSet<WorkerId>,
}

impl Sessions {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_worker.is_empty()
    }

    pub(crate) fn get(&self, worker: WorkerId) -> Option<&Session> {
        self.by_worker.get(&worker)
    }

    pub(crate) fn get_mut(&mut self, worker: WorkerId) -> Option<&mut Session> {
        self.by_worker.get_mut(&worker)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.by_worker.keys().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.by_worker.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.by_worker.values_mut()
    }

    /// Adds a session; returns the one that it replaces.
    pub(crate) fn insert(&mut self, mut session: Session) -> Option<Session> {
        match self.fits.get(&session.profile).and_then(Weak::upgrade) {
            Some(fits) => session.fits = fits,
            None => {
                // Those of workers that have gone.
                self.fits.retain(|_, fits| fits.strong_count() > 0);
                let fits = Arc::downgrade(&session.fits);
                self.fits.insert(Arc::clone(&session.profile), fits);
            }
        }
        self.by_worker.insert(session.worker, session)
    }

    pub(crate) fn remove(&mut self, worker: WorkerId) -> Option<Session> {
        self.by_worker.remove(&worker)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Session> {
        self.by_worker.drain().map(|(_, session)| session)
    }

    /// Returns a worker's session if it still is the one of this number.
    pub(crate) fn current(&mut self, worker: WorkerId, number: u64) -> Option<&mut Session> {
        self.by_worker.get_mut(&worker).filter(|session| session.number == number)
    }

    /// Returns a worker's session, to which output is added in this turn.
    pub(crate) fn for_output(&mut self, worker: WorkerId) -> Option<&mut Session> {
        let session = self.by_worker.get_mut(&worker)?;
        self.unflushed.insert(worker);
        Some(session)
    }

    /// Asks every session for jobs back that were delivered before `before` and have not
    /// started; returns them.
    pub(crate) fn revoke_overdue(&mut self, before: BootTime) -> Vec<Overdue> {
        let mut revoked = Vec::new();
        for session in self.by_worker.values_mut() {
            let overdue = session.overdue(before);
            if overdue.is_empty() {
                continue;
            }
            self.unflushed.insert(session.worker);
            for (job, epoch) in overdue {
                session.order(SessionOrder::Revoke { job, epoch });
                revoked.push(Overdue { job, epoch, worker: Arc::clone(&session.facts.name) });
            }
        }
        revoked
    }

    /// Sends what the sessions were given in this turn.
    pub(crate) fn flush(&mut self) {
        for worker in self.unflushed.drain() {
            if let Some(session) = self.by_worker.get_mut(&worker) {
                session.flush();
            }
        }
    }

    /// Forgets which sessions can take which classes: queues ask something else of workers now.
    pub(crate) fn forget_fits(&mut self) {
        self.forget_classes(|_| false);
    }

    /// Forgets which sessions can take classes that are no longer known.
    pub(crate) fn forget_classes(&mut self, is_known: impl Fn(ClassId) -> bool) {
        for fits in self.fits.values().filter_map(Weak::upgrade) {
            fits.lock().retain(|id, _| is_known(*id));
        }
    }
}

/// A job that was not started in time.
#[derive(Debug)]
pub(crate) struct Overdue {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    pub(crate) worker: Arc<str>,
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use outlast_core::id::WorkerId;
    use outlast_core::limits::CONCURRENCY_MAX;
    use outlast_store::command::WorkerRole;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::{AttachedAs, Session};
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
            lacking: BTreeMap::new(),
            stale: Vec::new(),
        };
        let (outputs, _produced) = mpsc::unbounded_channel();
        let closer = CancellationToken::new().drop_guard();
        let worker = WorkerId(Uuid::nil());
        let mut session = Session::new(
            AttachedAs { worker, number: 1, name: "w" },
            Arc::new(profile),
            outputs,
            closer,
        );
        session.set_capacity(u32::MAX, u32::MAX);
        assert_eq!(
            (session.room(false), session.room(true)),
            (CONCURRENCY_MAX, 2 * CONCURRENCY_MAX)
        );
    }
}
