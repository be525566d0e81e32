//! The whole contract over maps, per job, with the core's `decide`.
//!
//! It is the meaning of every command in the plainest form, a test double for the server,
//! and the store of the simulation. It keeps nothing on a disk and must not be clever:
//! what a database does set-wise, it does job by job.
//!
//! ```text
//! batch ─▶ one lock ─▶ command by command: read rows ─▶ settle + decide ─▶ write rows, events
//! ```

mod browser_session;
mod claim;
mod enqueue;
mod extend;
mod failover;
mod follow;
mod idempotency;
mod leadership;
mod limit;
mod log;
mod operation;
mod order;
mod prune;
mod read;
mod report;
mod schedule;
mod sweep;
mod tables;
mod tx;
mod unique;
mod worker;
mod workflow;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use outlast_core::budget::Budgets;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::limit::GateId;
use outlast_core::operation::OperationId;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
use outlast_store::arrival::EnqueuedArrived;
use outlast_store::browser_session::{BrowserSession, SessionQuery};
use outlast_store::command::{Batch, BatchId, ClassId, Command};
use outlast_store::error::StoreError;
use outlast_store::event::{EventName, EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store::idempotency::Fingerprint;
use outlast_store::limit::{GateHolder, GateQuery, GateRecord, LimitRecord};
use outlast_store::operation::{OperationQuery, OperationRecord};
use outlast_store::partitions::{Maintain, Maintained};
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery,
    OldestClaimable, QueuePause, QueueStats, UnhandledLetter, WorkerPage, WorkerQuery,
};
use outlast_store::queue::QueueRecord;
use outlast_store::record::{
    AttemptRecord, CancelledAttempt, InFlightJob, JobRecord, WorkerBrief, WorkerRecord,
};
use outlast_store::reply::{Applied, Reply, Resolved};
use outlast_store::schedule::{ScheduleQuery, ScheduleRecord};
use outlast_store::store::{Clock, Store};
use outlast_store::tally::{ClassCounts, Counts};
use outlast_store::workflow::{
    DueWorkflows, ItemQuery, ItemRecord, WorkflowCounts, WorkflowItemRun, WorkflowLook,
    WorkflowQuery, WorkflowRecord,
};

use tables::Tables;
use tx::Tx;

/// A store in memory. Clones share what is stored.
#[derive(Clone, Debug)]
pub struct ModelStore {
    tables: Arc<Mutex<Tables>>,
    clock: Arc<dyn Clock>,
    closed: Arc<AtomicBool>,
    failing: Option<Failing>,
    /// The effects of batches whose callers got no answer.
    unanswered: Arc<Mutex<HashMap<BatchId, Applied>>>,
    maintains_forever: bool,
    reads_of_workers: Arc<AtomicUsize>,
    lists_of_queues: Arc<AtomicUsize>,
    reads_of_sessions: Arc<AtomicUsize>,
}

/// Which batches fail, and how.
#[derive(Clone)]
struct Failing(Arc<Fault>);

/// Says how a batch fails, if it does.
type Fault = dyn Fn(&Batch) -> Option<StoreError> + Send + Sync;

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failing")
    }
}

