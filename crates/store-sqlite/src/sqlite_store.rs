//! The store's face: batches go to the writer thread, reads to read connections.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::limit::GateId;
use outlast_core::operation::OperationId;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
use outlast_store::browser_session::{BrowserSession, SessionQuery};
use outlast_store::command::ClassId;
use outlast_store::event::{EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store::idempotency::Fingerprint;
use outlast_store::limit::{GateHolder, GateQuery, GateRecord, LimitRecord};
use outlast_store::operation::{OperationQuery, OperationRecord};
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery,
    OldestClaimable, QueuePause, QueueStats, StoreFacts, UnhandledLetter, WorkerPage, WorkerQuery,
};
use outlast_store::queue::QueueRecord;
use outlast_store::record::{
    AttemptRecord, CancelledAttempt, InFlightJob, JobRecord, WorkerBrief, WorkerRecord,
};
use outlast_store::schedule::{ScheduleQuery, ScheduleRecord};
use outlast_store::tally::{ClassCounts, Counts};
use outlast_store::workflow::{
    DueWorkflows, ItemQuery, ItemRecord, WorkflowCounts, WorkflowItemRun, WorkflowLook,
    WorkflowQuery, WorkflowRecord,
};
use outlast_store::{Applied, Batch, Clock, Store, StoreError};
use outlast_store_rules::apply::claim::scan_budget::ScanBudget;
use outlast_store_rules::migration::SchemaStatus;
use tokio::sync::oneshot;

use crate::clock::{BootClock, persisted_time, wall};
use crate::connection::{Options, half_imported, own};
use crate::error::{OpenError, named};
use crate::look::generation;
use crate::migrate::look;
use crate::read::{self, Readers};
use crate::writer::{self, Request};

/// An embedded store. Clones share it.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: Sender<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
    readers: Readers,
    /// For what the server itself must know.
    background: Readers,
    path: PathBuf,
    durable: bool,
    generation: u64,
}

/// A store that is dropped without being closed has released its file when the drop returns:
/// the next open must not find it in use.
impl Drop for Inner {
    fn drop(&mut self) {
        // The thread ends when the last sender is gone.
        self.requests = std::sync::mpsc::channel().0;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

impl SqliteStore {
    /// Opens the store at `path`, making it if there is none, and takes it for this
    /// process alone.
    ///
    /// # Errors
    /// Returns what is wrong with the file; nothing has changed then.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::open_with_reach(path, options, ScanBudget::STANDARD)
    }

    /// As [`Self::open`], with claims that look less far, so that tests with few jobs come to the end
    /// of a look.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[doc(hidden)]
    pub fn open_with_reach(
        path: &Path,
        options: &Options,
        reach: ScanBudget,
    ) -> Result<Self, OpenError> {
        let owned = own(path, options)?;
        if half_imported(&owned.writer)? {
            return Err(OpenError::HalfImported { path: path.to_owned() });
        }
        writer::event_log::begin_lane(&owned.writer)?;
        let latest = persisted_time(&owned.writer)?;
        let generation = generation(&owned.writer)?;
        let clock: Arc<dyn Clock> = match &options.clock {
            Some(clock) => Arc::clone(clock),
            None => Arc::new(BootClock::starting_at(latest, wall())),
        };
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let (requests, thread) = writer::start(owned, clock, latest, reach).map_err(io)?;
        let readers = Readers::new(path.to_owned(), read::ASKED);
        let background = Readers::new(path.to_owned(), read::BACKGROUND);
        let path = path.to_owned();
        let inner = Inner {
            requests,
            thread: Mutex::new(Some(thread)),
            readers,
            background,
            path,
            durable: !options.unsafe_no_fsync,
            generation,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Brings the schema of the store at `path` up to date, making it if there is none;
    /// returns which migrations ran.
    ///
    /// # Errors
    /// Returns what is wrong with the file, or that a server has it open.
    pub fn migrate(path: &Path) -> Result<Vec<&'static str>, OpenError> {
        own(path, &Options::default()).map(|owned| owned.migrated)
    }

    /// Tells which migrations `migrate` would run, and changes nothing. A server may have the
    /// store open.
    ///
    /// # Errors
    /// Returns what is wrong with the file.
    pub fn schema_status(path: &Path) -> Result<SchemaStatus, OpenError> {
        look(path).map_err(|error| named(error, path))
    }

    /// Returns the file that the store is in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    async fn request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.inner.requests.send(request(reply)).map_err(|_closed| StoreError::Closed)?;
        answer.await.map_err(|_closed| StoreError::Closed)
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.readers.run(query).await
    }

    /// Reads what the server itself must know: no list can be in the way.
    async fn read_in_background<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.inner.background.run(query).await
    }

