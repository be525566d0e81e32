//! The store itself: writers for work, heartbeats and retention; several readers.

mod probes;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::limit::GateId;
use outlast_core::operation::OperationId;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
use outlast_store::arrival::{Arrival, ArrivalNumber, ArrivalState};
use outlast_store::browser_session::{BrowserSession, SessionQuery};
use outlast_store::command::ClassId;
use outlast_store::event::{EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store::idempotency::Fingerprint;
use outlast_store::limit::{GateHolder, GateQuery, GateRecord, LimitRecord};
use outlast_store::operation::{OperationQuery, OperationRecord};
use outlast_store::partitions::{Maintain, Maintained};
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery,
    OldestClaimable, QueuePause, QueueStats, StoreFacts, UnhandledLetter, WorkerPage, WorkerQuery,
};
use outlast_store::queue::QueueRecord;
use outlast_store::record::{
    AttemptRecord, CancelledAttempt, InFlightJob, JobRecord, WorkerBrief, WorkerRecord,
};
use outlast_store::reply::Resolved;
use outlast_store::schedule::{ScheduleQuery, ScheduleRecord};
use outlast_store::signal::{Heard, Signal};
use outlast_store::tally::{ClassCounts, Counts};
use outlast_store::workflow::{
    DueWorkflows, ItemQuery, ItemRecord, WorkflowCounts, WorkflowItemRun, WorkflowLook,
    WorkflowQuery, WorkflowRecord,
};
use outlast_store::{Applied, Batch, BatchId, Clock, Command, Store, StoreError};
use outlast_store_rules::apply::claim::scan_budget::ScanBudget;
use outlast_store_rules::migration::SchemaStatus;
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use crate::connect::{Address, Generation, Options, generation, latest_time};
use crate::error::OpenError;
use crate::floors::look::AllFloors;
use crate::notify::Notifier;
use crate::partitions::{self, Resting};
use crate::read::{self, Readers};
use crate::recovery;
use crate::silence::Silence;
use crate::writer::{STATEMENT_LIMIT, Time, Writer};

/// Jobs in PostgreSQL. Clones share the connections.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// One for work, one for heartbeats, and one for jobs that take unique keys: what one waits for
    /// holds up no batch of the others. Each connects when it is first used.
    writers: [Mutex<Option<Writer>>; 3],
    /// The number under which heartbeats come.
    beats: OnceLock<Uuid>,
    time: Arc<Time>,
    floors: AllFloors,
    /// For what deletes old jobs: as slow as it may be, it holds up nothing.
    pruner: Mutex<Option<Writer>>,
    /// Which partitions of history are not looked at for a while.
    resting: Resting,
    /// One at a time deals with what a new primary lacks.
    recovering: Mutex<()>,
    readers: Readers,
    /// For what the server itself must know.
    background: Readers,
    /// For looks where rows begin.
    lookers: Readers,
    /// For what workflows need to move on.
    workflows: Readers,
    notifier: Notifier,
    silence: Arc<Silence>,
    address: Address,
    place: String,
    durable: bool,
    generation: Generation,
    reach: ScanBudget,
    clock: Option<Arc<dyn Clock>>,
}

impl PostgresStore {
    /// Connects, checks version and durability, and brings the schema up to date.
    ///
    /// # Errors
    /// Returns why the store cannot be used; nothing has changed then.
    pub async fn open(url: &str, options: &Options) -> Result<Self, OpenError> {
        Self::open_with(url, options, ScanBudget::STANDARD, STATEMENT_LIMIT).await
    }

    /// As [`Self::open`], with claims that look less far, so that tests with few jobs come to the end
    /// of a look.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[doc(hidden)]
    pub async fn open_with_reach(
        url: &str,
        options: &Options,
        reach: ScanBudget,
    ) -> Result<Self, OpenError> {
        Self::open_with(url, options, reach, STATEMENT_LIMIT).await
    }

