//! Running commands on a database: load, decide, write, in the same order for every one.
//!
//! ```text
//! execute_all ─▶ one function for each command ─▶ Backend: find and lock rows
//!                                              ─▶ apply: decide
//!                                              ─▶ Backend: write rows
//! ```
//!
//! A backend finds rows, locks them and writes them. It decides nothing. Claims and extensions
//! are set-based SQL, so each backend has its own; what they decide is in [`crate::apply`].
//!
//! - [`enqueue`], [`unique`], [`report`], [`order`], [`limit`], [`queue`], [`schedule`], [`sweep`],
//!   [`worker`], [`workflow`], [`operation`], [`browser_session`], [`leadership`], [`failover`]: the
//!   commands

pub mod browser_session;
pub mod enqueue;
pub mod failover;
pub mod leadership;
pub mod limit;
pub mod operation;
pub mod order;
pub mod queue;
pub mod report;
pub mod schedule;
pub mod standing;
pub mod sweep;
pub mod unique;
pub mod worker;
pub mod workflow;

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{self, Poll, Waker};

use outlast_core::evidence::Evidence;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::DeadLetterReason;
use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::limit::{GateId, LimitName};
use outlast_core::queue::Depth;
use outlast_core::selector::Selector;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Standing;
use outlast_core::worker::order::{GivenOrder, StandingOrder};
use outlast_store::StoreError;
use outlast_store::arrival::{EnqueueArrived, EnqueuedArrived};
use outlast_store::command::{
    ClassId, Command, LeadershipRequest, LetterKey, LogChunk, NewJob, Prune, QueueOrder,
    Registration, SetLimit, Strand, Sweep,
};
use outlast_store::idempotency::{EnqueueOnce, Fingerprint};
use outlast_store::limit::{LimitRecord, Miscount};
use outlast_store::queue::QueueRecord;
use outlast_store::reply::{EnqueueRefusal, Enqueued, MoveRefusal, Moved, Pruned, Reply};
use outlast_store::unique::KeyHolder;

use crate::apply::batch::BatchState;
use crate::apply::claim::lane::LaneGate;
use crate::apply::limit::Limits;
use crate::apply::loaded::{KnownWorker, Loaded};
use crate::apply::step::{Step, needs_class, step};
use crate::apply::sweep::Due;
use crate::apply::{Decided, Outbox};
use crate::rules::Context;
pub use browser_session::SessionTables;
pub use operation::OperationTables;
pub use schedule::ScheduleTables;
use unique::Free;
pub use workflow::WorkflowTables;

/// A batch in progress: an open transaction, and what has been read in it.
///
/// Methods that only write need not do so at once. A backend may collect rows and write them
/// before it reads next, or before it commits.
pub trait Transaction {
    /// What ends the batch.
    type Error: From<StoreError>;

    /// Returns what the batch has done so far.
    fn batch(&mut self) -> &mut BatchState;

    /// Returns what a decision depends on beside the rows.
    fn context(&mut self) -> Context {
        self.batch().context
    }

    /// Returns the events and counts of the batch.
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.batch().outbox
    }
}