impl ModelStore {
    /// Returns an empty store that reads `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            tables: Arc::default(),
            clock,
            closed: Arc::default(),
            failing: None,
            unanswered: Arc::default(),
            maintains_forever: false,
            reads_of_workers: Arc::default(),
            lists_of_queues: Arc::default(),
            reads_of_sessions: Arc::default(),
        }
    }

    /// Returns a store over what this one holds of which the batches fail that `fault` says:
    /// nothing of them is stored, unless it says [`StoreError::Ambiguous`].
    #[must_use]
    pub fn failing(
        self,
        fault: impl Fn(&Batch) -> Option<StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self { failing: Some(Failing(Arc::new(fault))), ..self }
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<BatchId, Applied>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a store over what this one holds of which a look after its history never ends.
    #[must_use]
    pub fn maintaining_forever(self) -> Self {
        Self { maintains_forever: true, ..self }
    }

    /// Returns a store over what this one holds, as after a crash or a close: every batch
    /// that was answered is there.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self { closed: Arc::default(), ..self.clone() }
    }

    /// Makes every gate count `by` attempts more, which no command ever does.
    ///
    /// # Errors
    /// Returns [`StoreError::Closed`] after a close.
    pub fn miscount(&self, by: i32) -> Result<(), StoreError> {
        for row in self.open()?.gates.values_mut() {
            row.record.in_flight = row.record.in_flight.saturating_add_signed(by.into());
        }
        Ok(())
    }

    /// Makes every event of this name one that this build does not know, and that no read returns.
    ///
    /// # Errors
    /// Returns [`StoreError::Closed`] after a close.
    pub fn misname(&self, name: EventName) -> Result<(), StoreError> {
        for batch in self.open()?.events.values_mut().flat_map(|lane| lane.values_mut()) {
            batch.retain(|event| event.kind != name);
        }
        Ok(())
    }

    /// Returns how often this store or a clone was asked about workers that were named.
    #[must_use]
    pub fn reads_of_workers(&self) -> usize {
        self.reads_of_workers.load(Ordering::SeqCst)
    }

    /// Returns how often this store or a clone was asked for all queues.
    #[must_use]
    pub fn lists_of_queues(&self) -> usize {
        self.lists_of_queues.load(Ordering::SeqCst)
    }

    /// Returns how often this store or a clone was asked for the session of a browser.
    #[must_use]
    pub fn reads_of_sessions(&self) -> usize {
        self.reads_of_sessions.load(Ordering::SeqCst)
    }

    fn open(&self) -> Result<MutexGuard<'_, Tables>, StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        Ok(self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns who leads a task, or led it last.
    ///
    /// # Errors
    /// Returns [`StoreError::Closed`] after a close.
    pub fn leadership(&self, name: &str) -> Result<Option<Leadership>, StoreError> {
        Ok(self.open()?.leaders.get(name).copied())
    }

    /// Applies a batch at once; what [`Store::apply`] does.
    ///
    /// # Errors
    /// Returns [`StoreError::Closed`] after a close.
    pub fn apply_now(&self, batch: &Batch) -> Result<Applied, StoreError> {
        let mut tables = self.open()?;
        let at = tables.tick(self.clock.now());
        tables.left.clear();
        let mut tx = Tx::new(&mut tables, batch, at);
        let replies = batch
            .commands
            .iter()
            .enumerate()
            .map(|(n, command)| {
                tx.begin(n);
                answer(&mut tx, command)
            })
            .collect();
        Ok(tx.commit(batch.id, replies))
    }
}

