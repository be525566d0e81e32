//! The engine: the handle that HTTP, sessions and monitors use, and the event loop behind it.
//!
//! The loop takes the inputs that have arrived, plans claims for free workers, puts everything
//! into one batch, applies it, and passes the replies on. While a batch is being committed the
//! next one gathers, so batches grow with load and an idle system adds no delay.
//!
//! ```text
//! wait for input ─▶ take all there is ─▶ plan claims ─▶ apply one batch ─▶ reply, deliver ─┐
//!      ▲───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - [`event_loop`]: one turn of the loop, and what happens with its replies
//! - [`input`], [`output`]: what goes into the loop, and what it has for sessions
//! - [`batcher`]: how inputs become one batch: lanes, and one operation per job;
//!   [`command_facts`]: what it knows of commands
//! - [`batch_writer`]: applying a batch
//! - [`heartbeats`], [`unique_jobs`]: renewals and unique jobs, which have batches of their own
//! - [`sessions`], [`session_facts`]: the workers attached here, and what they hold
//! - [`classes`], [`estimate`]: how many claimable jobs each class has
//! - [`dispatch`]: which session gets how many jobs of which classes; pure
//! - [`isolation`]: which worker is kept free for a job that must run alone; pure
//! - [`orders`]: what operators order workers to do
//! - [`fleet`], [`profile`]: the workers of every server, and what each can run
//! - [`wait_reason`]: why a job waits, in words; [`waiting_classes`]: of whole classes
//! - [`long_poll`]: plain clients that wait for jobs
//! - [`configured_limits`]: the limits that the configuration lists
//! - [`store_health`]: whether the store takes writes, and since when without a break
//! - [`trouble_log`]: which failures are logged while the store is away
//! - [`unhealthy`]: the latest reports of workers that are unhealthy
//! - [`vitals`]: whether the essential tasks still run
//! - [`shared_state`]: what all of these share

mod asked;
pub(crate) mod batch_writer;
mod batcher;
mod claimable;
mod classes;
mod command_facts;
mod configured_limits;
mod dispatch;
mod error;
mod estimate;
mod event_loop;
pub(crate) mod fleet;
mod heartbeats;
pub(crate) mod input;
mod isolation;
mod long_poll;
mod orders;
pub(crate) mod output;
pub(crate) mod profile;
mod removed_tokens;
pub(crate) mod session_facts;
pub(crate) mod sessions;
pub(crate) mod shared_state;
mod slow_claims;
mod slow_kinds;
pub(crate) mod store_health;
pub(crate) mod trouble_log;
mod unhealthy;
mod unique_jobs;
pub(crate) mod vitals;
mod wait_reason;
pub(crate) mod waiting_classes;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::job::State;
use outlast_core::limit::Subject;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::command::{Claim, ClaimFrom, ClassKey, Lapse};
use outlast_store::record::JobRecord;
use outlast_store::reply::{ClaimRefusal, Claimed, Claims};
use outlast_store::{Command, Reply, Request, Store, StoreError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::clock::{boot_time, millis, precise};
use crate::metrics::Metrics;
use crate::schedules;
use crate::settings::Settings;
use batch_writer::Storage;
pub use configured_limits::ConfigureError;
pub use error::{ClaimError, OrderError, Unavailable};
use error::{reply_of, wrong_reply};
use input::Input;
use shared_state::SharedState;
use store_health::{OwnRead, Trouble};
use wait_reason::Eligible;
use wait_reason::limits::GatesInForce;
use wait_reason::shares;

/// The store counts as unreachable when it has taken no write for this long plus two check
/// intervals, even if no write has failed.
const UNPROVEN_MAX: Span = Span::from_secs(5);
/// How long an essential task may run without a pause: it is through with everything in far less.
const HUNG_MIN: Span = Span::from_secs(30);
/// A plain client's silence counts once contact with the store has lasted for this many
/// of its leases, however long the silence is.
const WATCHED_LEASES: u64 = 2;
/// Pause between two claims of a plain client that waits though it is quiet or drains: it may be
/// resumed meanwhile.
const INACTIVE_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a claim is repeated that found only locked jobs or busy limits.
const LOCKED_PAUSE: Span = Span(50);
/// How many inputs may wait for the loop before senders wait for room.
const INPUTS_MAX: usize = 16 * 1024;

/// A handle on the engine. Clones share it.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    settings: Settings,
    server: Uuid,
    inputs: mpsc::Sender<Input>,
    heartbeats: mpsc::Sender<heartbeats::Beat>,
    unique_jobs: mpsc::Sender<unique_jobs::Request>,
    shared: Arc<SharedState>,
    metrics: Arc<Metrics>,
}