/// Jobs in the tables of a batch.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait JobTables: Transaction {
    /// Loads and locks a job.
    async fn find(&mut self, id: JobId) -> Result<Option<Loaded>, Self::Error>;

    /// Loads and locks a job, unless another transaction has locked it.
    async fn find_free(&mut self, id: JobId) -> Result<Free, Self::Error>;

    /// Drops whatever is cached of a job that is about to move.
    fn forget(&mut self, loaded: &Loaded) {
        let _ = loaded;
    }

    /// Returns the class with the same routing that runs alone, or the one that does not.
    async fn twin(&mut self, class: ClassId, isolated: bool) -> Result<ClassId, Self::Error>;

    /// Writes what a move of a job changes.
    fn write_step(&mut self, loaded: &Loaded, rows: &Step<'_>) -> Result<(), Self::Error>;

    /// Stores a job; `None` if its id is taken.
    async fn insert(&mut self, job: &NewJob) -> Result<Option<Enqueued>, Self::Error>;

    /// Returns whether a job of this id is stored.
    fn is_stored(&mut self, id: JobId) -> Result<bool, Self::Error>;

    /// Confirms a refusal of one of several jobs. Fails if it rests on a guess.
    fn confirm_enqueue_refusal(
        &self,
        refusal: EnqueueRefusal,
    ) -> Result<EnqueueRefusal, Self::Error> {
        Ok(refusal)
    }

    /// Stores the jobs of arrivals.
    async fn enqueue_arrived(
        &mut self,
        order: &EnqueueArrived,
    ) -> Result<EnqueuedArrived, Self::Error>;

    /// Confirms a refusal of a report. Fails if it rests on what was only remembered.
    fn confirm_refusal(
        &self,
        loaded: &Loaded,
        refusal: MoveRefusal,
    ) -> Result<MoveRefusal, Self::Error> {
        let _ = loaded;
        Ok(refusal)
    }

    /// Replaces the checkpoint of a job.
    fn write_checkpoint(&mut self, loaded: &Loaded, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Stores output of an attempt, unless it is stored already or exceeds the limit.
    fn write_log(&mut self, chunk: &LogChunk) -> Result<(), Self::Error>;

    /// Deletes a dead letter; returns why it was one.
    async fn take_dead_letter(&mut self, seq: i64)
    -> Result<Option<DeadLetterReason>, Self::Error>;

    /// Notes that dead letters were handled, those that are still there.
    async fn handle_letters(&mut self, letters: &[LetterKey]) -> Result<(), Self::Error>;

    /// Loads and locks jobs for which something has come due.
    async fn due(&mut self, due: Due, sweep: &Sweep) -> Result<Found, Self::Error>;

    /// Loads and locks jobs that have waited for their whole limit without an eligible worker,
    /// longest overdue first.
    async fn stranded(&mut self, strand: &Strand) -> Result<Vec<Loaded>, Self::Error>;

    /// Returns when the next job of the class will have waited for its whole limit.
    async fn next_stranded(&mut self, strand: &Strand) -> Result<Option<Timestamp>, Self::Error>;
}

/// Unique keys and idempotency keys.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait KeyTables: Transaction {
    /// Loads unique keys that the next commands are about, all at once.
    async fn look_at_keys(&mut self, keys: Vec<Fingerprint>) -> Result<(), Self::Error> {
        let _ = keys;
        Ok(())
    }

    /// Returns the job that took a unique key last, if it is stored.
    async fn key_holder(&mut self, key: &Fingerprint) -> Result<Option<KeyHolder>, Self::Error>;

    /// Gives a unique key to a job that is stored now. Fails if `before` is not the job that has
    /// it.
    fn take_key(
        &mut self,
        key: &Fingerprint,
        stored: &Enqueued,
        before: Option<JobId>,
    ) -> Result<(), Self::Error>;

    /// Looks up an idempotency key.
    async fn key(&mut self, key: &Fingerprint) -> Result<Key, Self::Error>;

    /// Returns the jobs that were stored under a key, in order.
    async fn jobs_of_key(&mut self, key: &Fingerprint) -> Result<Vec<JobId>, Self::Error>;

    /// Stores a key with its jobs; `expired` if an expired one is in the way.
    fn write_key(
        &mut self,
        once: &EnqueueOnce,
        stored: &[Enqueued],
        expired: bool,
    ) -> Result<(), Self::Error>;
}

