//! The engine: the handle that HTTP, sessions and monitors talk to, and the one loop
//! behind it.
//!
//! The loop takes whatever has arrived, plans claims for free workers, puts everything
//! into one batch, applies it, and answers. While a batch is being committed the next one
//! gathers, so the batch size adapts to load and an idle system adds no delay.
//!
//! ```text
//! wait for input ─▶ take all there is ─▶ plan claims ─▶ apply one batch ─▶ answer, push ─┐
//!      ▲────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - [`beats`]: renewals, which wait for nothing else
//! - [`contact`]: whether the store takes writes, and since when without a break
//! - [`gather`]: how inputs become one batch: lanes, and one operation per job
//! - [`estimate`]: how many claimable jobs a class has, as far as is known
//! - [`fetchers`]: from which queues plain clients fetch
//! - [`fleet`]: the workers of every server, and which classes they can run
//! - [`profile`]: what a worker can run
//! - [`dispatch`]: which session gets how many jobs of which classes; pure
//! - [`roster`]: the sessions and what they hold
//! - [`turn`]: one turn of the loop, and what is done with its replies
//! - [`vitals`]: whether what the server cannot do without still runs
//! - [`waiting`]: why a job waits, in words

mod beats;
pub(crate) mod contact;
pub mod dispatch;
pub(crate) mod estimate;
mod fetchers;
pub(crate) mod fleet;
mod gather;
pub mod input;
pub(crate) mod profile;
pub(crate) mod roster;
mod turn;
pub(crate) mod vitals;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::job::State;
use outlast_core::lease::Watch;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{Claim, ClaimFrom, ClassKey, Lapse, WorkerMove};
use outlast_store::query::Claimable;
use outlast_store::record::JobRecord;
use outlast_store::reply::{ClaimRefusal, Claimed, WorkerMoveRefusal, WorkerMoved};
use outlast_store::{Command, Reply, Store, StoreError};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::{boot_time, precise};
use crate::metrics::Metrics;
use crate::settings::Settings;
use input::Input;
pub(crate) use turn::native_fence;

/// A store that takes no write for this long, and two looks of the lease monitor, is out of
/// reach, though nothing has said so.
const UNPROVEN_MAX: Span = Span::from_secs(5);
/// How many inputs may wait for the loop before callers wait for a place.
const INPUTS_MAX: usize = 16 * 1024;

/// A handle on the engine. Clones share it.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    settings: Settings,
    server: Uuid,
    inputs: mpsc::Sender<Input>,
    beats: mpsc::Sender<beats::Beat>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
}

/// What the loop shows to everyone else. Written by the loop and the monitors only.
#[derive(Debug, Default)]
pub struct Board {
    /// Plain clients that fetch, and wait for jobs to become claimable.
    pub(crate) fetchers: fetchers::Fetchers,
    /// The workers of every server, and the sessions of this one.
    pub(crate) fleet: fleet::Fleet,
    /// How many classes had claimable jobs at the last look.
    waiting_classes: AtomicUsize,
    /// When something is due next by time alone, as far as the loop has seen.
    next_due: AtomicI64,
    pub(crate) due_changed: Notify,
    /// Woken when a lease may end earlier than the monitor thought.
    pub(crate) lease_changed: Notify,
    /// Counts commits, so that streams of events wait for the next one.
    pub(crate) commits: watch::Sender<u64>,
    /// Whether the store takes writes, and since when without a break (I8).
    pub(crate) contact: contact::Contact,
    /// Woken when programs may have stored jobs by SQL.
    pub(crate) arrivals_wanted: Notify,
    stopping: CancellationToken,
    /// Whether what the server cannot do without still runs.
    pub(crate) vitals: vitals::Vitals,
    /// The store's time at a boot time, from the latest batch.
    clock: Mutex<Option<(Timestamp, BootTime)>>,
    paused: RwLock<HashSet<String>>,
    /// What this server has itself seen of renewals (I8).
    leases: Mutex<Watch>,
    /// The lease that each worker attached here was granted.
    granted: Mutex<HashMap<WorkerId, Span>>,
}

/// The server cannot do this now; the same request may go through later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// Why, in words for the caller.
    pub reason: String,
    /// When to try again.
    pub retry_after: Span,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry_after: Span::from_secs(1) }
    }
}