    /// Returns how many steps of SQLite's machine the reads so far took, so that tests need
    /// no clock.
    #[doc(hidden)]
    #[must_use]
    pub fn read_steps(&self) -> u64 {
        self.inner.readers.steps() + self.inner.background.steps()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn apply(&self, batch: Arc<Batch>) -> Result<Applied, StoreError> {
        self.request(|reply| Request::Apply(batch, reply)).await?
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.request(Request::Now).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        self.read(move |db| read::job::by_id(db, id)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
        self.read(move |db| read::list::jobs(db, &query)).await
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
        self.read(move |db| read::attempt::of_job(db, id)).await
    }

    async fn logs(&self, query: LogQuery) -> Result<LogPage, StoreError> {
        self.read(move |db| read::log::of_job(db, &query)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.read(read::worker::all).await
    }

    async fn workers_page(&self, query: WorkerQuery) -> Result<WorkerPage, StoreError> {
        self.inner.readers.run(move |db| read::worker::page(db, &query)).await
    }

    async fn live_workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        self.read_in_background(read::worker::live).await
    }

    async fn fleet(&self) -> Result<Vec<WorkerBrief>, StoreError> {
        self.read_in_background(read::worker::fleet).await
    }

    async fn workers_named(&self, ids: Vec<WorkerId>) -> Result<Vec<WorkerRecord>, StoreError> {
        self.read_in_background(move |db| read::worker::named(db, &ids)).await
    }

    async fn in_flight_of(&self, worker: WorkerId) -> Result<Vec<InFlightJob>, StoreError> {
        self.read_in_background(move |db| read::worker::in_flight_of(db, worker)).await
    }

    async fn cancelled_of(
        &self,
        workers: Vec<WorkerId>,
    ) -> Result<Vec<CancelledAttempt>, StoreError> {
        self.read_in_background(move |db| read::worker::cancelled_of(db, &workers)).await
    }

    async fn oldest_claimable(
        &self,
        classes: Vec<ClassId>,
    ) -> Result<Vec<OldestClaimable>, StoreError> {
        self.read(move |db| read::queue::oldest_claimable(db, &classes)).await
    }

    async fn backlog(&self) -> Result<Vec<ClassBacklog>, StoreError> {
        self.read_in_background(read::queue::backlog).await
    }

    async fn tally(&self) -> Result<Vec<ClassCounts>, StoreError> {
        self.read_in_background(read::queue::tally).await
    }

    async fn tally_of(&self, classes: Vec<ClassId>) -> Result<Vec<ClassCounts>, StoreError> {
        self.read(move |db| read::queue::tally_of(db, &classes)).await
    }

    async fn standing_orders(&self) -> Result<Vec<StandingOrder>, StoreError> {
        self.read_in_background(read::worker::standing_orders).await
    }

    async fn limits(&self) -> Result<Vec<LimitRecord>, StoreError> {
        self.read_in_background(read::limit::all).await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.read(move |db| read::schedule::page(db, &query)).await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        self.read(move |db| read::schedule::one(db, &name)).await
    }

    async fn due_schedules(
        &self,
        until: Timestamp,
        max: u32,
    ) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.read_in_background(move |db| read::schedule::due(db, until, max)).await
    }

    async fn browser_session(
        &self,
        secret: Fingerprint,
    ) -> Result<Option<BrowserSession>, StoreError> {
        self.read(move |db| read::browser_session::one(db, &secret)).await
    }

    async fn browser_sessions(
        &self,
        query: SessionQuery,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        self.read(move |db| read::browser_session::page(db, &query)).await
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        self.read(move |db| read::operation::page(db, &query)).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
        self.read(move |db| read::operation::one(db, id)).await
    }

    async fn running_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        self.read_in_background(read::operation::running).await
    }