/// Why no worker takes the claimable jobs of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// The queue is paused.
    Paused,
    /// No live worker can.
    NoWorker {
        /// Which were considered, in words.
        reason: String,
        /// Whether some worker would fit if it offered the action.
        lacks_action: bool,
    },
}

/// Whether the server can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether the store is reachable and migrated and the server is not stopping.
    pub ready: bool,
    /// `ok`, or what is wrong with the store.
    pub store: String,
    /// Why the store takes no writes or no reads, as a word for programs; such as `disk_full`.
    pub reason: Option<&'static str>,
    /// Which essential task has died, if one has.
    pub dead: Option<String>,
    /// Which essential task hangs: it has run for more than 30 s without a pause.
    pub hung: Option<String>,
    /// Whether the server is stopping.
    pub stopping: bool,
}

impl Engine {
    /// Starts the loop over `store` and returns a handle on it.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, settings: Settings) -> Self {
        let (inputs, receiver) = mpsc::channel(INPUTS_MAX);
        let (heartbeats, beats) = mpsc::channel(heartbeats::WAITING_MAX);
        let (unique_jobs, requests) = mpsc::channel(unique_jobs::WAITING_MAX);
        let shared = Arc::new(SharedState::new(boot_time(), settings.handlers.clone()));
        shared
            .store_health
            .set_watch_max(Span(settings.ojs_lease.0.saturating_mul(WATCHED_LEASES)));
        let metrics = Arc::new(Metrics::new());
        let server = Uuid::now_v7();
        listen_to_peers(store.as_ref(), inputs.downgrade());
        let storage = Storage {
            store: Arc::clone(&store),
            budgets: settings.budgets,
            shared: Arc::clone(&shared),
            metrics: Arc::clone(&metrics),
        };
        let writer = heartbeats::run(storage.clone(), beats);
        tokio::spawn(vitals::watch(shared.vitals.clone(), "the writer of heartbeats", writer));
        let writer = unique_jobs::run(storage.clone(), inputs.downgrade(), requests);
        tokio::spawn(vitals::watch(shared.vitals.clone(), "the writer of unique jobs", writer));
        let events = event_loop::run(storage, server, inputs.downgrade(), receiver);
        tokio::spawn(vitals::watch(shared.vitals.clone(), "the engine loop", events));
        let inner =
            Inner { store, settings, server, inputs, heartbeats, unique_jobs, shared, metrics };
        Self { inner: Arc::new(inner) }
    }

    /// Puts one command into the next batch and returns its reply once it is durable.
    ///
    /// # Errors
    /// Returns [`Unavailable`] when the store is unreachable or the server is stopping.
    pub async fn submit<R: Request>(&self, request: R) -> Result<R::Reply, Unavailable> {
        let (reply, _) = self.submit_command(request.into()).await?;
        reply_of::<R>(reply)
    }

    /// As [`Engine::submit`]; the request comes back with its reply.
    pub(crate) async fn submit_keeping<R: Request>(
        &self,
        request: R,
    ) -> Result<(R::Reply, R), Unavailable> {
        let (reply, command) = self.submit_command(request.into()).await?;
        let reply = reply_of::<R>(reply)?;
        match R::from_command(command) {
            Some(request) => Ok((reply, request)),
            None => Err(wrong_reply::<R>()),
        }
    }

    async fn submit_command(&self, command: Command) -> Result<(Reply, Command), Unavailable> {
        let begun = self.admit(&command)?;
        let (reply, command) = if command.takes_keys() {
            self.submit_unique(command).await?
        } else {
            let (reply, answer) = oneshot::channel();
            self.send(Input::Submit { command, reply }).await?;
            answer.await.unwrap_or_else(|_closed| Err(Unavailable::stopping()))?
        };
        self.observe(begun, &reply);
        Ok((reply, command))
    }

    /// Checks that a command may be submitted; returns when, if it is an enqueue.
    fn admit(&self, command: &Command) -> Result<Option<Duration>, Unavailable> {
        // What workers need is tried regardless. Producers are turned away: they would only queue
        // for an unknown time.
        if !is_enqueue(command) {
            return Ok(None);
        }
        match self.shared().store_health.trouble(boot_time()) {
            Some(trouble) => {
                let reason = format!("the store takes no jobs at the moment: {trouble}");
                let disk_full = trouble == Trouble::Full;
                Err(Unavailable { disk_full, ..Unavailable::new(reason) })
            }
            None => Ok(Some(precise())),
        }
    }

    /// Records how long an enqueue took.
    fn observe(&self, begun: Option<Duration>, reply: &Reply) {
        if let Some(begun) = begun {
            self.counters().enqueue_took(reply, precise().saturating_sub(begun));
        }
    }

    /// Puts a part of a heartbeat into the next batch of heartbeats. It must move no job.
    pub(crate) async fn beat<R: Request>(&self, request: R) -> Result<R::Reply, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inner.heartbeats.send((request.into(), reply)).await;
        sent.map_err(|_closed| Unavailable::stopping())?;
        reply_of::<R>(answer.await.unwrap_or_else(|_closed| Err(Unavailable::stopping()))?)
    }

    /// Submits a lapse that was judged at `judged`. It is refused if contact with the store broke
    /// since: what was seen before proves nothing then.
    pub(crate) async fn lapse(
        &self,
        lapse: Lapse,
        judged: BootTime,
    ) -> Result<<Lapse as Request>::Reply, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(Input::Lapse { lapse, judged, reply }).await?;
        let (reply, _) = answer.await.unwrap_or_else(|_closed| Err(Unavailable::stopping()))?;
        reply_of::<Lapse>(reply)
    }

    /// Reads what the server itself must know: while that fails, it is not ready.
    pub(crate) async fn read_own<T>(
        &self,
        what: OwnRead,
        reading: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let health = &self.shared().store_health;
        health.read_began(what, boot_time());
        let read = reading.await;
        health.read_ended(what, read.is_ok());
        read
    }

    /// Reads which classes have claimable jobs.
    pub(crate) async fn look_for_claimable(&self) -> Result<claimable::Look, StoreError> {
        let looking = claimable::look_for_claimable(self.store().as_ref(), self.shared());
        self.read_own(OwnRead::Backlog, looking).await
    }

    /// Reads the workers of every server, and what those can run that are new or have changed.
    pub(crate) async fn read_fleet(&self) -> Result<(), StoreError> {
        let (fleet, asked) = (&self.shared().fleet, boot_time());
        let reading = async {
            let briefs = self.store().fleet().await?;
            let unknown = fleet.unknown(&briefs);
            let read = match unknown.is_empty() {
                true => Vec::new(),
                false => self.store().workers_named(unknown).await?,
            };
            Ok((briefs, read))
        };
        let (briefs, read) = self.read_own(OwnRead::Fleet, reading).await?;
        fleet.set(briefs, &read, asked);
        Ok(())
    }

    pub(crate) async fn send(&self, input: Input) -> Result<(), Unavailable> {
        self.inner.inputs.send(input).await.map_err(|_closed| Unavailable::stopping())
    }

    /// Sends an input that may be dropped if there is no room.
    pub(crate) fn offer(&self, input: Input) {
        drop(self.inner.inputs.try_send(input));
    }

    /// Returns the store, for reads.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Returns the store's time, estimated from its latest answer if there is one.
    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        match self.shared().store_time() {
            Some(now) => Ok(now),
            None => self.store().now().await,
        }
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Returns this server process's identity.
    #[must_use]
    pub fn server_id(&self) -> Uuid {
        self.inner.server
    }

    pub(crate) fn shared(&self) -> &SharedState {
        &self.inner.shared
    }

    pub(crate) fn counters(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Claims jobs for a plain OJS fetch; waits up to `wait` for some to arrive.
    ///
    /// # Errors
    /// Returns why the claim failed. No jobs within `wait` is an empty answer, not an error.
    pub async fn claim_plain(
        &self,
        claim: Claim,
        wait: Option<Span>,
    ) -> Result<Vec<Claimed>, ClaimError> {
        let (queues, tenant) = match &claim.from {
            ClaimFrom::Queues { queues, tenant } => (queues.clone(), tenant.clone()),
            ClaimFrom::Classes(_) => (Vec::new(), None),
        };
        let long_polls = &self.shared().long_polls;
        let mut notifies = long_polls.fetch(&queues, tenant.as_deref(), boot_time());
        if wait.is_none() {
            notifies.clear();
        }
        let signals = long_polls.signals(&queues, tenant.as_deref(), boot_time());
        if !signals.is_empty() {
            self.store().signal(signals);
        }
        let end = tokio::time::Instant::now() + millis(wait.unwrap_or(Span::ZERO));
        let stopping = self.shared().stopping();
        loop {
            // Listen before claiming: a job enqueued in between wakes this call.
            let mut woken: Vec<_> =
                notifies.iter().map(|notify| Box::pin(notify.notified())).collect();
            for woken in &mut woken {
                woken.as_mut().enable();
            }
            let claimed = match self.submit(claim.clone()).await? {
                Err(ClaimRefusal::NotActive(_)) if !woken.is_empty() => {
                    // What wakes it is for others.
                    drop(woken);
                    let again = tokio::time::Instant::now() + INACTIVE_PAUSE;
                    tokio::select! {
                        () = tokio::time::sleep_until(again.min(end)) => {}
                        () = stopping.cancelled() => return Ok(Vec::new()),
                    }
                    if tokio::time::Instant::now() >= end {
                        return Ok(Vec::new());
                    }
                    continue;
                }
                claimed => claimed?,
            };
            self.claimed_plain(&claimed, &queues, tenant.as_deref(), end);
            let claimed = claimed.jobs;
            if !claimed.is_empty() || woken.is_empty() || tokio::time::Instant::now() >= end {
                return Ok(claimed);
            }
            tokio::select! {
                _ = futures_util::future::select_all(woken) => {}
                () = tokio::time::sleep_until(end) => return Ok(Vec::new()),
                () = stopping.cancelled() => return Ok(Vec::new()),
            }
        }
    }

    /// Wakes the next plain client as limits allow: at once if this one got a job, which may not
    /// be the only one that is let start, and else when they open, unless this one gives up first.
    fn claimed_plain(
        &self,
        claims: &Claims,
        queues: &[String],
        tenant: Option<&str>,
        end: tokio::time::Instant,
    ) {
        let shared = self.shared();
        if let Some(last) = claims.jobs.last().filter(|_| claims.cut) {
            // What was too long for this one is there for the next.
            let key = &last.job.key;
            shared.long_polls.wake(&key.queue, key.tenant.as_deref(), 1);
        }
        if let Some(limited) = claims.jobs.iter().find(|it| shared.may_limit(&it.job.key)) {
            let key = &limited.job.key;
            shared.long_polls.wake(&key.queue, key.tenant.as_deref(), 1);
        }
        if !claims.jobs.is_empty() {
            return;
        }
        let opens = claims.blocked.iter().filter_map(|blocked| blocked.until).min();
        let rate = opens.zip(shared.store_time()).map(|(at, now)| at.since(now).max(Span(1)));
        let busy = (!claims.passed_over.is_empty()).then_some(LOCKED_PAUSE);
        let Some(wait) = rate.into_iter().chain(busy).min() else { return };
        if tokio::time::Instant::now() + millis(wait) >= end {
            return;
        }
        let at = boot_time().after(wait);
        for queue in shared.long_polls.open_at(queues, tenant, at) {
            let (engine, tenant) = (self.clone(), tenant.map(ToOwned::to_owned));
            tokio::spawn(async move {
                tokio::time::sleep(millis(wait)).await;
                engine.shared().long_polls.opened(&queue, tenant.as_deref(), at);
            });
        }
    }

    /// Returns why jobs wait, in words, as [`Self::waiting_reason`] does, and for which limits.
    /// While the store does not answer, limits are left out.
    pub async fn waiting_reasons(&self, jobs: &[JobRecord]) -> Vec<Option<String>> {
        // Of other jobs there is more to say than that a limit is used up.
        let taken = |job: &JobRecord| {
            job.state == State::Available
                && wait_reason::eligible(&job.job.key, self.shared()) == Eligible::Yes
        };
        let waiting: Vec<&JobRecord> = jobs.iter().filter(|job| taken(job)).collect();
        let subjects: Vec<Subject<'_>> = waiting.iter().map(|job| subject(job)).collect();
        let gates = match self.gates_in_force(&subjects).await {
            Ok(gates) => gates,
            Err(error) => {
                tracing::warn!(%error, "cannot read the limits that jobs wait for");
                GatesInForce::default()
            }
        };
        // A limit is named rather than the turn that a job would have.
        let mut reasons = shares::turns(self.store().as_ref(), &waiting).await.unwrap_or_default();
        for (job, subject) in waiting.iter().zip(subjects) {
            reasons.extend(gates.reason(subject).map(|limit| (job.job.id, limit)));
        }
        let is_slow =
            |job: &&JobRecord| self.shared().slow_claims.reason(job.job.id, boot_time()).is_some();
        waiting.iter().filter(|job| is_slow(job)).for_each(|job| drop(reasons.remove(&job.job.id)));
        let known = |job: &JobRecord| reasons.get(&job.job.id).cloned();
        jobs.iter().map(|job| known(job).or_else(|| self.waiting_reason(job))).collect()
    }

    async fn gates_in_force(&self, jobs: &[Subject<'_>]) -> Result<GatesInForce, StoreError> {
        GatesInForce::read(self.store().as_ref(), jobs, self.now().await?).await
    }

    /// Returns why a job waits, in words, as far as it is not for a limit; `None` for a job that
    /// does not wait.
    #[must_use]
    pub fn waiting_reason(&self, job: &JobRecord) -> Option<String> {
        match job.state {
            State::Scheduled => Some("delayed until its time".into()),
            State::Retryable => Some("failed, waits for its next attempt".into()),
            State::Pending => Some(match schedules::fire_of(&job.job.payload.extra) {
                Some(fire) => format!("waits for an earlier job of schedule {}", fire.name),
                None => "waits for activation".into(),
            }),
            State::Available => {
                let shared = self.shared();
                let slow = shared.slow_claims.reason(job.job.id, boot_time());
                slow.or_else(|| Some(wait_reason::reason(&job.job.key, job.isolated, shared)))
            }
            State::Active | State::Completed | State::Cancelled | State::Discarded => None,
        }
    }

    /// Returns why claimable jobs of a class are not taken; `None` when a worker takes them in
    /// turn.
    pub(crate) fn untaken(&self, key: &ClassKey) -> Option<Untaken> {
        match wait_reason::eligible(key, self.shared()) {
            Eligible::Yes => None,
            Eligible::Paused => Some(Untaken::Paused),
            Eligible::Away | Eligible::No => {
                let shared = self.shared();
                let reason = wait_reason::lack(key, shared);
                let lacks_action = wait_reason::lacks_action(key, shared);
                Some(Untaken::NoWorker { reason, lacks_action })
            }
        }
    }

    /// Marks the server as stopping: it is no longer ready, and long polls and event streams
    /// end.
    pub fn begin_stop(&self) {
        self.shared().stop();
    }

    /// Returns whether the server can serve, from what is known: it asks the store nothing. The
    /// lease monitor probes the store when nothing else writes.
    #[must_use]
    pub fn health(&self) -> Health {
        let (shared, now) = (self.shared(), boot_time());
        let (stopping, dead) = (shared.is_stopping(), shared.vitals.dead());
        let hung = shared.vitals.hung(HUNG_MIN);
        let unproven = shared.store_health.unproven_for(now);
        let trouble = shared.store_health.trouble(now);
        let trouble = trouble.or_else(|| shared.store_health.read_trouble(now));
        let trouble = trouble.or_else(|| shared.store_health.lock_trouble(now));
        let store = if let Some(trouble) = trouble {
            trouble.to_string()
        } else if unproven.0 > UNPROVEN_MAX.0 + 2 * self.settings().check_interval.0 {
            format!("took no write for {} s", unproven.as_secs())
        } else {
            "ok".to_owned()
        };
        let ready = !stopping && dead.is_none() && hung.is_none() && store == "ok";
        Health { ready, store, reason: trouble.map(Trouble::code), dead, hung, stopping }
    }

    /// Waits until the store has gone back in time, and returns how.
    pub(crate) async fn replaced(&self) -> String {
        self.shared().vitals.replaced().await
    }

    /// Waits until an essential task has died, and returns which.
    pub(crate) async fn died(&self) -> String {
        self.shared().vitals.died().await
    }
}

/// Returns what limits may look at of a job.
fn subject(record: &JobRecord) -> Subject<'_> {
    let job = &record.job;
    Subject { queue: &job.key.queue, job_type: &job.key.job_type, keys: &job.keys }
}

/// Forwards the signals of other servers on the store to the loop.
fn listen_to_peers(store: &dyn Store, inputs: mpsc::WeakSender<Input>) {
    let (hear, mut heard) = mpsc::unbounded_channel();
    // Once the loop has ended, signals are of no use.
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

#[cfg(test)]
pub(crate) mod tests;