/// Workers and what they hold.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait WorkerTables: Transaction {
    /// Loads and locks a worker.
    fn worker(&mut self, worker: WorkerId) -> Result<Option<KnownWorker>, Self::Error>;

    /// Counts the attempts of a worker, cancelled ones included.
    async fn count_in_flight(&mut self, worker: WorkerId) -> Result<u32, Self::Error>;

    /// Returns whether a worker has exactly one attempt that is not cancelled.
    async fn holds_one(&mut self, worker: WorkerId) -> Result<bool, Self::Error>;

    /// Loads and locks the attempts of workers that are about to be taken from them, at best all
    /// at once. Until then only what other workers hold is moved.
    async fn prefetch_attempts(&mut self, workers: &[WorkerId]) -> Result<(), Self::Error> {
        let _ = workers;
        Ok(())
    }

    /// Drops what was prefetched and not needed.
    fn forget_prefetched(&mut self) {}

    /// Loads and locks the attempts of a worker.
    async fn attempts_of(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, Self::Error>;

    /// Loads and locks the attempts that a worker claimed as a plain worker, unless it is alive
    /// under another id.
    async fn plain_attempts_of(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, Self::Error>;

    /// Writes what has changed of a worker: one row, whatever the worker runs.
    fn write_worker(
        &mut self,
        worker: WorkerId,
        change: WorkerChange<'_>,
    ) -> Result<(), Self::Error>;

    /// Loads the orders that hold for workers to come, by selector. Until the batch ends, no other
    /// is given.
    async fn standing_orders(&mut self) -> Result<Vec<StandingOrder>, Self::Error>;

    /// Stores the same change of many workers.
    fn write_workers(
        &mut self,
        workers: &[WorkerId],
        change: WorkerChange<'_>,
    ) -> Result<(), Self::Error> {
        workers.iter().try_for_each(|worker| self.write_worker(*worker, change))
    }

    /// Loads and locks the workers that hold a lease, those that have lapsed and were ordered something,
    /// and those whose rows have changed since this time, with their labels, by id. Until the batch
    /// ends, no other one registers.
    async fn living_or_changed(
        &mut self,
        since: Timestamp,
    ) -> Result<Vec<(WorkerId, Labels)>, Self::Error>;

    /// Writes an order that holds for workers to come, or deletes some.
    fn write_standing_order(&mut self, change: StandingChange<'_>) -> Result<(), Self::Error>;
}

/// Queues, their settings and how full they are.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait QueueTables: Transaction {
    /// Whether the depth of any queue may be bounded.
    fn has_bounds(&self) -> bool;

    /// Returns how full a queue is, with what the batch has done to it, if its depth is bounded.
    /// Until the batch ends, no other batch stores jobs in it that could be refused. From then on
    /// [`JobTables::is_stored`] knows the ids of all new jobs of the batch.
    async fn depth(&mut self, queue: &str) -> Result<Option<Depth>, Self::Error>;

    /// Pauses or resumes a queue.
    fn write_pause(&mut self, order: &QueueOrder) -> Result<(), Self::Error>;

    /// Loads the settings of a queue, if any were ever made. Until the batch ends, no claim is made
    /// by limits or settings, and no others are set.
    async fn find_queue(&mut self, queue: &str) -> Result<Option<QueueRecord>, Self::Error>;

    /// Stores the settings of a queue, in place of those that were `found`.
    fn write_queue(
        &mut self,
        record: &QueueRecord,
        found: Option<&QueueRecord>,
    ) -> Result<(), Self::Error>;
}

/// Limits, and the gates that count for them.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait LimitTables: Transaction {
    /// Loads a limit, and counts all of them. Until the batch ends, no claim is made by limits, and
    /// no other limit is set.
    async fn find_limit(&mut self, name: &LimitName) -> Result<FoundLimit, Self::Error>;

    /// Stores a limit, in place of the one of its name.
    fn write_limit(&mut self, order: &SetLimit) -> Result<(), Self::Error>;

    /// Deletes a limit.
    fn delete_limit(&mut self, name: &LimitName) -> Result<(), Self::Error>;

    /// Returns the limits that hold until the batch ends.
    async fn limits_in_force(&mut self) -> Result<Limits, Self::Error>;

    /// Notes that a job has started that had to pass these gates, whatever they count: uses their
    /// rates, and makes those of them that no job has passed before.
    async fn pass(&mut self, gates: &[LaneGate]) -> Result<(), Self::Error>;

    /// Locks gates and counts again who holds them, with what the batch has done so far; returns
    /// those that count wrongly. A gate that another transaction has locked is left out.
    async fn recount(&mut self, gates: &[GateId]) -> Result<Vec<Miscount>, Self::Error>;
}

/// Which server leads a task.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait LeaderTables: Transaction {
    /// Loads the leader of a task; `lock` keeps it in place until the batch ends.
    async fn find_leadership(
        &mut self,
        name: &str,
        lock: bool,
    ) -> Result<Option<Leadership>, Self::Error>;

    /// Writes the leader of a task that was `found` before.
    async fn write_leadership(
        &mut self,
        ask: &LeadershipRequest,
        found: Option<Leadership>,
        leadership: Leadership,
    ) -> Result<(), Self::Error>;
}