/// Why a plain fetch got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The server cannot do this now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The claimant may not claim.
    #[error(transparent)]
    Refused(#[from] ClaimRefusal),
}

/// What an operator may order a worker to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerOrder {
    /// Take no new work, until resumed.
    Quiet,
    /// Take work again.
    Resume,
    /// Take no new work, finish, and leave.
    Drain,
}

/// Why an order to a worker was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The server cannot do this now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The worker cannot be ordered so.
    #[error(transparent)]
    Refused(#[from] WorkerMoveRefusal),
}

/// Why nobody takes the claimable jobs of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// The queue is paused.
    Paused,
    /// No live worker may; the words say which were considered.
    Nobody(String),
}

/// Whether the server can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether the store is reachable and migrated and the server is not stopping.
    pub ready: bool,
    /// `ok`, or what is wrong with the store.
    pub store: String,
    /// Which vital part of the server has ended, if one has.
    pub dead: Option<String>,
    /// Whether the server is on its way out.
    pub stopping: bool,
}

impl Engine {
    /// Starts the loop over `store` and returns a handle on it.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, settings: Settings) -> Self {
        let (inputs, receiver) = mpsc::channel(INPUTS_MAX);
        let (beats, beating) = mpsc::channel(beats::WAITING_MAX);
        let board = Arc::new(Board {
            next_due: AtomicI64::new(i64::MAX),
            contact: contact::Contact::new(boot_time()),
            ..Board::default()
        });
        let metrics = Arc::new(Metrics::new());
        let server = Uuid::now_v7();
        let inputs_of_loop = (inputs.downgrade(), receiver);
        hear_others(store.as_ref(), inputs.downgrade());
        let shared = Shared {
            store: Arc::clone(&store),
            settings: settings.clone(),
            server,
            inputs,
            beats,
            board: Arc::clone(&board),
            metrics: Arc::clone(&metrics),
        };
        let shown = (Arc::clone(&board), Arc::clone(&metrics));
        let beats = beats::run(Arc::clone(&store), settings.clone(), shown, beating);
        let turns =
            turn::run(store, settings, server, (Arc::clone(&board), metrics), inputs_of_loop);
        tokio::spawn(vitals::watch(Arc::clone(&board), "the writer of heartbeats", beats));
        tokio::spawn(vitals::watch(board, "the engine loop", turns));
        Self { shared: Arc::new(shared) }
    }

    /// Puts one command into the next batch and returns its reply once it is durable.
    ///
    /// # Errors
    /// Returns [`Unavailable`] when the store is out of reach or the server stops.
    pub async fn submit(&self, command: Command) -> Result<Reply, Unavailable> {
        // Beats, reports and whatever else a worker needs are tried; producers would only queue
        // behind what does not move, and cannot know for how long.
        if is_enqueue(&command) && !self.board().contact.is_well(boot_time()) {
            return Err(Unavailable::new("the store does not take jobs at the moment"));
        }
        let enqueued = is_enqueue(&command).then(precise);
        let (reply, answer) = oneshot::channel();
        self.send(Input::Submit { command, reply }).await?;
        let reply =
            answer.await.unwrap_or_else(|_closed| Err(Unavailable::new("server is stopping")))?;
        if let Some(begun) = enqueued {
            self.counters().enqueue_took(&reply, precise().saturating_sub(begun));
        }
        Ok(reply)
    }

    /// Puts a part of a heartbeat into the next batch of those, which wait for nothing else.
    /// It must move no job.
    pub(crate) async fn beat(&self, command: Command) -> Result<Reply, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let stopping = || Unavailable::new("server is stopping");
        self.shared.beats.send((command, reply)).await.map_err(|_closed| stopping())?;
        answer.await.unwrap_or_else(|_closed| Err(stopping()))
    }

    /// Submits a lapse that was judged at `judged`. It is not carried out if contact with the
    /// store was broken since: what was seen before says nothing then.
    pub(crate) async fn lapse(&self, lapse: Lapse, judged: BootTime) -> Result<Reply, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(Input::Lapse { lapse, judged, reply }).await?;
        answer.await.unwrap_or_else(|_closed| Err(Unavailable::new("server is stopping")))
    }

    /// Looks which classes have claimable jobs.
    pub(crate) async fn look_for_claimable(&self) -> Result<Vec<Claimable>, StoreError> {
        turn::look_for_claimable(self.store().as_ref(), self.board()).await
    }

    /// Reads which workers there are, of every server; of those that are not known as they
    /// are now, also what they can run.
    pub(crate) async fn read_fleet(&self) -> Result<(), StoreError> {
        let fleet = &self.board().fleet;
        let briefs = self.store().fleet().await?;
        let unknown = fleet.unknown(&briefs);
        let read = match unknown.is_empty() {
            true => Vec::new(),
            false => self.store().workers_named(unknown).await?,
        };
        fleet.set(briefs, &read);
        Ok(())
    }

    pub(crate) async fn send(&self, input: Input) -> Result<(), Unavailable> {
        self.shared
            .inputs
            .send(input)
            .await
            .map_err(|_closed| Unavailable::new("server is stopping"))
    }

    /// Hands the loop what it may as well do without, if there is room.
    pub(crate) fn offer(&self, input: Input) {
        drop(self.shared.inputs.try_send(input));
    }

    /// Returns the store, for reads.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns the store's time, estimated from its latest answer where there is one.
    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        match self.board().store_time() {
            Some(now) => Ok(now),
            None => self.store().now().await,
        }
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns this server process's identity.
    #[must_use]
    pub fn server_id(&self) -> Uuid {
        self.shared.server
    }

    pub(crate) fn board(&self) -> &Board {
        &self.shared.board
    }

    pub(crate) fn shared_board(&self) -> Arc<Board> {
        Arc::clone(&self.shared.board)
    }

    pub(crate) fn counters(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Claims jobs for a plain OJS fetch; waits up to `wait` for some to come.
    ///
    /// # Errors
    /// Returns why there is no answer. No jobs within `wait` is an empty answer.
    pub async fn claim_plain(
        &self,
        claim: Claim,
        wait: Option<Span>,
    ) -> Result<Vec<Claimed>, ClaimError> {
        let (queues, tenant) = match &claim.from {
            ClaimFrom::Queues { queues, tenant } => (queues.clone(), tenant.clone()),
            ClaimFrom::Classes(_) => (Vec::new(), None),
        };
        let mut notifies = self.board().fetchers.fetch(&queues, tenant.as_deref(), boot_time());
        if wait.is_none() {
            notifies.clear();
        }
        let news = self.board().fetchers.news(&queues, tenant.as_deref(), boot_time());
        if !news.is_empty() {
            self.store().tell(news);
        }
        let end = tokio::time::Instant::now() + millis(wait.unwrap_or(Span::ZERO));
        loop {
            // Listen before looking: a job enqueued in between wakes us.
            let mut woken: Vec<_> =
                notifies.iter().map(|notify| Box::pin(notify.notified())).collect();
            for woken in &mut woken {
                woken.as_mut().enable();
            }
            let claimed = match self.submit(Command::Claim(claim.clone())).await? {
                Reply::Claimed(claimed) => claimed?.jobs,
                other => return Err(unexpected("a claim", &other).into()),
            };
            if !claimed.is_empty() || woken.is_empty() || tokio::time::Instant::now() >= end {
                return Ok(claimed);
            }
            tokio::select! {
                _ = futures_util::future::select_all(woken) => {}
                () = tokio::time::sleep_until(end) => return Ok(Vec::new()),
                () = self.board().stopping.cancelled() => return Ok(Vec::new()),
            }
        }
    }

    /// Carries an operator's order to a worker: stored first, then told to its session.
    ///
    /// # Errors
    /// Returns why the worker stays as it is.
    pub async fn order_worker(
        &self,
        worker: WorkerId,
        order: WorkerOrder,
        by: String,
    ) -> Result<WorkerMoved, OrderError> {
        let event = match order {
            WorkerOrder::Quiet => WorkerEvent::Quiet,
            WorkerOrder::Resume => WorkerEvent::Resume,
            WorkerOrder::Drain => WorkerEvent::Drain,
        };
        let evidence = format!("ordered by {by}").into();
        let step = WorkerMove { worker, event, session: None, by: by.clone(), evidence };
        let moved = match self.submit(Command::Worker(step)).await? {
            Reply::WorkerMoved(moved) => moved?,
            other => return Err(unexpected("an order", &other).into()),
        };
        self.send(Input::Order { worker, order, by }).await?;
        Ok(moved)
    }

    /// Returns why a claimable or waiting job waits, in words; `None` for other states.
    #[must_use]
    pub fn waiting_reason(&self, job: &JobRecord) -> Option<String> {
        match job.state {
            State::Scheduled => Some("delayed until its time".into()),
            State::Retryable => Some("failed, waits for its next attempt".into()),
            State::Pending => Some("waits for activation".into()),
            State::Available => {
                let key = &job.job.key;
                Some(waiting::reason(key, self.board()))
            }
            State::Active | State::Completed | State::Cancelled | State::Discarded => None,
        }
    }

    /// Returns why jobs of a class wait although they are claimable; `None` when a worker
    /// takes them in turn.
    pub(crate) fn nobody_takes(&self, key: &ClassKey) -> Option<Untaken> {
        match waiting::eligible(key, self.board()) {
            waiting::Eligible::Yes => None,
            waiting::Eligible::Paused => Some(Untaken::Paused),
            waiting::Eligible::Away | waiting::Eligible::No => {
                Some(Untaken::Nobody(waiting::lack(key, self.board())))
            }
        }
    }

    /// Says that the server is on its way out: it is no longer ready, and whoever waits for
    /// something to come, in a long poll or a stream, is sent away.
    pub fn begin_stop(&self) {
        self.board().stop();
    }

    /// Returns whether the server can serve, as far as is known: nothing is asked and nothing
    /// waited for. Contact with the store is proven all the time, by the lease monitor if by
    /// nothing else.
    #[must_use]
    pub fn health(&self) -> Health {
        let (board, now) = (self.board(), boot_time());
        let (stopping, dead) = (board.is_stopping(), board.vitals.dead());
        let unproven = board.contact.unproven_for(now);
        let store = if !board.contact.is_well(now) {
            "unreachable".to_owned()
        } else if unproven.0 > UNPROVEN_MAX.0 + 2 * self.settings().check_interval.0 {
            format!("took no write for {} s", unproven.as_secs())
        } else {
            "ok".to_owned()
        };
        Health { ready: !stopping && dead.is_none() && store == "ok", store, dead, stopping }
    }

    /// Waits until a vital part of the server has ended, and says which.
    pub(crate) async fn died(&self) -> String {
        self.board().vitals.died().await
    }
}

