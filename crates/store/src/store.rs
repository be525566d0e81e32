//! The trait between the server and what keeps its jobs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::limit::GateId;
use outlast_core::operation::OperationId;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
use uuid::Uuid;

use crate::arrival::{Arrival, ArrivalNumber, ArrivalState};
use crate::browser_session::{BrowserSession, SessionQuery};
use crate::command::{Batch, BatchId, ClassId};
use crate::error::StoreError;
use crate::event::{EventPage, EventQuery, NewestPage, NewestQuery};
use crate::idempotency::Fingerprint;
use crate::limit::{GateHolder, GateQuery, GateRecord, LimitRecord};
use crate::operation::{OperationQuery, OperationRecord};
use crate::partitions::{Maintain, Maintained};
use crate::query::{
    AheadQuery, Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery,
    OldestClaimable, QueuePause, QueueStats, StoreFacts, UnhandledLetter, WorkerPage, WorkerQuery,
};
use crate::queue::QueueRecord;
use crate::record::{
    AttemptRecord, CancelledAttempt, InFlightJob, JobRecord, WorkerBrief, WorkerRecord,
};
use crate::reply::{Applied, Resolved};
use crate::schedule::{ScheduleQuery, ScheduleRecord};
use crate::signal::{Heard, Signal};
use crate::tally::{ClassCounts, Counts};
use crate::workflow::{
    DueWorkflows, ItemQuery, ItemRecord, WorkflowCounts, WorkflowItemRun, WorkflowLook,
    WorkflowQuery, WorkflowRecord,
};

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
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Applies a batch as one transaction and answers each command in order. A store keeps no
    /// clone of `batch` beyond the call, so the caller gets its commands back.
    async fn apply(&self, batch: Arc<Batch>) -> Result<Applied, StoreError>;

    /// Finds out what became of a batch whose outcome was [`StoreError::Ambiguous`]; from now on it
    /// takes no effect any more if it has not yet. It must be asked before the next batch of the
    /// same server.
    async fn resolve(&self, _id: BatchId) -> Result<Resolved, StoreError> {
        Ok(Resolved::Unknown)
    }

    /// Says under which number the batches of heartbeats come: a store with several writers
    /// keeps one for them, so that they wait for nothing else.
    fn beats_come_from(&self, _server: Uuid) {}

    /// Returns the store's time, the only judge of leases.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Returns one job with everything about it, or `None`.
    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// Lists jobs, newest first.
    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError>;

    /// Returns a job's attempts by epoch, the running one included. Of very many long errors, only
    /// the latest are read.
    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, StoreError>;

    /// Returns what a job's attempts printed.
    async fn logs(&self, query: LogQuery) -> Result<LogPage, StoreError>;

    /// Returns every worker that is not forgotten, latest registered first.
    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Returns every worker that has a lease or holds an attempt, and the [`GONE_SHOWN`] that
    /// went last, who explain why a job waits; latest registered first. However many went
    /// before them, it takes no longer.
    async fn live_workers(&self) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Returns the same workers as [`Store::live_workers`], and of each only what changes while
    /// it works; in no order. It is read each second.
    async fn fleet(&self) -> Result<Vec<WorkerBrief>, StoreError>;

    /// Returns a page of the workers that have not been forgotten, latest registered first.
    async fn workers_page(&self, query: WorkerQuery) -> Result<WorkerPage, StoreError>;

    /// Returns these workers, those that are known, in no order.
    async fn workers_named(&self, ids: Vec<WorkerId>) -> Result<Vec<WorkerRecord>, StoreError>;

    /// Returns the orders that hold for workers that start later, by selector.
    async fn standing_orders(&self) -> Result<Vec<StandingOrder>, StoreError>;

    /// Returns the attempts that a worker holds.
    async fn in_flight_of(&self, worker: WorkerId) -> Result<Vec<InFlightJob>, StoreError>;

    /// Returns the attempts of cancelled jobs that these workers still hold, in no order.
    async fn cancelled_of(
        &self,
        workers: Vec<WorkerId>,
    ) -> Result<Vec<CancelledAttempt>, StoreError>;

    /// Returns every class and whether it has claimable jobs.
    async fn backlog(&self) -> Result<Vec<ClassBacklog>, StoreError>;

    /// Returns every class with its live counts, by number. Nothing is counted for it.
    async fn tally(&self) -> Result<Vec<ClassCounts>, StoreError>;

    /// Returns the counts of those of these classes that there are.
    async fn tally_of(&self, classes: Vec<ClassId>) -> Result<Vec<ClassCounts>, StoreError>;

    /// Returns the live counts of a queue; of one tenant's jobs in it if a tenant is named.
    async fn counts_of(&self, queue: String, tenant: Option<String>) -> Result<Counts, StoreError>;

    /// Returns the limits, by name.
    async fn limits(&self) -> Result<Vec<LimitRecord>, StoreError>;

    /// Returns schedules, by name.
    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<ScheduleRecord>, StoreError>;

    /// Returns a schedule, if there is one of that name.
    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError>;

    /// Returns the schedules that are due until a time, the earliest first, at most `max`. It takes
    /// as long as there are such schedules, whatever others there are.
    async fn due_schedules(
        &self,
        until: Timestamp,
        max: u32,
    ) -> Result<Vec<ScheduleRecord>, StoreError>;

    /// Returns operations, the latest begun first.
    async fn operations(&self, query: OperationQuery) -> Result<Vec<OperationRecord>, StoreError>;

    /// Returns an operation, if there is one of that id.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError>;

    /// Returns the operations that run, in no order. It takes as long as there are such operations,
    /// whatever others there are.
    async fn running_operations(&self) -> Result<Vec<OperationRecord>, StoreError>;

    /// Returns workflows without their definitions, the latest made first.
    async fn workflows(&self, query: WorkflowQuery) -> Result<Vec<WorkflowRecord>, StoreError>;

    /// Returns a workflow without its definition, if there is one of that id.
    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRecord>, StoreError>;

    /// Returns items that run although what carries them out has ended or is gone, and of which no end
    /// is noted; at most `max`. There are none, unless a server of an earlier build ended their jobs, or
    /// the store was changed by hand. It looks at all items that run.
    async fn unnoted_ends(&self, max: u32) -> Result<Vec<WorkflowItemRun>, StoreError>;

    /// Returns what is needed to decide what follows in a workflow; its definition only if asked for.
    async fn look_at_workflow(
        &self,
        id: WorkflowId,
        with_definition: bool,
    ) -> Result<WorkflowLook, StoreError>;

    /// Returns items of a workflow, by step and item.
    async fn workflow_items(&self, query: ItemQuery) -> Result<Vec<ItemRecord>, StoreError>;

    /// Returns workflows that a server must look at. It takes as long as there are such workflows,
    /// whatever others there are.
    async fn due_workflows(&self, query: DueWorkflows) -> Result<Vec<WorkflowId>, StoreError>;

    /// Counts workflows.
    async fn workflow_counts(&self) -> Result<WorkflowCounts, StoreError>;

    /// Returns the session of a browser with this secret, if there is one; it may have expired.
    async fn browser_session(
        &self,
        secret: Fingerprint,
    ) -> Result<Option<BrowserSession>, StoreError>;

    /// Returns sessions of browsers, the latest begun first.
    async fn browser_sessions(
        &self,
        query: SessionQuery,
    ) -> Result<Vec<BrowserSession>, StoreError>;

    /// Returns the gates of a limit that count attempts, those with most first.
    async fn gates(&self, query: GateQuery) -> Result<Vec<GateRecord>, StoreError>;

    /// Returns these gates; in no order. Those that no job has passed are left out.
    async fn gate_states(&self, gates: Vec<GateId>) -> Result<Vec<GateRecord>, StoreError>;

    /// Returns attempts that a gate counts, oldest first, at most `max`.
    async fn gate_holders(&self, gate: GateId, max: u32) -> Result<Vec<GateHolder>, StoreError>;

    /// Returns gates of which the count differs from the number of attempts that hold them, those
    /// after `after`, at most `max`, by number; also gates that are counted and do not exist any more.
    /// All is compared as of one moment: a gate that is named counts wrongly.
    async fn miscounted_gates(
        &self,
        after: Option<GateId>,
        max: u32,
    ) -> Result<Vec<GateId>, StoreError>;

    /// Returns the queues that settings were ever made for, by name.
    async fn queue_settings(&self) -> Result<Vec<QueueRecord>, StoreError>;

    /// Returns the queues that were ever paused, resumed or set, by name.
    async fn pauses(&self) -> Result<Vec<QueuePause>, StoreError>;

    /// Returns the classes that have claimable jobs, and how many: counting stops at `max` of
    /// each. It takes as long as there are such classes, whatever others there are.
    async fn claimable(&self, max: u32) -> Result<Vec<Claimable>, StoreError>;

    /// Returns how many claimable jobs go before one, of those with the same keys; none if it is not
    /// claimable.
    async fn ahead(&self, query: AheadQuery) -> Result<u64, StoreError>;

    /// Returns the job of each of these classes that has been claimable for longest. Where very
    /// many wait, it is looked for among those that are next in line at each priority. A class
    /// without claimable jobs is left out.
    async fn oldest_claimable(
        &self,
        classes: Vec<ClassId>,
    ) -> Result<Vec<OldestClaimable>, StoreError>;

    /// Returns a queue with its counts, unless neither a job nor a setting has named it. What it
    /// costs does not depend on other queues.
    async fn queue(&self, name: String) -> Result<Option<QueueStats>, StoreError>;

    /// Returns every queue with its counts, by name.
    async fn queues(&self) -> Result<Vec<QueueStats>, StoreError>;

    /// Lists dead letters, those of the newest jobs first. A query of other jobs lists none of them.
    async fn dead_letters(&self, query: JobQuery) -> Result<DeadLetterPage, StoreError>;

    /// Returns dead letters that no server has handled yet, those of the oldest jobs first.
    async fn unhandled_letters(&self, max: u32) -> Result<Vec<UnhandledLetter>, StoreError>;

    /// Reads the event log.
    async fn events(&self, query: EventQuery) -> Result<EventPage, StoreError>;

    /// Reads the event log from its end backwards. A page looks at a bounded part of it, so it may have
    /// fewer events than there are before [`NewestPage::previous`].
    async fn newest_events(&self, query: NewestQuery) -> Result<NewestPage, StoreError>;

    /// Returns the cursor after every event there is: what is read from there is new.
    async fn events_end(&self) -> Result<String, StoreError>;

    /// Returns when something is due next without any command: a timer, a visibility, a
    /// time limit, an expiry. `None` when nothing is.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Returns the first arrivals after one, in the order in which they were written, none after those
    /// that come to [`ARRIVALS_BYTES_MAX`](outlast_core::limits::ARRIVALS_BYTES_MAX). Only a shared
    /// database has any.
    async fn arrivals(
        &self,
        _after: Option<ArrivalNumber>,
        _limit: u32,
    ) -> Result<Vec<Arrival>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns where a job is that a program may have stored by SQL.
    async fn arrival(&self, _id: JobId) -> Result<ArrivalState, StoreError> {
        Ok(ArrivalState::Unknown)
    }

    /// Returns where the data is and what makes it durable. A store that does not say keeps
    /// it in memory.
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            kind: "memory",
            folder: None,
            durability: "none",
            durable: false,
            generation: 1,
            restored: 1,
        }
    }

    /// Looks after what history is kept in: makes room ahead, and lets go of what is old as a
    /// whole. A store that deletes history with its jobs has nothing to do.
    async fn maintain(
        &self,
        _order: Maintain,
    ) -> Result<Result<Maintained, LeadershipRefusal>, StoreError> {
        Ok(Ok(Maintained::default()))
    }

    /// Sends signals to the other servers on this store, without waiting. A store that has one
    /// server sends none.
    fn signal(&self, _signals: Vec<Signal>) {}

    /// Passes the signals of the other servers to `hear` until the store is closed.
    fn listen(&self, _hear: Arc<dyn Fn(Heard) + Send + Sync>) {}

    /// Whether one writer applies all batches: each of them waits for every other.
    fn has_one_writer(&self) -> bool {
        false
    }

    /// Flushes and closes; every later call fails with [`StoreError::Closed`].
    async fn close(&self) -> Result<(), StoreError>;
}

/// How many of the workers that are gone are listed with those that are alive.
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
