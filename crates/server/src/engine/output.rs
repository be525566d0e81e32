//! What the event loop has for workers' sessions, in the engine's own terms. The `session`
//! module turns it into messages.

use outlast_core::id::{Epoch, JobId};
use outlast_core::worker::order::WorkerOrder;
use outlast_store::reply::{Claimed, MoveRefusal};
use tokio::sync::mpsc;

/// Carries output to the stream of one session.
pub(crate) type OutputSender = mpsc::UnboundedSender<SessionOutput>;

/// An output and the session it is for.
#[derive(Debug)]
pub(crate) struct SessionOutput {
    pub(crate) session: u64,
    pub(crate) output: Output,
}

/// One kind of output, gathered over one turn of the loop.
#[derive(Debug)]
pub(crate) enum Output {
    /// Answers to the session's reports.
    Answers(Vec<ReportAnswer>),
    /// Jobs to run.
    Deliveries(Vec<Claimed>),
    /// Orders to the worker.
    Orders(Vec<SessionOrder>),
    /// The number of output messages of the session that are stored.
    Stored(u64),
    /// The server ends the session: nothing follows.
    Closed { reason: CloseReason, message: String },
}

/// The answer to a report about an attempt.
#[derive(Debug)]
pub(crate) struct ReportAnswer {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    /// Whether it was the report of the attempt's end.
    pub(crate) finished: bool,
    /// Whether the store accepted it.
    pub(crate) verdict: Result<(), MoveRefusal>,
}

/// An order to a session's worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionOrder {
    /// Change the phase.
    Phase { order: WorkerOrder, by: String },
    /// Stop an attempt whose job was cancelled.
    Stop { job: JobId, epoch: Epoch },
    /// Give a job back that has not started.
    Revoke { job: JobId, epoch: Epoch },
}

/// Why the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The server is stopping, or the store failed: attach again, perhaps elsewhere.
    Unavailable,
    /// The worker has a newer session.
    Superseded,
    /// The worker's lease is over: it must register again.
    Lapsed,
}
