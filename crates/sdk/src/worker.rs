//! One process start that serves jobs.
//!
//! - `engine`: the event loop; it alone touches its state
//! - `in_flight`: the attempts that are held, from delivery to the answer to their report
//! - `slots`: what may start beside what, and how much to fetch ahead
//! - `outbox`: what is to be sent, coalesced
//! - `output_queue`: output, until the server has stored it
//! - [`control`]: signals and orders from the process around the worker

pub(crate) mod control;
mod engine;
mod in_flight;
mod outbox;
mod output_queue;
mod slots;
pub(crate) mod summary;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::{labels, limits};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::control::ControlQueue;
use self::engine::Engine;
use self::summary::{BuildError, RunError, Summary};
use crate::handler::Handler;
use crate::handlers::{BoxError, Handlers, JobContext};
use crate::session::{Address, Token, TokenSource};
use crate::signals::Signals;
use crate::tls::Tls;

/// Which jobs a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs actions of packs.
    Action,
    /// Runs handlers of its own.
    Sdk,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Sdk => "sdk",
        }
    }
}

/// A worker's description.
#[derive(Clone, Debug)]
struct Profile {
    name: String,
    role: Role,
    version: String,
    queues: Vec<String>,
    concurrency: u32,
    runtimes: Vec<String>,
    labels: BTreeMap<String, String>,
    /// Becomes a label when the worker is made.
    pool: Option<String>,
    types: Vec<String>,
    about_json: String,
    follows: Vec<WorkerId>,
}

/// A worker's time limits.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    heartbeat_interval: Duration,
    shutdown_timeout: Duration,
    stop_window: Duration,
    force_window: Duration,
    refuses_forbidden: bool,
}

/// A worker, ready to run.
#[derive(Debug)]
pub struct Worker {
    profile: Profile,
    timeouts: Timeouts,
    address: Address,
    handlers: Handlers,
}

/// Describes a [`Worker`].
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkerBuilder {
    url: String,
    token: TokenSource,
    tls: Tls,
    profile: Profile,
    timeouts: Timeouts,
    handlers: Handlers,
}

impl Worker {
    /// Describes a worker for the server at `url`, such as `http://127.0.0.1:8080`, or for several servers
    /// of one deployment, with commas between them. It works for one of them, and moves on to the next
    /// when that one is away.
    pub fn builder(url: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            url: url.into(),
            token: TokenSource::default(),
            tls: Tls::new(),
            profile: Profile {
                name: "worker".to_owned(),
                role: Role::Sdk,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                queues: vec!["default".to_owned()],
                concurrency: 10,
                runtimes: Vec::new(),
                labels: BTreeMap::new(),
                pool: None,
                types: Vec::new(),
                follows: Vec::new(),
                about_json: "{}".to_owned(),
            },
            timeouts: Timeouts {
                heartbeat_interval: Duration::from_secs(5),
                shutdown_timeout: Duration::from_secs(30),
                stop_window: Duration::from_secs(5),
                force_window: Duration::from_millis(500),
                refuses_forbidden: false,
            },
            handlers: Handlers::default(),
        }
    }

    /// Serves jobs with its handlers until the process gets a terminating signal, and drains.
    ///
    /// From here on this worker handles the process's signals: the first SIGTERM or SIGINT drains
    /// it, a second one stops what is left at once, and a third ends the process with code 1.
    /// SIGTSTP makes it take no new work, SIGCONT undoes that. After it has returned, one more
    /// SIGTERM or SIGINT ends the process with code 1.
    ///
    /// # Errors
    /// When it has no handler, the server refuses it for good, the system has no thread left, or
    /// signals cannot be handled.
    pub async fn run_with_signals(self) -> Result<Summary, RunError> {
        let handlers = self.own_handlers()?;
        let (control, queue) = control::control();
        let _signals = Signals::listen(control).await.map_err(RunError::Signals)?;
        self.run(handlers, queue).await
    }

    /// Serves jobs with its handlers until `stop` is ready, and drains. It does not handle
    /// signals.
    ///
    /// # Errors
    /// When it has no handler, the server refuses it for good, or the system has no thread
    /// left.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Summary, RunError> {
        let handlers = self.own_handlers()?;
        let (control, queue) = control::control();
        let mut ended = Box::pin(self.run(handlers, queue));
        tokio::select! {
            ended = &mut ended => return ended,
            () = stop => control.terminate(),
        }
        ended.await
    }

    fn own_handlers(&self) -> Result<Handlers, RunError> {
        match self.handlers.types().next() {
            Some(_) => Ok(self.handlers.clone()),
            None => Err(RunError::NoHandler),
        }
    }

    /// Serves jobs with a [`Handler`] of your own, in place of typed ones, until it is ordered
    /// to stop and has drained, whatever the server does meanwhile.
    ///
    /// # Errors
    /// When the server refuses this worker for good, or the system has no thread left.
    pub async fn run<H: Handler>(
        self,
        handler: H,
        control: ControlQueue,
    ) -> Result<Summary, RunError> {
        Engine::new(self, Arc::new(handler), control)?.run().await
    }
}