/// Has what other servers on the store tell brought to the loop.
fn hear_others(store: &dyn Store, inputs: mpsc::WeakSender<Input>) {
    let (hear, mut heard) = mpsc::unbounded_channel();
    // Whoever hears it when the loop has ended needs it no more.
    store.listen(Arc::new(move |it| drop(hear.send(it))));
    tokio::spawn(async move {
        while let Some(it) = heard.recv().await {
            let Some(inputs) = inputs.upgrade() else { return };
            if inputs.send(Input::Heard(it)).await.is_err() {
                return;
            }
        }
    });
}

const fn is_enqueue(command: &Command) -> bool {
    matches!(command, Command::Enqueue(_) | Command::EnqueueAll(_) | Command::EnqueueOnce(_))
}

pub(crate) fn unexpected(what: &str, reply: &Reply) -> Unavailable {
    tracing::error!(what, ?reply, "store answered with a reply of another kind");
    Unavailable::new("internal error: the store gave a reply of another kind")
}

pub(crate) const fn millis(span: Span) -> Duration {
    Duration::from_millis(span.0)
}

impl Board {
    /// Notes that something is due at `at`; wakes the sweeper if that is earlier than all
    /// it knew of.
    pub(crate) fn due_at(&self, at: Timestamp) {
        if self.next_due.fetch_min(at.0, Ordering::AcqRel) > at.0 {
            self.due_changed.notify_one();
        }
    }

