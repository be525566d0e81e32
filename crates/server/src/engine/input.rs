//! What the loop is told: a closed list.

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::BootTime;
use outlast_proto::v1::ServerMessage;
use outlast_store::command::Lapse;
use outlast_store::signal::Heard;
use outlast_store::{Command, Reply};
use tokio::sync::{mpsc, oneshot};

use crate::engine::roster::Session;
use crate::engine::{Unavailable, WorkerOrder};

/// Answers one submitted command.
pub(crate) type ReplySender = oneshot::Sender<Result<Reply, Unavailable>>;

/// Carries messages to one session's stream.
pub(crate) type Push = mpsc::UnboundedSender<Result<ServerMessage, tonic::Status>>;

/// One thing the loop is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// A command for the next batch.
    Submit { command: Command, reply: ReplySender },
    /// A worker is given up, by what was seen until `judged`.
    Lapse { lapse: Lapse, judged: BootTime, reply: ReplySender },
    /// A session is attached.
    Attached(Box<Session>),
    /// A session's stream ended.
    Detached { worker: WorkerId, session: u64 },
    /// A session says how much it will hold.
    Capacity { worker: WorkerId, session: u64, slots: u32, prefetch: u32 },
    /// A session reports on attempts.
    Reports { worker: WorkerId, session: u64, reports: Vec<SessionReport> },
    /// A session's loop turns again, or stands still for too long.
    Polled,
    /// A worker's phase changed: whether it takes new work now.
    Running { worker: WorkerId, session: u64, running: bool },
    /// An operator's order for a worker's session.
    Order { worker: WorkerId, order: WorkerOrder, by: String },
    /// A worker is not live any more: its session gets nothing new and is told.
    Given { worker: WorkerId },
    /// A monitor asks which attempts were delivered before `before` and not started.
    Overdue { before: BootTime },
    /// A monitor asks for a look at stranded classes.
    Strand { reply: oneshot::Sender<()> },
    /// A monitor looked into the store: these classes have claimable jobs.
    Backlog(Vec<outlast_store::query::Claimable>),
    /// Some more of what a mass loss gave back may be handed out.
    Redispatch,
    /// The look that the loop asked for is over.
    BacklogRead,
    /// What other servers on the store tell, or that something of it may have been missed.
    Heard(Heard),
    /// The server is about to stop: sessions are told to go elsewhere.
    CloseSessions,
    /// Finish what has been taken, answer no more, end.
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