impl WorkerBuilder {
    /// Runs jobs of this type with an async function of their arguments. The type is
    /// announced to the server; no [`Self::types`] is needed.
    ///
    /// A job's only argument is read as an `A`; of several, all together are one, a tuple
    /// say. Arguments that do not fit fail the job for good. What it returns is the job's
    /// result. See [`HandlerError`](crate::HandlerError) for what an error means.
    ///
    /// It must not block: use [`Self::handle_blocking`] for that.
    pub fn handle<A, R, E, F, Fut>(mut self, job_type: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + 'static,
        R: Serialize,
        E: Into<BoxError>,
        F: Fn(A, JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.handlers.add_async(job_type.into(), handler);
        self
    }

    /// Runs jobs of this type with a function that may block: each attempt has a thread of its
    /// own. It should check [`JobContext::is_cancelled`] now and then, because a thread cannot be
    /// ended from outside: one that outlives the worker ends with the process.
    pub fn handle_blocking<A, R, E, F>(mut self, job_type: impl Into<String>, handler: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: Into<BoxError>,
        F: Fn(A, JobContext) -> Result<R, E> + Send + Sync + 'static,
    {
        self.handlers.add_blocking(job_type.into(), handler);
        self
    }

    /// Says that two attempts of a job of this type must never run at the same time, not
    /// even while the network is cut: the handler runs only jobs that say so themselves. If
    /// the lease is not renewed, the attempt is ordered to end, and one that does not end before
    /// the lease does takes the process with it, with exit code
    /// [`LEASE_OVER_EXIT_CODE`](crate::LEASE_OVER_EXIT_CODE).
    pub fn overlap_forbidden(mut self, job_type: impl Into<String>) -> Self {
        self.handlers.forbid_overlap(job_type.into());
        self
    }

    /// Name of the worker. Default: `worker`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.profile.name = name.into();
        self
    }

    /// Which jobs it runs. Default: [`Role::Sdk`].
    pub const fn role(mut self, role: Role) -> Self {
        self.profile.role = role;
        self
    }

    /// File that holds the bearer token. It is read when the worker is built, unless
    /// [`Self::token`] has been given too, which is then shown first. It is read again whenever the
    /// worker attaches, so also before its first connection, when the server refuses the token,
    /// and on [`Control::read_token_again`](crate::Control::read_token_again). A file that cannot
    /// be used then changes nothing. Default: none.
    pub fn token_file(mut self, file: Option<PathBuf>) -> Self {
        self.token.file = file;
        self
    }

    /// Bearer token. Default: none.
    pub fn token(mut self, token: Option<String>) -> Self {
        self.token.text = token.map(Token);
        self
    }

    /// How the certificate of an `https://` server is verified, and which client certificate is
    /// presented to it. Default: the system's authorities, and none.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Queues to serve; `*` is every queue. Default: `default`.
    pub fn queues<T: Into<String>>(mut self, queues: impl IntoIterator<Item = T>) -> Self {
        self.profile.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Attempts at the same time, from 1 to 10,000. Default: 10.
    pub fn concurrency(mut self, slots: u32) -> Self {
        self.profile.concurrency = slots.clamp(1, limits::CONCURRENCY_MAX);
        self
    }

    /// Runtimes it offers, for a worker that runs actions. Default: none.
    pub fn runtimes<T: Into<String>>(mut self, runtimes: impl IntoIterator<Item = T>) -> Self {
        self.profile.runtimes = runtimes.into_iter().map(Into::into).collect();
        self
    }

    /// Pool it belongs to, which jobs ask for with `pool=NAME`. 1 to 63 letters, digits, `-`, `_`
    /// and `.`, a letter or digit first and last. Default: none.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.profile.pool = Some(name.into());
        self
    }

    /// Labels it carries, which jobs choose their worker by. Names and values are as in Kubernetes;
    /// `pool`, `containment`, `outlast_version` and `runtime/…` are reserved. Default: none.
    pub fn labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.profile.labels = labels;
        self
    }

