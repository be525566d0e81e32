//! One process start that serves jobs.
//!
//! - `engine`: the loop; everything it knows is touched by it alone
//! - `held`: the attempts that are held, from delivery to the answer to their report
//! - `slots`: what may start beside what, and how much to fetch ahead
//! - `outbox`: what is to be sent, coalesced
//! - `attempt`: one handler's run, fenced off from the rest
//! - [`control`]: what the process around tells the worker

pub(crate) mod attempt;
pub(crate) mod control;
mod engine;
mod held;
mod outbox;
mod slots;
pub(crate) mod summary;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits;
use outlast_core::time::Span;

use self::control::ControlQueue;
use self::engine::Engine;
use self::summary::{RunError, Summary};
use crate::handler::Handler;
use crate::session::{Address, BadAddress};

/// Which jobs a worker is for.
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

/// What a worker is and has; never changes.
#[derive(Clone, Debug)]
struct Profile {
    name: String,
    role: Role,
    version: String,
    queues: Vec<String>,
    concurrency: u32,
    runtimes: Vec<String>,
    labels: BTreeMap<String, String>,
    types: Vec<String>,
    about_json: String,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Patience {
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
    patience: Patience,
    address: Address,
}

/// Describes a [`Worker`].
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkerBuilder {
    url: String,
    token: Option<String>,
    profile: Profile,
    patience: Patience,
}

impl Worker {
    /// Describes a worker for the server at `url`: ten slots on queue `default`, no types.
    pub fn builder(url: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            url: url.into(),
            token: None,
            profile: Profile {
                name: "worker".to_owned(),
                role: Role::Sdk,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                queues: vec!["default".to_owned()],
                concurrency: 10,
                runtimes: Vec::new(),
                labels: BTreeMap::new(),
                types: Vec::new(),
                about_json: "{}".to_owned(),
            },
            patience: Patience {
                heartbeat_interval: Duration::from_secs(5),
                shutdown_timeout: Duration::from_secs(30),
                stop_window: Duration::from_secs(5),
                force_window: Duration::from_millis(500),
                refuses_forbidden: false,
            },
        }
    }

    /// Serves jobs until it is told to stop and has drained, whatever the server does
    /// meanwhile.
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
    /// Label of the worker.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.profile.name = name.into();
        self
    }

    /// Which jobs it is for.
    pub const fn role(mut self, role: Role) -> Self {
        self.profile.role = role;
        self
    }

    /// Bearer token to show.
    pub fn token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Queues to serve; `*` is every queue.
    pub fn queues<T: Into<String>>(mut self, queues: impl IntoIterator<Item = T>) -> Self {
        self.profile.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Attempts at the same time.
    pub fn concurrency(mut self, slots: u32) -> Self {
        self.profile.concurrency = slots.clamp(1, limits::CONCURRENCY_MAX);
        self
    }

    /// Runtimes it offers.
    pub fn runtimes<T: Into<String>>(mut self, runtimes: impl IntoIterator<Item = T>) -> Self {
        self.profile.runtimes = runtimes.into_iter().map(Into::into).collect();
        self
    }

    /// Labels it carries.
    pub fn labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.profile.labels = labels;
        self
    }

    /// Job types it can run.
    pub fn types<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.profile.types = types.into_iter().map(Into::into).collect();
        self
    }

    /// More about it, a JSON object: host, process id, containment.
    pub fn about_json(mut self, about: impl Into<String>) -> Self {
        self.profile.about_json = about.into();
        self
    }

    /// Time between two beats to propose; the server decides.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        let (least, most) = (limits::HEARTBEAT_MIN, limits::HEARTBEAT_MAX);
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let granted = Span(ms.clamp(least.0, most.0));
        self.patience.heartbeat_interval = Duration::from_millis(granted.0);
        self
    }

    /// How long attempts may go on when it drains.
    pub const fn shutdown_timeout(mut self, grace: Duration) -> Self {
        self.patience.shutdown_timeout = grace;
        self
    }

    /// How long a handler that was told to stop has before it is dropped.
    pub const fn stop_window(mut self, window: Duration) -> Self {
        self.patience.stop_window = window;
        self
    }

    /// How long a handler that must end at once has before it is dropped.
    pub const fn force_window(mut self, window: Duration) -> Self {
        self.patience.force_window = window;
        self
    }

    /// Runs no job that forbids overlap: such a job fails for good when it is handed over.
    /// Otherwise the process ends itself when one of them cannot be stopped by its deadline.
    pub const fn refuse_overlap_forbidden(mut self) -> Self {
        self.patience.refuses_forbidden = true;
        self
    }

    /// Makes the worker.
    ///
    /// # Errors
    /// When the address or the token cannot be used.
    pub fn build(self) -> Result<Worker, BadAddress> {
        let address = Address::new(&self.url, self.token.as_deref())?;
        Ok(Worker { profile: self.profile, patience: self.patience, address })
    }
}