fn answer(tx: &mut Tx<'_>, command: &Command) -> Reply {
    match command {
        Command::Enqueue(job) => Reply::Enqueued(tx.enqueue(job)),
        Command::EnqueueAll(jobs) => Reply::EnqueuedAll(tx.enqueue_all(jobs)),
        Command::EnqueueOnce(once) => Reply::EnqueuedOnce(tx.enqueue_once(once)),
        Command::EnqueueArrived(order) => Reply::EnqueuedArrived(EnqueuedArrived::all_gone(order)),
        Command::Claim(claim) => Reply::Claimed(tx.claim(claim)),
        Command::Start(start) => Reply::Moved(tx.start(start)),
        Command::Adopt(adopt) => Reply::Moved(tx.adopt(adopt)),
        Command::NoteLoss(note) => {
            tx.note_loss(note);
            Reply::Done
        }
        Command::NoteSkew(note) => {
            tx.note_skew(note);
            Reply::Done
        }
        Command::Finish(finish) => Reply::Moved(tx.finish(finish)),
        Command::Extend(extend) => Reply::Extended(tx.extend(extend)),
        Command::Renew(renew) => Reply::Renewed(tx.renew(renew)),
        Command::Register(registration) => Reply::Registered(tx.register(registration)),
        Command::Attach(attach) => Reply::Attached(tx.attach(attach)),
        Command::Worker(order) => Reply::WorkerMoved(tx.move_worker(order)),
        Command::Lapse(lapse) => Reply::WorkerMoved(tx.lapse(lapse)),
        Command::ReportHealth(said) => {
            tx.report_health(said);
            Reply::Done
        }
        Command::OrderWorkers(order) => Reply::WorkersOrdered(tx.order_workers(order)),
        Command::Order(order) => Reply::Moved(tx.order(order)),
        Command::ForgetDeadLetter(order) => Reply::Forgotten(tx.forget_dead_letter(order)),
        Command::HandleLetters(handled) => {
            tx.handle_letters(handled);
            Reply::Done
        }
        Command::SetLimit(order) => Reply::LimitChanged(tx.set_limit(order)),
        Command::RemoveLimit(order) => Reply::LimitChanged(tx.remove_limit(order)),
        Command::Recount(order) => Reply::Recounted(tx.recount(order)),
        Command::WriteSchedule(write) => Reply::ScheduleWritten(tx.write_schedule(write)),
        Command::WriteWorkflow(write) => Reply::WorkflowWritten(tx.write_workflow(write)),
        Command::WriteOperation(write) => Reply::OperationWritten(tx.write_operation(write)),
        Command::SetQueue(order) => Reply::QueueSet(tx.set_queue(order)),
        Command::Sweep(sweep) => Reply::Swept(tx.sweep(sweep)),
        Command::Strand(strand) => Reply::Stranded(tx.strand(strand)),
        Command::Queue(order) => {
            tx.queue(order);
            Reply::Done
        }
        Command::Log(chunk) => {
            tx.log(chunk);
            Reply::Done
        }
        Command::Progress(progress) => Reply::Moved(tx.progress(progress)),
        Command::ForgetWorker(order) => Reply::Forgotten(tx.forget_worker(order)),
        Command::BeginSession(order) => Reply::SessionBegun(tx.begin_session(order)),
        Command::RenewSession(order) => {
            tx.renew_session(*order);
            Reply::Done
        }
        Command::EndSessions(order) => {
            Reply::SessionsEnded(tx.end_sessions(&order.which, &order.by))
        }
        Command::Leadership(ask) => Reply::Leadership(tx.leadership(ask)),
        Command::Prune(prune) => Reply::Pruned(tx.prune(prune)),
        Command::Reset => {
            tx.reset();
            Reply::Done
        }
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn apply(&self, batch: Arc<Batch>) -> Result<Applied, StoreError> {
        if let Some(error) = self.failing.as_ref().and_then(|Failing(fault)| fault(&batch)) {
            if matches!(error, StoreError::Ambiguous(_)) {
                let applied = self.apply_now(&batch)?;
                self.unanswered().insert(batch.id, applied);
            }
            return Err(error);
        }
        self.apply_now(&batch)
    }

    async fn resolve(&self, id: BatchId) -> Result<Resolved, StoreError> {
        let nothing = Batch { id, jitter_seed: 0, budgets: Budgets::DEFAULT, commands: Vec::new() };
        match self.failing.as_ref().and_then(|Failing(fault)| fault(&nothing)) {
            Some(error) => Err(error),
            None => Ok(self.unanswered().remove(&id).map_or(Resolved::Unknown, Resolved::Applied)),
        }
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<ScheduleRecord>, StoreError> {
        Ok(self.open()?.schedules_of(&query))
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleRecord>, StoreError> {
        Ok(self.open()?.schedules.get(&name).cloned())
    }

    async fn due_schedules(
        &self,
        until: Timestamp,
        max: u32,
    ) -> Result<Vec<ScheduleRecord>, StoreError> {
        Ok(self.open()?.due_schedules(until, max))
    }

    async fn browser_session(
        &self,
        secret: Fingerprint,
    ) -> Result<Option<BrowserSession>, StoreError> {
        self.reads_of_sessions.fetch_add(1, Ordering::SeqCst);
        Ok(self.open()?.session_of(&secret))
    }

    async fn browser_sessions(
        &self,
        query: SessionQuery,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        Ok(self.open()?.sessions_of(&query))
    }

    async fn operations(&self, query: OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        Ok(self.open()?.operations_of(&query))
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
        Ok(self.open()?.operations.get(&id).cloned())
    }

    async fn running_operations(&self) -> Result<Vec<OperationRecord>, StoreError> {
        Ok(self.open()?.running_operations())
    }

    async fn workflows(&self, query: WorkflowQuery) -> Result<Vec<WorkflowRecord>, StoreError> {
        Ok(self.open()?.workflows_of(&query))
    }

    async fn workflow(&self, id: WorkflowId) -> Result<Option<WorkflowRecord>, StoreError> {
        Ok(self.open()?.workflow(id))
    }

    async fn unnoted_ends(&self, max: u32) -> Result<Vec<WorkflowItemRun>, StoreError> {
        Ok(self.open()?.unnoted_ends(max))
    }

    async fn look_at_workflow(
        &self,
        id: WorkflowId,
        with_definition: bool,
    ) -> Result<WorkflowLook, StoreError> {
        Ok(self.open()?.look_at_workflow(id, with_definition))
    }

    async fn workflow_items(&self, query: ItemQuery) -> Result<Vec<ItemRecord>, StoreError> {
        Ok(self.open()?.items_of(&query))
    }

    async fn due_workflows(&self, query: DueWorkflows) -> Result<Vec<WorkflowId>, StoreError> {
        Ok(self.open()?.due_workflows(query))
    }

    async fn workflow_counts(&self) -> Result<WorkflowCounts, StoreError> {
        Ok(self.open()?.workflow_counts())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.open()?.tick(self.clock.now()))
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        Ok(self.open()?.job(id))
    }

    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
        self.open()?.jobs(&query)
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
        Ok(self.open()?.attempts(id))
    }

    async fn logs(&self, query: LogQuery) -> Result<LogPage, StoreError> {
        Ok(self.open()?.logs(&query))
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        Ok(self.open()?.workers())
    }

    async fn workers_page(&self, query: WorkerQuery) -> Result<WorkerPage, StoreError> {
        self.open()?.workers_page(&query)
    }

    async fn live_workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        Ok(self.open()?.live_workers())
    }

    async fn fleet(&self) -> Result<Vec<WorkerBrief>, StoreError> {
        Ok(self.open()?.fleet())
    }

    async fn workers_named(&self, ids: Vec<WorkerId>) -> Result<Vec<WorkerRecord>, StoreError> {
        self.reads_of_workers.fetch_add(1, Ordering::SeqCst);
        let mut workers = self.open()?.workers();
        workers.retain(|worker| ids.contains(&worker.id));
        Ok(workers)
    }

    async fn in_flight_of(&self, worker: WorkerId) -> Result<Vec<InFlightJob>, StoreError> {
        self.reads_of_workers.fetch_add(1, Ordering::SeqCst);
        Ok(self.open()?.in_flight_of(worker))
    }

    async fn cancelled_of(
        &self,
        workers: Vec<WorkerId>,
    ) -> Result<Vec<CancelledAttempt>, StoreError> {
        self.reads_of_workers.fetch_add(1, Ordering::SeqCst);
        let tables = self.open()?;
        let of = |worker: WorkerId| {
            let held = tables.in_flight_of(worker).into_iter().filter(|attempt| attempt.cancelled);
            held.map(move |held| CancelledAttempt { worker, job: held.job, epoch: held.epoch })
        };
        Ok(workers.into_iter().flat_map(of).collect())
    }

    async fn oldest_claimable(
        &self,
        classes: Vec<ClassId>,
    ) -> Result<Vec<OldestClaimable>, StoreError> {
        let tables = self.open()?;
        Ok(classes.into_iter().filter_map(|class| tables.oldest_claimable(class)).collect())
    }

    async fn backlog(&self) -> Result<Vec<ClassBacklog>, StoreError> {
        Ok(self.open()?.backlog())
    }

    async fn tally(&self) -> Result<Vec<ClassCounts>, StoreError> {
        Ok(self.open()?.tally())
    }

    async fn standing_orders(&self) -> Result<Vec<StandingOrder>, StoreError> {
        Ok(self.open()?.orders.values().cloned().collect())
    }

    async fn tally_of(&self, classes: Vec<ClassId>) -> Result<Vec<ClassCounts>, StoreError> {
        let mut all = self.open()?.tally();
        all.retain(|class| classes.contains(&class.id));
        Ok(all)
    }

    async fn limits(&self) -> Result<Vec<LimitRecord>, StoreError> {
        Ok(self.open()?.limits.values().cloned().collect())
    }

    async fn gates(&self, query: GateQuery) -> Result<Vec<GateRecord>, StoreError> {
        Ok(self.open()?.gates_of(&query))
    }

    async fn gate_states(&self, gates: Vec<GateId>) -> Result<Vec<GateRecord>, StoreError> {
        let tables = self.open()?;
        Ok(gates.iter().filter_map(|id| Some(tables.gates.get(id)?.record.clone())).collect())
    }

    async fn miscounted_gates(
        &self,
        after: Option<GateId>,
        max: u32,
    ) -> Result<Vec<GateId>, StoreError> {
        let tables = self.open()?;
        let gates = tables.gates.keys().filter(|gate| after.is_none_or(|after| **gate > after));
        let wrong = tables.miscounts(gates).map(|miscount| miscount.gate);
        Ok(wrong.take(usize::try_from(max).unwrap_or(usize::MAX)).collect())
    }

    async fn gate_holders(&self, gate: GateId, max: u32) -> Result<Vec<GateHolder>, StoreError> {
        Ok(self.open()?.gate_holders(gate, max))
    }

    async fn queue_settings(&self) -> Result<Vec<QueueRecord>, StoreError> {
        Ok(self.open()?.settings.values().cloned().collect())
    }

    async fn pauses(&self) -> Result<Vec<QueuePause>, StoreError> {
        Ok(self.open()?.pauses())
    }

    async fn claimable(&self, max: u32) -> Result<Vec<Claimable>, StoreError> {
        Ok(self.open()?.claimable(max))
    }

    async fn ahead(&self, query: AheadQuery) -> Result<u64, StoreError> {
        Ok(self.open()?.ahead(&query))
    }

    async fn counts_of(&self, queue: String, tenant: Option<String>) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        for class in self.open()?.tally() {
            let is_theirs = tenant.is_none() || class.key.tenant == tenant;
            if class.key.queue == queue && is_theirs {
                counts.add(&class.counts);
            }
        }
        Ok(counts)
    }

    async fn queue(&self, name: String) -> Result<Option<QueueStats>, StoreError> {
        Ok(self.open()?.queues().into_iter().find(|queue| queue.name == name))
    }

    async fn queues(&self) -> Result<Vec<QueueStats>, StoreError> {
        self.lists_of_queues.fetch_add(1, Ordering::SeqCst);
        Ok(self.open()?.queues())
    }

    async fn dead_letters(&self, query: JobQuery) -> Result<DeadLetterPage, StoreError> {
        self.open()?.dead_letters(&query)
    }

    async fn unhandled_letters(&self, max: u32) -> Result<Vec<UnhandledLetter>, StoreError> {
        Ok(self.open()?.unhandled_letters(max))
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, StoreError> {
        self.open()?.events(&query)
    }

    async fn newest_events(&self, query: NewestQuery) -> Result<NewestPage, StoreError> {
        self.open()?.newest_events(&query)
    }

    async fn events_end(&self) -> Result<String, StoreError> {
        Ok(self.open()?.events_end())
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.open()?.next_due())
    }

    async fn maintain(
        &self,
        _order: Maintain,
    ) -> Result<Result<Maintained, LeadershipRefusal>, StoreError> {
        if self.maintains_forever {
            std::future::pending::<()>().await;
        }
        Ok(Ok(Maintained::default()))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }
}