    /// As [`Self::open`], with less time for each statement of a batch, so that tests need not wait.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[doc(hidden)]
    pub async fn open_with_statement_limit(
        url: &str,
        options: &Options,
        limit: Duration,
    ) -> Result<Self, OpenError> {
        Self::open_with(url, options, ScanBudget::STANDARD, limit).await
    }

    async fn open_with(
        url: &str,
        options: &Options,
        reach: ScanBudget,
        statement_limit: Duration,
    ) -> Result<Self, OpenError> {
        let durable = !options.unsafe_no_fsync;
        let address = Address::parse(url, durable)?;
        let opened = address.open().await?;
        Address::refuse_half_imported(&opened.client).await?;
        let generation = generation(&opened.client).await?;
        let address = address.of_generation(generation).with_statement_limit(statement_limit);
        let silence = Arc::new(Silence::new(address.clone()));
        let readers = Readers::new(&address, &silence, read::ASKED);
        let background = Readers::new(&address, &silence, read::BACKGROUND);
        let lookers = Readers::new(&address, &silence, read::LOOKS);
        let workflows = Readers::new(&address, &silence, read::WORKFLOWS);
        let place = address.place();
        let time = Arc::new(Time::new());
        if options.clock.is_none() {
            time.at_least(latest_time(&opened.client).await?);
        }
        let floors = AllFloors::new();
        let writer = || {
            let (address, clock) = (address.clone(), options.clock.clone());
            let (time, silence) = (Arc::clone(&time), Arc::clone(&silence));
            let writer = Writer::new(address, clock, time, silence, reach);
            Mutex::new(Some(writer.sharing(floors.clone())))
        };
        let writers = [writer(), writer(), writer()];
        let pruner = writer();
        let notifier = Notifier::new(floors.clone());
        let clock = options.clock.clone();
        let inner = Inner {
            writers,
            pruner,
            resting: Resting::default(),
            recovering: Mutex::default(),
            beats: OnceLock::new(),
            time,
            floors,
            readers,
            background,
            lookers,
            workflows,
            notifier,
            silence,
            address,
            place,
            durable,
            generation,
            reach,
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Brings the schema of a database up to date; returns which migrations ran.
    ///
    /// # Errors
    /// Returns why the database cannot be used; nothing has changed then.
    pub async fn migrate(url: &str) -> Result<Vec<&'static str>, OpenError> {
        Address::parse(url, false)?.open().await.map(|opened| opened.migrated)
    }

    /// Tells which migrations `migrate` would run, and changes nothing.
    ///
    /// # Errors
    /// Returns why the database cannot be used.
    pub async fn schema_status(url: &str) -> Result<SchemaStatus, OpenError> {
        Address::parse(url, false)?.look().await
    }

    /// Returns host and port of the PostgreSQL server.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.inner.place
    }