    async fn workflows(&self, query: WorkflowQuery) -> Result<Vec<WorkflowRecord>, StoreError> {
        self.read(move |db| read::workflow::page(db, &query)).await
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRecord>, StoreError> {
        self.read(move |db| read::workflow::one(db, id, false)).await
    }

    async fn unnoted_ends(&self, max: u32) -> Result<Vec<WorkflowItemRun>, StoreError> {
        self.read(move |db| read::workflow::unnoted(db, max)).await
    }

    async fn look_at_workflow(
        &self,
        id: WorkflowId,
        with_definition: bool,
    ) -> Result<WorkflowLook, StoreError> {
        self.read_in_background(move |db| read::workflow::look(db, id, with_definition)).await
    }

    async fn workflow_items(&self, query: ItemQuery) -> Result<Vec<ItemRecord>, StoreError> {
        self.read(move |db| read::workflow::items(db, &query)).await
    }

    async fn due_workflows(&self, query: DueWorkflows) -> Result<Vec<WorkflowId>, StoreError> {
        self.read_in_background(move |db| read::workflow::due(db, query)).await
    }

    async fn workflow_counts(&self) -> Result<WorkflowCounts, StoreError> {
        self.read_in_background(read::workflow::counts).await
    }

    async fn gates(&self, query: GateQuery) -> Result<Vec<GateRecord>, StoreError> {
        self.read(move |db| read::limit::gates(db, &query)).await
    }

    async fn gate_states(&self, gates: Vec<GateId>) -> Result<Vec<GateRecord>, StoreError> {
        self.read(move |db| read::limit::states(db, &gates)).await
    }

    async fn gate_holders(&self, gate: GateId, max: u32) -> Result<Vec<GateHolder>, StoreError> {
        self.read(move |db| read::limit::holders(db, gate, max)).await
    }

    async fn miscounted_gates(
        &self,
        after: Option<GateId>,
        max: u32,
    ) -> Result<Vec<GateId>, StoreError> {
        self.read(move |db| read::limit::miscounted(db, after, max)).await
    }

    async fn queue_settings(&self) -> Result<Vec<QueueRecord>, StoreError> {
        self.read_in_background(|db| read::queue::settings(db, None)).await
    }

    async fn pauses(&self) -> Result<Vec<QueuePause>, StoreError> {
        self.read_in_background(|db| read::queue::pauses(db, None)).await
    }

    async fn claimable(&self, max: u32) -> Result<Vec<Claimable>, StoreError> {
        self.read_in_background(move |db| read::queue::claimable(db, max)).await
    }

    async fn ahead(&self, query: AheadQuery) -> Result<u64, StoreError> {
        self.read(move |db| read::queue::ahead(db, &query)).await
    }

    async fn counts_of(&self, queue: String, tenant: Option<String>) -> Result<Counts, StoreError> {
        self.read(move |db| read::queue::counts(db, &queue, tenant.as_deref())).await
    }

    async fn queue(&self, name: String) -> Result<Option<QueueStats>, StoreError> {
        self.read(move |db| read::queue::one(db, &name)).await
    }

    async fn queues(&self) -> Result<Vec<QueueStats>, StoreError> {
        self.read(read::queue::all).await
    }

    async fn dead_letters(&self, query: JobQuery) -> Result<DeadLetterPage, StoreError> {
        self.read(move |db| read::list::dead_letters(db, &query)).await
    }

    async fn unhandled_letters(&self, max: u32) -> Result<Vec<UnhandledLetter>, StoreError> {
        self.read(move |db| read::job::unhandled_letters(db, max)).await
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, StoreError> {
        self.read(move |db| read::event::page(db, &query)).await
    }

    async fn newest_events(&self, query: NewestQuery) -> Result<NewestPage, StoreError> {
        self.read(move |db| read::event::newest(db, &query)).await
    }

    async fn events_end(&self) -> Result<String, StoreError> {
        self.read(read::event::end).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read_in_background(read::queue::next_due).await
    }

    fn has_one_writer(&self) -> bool {
        true
    }

    fn facts(&self) -> StoreFacts {
        let parent = self.inner.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = parent.unwrap_or_else(|| Path::new(".")).to_owned();
        // SQLite was asked for both when the store was opened, and said so.
        let durability = if self.inner.durable {
            "journal_mode=wal, synchronous=full"
        } else {
            "journal_mode=wal, synchronous=off"
        };
        let Inner { durable, generation, .. } = *self.inner;
        StoreFacts {
            kind: "sqlite",
            folder: Some(folder),
            durability,
            durable,
            generation,
            restored: generation,
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.readers.close();
        self.inner.background.close();
        self.request(Request::Close).await?;
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            return Err(StoreError::Corrupt("the writer thread panicked".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
