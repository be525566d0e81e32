//! The trait between the server and what keeps its jobs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use outlast_core::duty::DutyRefusal;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::Timestamp;
use uuid::Uuid;

use crate::command::Batch;
use crate::event::{EventPage, EventQuery};
use crate::query::{
    Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery, Page,
    QueuePause, QueueStats, StoreFacts, WorkerPage, WorkerQuery,
};
use crate::record::{AttemptRecord, Held, JobRecord, WorkerBrief, WorkerRecord};
use crate::reply::Applied;
use crate::signal::{Heard, Signal};
use crate::tally::ClassCounts;
use crate::tend::{Tend, Tended};

/// Where jobs live. One writer path ([`Store::apply`]), and reads that never block it.
///
/// # Contract
/// - `apply` is one durable transaction: when it returns `Ok`, every accepted command of
///   the batch survives a crash of the process and of the machine; when it returns `Err`,
///   none has taken effect, unless the error is [`StoreError::Ambiguous`].
/// - Commands take effect in the order of the batch. A refused command changes nothing and
///   does not stop the others.
/// - A batch holds at most one command per job, [`crate::command::Command::Claim`]s and
///   sweeps excepted, which choose their own jobs.
/// - Reads see every batch whose `apply` returned before they began.
pub trait Store: Clone + fmt::Debug + Send + Sync + 'static {
    /// Applies a batch as one transaction and answers each command in order.
    fn apply(&self, batch: Batch) -> impl Future<Output = Result<Applied, StoreError>> + Send;

    /// Says under which number the batches of heartbeats come: a store with several writers
    /// keeps one for them, so that they wait for nothing else.
    fn beats_come_from(&self, _server: Uuid) {}

    /// Returns the store's time, the only judge of leases.
    fn now(&self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// Returns one job with everything about it, or `None`.
    fn job(&self, id: JobId) -> impl Future<Output = Result<Option<JobRecord>, StoreError>> + Send;

    /// Lists jobs, newest first.
    fn jobs(&self, query: JobQuery) -> impl Future<Output = Result<JobPage, StoreError>> + Send;

    /// Returns a job's attempts by epoch, the running one included.
    fn attempts(
        &self,
        id: JobId,
    ) -> impl Future<Output = Result<Vec<AttemptRecord>, StoreError>> + Send;

    /// Returns what a job's attempts printed.
    fn logs(&self, query: LogQuery) -> impl Future<Output = Result<LogPage, StoreError>> + Send;

    /// Returns every worker that is not forgotten, latest registered first.
    fn workers(&self) -> impl Future<Output = Result<Vec<WorkerRecord>, StoreError>> + Send;

    /// Returns every worker that has a lease or holds an attempt, and the [`GONE_SHOWN`] that
    /// went last, who explain why a job waits; latest registered first. However many went
    /// before them, it takes no longer.
    fn live_workers(&self) -> impl Future<Output = Result<Vec<WorkerRecord>, StoreError>> + Send;

    /// Returns the same workers as [`Store::live_workers`], and of each only what changes while
    /// it works; in no order. It is read each second.
    fn fleet(&self) -> impl Future<Output = Result<Vec<WorkerBrief>, StoreError>> + Send;

    /// Returns a page of the workers that have not been forgotten, latest registered first.
    fn workers_page(
        &self,
        query: WorkerQuery,
    ) -> impl Future<Output = Result<WorkerPage, StoreError>> + Send;

    /// Returns these workers, those that are known, in no order.
    fn workers_named(
        &self,
        ids: Vec<WorkerId>,
    ) -> impl Future<Output = Result<Vec<WorkerRecord>, StoreError>> + Send;

    /// Returns the attempts that a worker holds.
    fn held_by(
        &self,
        worker: WorkerId,
    ) -> impl Future<Output = Result<Vec<Held>, StoreError>> + Send;

    /// Returns every class and whether it has claimable jobs.
    fn backlog(&self) -> impl Future<Output = Result<Vec<ClassBacklog>, StoreError>> + Send;

    /// Returns every class with its live counts, by number. Nothing is counted for it.
    fn tally(&self) -> impl Future<Output = Result<Vec<ClassCounts>, StoreError>> + Send;

    /// Returns the queues that somebody paused or resumed, by name.
    fn pauses(&self) -> impl Future<Output = Result<Vec<QueuePause>, StoreError>> + Send;

    /// Returns the classes that have claimable jobs, and how many: counting stops at `max` of
    /// each. It takes as long as there are such classes, whatever others there are.
    fn claimable(
        &self,
        max: u32,
    ) -> impl Future<Output = Result<Vec<Claimable>, StoreError>> + Send;

    /// Returns every queue with its counts, by name.
    fn queues(&self) -> impl Future<Output = Result<Vec<QueueStats>, StoreError>> + Send;

    /// Lists dead letters, newest first.
    fn dead_letters(
        &self,
        page: Page,
    ) -> impl Future<Output = Result<DeadLetterPage, StoreError>> + Send;

    /// Reads the event log.
    fn events(
        &self,
        query: EventQuery,
    ) -> impl Future<Output = Result<EventPage, StoreError>> + Send;

    /// Returns the cursor after every event there is: what is read from there is new.
    fn events_end(&self) -> impl Future<Output = Result<String, StoreError>> + Send;

    /// Returns when something is due next without any command: a timer, a visibility, a
    /// time limit, an expiry. `None` when nothing is.
    fn next_due(&self) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// Returns whether jobs that programs stored by SQL wait to be taken in. Asked for one of
    /// them: whether it waits, or has been stored. Only a shared database has any.
    fn arrivals(
        &self,
        only: Option<JobId>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns where the data is and what makes it durable. A store that does not say keeps
    /// it in memory.
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            kind: "memory",
            folder: None,
            durability: "none",
            durable: false,
            generation: 1,
        }
    }

    /// Looks after what history is kept in: makes room ahead, and lets go of what is old as a
    /// whole. A store that deletes history with its jobs has nothing to do.
    fn tend(
        &self,
        _tend: Tend,
    ) -> impl Future<Output = Result<Result<Tended, DutyRefusal>, StoreError>> + Send {
        async { Ok(Ok(Tended::default())) }
    }

    /// Tells the other servers on this store, without waiting for it. A store that has one
    /// server has nobody to tell.
    fn tell(&self, _signals: Vec<Signal>) {}

    /// Has what the other servers tell given to `hear`, from now until the store is closed.
    fn listen(&self, _hear: Arc<dyn Fn(Heard) + Send + Sync>) {}

    /// Whether one writer applies all batches: each of them waits for every other.
    fn has_one_writer(&self) -> bool {
        false
    }

    /// Flushes and closes; every later call fails with [`StoreError::Closed`].
    fn close(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// How many of the workers that went are told of with those that live.
pub const GONE_SHOWN: u32 = 100;

/// A clock that a store reads. The real one never runs backwards.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the time now.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still until it is turned, for tests and simulation.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<std::sync::atomic::AtomicI64>);

impl ManualClock {
    /// Returns a clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(std::sync::atomic::AtomicI64::new(now.0)))
    }

    /// Turns the clock forward.
    pub fn advance(&self, millis: u32) {
        self.0.fetch_add(i64::from(millis), std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

/// Why a store could not do what it was asked. Nothing has changed, unless it is
/// [`StoreError::Ambiguous`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached now; the same call may go through later.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// The disk is full.
    #[error("store is full: {0}")]
    Full(String),
    /// The commit was sent and its outcome is unknown.
    #[error("outcome of the commit is unknown: {0}")]
    Ambiguous(String),
    /// A command of the batch cannot be applied, by a fault of ours: split the batch.
    #[error("batch could not be applied: {0}")]
    Rejected(String),
    /// Another session of the database holds a row that a command of the batch needs: split
    /// the batch, and try that command again later.
    #[error("another session of the database holds what is needed: {0}")]
    Held(String),
    /// What was read back breaks an invariant.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}
