//! The inputs of the event loop: a closed list.

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::order::WorkerOrder;
use outlast_store::command::{ClassId, Lapse};
use outlast_store::signal::Heard;
use outlast_store::{Command, Reply};
use tokio::sync::oneshot;

use crate::engine::claimable::Look;
use crate::engine::error::Unavailable;
use crate::engine::event_loop::StoredPhase;
use crate::engine::sessions::Session;
use crate::engine::waiting_classes::KnownClass;

/// Answers one submitted command, and hands it back.
pub(crate) type ReplySender = oneshot::Sender<Result<(Reply, Command), Unavailable>>;

/// One input.
#[derive(Debug)]
pub(crate) enum Input {
    /// A command for the next batch.
    Submit { command: Command, reply: ReplySender },
    /// A worker is to be declared dead, by what was seen until `judged`.
    Lapse { lapse: Lapse, judged: BootTime, reply: ReplySender },
    /// A session is attached.
    Attached(Box<Session>),
    /// A session's stream ended.
    Detached { worker: WorkerId, session: u64 },
    /// A session says how much it will hold.
    Capacity { worker: WorkerId, session: u64, slots: u32, prefetch: u32 },
    /// A session reports on attempts.
    Reports { worker: WorkerId, session: u64, reports: Vec<SessionReport> },
    /// A worker polls again, or has stopped polling.
    PollingChanged,
    /// A worker's phase changed: whether it takes new work now.
    Running { worker: WorkerId, session: u64, running: bool },
    /// An operator's order for a worker's session.
    Order { worker: WorkerId, order: WorkerOrder, by: String },
    /// A worker has lapsed: its session is closed.
    WorkerLapsed { worker: WorkerId },
    /// A monitor asks for jobs back that were delivered before `before` and have not started.
    RevokeOverdue { before: BootTime },
    /// A monitor asks to fail jobs that no live worker can run, if the workers were read that
    /// recently.
    CheckUnclaimable { fleet_age_max: Span, reply: oneshot::Sender<()> },
    /// Asks for so many of the classes with the most claimable jobs.
    ListWaiting { max: usize, reply: oneshot::Sender<Vec<KnownClass>> },
    /// The backlog was read: these classes have claimable jobs.
    Backlog(Look),
    /// A claim of these classes met only jobs that other sessions had locked.
    ClaimAgain(Vec<ClassId>),
    /// Some more jobs of dead workers may be handed out again.
    Redispatch,
    /// Workers of other servers have had time to take a retry.
    RetryWaited,
    /// The read of the backlog that the loop began has ended.
    BacklogRead,
    /// The read of what missed signals may have said has ended, and found workers in these phases.
    MissedRead(Vec<StoredPhase>),
    /// Signals of other servers on the store, or that some may have been missed.
    Heard(Heard),
    /// The server is about to stop: sessions are closed.
    CloseSessions,
    /// What a batch beside the loop did.
    SideBatch(SideBatch),
    /// Finish what has been taken, then end.
    Stop { done: oneshot::Sender<()> },
}

/// A report by a native worker, ready for the batch.
#[derive(Debug)]
pub(crate) struct SessionReport {
    /// The job.
    pub(crate) job: JobId,
    /// The attempt.
    pub(crate) epoch: Epoch,
    /// What is reported.
    pub(crate) command: Command,
    /// Whether it is the attempt's end.
    pub(crate) finished: bool,
}

/// What a batch beside the event loop did.
#[derive(Debug)]
pub(crate) struct SideBatch {
    pub(crate) replies: Vec<Reply>,
    /// Whether attempts ended that limits counted.
    pub(crate) freed: bool,
    /// Whether it may have taken effect although it failed.
    pub(crate) unconfirmed: bool,
}