    /// Puts a due time back without waking anyone: the sweeper knows it already.
    pub(crate) fn keep_due(&self, at: Timestamp) {
        self.next_due.fetch_min(at.0, Ordering::AcqRel);
    }

    /// Takes the earliest known due time and forgets it.
    pub(crate) fn take_due(&self) -> Timestamp {
        Timestamp(self.next_due.swap(i64::MAX, Ordering::AcqRel))
    }

    pub(crate) fn waiting_classes(&self) -> usize {
        self.waiting_classes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waiting_classes(&self, count: usize) {
        self.waiting_classes.store(count, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Returns what is cancelled when the server begins to stop.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    fn stop(&self) {
        self.stopping.cancel();
    }

    /// Notes how a write ended. Silence while the store took none may have been ours, so
    /// everybody is watched anew.
    pub(crate) fn wrote(&self, lane: contact::Lane, reached: bool) {
        if self.contact.wrote(lane, reached, boot_time()) {
            self.leases().lost_contact();
        }
    }

    /// Notes that contact with the store was not proven for a while: everybody is watched
    /// anew.
    pub(crate) fn unproven(&self) {
        self.contact.unproven(boot_time());
        self.leases().lost_contact();
    }

    pub(crate) fn set_clock(&self, at: Timestamp) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        *clock = Some((at, boot_time()));
    }

    /// Estimates the store's time from its latest answer and the boot time since.
    pub(crate) fn store_time(&self) -> Option<Timestamp> {
        let clock = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.map(|(at, boot)| at.after(boot_time().since(boot)))
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Watch> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the lease that a worker was granted when it attached.
    pub(crate) fn grant(&self, worker: WorkerId, lease: Span) {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).insert(worker, lease);
    }

    /// Returns the lease that a worker was granted, here or at another server.
    pub(crate) fn lease_of(&self, worker: WorkerId) -> Option<Span> {
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted
            .get(&worker)
            .copied()
            .or_else(|| self.fleet.members().get(&worker).map(|known| known.brief.lease))
    }

    /// Forgets a worker that is no longer live.
    pub(crate) fn forget(&self, worker: WorkerId) {
        self.leases().forget(worker);
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }

    pub(crate) fn set_paused(&self, queue: &str, paused: bool) {
        let mut set = self.paused.write().unwrap_or_else(PoisonError::into_inner);
        if paused {
            set.insert(queue.to_owned());
        } else {
            set.remove(queue);
        }
    }

    pub(crate) fn is_paused(&self, queue: &str) -> bool {
        self.paused.read().unwrap_or_else(PoisonError::into_inner).contains(queue)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use outlast_core::budget::ScheduledTimeout;
    use outlast_core::id::JobId;
    use outlast_core::job::Rules;
    use outlast_packs::PackSet;
    use outlast_proto::v1::ServerMessage;
    use outlast_proto::v1::server_message::Body;
    use outlast_store::command::{
        Attach, ClassKey, First, NewJob, Origin, Payload, Registration, Route, WorkerRole,
    };
    use outlast_store::event::EventQuery;
    use outlast_store::model::ModelStore;
    use outlast_store::once::Once;
    use outlast_store::store::ManualClock;

    use super::*;

    /// The sweeper once woke itself for ever by putting back what it had taken.
    #[tokio::test(start_paused = true)]
    async fn sweeper_is_woken_by_an_earlier_deadline_and_not_by_its_own() {
        let board = Board { next_due: AtomicI64::new(i64::MAX), ..Board::default() };
        let moment = Duration::from_millis(1);
        board.due_at(Timestamp(500));
        assert!(tokio::time::timeout(moment, board.due_changed.notified()).await.is_ok());
        let due = board.take_due();
        board.keep_due(due);
        assert!(tokio::time::timeout(moment, board.due_changed.notified()).await.is_err());
        board.due_at(Timestamp(400));
        assert!(tokio::time::timeout(moment, board.due_changed.notified()).await.is_ok());
    }

    /// Every second job once waited for the monitor's next look.
    #[tokio::test]
    async fn job_is_pushed_to_a_waiting_worker_without_any_other_input() {
        let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let engine = Engine::start(Arc::new(store), settings);
        let worker = WorkerId(Uuid::from_u128(1));
        let mut pushed = attach_sdk_worker(&engine, worker, 10).await;
        for n in 1..=5 {
            engine.submit(Command::Enqueue(Box::new(noop_job(n)))).await.unwrap();
            let message = tokio::time::timeout(Duration::from_secs(5), pushed.recv()).await;
            let message = message.expect("the job should be pushed at once").unwrap().unwrap();
            assert!(matches!(message.body, Some(Body::Deliveries(_))), "{message:?}");
        }
    }

    /// Enqueue and claim were once two commits, and an idle system twice as slow.
    #[tokio::test]
    async fn job_is_claimed_for_a_free_worker_in_the_batch_that_stores_it() {
        let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let engine = Engine::start(Arc::new(store), settings);
        let mut pushed = attach_sdk_worker(&engine, WorkerId(Uuid::from_u128(1)), 10).await;
        // The first of its class makes the class known.
        let once =
            Once { key: [1; 32], request: [1; 32], keep: Span(1_000), jobs: vec![noop_job(3)] };
        for command in [
            Command::Enqueue(Box::new(noop_job(1))),
            Command::Enqueue(Box::new(noop_job(2))),
            Command::EnqueueOnce(Box::new(once)),
        ] {
            engine.submit(command).await.unwrap();
            let pushed = tokio::time::timeout(Duration::from_secs(5), pushed.recv()).await;
            assert!(matches!(pushed, Ok(Some(Ok(_)))));
        }
        for job in [2, 3] {
            let query = EventQuery {
                after: None,
                names: Vec::new(),
                queues: Vec::new(),
                job: Some(JobId(Uuid::from_u128(job))),
                worker: None,
                limit: 10,
            };
            let page = engine.store().events(query).await.unwrap();
            let batches: Vec<_> =
                page.events.iter().map(|(cursor, _)| cursor.rsplit_once('.').unwrap().0).collect();
            assert_eq!(batches.len(), 2, "enqueued and claimed: {page:?}");
            assert_eq!(batches[0], batches[1]);
        }
    }

    pub(crate) async fn attach_sdk_worker(
        engine: &Engine,
        worker: WorkerId,
        slots: u32,
    ) -> mpsc::UnboundedReceiver<Result<ServerMessage, tonic::Status>> {
        let lease = Span::from_secs(15);
        let profile = register_sdk_worker(engine, (worker, slots), lease).await;
        engine.submit(Command::Attach(Attach { worker, attachment: 1, lease })).await.unwrap();
        let (push, pushed) = mpsc::unbounded_channel();
        let closer = CancellationToken::new().drop_guard();
        let session = roster::Session::new((worker, 1), ("w", Arc::new(profile)), push, closer);
        engine.send(Input::Attached(Box::new(session))).await.unwrap();
        let capacity = Input::Capacity { worker, session: 1, slots, prefetch: 0 };
        engine.send(capacity).await.unwrap();
        pushed
    }

    pub(crate) async fn register_sdk_worker(
        engine: &Engine,
        (worker, slots): (WorkerId, u32),
        lease: Span,
    ) -> profile::Profile {
        let profile = profile::Profile {
            role: WorkerRole::Sdk,
            queues: vec!["default".into()],
            runtimes: Vec::new(),
            labels: BTreeMap::new(),
            types: ["noop".to_owned()].into(),
        };
        let registration = Registration {
            id: worker,
            name: "w".into(),
            role: profile.role,
            concurrency: slots,
            queues: profile.queues.clone(),
            runtimes: Vec::new(),
            labels: BTreeMap::new(),
            lease,
            about: r#"{"types":["noop"]}"#.into(),
            plain_id: None,
        };
        engine.submit(Command::Register(Box::new(registration))).await.unwrap();
        profile
    }

    pub(crate) fn noop_job(n: u128) -> NewJob {
        NewJob {
            id: JobId(Uuid::from_u128(n)),
            class: ClassKey {
                queue: "default".into(),
                job_type: "noop".into(),
                route: Route::Plain,
                tenant: None,
                isolated: false,
            },
            priority: 0,
            payload: Payload { args: "[]".into(), ..Payload::default() },
            rules: Rules::standard(),
            first: First::Now,
            timeout: None,
            visibility: None,
            scheduled_timeout: ScheduledTimeout::Never,
            origin: Origin::Ojs,
            by: String::new(),
        }
    }
}