/// All that the commands of a batch need of a database.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait Backend:
    JobTables
    + KeyTables
    + WorkerTables
    + QueueTables
    + LimitTables
    + ScheduleTables
    + WorkflowTables
    + SessionTables
    + OperationTables
    + LeaderTables
{
    /// Executes the claims at the start of `commands`, at least one; returns their replies.
    async fn claims(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Self::Error>;

    /// Executes the extensions at the start of `commands`, at least one; returns their replies.
    async fn extends(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Self::Error>;

    /// Deletes what need not be kept any longer. The server that asked for it leads the task.
    async fn prune(&mut self, prune: &Prune) -> Result<Pruned, Self::Error>;

    /// Deletes everything.
    async fn reset(&mut self) -> Result<(), Self::Error>;
}

/// An idempotency key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// It is not stored.
    Unused,
    /// It is stored, but has expired.
    Expired,
    /// It is in force, for this request.
    InForce(Vec<u8>),
}

/// A limit that is about to change.
#[derive(Debug)]
pub struct FoundLimit {
    /// As it is stored, if it is.
    pub record: Option<LimitRecord>,
    /// How many limits there are.
    pub count: usize,
}

/// What has changed of a worker.
#[derive(Clone, Copy, Debug)]
pub enum WorkerChange<'a> {
    /// It has registered.
    Registered(&'a Registration, &'a KnownWorker),
    /// Its lease is renewed, for this length.
    Renewed(&'a KnownWorker, Span),
    /// A session of it has begun.
    Attached(&'a KnownWorker),
    /// Its phase or liveness is another, on this evidence.
    Moved(Standing, &'a Evidence),
    /// It, or the worker that follows it, was ordered something.
    Ordered(GivenOrder),
    /// This one has followed it, in the same process.
    Followed(WorkerId),
    /// Why it can run nothing, by what it says; `None` if it is healthy.
    Health(Option<&'a str>),
    /// It is deleted.
    Forgotten,
}

/// Labels of a worker.
pub type Labels = BTreeMap<String, String>;

/// What has changed of the orders that hold for workers to come.
#[derive(Clone, Copy, Debug)]
pub enum StandingChange<'a> {
    /// This one stands, in place of one to the same workers.
    Stands(&'a StandingOrder),
    /// The one to these workers is lifted.
    Lifted(&'a Selector),
    /// All are lifted.
    AllLifted,
}

/// Jobs that a sweep found.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that may be moved.
    pub jobs: Vec<Loaded>,
    /// Whether there may be more.
    pub more: bool,
}

/// Executes the commands of a batch in order; returns a reply for each.
///
/// # Errors
/// Returns what ends the batch.
pub async fn execute_all<B: Backend>(
    backend: &mut B,
    commands: &[Command],
) -> Result<Vec<Reply>, B::Error> {
    let mut replies = Vec::with_capacity(commands.len());
    // Up to where unique keys were loaded.
    let mut looked = 0;
    while let Some(rest) = commands.get(replies.len()..)
        && let Some(command) = rest.first()
    {
        backend.batch().context.command = replies.len();
        if looked <= replies.len() {
            let (keys, count) = unique::keys_of(rest);
            looked = replies.len() + count;
            if !keys.is_empty() {
                backend.look_at_keys(keys).await?;
            }
        }
        match command {
            Command::Claim(_) => replies.append(&mut backend.claims(rest).await?),
            Command::Extend(_) => replies.append(&mut backend.extends(rest).await?),
            Command::Lapse(_) => worker::lapses(backend, rest, &mut replies).await?,
            other => replies.push(execute(backend, other).await?),
        }
    }
    Ok(replies)
}

async fn execute<B: Backend>(b: &mut B, command: &Command) -> Result<Reply, B::Error> {
    Ok(match command {
        Command::Enqueue(job) => Reply::Enqueued(enqueue::enqueue(b, job).await?),
        Command::EnqueueAll(jobs) => Reply::EnqueuedAll(enqueue::enqueue_all(b, jobs).await?),
        Command::EnqueueOnce(once) => Reply::EnqueuedOnce(enqueue::enqueue_once(b, once).await?),
        Command::EnqueueArrived(order) => Reply::EnqueuedArrived(b.enqueue_arrived(order).await?),
        Command::Claim(_) | Command::Extend(_) | Command::Lapse(_) => {
            return Err(StoreError::Rejected("one of a run of commands, alone".into()).into());
        }
        Command::Start(start) => Reply::Moved(report::start(b, start).await?),
        Command::Adopt(adopt) => Reply::Moved(failover::adopt(b, adopt).await?),
        Command::NoteLoss(note) => {
            failover::note_loss(b, note);
            Reply::Done
        }
        Command::NoteSkew(note) => {
            report::note_skew(b, note);
            Reply::Done
        }
        Command::Finish(finish) => Reply::Moved(report::finish(b, finish).await?),
        Command::Progress(progress) => Reply::Moved(report::progress(b, progress).await?),
        Command::Log(chunk) => {
            b.write_log(chunk)?;
            Reply::Done
        }
        Command::Renew(renew) => Reply::Renewed(worker::renew(b, renew).await?),
        Command::Register(registration) => {
            Reply::Registered(worker::register(b, registration).await?)
        }
        Command::Attach(attach) => Reply::Attached(worker::attach(b, attach)?),
        Command::Worker(step) => Reply::WorkerMoved(worker::move_worker(b, step).await?),
        Command::ReportHealth(said) => {
            worker::health(b, said)?;
            Reply::Done
        }
        Command::OrderWorkers(order) => Reply::WorkersOrdered(standing::order(b, order).await?),
        Command::ForgetWorker(order) => Reply::Forgotten(worker::forget(b, order).await?),
        Command::Order(order) => Reply::Moved(order::order(b, order).await?),
        Command::ForgetDeadLetter(order) => {
            Reply::Forgotten(order::forget_dead_letter(b, order).await?)
        }
        Command::HandleLetters(handled) => {
            b.handle_letters(&handled.letters).await?;
            Reply::Done
        }
        Command::Queue(order) => order::queue(b, order)?,
        Command::SetLimit(order) => Reply::LimitChanged(limit::set(b, order).await?),
        Command::RemoveLimit(order) => Reply::LimitChanged(limit::remove(b, order).await?),
        Command::Recount(order) => Reply::Recounted(limit::recount(b, order).await?),
        Command::WriteSchedule(write) => Reply::ScheduleWritten(schedule::write(b, write).await?),
        Command::WriteWorkflow(write) => Reply::WorkflowWritten(workflow::write(b, write).await?),
        Command::WriteOperation(it) => Reply::OperationWritten(operation::write(b, it).await?),
        Command::SetQueue(order) => Reply::QueueSet(queue::set(b, order).await?),
        Command::Sweep(sweep) => Reply::Swept(sweep::sweep(b, sweep).await?),
        Command::Strand(strand) => Reply::Stranded(sweep::strand(b, strand).await?),
        Command::BeginSession(order) => {
            Reply::SessionBegun(browser_session::begin(b, order).await?)
        }
        Command::RenewSession(order) => {
            browser_session::renew(b, *order)?;
            Reply::Done
        }
        Command::EndSessions(order) => Reply::SessionsEnded(browser_session::end(b, order).await?),
        Command::Leadership(ask) => Reply::Leadership(leadership::leadership(b, ask).await?),
        Command::Prune(order) => Reply::Pruned(prune(b, order).await?),
        Command::Reset => reset(b).await?,
    })
}

/// Deletes old history, if who asks for it leads.
async fn prune<B: Backend>(
    b: &mut B,
    order: &Prune,
) -> Result<Result<Pruned, LeadershipRefusal>, B::Error> {
    Ok(match leadership::check(b, &order.leadership).await? {
        Ok(()) => Ok(b.prune(order).await?),
        Err(refusal) => Err(refusal),
    })
}

async fn reset<B: Backend>(b: &mut B) -> Result<Reply, B::Error> {
    b.reset().await?;
    b.batch().clear();
    Ok(Reply::Done)
}

/// Applies a decision about a job: writes it, counts it and logs it.
async fn carry_out<B: Backend>(
    backend: &mut B,
    loaded: &Loaded,
    decided: &Decided<'_>,
) -> Result<Moved, B::Error> {
    backend.forget(loaded);
    let own = loaded.stored.class;
    let class = match needs_class(&decided.transition) {
        Some(isolated) => backend.twin(own, isolated).await?,
        None => own,
    };
    let now = backend.context().now;
    let (rows, moved) = step(loaded, decided, class, now, backend.outbox());
    backend.write_step(loaded, &rows)?;
    Ok(moved)
}

/// Runs to its end what never waits: commands on an embedded database.
///
/// # Errors
/// Returns what the future does, or that it waited.
pub fn run_ready<T, E: From<StoreError>>(
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    match pin!(future).poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(StoreError::Corrupt("an embedded store waited".into()).into()),
    }
}