    /// Job types that it can run with a [`Handler`] of your own. Default: none.
    pub fn types<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.profile.types = types.into_iter().map(Into::into).collect();
        self
    }

    /// The identities that a process before this one had, oldest first, if this one stands in for it, as
    /// an engine does that its guardian has started again: what an operator ordered the latest one
    /// that the server knows holds for this worker. Default: none.
    pub fn follows(mut self, workers: impl IntoIterator<Item = WorkerId>) -> Self {
        self.profile.follows = workers.into_iter().collect();
        self
    }

    /// Further facts about it, as a JSON object: host, process id, containment. Default: none.
    pub fn about_json(mut self, about: impl Into<String>) -> Self {
        self.profile.about_json = about.into();
        self
    }

    /// Heartbeat interval to propose, from 100 ms to 5 min; the server decides. The lease is three
    /// intervals, unless the server is configured otherwise. Default: 5 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        let (least, most) = (limits::HEARTBEAT_MIN, limits::HEARTBEAT_MAX);
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let granted = Span(ms.clamp(least.0, most.0));
        self.timeouts.heartbeat_interval = Duration::from_millis(granted.0);
        self
    }

    /// How long attempts may go on when it drains; then they are ordered to stop. Default: 30 s.
    pub const fn shutdown_timeout(mut self, grace: Duration) -> Self {
        self.timeouts.shutdown_timeout = grace;
        self
    }

    /// How long a handler that was ordered to stop has before it is dropped. Default: 5 s.
    pub const fn stop_window(mut self, window: Duration) -> Self {
        self.timeouts.stop_window = window;
        self
    }

    /// How long a handler that must end at once has before it is dropped. Default: 500 ms.
    pub const fn force_window(mut self, window: Duration) -> Self {
        self.timeouts.force_window = window;
        self
    }

    /// Runs no job that forbids overlap, as this process must not be ended: such a job fails
    /// for good when it is handed over, and [`Self::overlap_forbidden`] is refused. Default:
    /// they run, and the process ends itself when one of them cannot be stopped by its
    /// deadline.
    pub const fn refuse_overlap_forbidden(mut self) -> Self {
        self.timeouts.refuses_forbidden = true;
        self
    }

    /// Makes the worker.
    ///
    /// # Errors
    /// When the address or the token cannot be used, a label is reserved or has a name or value that
    /// no selector can ask for, a type has two handlers, or an option of a handler cannot be
    /// honoured.
    pub fn build(self) -> Result<Worker, BuildError> {
        let Self { url, token, tls, mut profile, timeouts, mut handlers } = self;
        let address = Address::new(&url, &token, &tls)?;
        handlers.validate()?;
        labels::check(&profile.labels)?;
        if let Some(pool) = profile.pool.take() {
            labels::check_pool(&pool)?;
            profile.labels.insert(labels::POOL.to_owned(), pool);
        }
        if timeouts.refuses_forbidden
            && let Some(job_type) = handlers.forbids_overlap()
        {
            return Err(BuildError::MayNotEnd(job_type.to_owned()));
        }
        for job_type in handlers.types() {
            if !profile.types.contains(job_type) {
                profile.types.push(job_type.clone());
            }
        }
        Ok(Worker { profile, timeouts, address, handlers })
    }
}