    /// Returns the writer of a batch. The heartbeats of a server are numbered by themselves, and
    /// have a writer that nothing else uses: they wait for no work.
    async fn writer(&self, batch: &Batch) -> MutexGuard<'_, Option<Writer>> {
        let beats = &self.inner.beats;
        if matches!(batch.commands.first(), Some(Command::Renew(_))) {
            beats.get_or_init(|| batch.id.server);
        }
        let [work, beat, unique] = &self.inner.writers;
        let writer = match batch.commands.first() {
            _ if beats.get() == Some(&batch.id.server) => beat,
            Some(command) if command.takes_keys() => unique,
            Some(_) | None => work,
        };
        writer.lock().await
    }

    /// Deals with what a new primary lacks, if that was found.
    async fn deal_with_loss(&self) -> Result<(), StoreError> {
        let Inner { address, clock, time, silence, reach, recovering, .. } = &*self.inner;
        let Some(lineage) = address.lineage() else { return Ok(()) };
        if !lineage.has_loss() {
            return Ok(());
        }
        let _turn = recovering.lock().await;
        let Some(loss) = lineage.loss() else { return Ok(()) };
        let new = || {
            let (time, silence) = (Arc::clone(time), Arc::clone(silence));
            Writer::new(address.recovering(), clock.clone(), time, silence, *reach)
        };
        recovery::recover(address, lineage, &loss, new()).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn apply(&self, batch: Arc<Batch>) -> Result<Applied, StoreError> {
        self.deal_with_loss().await?;
        let mut writer = match batch.commands.first() {
            Some(Command::Prune(_)) => self.inner.pruner.lock().await,
            _ => self.writer(&batch).await,
        };
        let applied = writer.as_mut().ok_or(StoreError::Closed)?.apply(&batch).await;
        drop(writer);
        if let (Ok(applied), Some(lineage)) = (&applied, self.inner.address.lineage()) {
            lineage.applied(&batch, applied);
        }
        if batch.commands.iter().any(|command| matches!(command, Command::Reset)) {
            self.inner.floors.forget();
        }
        self.inner.floors.keep(&self.inner.lookers);
        applied
    }

    async fn resolve(&self, id: BatchId) -> Result<Resolved, StoreError> {
        self.deal_with_loss().await?;
        // Each server number has one writer, and only that one knows the batch. Heartbeats wait for
        // no other writer.
        let [_, beat, _] = &self.inner.writers;
        let all = self.inner.writers.iter().chain([&self.inner.pruner]);
        let writers: Vec<_> = match self.inner.beats.get() {
            Some(server) if *server == id.server => vec![beat],
            Some(_) | None => all.collect(),
        };
        for writer in writers {
            let mut writer = writer.lock().await;
            let resolved = writer.as_mut().ok_or(StoreError::Closed)?.resolve(id).await?;
            if let (Resolved::Applied(_), Some(lineage)) = (&resolved, self.inner.address.lineage())
            {
                lineage.resolved(id);
            }
            if resolved != Resolved::Unknown {
                return Ok(resolved);
            }
        }
        Ok(Resolved::Unknown)
    }

    fn beats_come_from(&self, server: Uuid) {
        // The first is right: a store serves one server.
        let _ = self.inner.beats.set(server);
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        // A request for the time waits for no batch, and no batch waits for it.
        let reader = self.inner.background.get().await?;
        let now = match &self.inner.clock {
            Some(clock) => clock.now(),
            None => read::now(&reader).await?,
        };
        Ok(self.inner.time.at_least(now))
    }

    async fn maintain(
        &self,
        order: Maintain,
    ) -> Result<Result<Maintained, LeadershipRefusal>, StoreError> {
        // A store that is closed opens no connection.
        drop(self.inner.readers.get().await?);
        let Inner { silence, clock, resting, .. } = &*self.inner;
        partitions::maintain(silence, clock.as_ref(), &order, resting).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        read::job::by_id(&self.inner.readers.get().await?, id).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
        read::list::jobs(&self.inner.readers.get().await?, &query).await
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
        read::attempt::of_job(&self.inner.readers.get().await?, id).await
    }

    async fn logs(&self, query: LogQuery) -> Result<LogPage, StoreError> {
        read::log::of_job(&self.inner.readers.get().await?, &query).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        read::worker::all(&self.inner.readers.get().await?).await
    }

    async fn workers_page(&self, query: WorkerQuery) -> Result<WorkerPage, StoreError> {
        read::worker::page(&self.inner.readers.get().await?, &query).await
    }

    async fn live_workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let Inner { background, floors, .. } = &*self.inner;
        read::worker::live(&background.get().await?, &floors.holders).await
    }

    async fn fleet(&self) -> Result<Vec<WorkerBrief>, StoreError> {
        let Inner { background, floors, .. } = &*self.inner;
        read::worker::fleet(&background.get().await?, &floors.holders).await
    }

    async fn workers_named(&self, ids: Vec<WorkerId>) -> Result<Vec<WorkerRecord>, StoreError> {
        read::worker::named(&self.inner.background.get().await?, &ids).await
    }

    async fn in_flight_of(&self, worker: WorkerId) -> Result<Vec<InFlightJob>, StoreError> {
        read::worker::in_flight_of(&self.inner.background.get().await?, worker).await
    }

    async fn cancelled_of(
        &self,
        workers: Vec<WorkerId>,
    ) -> Result<Vec<CancelledAttempt>, StoreError> {
        read::worker::cancelled_of(&self.inner.background.get().await?, &workers).await
    }

    async fn oldest_claimable(
        &self,
        classes: Vec<ClassId>,
    ) -> Result<Vec<OldestClaimable>, StoreError> {
        read::queue::oldest_claimable(&self.inner.readers.get().await?, &classes).await
    }

    async fn backlog(&self) -> Result<Vec<ClassBacklog>, StoreError> {
        read::queue::backlog(&self.inner.background.get().await?).await
    }

    async fn tally(&self) -> Result<Vec<ClassCounts>, StoreError> {
        read::queue::tally(&self.inner.background.get().await?).await
    }

    async fn tally_of(&self, classes: Vec<ClassId>) -> Result<Vec<ClassCounts>, StoreError> {
        read::queue::tally_of(&self.inner.readers.get().await?, &classes).await
    }

    async fn counts_of(&self, queue: String, tenant: Option<String>) -> Result<Counts, StoreError> {
        read::queue::counts(&self.inner.readers.get().await?, &queue, tenant.as_deref()).await
    }

    async fn standing_orders(&self) -> Result<Vec<StandingOrder>, StoreError> {
        read::worker::standing_orders(&self.inner.background.get().await?).await
    }

    async fn limits(&self) -> Result<Vec<LimitRecord>, StoreError> {
        read::limit::all(&self.inner.background.get().await?).await
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<ScheduleRecord>, StoreError> {
        read::schedule::page(&self.inner.readers.get().await?, &query).await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        read::schedule::one(&self.inner.readers.get().await?, &name).await
    }

    async fn due_schedules(
        &self,
        until: Timestamp,
        max: u32,
    ) -> Result<Vec<ScheduleRecord>, StoreError> {
        read::schedule::due(&self.inner.background.get().await?, until, max).await
    }

    async fn browser_session(
        &self,
        secret: Fingerprint,
    ) -> Result<Option<BrowserSession>, StoreError> {
        read::browser_session::one(&self.inner.readers.get().await?, &secret).await
    }

    async fn browser_sessions(
        &self,
        query: SessionQuery,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        read::browser_session::page(&self.inner.readers.get().await?, &query).await
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        read::operation::page(&self.inner.readers.get().await?, &query).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
        read::operation::one(&self.inner.readers.get().await?, id).await
    }

    async fn running_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        read::operation::running(&self.inner.background.get().await?).await
    }

    async fn workflows(&self, query: WorkflowQuery) -> Result<Vec<WorkflowRecord>, StoreError> {
        read::workflow::page(&self.inner.readers.get().await?, &query).await
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRecord>, StoreError> {
        read::workflow::one(&self.inner.readers.get().await?, id).await
    }

    async fn unnoted_ends(&self, max: u32) -> Result<Vec<WorkflowItemRun>, StoreError> {
        read::workflow::unnoted(&self.inner.readers.get().await?, max).await
    }

    async fn look_at_workflow(
        &self,
        id: WorkflowId,
        with_definition: bool,
    ) -> Result<WorkflowLook, StoreError> {
        read::workflow::look(&self.inner.workflows.get().await?, id, with_definition).await
    }

    async fn workflow_items(&self, query: ItemQuery) -> Result<Vec<ItemRecord>, StoreError> {
        read::workflow::items(&self.inner.workflows.get().await?, &query).await
    }

    async fn due_workflows(&self, query: DueWorkflows) -> Result<Vec<WorkflowId>, StoreError> {
        read::workflow::due(&self.inner.background.get().await?, query).await
    }

    async fn workflow_counts(&self) -> Result<WorkflowCounts, StoreError> {
        read::workflow::counts(&self.inner.background.get().await?).await
    }

    async fn gates(&self, query: GateQuery) -> Result<Vec<GateRecord>, StoreError> {
        read::limit::gates(&self.inner.readers.get().await?, &query).await
    }

    async fn gate_states(&self, gates: Vec<GateId>) -> Result<Vec<GateRecord>, StoreError> {
        read::limit::states(&self.inner.readers.get().await?, &gates).await
    }

    async fn gate_holders(&self, gate: GateId, max: u32) -> Result<Vec<GateHolder>, StoreError> {
        read::limit::holders(&self.inner.readers.get().await?, gate, max).await
    }

    async fn miscounted_gates(
        &self,
        after: Option<GateId>,
        max: u32,
    ) -> Result<Vec<GateId>, StoreError> {
        read::limit::miscounted(&self.inner.readers.get().await?, after, max).await
    }

    async fn queue_settings(&self) -> Result<Vec<QueueRecord>, StoreError> {
        read::queue::settings(&self.inner.background.get().await?).await
    }

    async fn pauses(&self) -> Result<Vec<QueuePause>, StoreError> {
        read::queue::pauses(&self.inner.background.get().await?).await
    }

    async fn claimable(&self, max: u32) -> Result<Vec<Claimable>, StoreError> {
        let Inner { background, floors, lookers, .. } = &*self.inner;
        let classes = read::queue::claimable(&background.get().await?, &floors.ready, max).await;
        floors.keep(lookers);
        classes
    }

    async fn ahead(&self, query: AheadQuery) -> Result<u64, StoreError> {
        read::queue::ahead(&self.inner.readers.get().await?, &query).await
    }

    async fn queue(&self, name: String) -> Result<Option<QueueStats>, StoreError> {
        read::queue::one(&self.inner.readers.get().await?, &name).await
    }

    async fn queues(&self) -> Result<Vec<QueueStats>, StoreError> {
        read::queue::all(&self.inner.readers.get().await?).await
    }

    async fn dead_letters(&self, query: JobQuery) -> Result<DeadLetterPage, StoreError> {
        read::list::dead_letters(&self.inner.readers.get().await?, &query).await
    }

    async fn unhandled_letters(&self, max: u32) -> Result<Vec<UnhandledLetter>, StoreError> {
        read::job::unhandled_letters(&self.inner.readers.get().await?, max).await
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, StoreError> {
        read::event::page(&self.inner.readers.get().await?, &query).await
    }

    async fn newest_events(&self, query: NewestQuery) -> Result<NewestPage, StoreError> {
        read::event::newest(&self.inner.readers.get().await?, &query).await
    }

    async fn events_end(&self) -> Result<String, StoreError> {
        read::event::end(&self.inner.readers.get().await?).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let Inner { background, floors, .. } = &*self.inner;
        read::queue::next_due(&background.get().await?, &floors.sweeps).await
    }

    async fn arrivals(
        &self,
        after: Option<ArrivalNumber>,
        limit: u32,
    ) -> Result<Vec<Arrival>, StoreError> {
        let Inner { background, floors, .. } = &*self.inner;
        read::arrival::page(&background.get().await?, &floors.arrivals, after, limit).await
    }

    async fn arrival(&self, id: JobId) -> Result<ArrivalState, StoreError> {
        read::arrival::by_id(&self.inner.readers.get().await?, id).await
    }

    fn facts(&self) -> StoreFacts {
        let durable = self.inner.durable;
        let durability =
            if durable { "fsync=on, synchronous_commit=on" } else { "synchronous_commit=off" };
        let Generation { number: generation, restored } = self.inner.generation;
        StoreFacts { kind: "postgres", folder: None, durability, durable, generation, restored }
    }

    fn signal(&self, signals: Vec<Signal>) {
        self.inner.notifier.send(signals);
    }

    fn listen(&self, hear: Arc<dyn Fn(Heard) + Send + Sync>) {
        let silence = self.inner.silence.watch();
        self.inner.notifier.run(self.inner.address.clone(), silence, hear);
    }

    async fn close(&self) -> Result<(), StoreError> {
        let Inner { notifier, readers, background, lookers, workflows, .. } = &*self.inner;
        notifier.close();
        [readers, background, lookers, workflows].iter().for_each(|all| all.close());
        for writer in self.inner.writers.iter().chain([&self.inner.pruner]) {
            if let Some(mut writer) = writer.lock().await.take() {
                writer.close();
            }
        }
        Ok(())
    }
}
