//! The commands of a batch: a closed list, in files by family.

pub mod claim;
pub mod enqueue;
pub mod failover;
pub mod order;
pub mod report;
pub mod retention;
pub mod sweep;
pub mod worker;

use outlast_core::budget::Budgets;
use uuid::Uuid;

use crate::arrival::EnqueueArrived;
pub use crate::browser_session::{BeginSession, EndSessions, RenewSession, WhichSessions};
use crate::extend::Extend;
use crate::idempotency::EnqueueOnce;
pub use crate::job::{ClassId, ClassKey, First, NewJob, Origin, Payload, Route};
pub use crate::limit::{Recount, RemoveLimit, SetLimit};
pub use crate::operation::WriteOperation;
pub use crate::queue::{QueueOrder, SetQueue};
pub use crate::schedule::WriteSchedule;
pub use crate::workflow::WriteWorkflow;
pub use claim::{AskedByQueues, Claim, ClaimFrom, Claimant};
pub use enqueue::EnqueueAll;
pub use failover::{Adopt, Lost, LostFact, NoteLoss};
pub use order::{ForgetDeadLetter, HandleLetters, JobAction, JobOrder, LetterKey, Seen};
pub use report::{
    EndDetail, Fence, Finish, LogChunk, NoteSkew, Progress, ReportedOutcome, Reporter, Start,
    Stream,
};
pub use retention::{LeadershipFence, LeadershipRequest, Prune, RETENTION, Reset};
pub use sweep::{Strand, Sweep};
pub use worker::{
    Attach, ForgetWorker, Lapse, LapseScope, OrderWorkers, Registration, Renew, ReportHealth,
    WorkerMove, WorkerRole, ordered_by, standing_order,
};

/// Commands to apply as one transaction.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Fixed before the first try, so that a batch of unknown outcome can be looked up.
    pub id: BatchId,
    /// Where the jitter of every wait decided in this batch comes from.
    pub jitter_seed: u64,
    /// The operator's budgets.
    pub budgets: Budgets,
    /// What to do, in order.
    pub commands: Vec<Command>,
}

/// Identifies one batch of one server. It is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId {
    /// The server process that made it.
    pub server: Uuid,
    /// Rises by one for each batch of that server.
    pub n: u64,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Command {
    /// Stores one job.
    Enqueue(Box<NewJob>),
    /// Stores several jobs, or none of them.
    EnqueueAll(Vec<NewJob>),
    /// Stores jobs once for a key.
    EnqueueOnce(Box<EnqueueOnce>),
    /// Stores the jobs that arrivals become, and deletes the arrivals.
    EnqueueArrived(EnqueueArrived),
    /// Takes jobs for a claimant.
    Claim(Claim),
    /// Notes that an attempt started.
    Start(Start),
    /// Ends an attempt.
    Finish(Box<Finish>),
    /// Resets plain OJS attempts to their full visibility from now; see [`crate::extend`].
    Extend(Extend),
    /// Renews a worker's lease.
    Renew(Renew),
    /// Makes a worker known.
    Register(Box<Registration>),
    /// Attaches a worker's session (again); answers with a session number higher than
    /// any before.
    Attach(Attach),
    /// Moves a worker's standing; see [`WorkerMove`]. `Lapse` has a command of its own.
    Worker(WorkerMove),
    /// Gives a worker up and moves its attempts.
    Lapse(Lapse),
    /// Notes whether a worker is healthy.
    ReportHealth(ReportHealth),
    /// Orders all workers that are chosen, and those that start later, what to do.
    OrderWorkers(Box<OrderWorkers>),
    /// Moves a job, as an operator or a producer orders.
    Order(JobOrder),
    /// Takes a dead letter off the list; the job stays discarded.
    ForgetDeadLetter(ForgetDeadLetter),
    /// Notes that dead letters were handled.
    HandleLetters(HandleLetters),
    /// Does what has come due by time alone: timers, expiries, visibilities, time limits.
    Sweep(Sweep),
    /// Ends claimable jobs of a class that no live worker was able to run for too long.
    Strand(Strand),
    /// Stops or allows fetching from a queue.
    Queue(QueueOrder),
    /// Changes settings of a queue.
    SetQueue(Box<SetQueue>),
    /// Sets a limit.
    SetLimit(Box<SetLimit>),
    /// Removes a limit.
    RemoveLimit(RemoveLimit),
    /// Makes, changes, fires or removes a schedule.
    WriteSchedule(Box<WriteSchedule>),
    /// Makes or changes a workflow.
    WriteWorkflow(Box<WriteWorkflow>),
    /// Begins an operation, takes a step of it, or ends it.
    WriteOperation(Box<WriteOperation>),
    /// Corrects what gates count.
    Recount(Recount),
    /// Notes that a job runs with other files of its pack than it was validated with.
    NoteSkew(NoteSkew),
    /// Keeps what an attempt printed.
    Log(LogChunk),
    /// Keeps an attempt's progress or checkpoint.
    Progress(Box<Progress>),
    /// Forgets a worker that is no longer live.
    ForgetWorker(ForgetWorker),
    /// Notes again that a worker was given a job.
    Adopt(Adopt),
    /// Notes what was acknowledged and lost.
    NoteLoss(NoteLoss),
    /// Begins a session of a browser.
    BeginSession(Box<BeginSession>),
    /// Notes that a session of a browser is used.
    RenewSession(RenewSession),
    /// Ends sessions of browsers.
    EndSessions(EndSessions),
    /// Takes, keeps or gives back what one server does for all.
    Leadership(LeadershipRequest),
    /// Deletes what is older than it must be kept.
    Prune(Prune),
    /// Drops every job, queue and worker. Conformance runs only.
    Reset,
}

impl Command {
    /// Returns the new jobs that it is to store.
    #[must_use]
    pub fn new_jobs(&self) -> &[NewJob] {
        match self {
            Self::Enqueue(job) => std::slice::from_ref(&**job),
            Self::EnqueueAll(jobs) => jobs,
            Self::EnqueueOnce(once) => &once.jobs,
            Self::WriteSchedule(write) => &write.jobs,
            Self::WriteWorkflow(write) => &write.jobs,
            _ => &[],
        }
    }

    /// Whether it stores new jobs.
    #[must_use]
    pub const fn stores_jobs(&self) -> bool {
        matches!(
            self,
            Self::Enqueue(_) | Self::EnqueueAll(_) | Self::EnqueueOnce(_) | Self::EnqueueArrived(_)
        )
    }

    /// Whether it stores jobs that take unique keys.
    #[must_use]
    pub fn takes_keys(&self) -> bool {
        self.new_jobs().iter().any(|job| job.unique.is_some())
    }
}
