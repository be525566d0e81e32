//! The replies to the commands of a batch.

use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::queue::QueueRefusal;
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::{Standing, WorkerRefusal};
use outlast_core::worker::order::OrderRefusal;
use outlast_core::workflow::WorkflowId;

use crate::arrival::EnqueuedArrived;
use crate::browser_session::BrowserSession;
pub use crate::command::claim::{Blocked, ClaimRefusal, Claimed, Claims};
pub use crate::command::order::NotFound;
pub use crate::command::report::{MoveRefusal, Moved};
pub use crate::command::retention::Pruned;
pub use crate::command::sweep::{Stranded, Swept};
pub use crate::command::worker::{
    Attached, RenewRefusal, Renewed, WorkerMoveRefusal, WorkerMoved, WorkersOrdered,
};
pub use crate::extend::Extended;
use crate::idempotency::{EnqueueOnceRefusal, EnqueuedOnce};
pub use crate::job::{EnqueueRefusal, Enqueued, NumberedClass};
use crate::limit::{LimitChange, LimitRefusal, Miscount};
use crate::operation::{OperationRefusal, OperationWritten};
use crate::queue::QueueChanged;
use crate::schedule::{ScheduleRefusal, ScheduleWritten};
use crate::workflow::{WorkflowRefusal, WorkflowWritten};

/// A batch that was committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The store's time at which its commands took effect.
    pub at: Timestamp,
    /// One reply for each command, in order.
    pub replies: Vec<Reply>,
    /// Whether attempts ended that limits counted: jobs that wait for a limit may start.
    pub freed: bool,
    /// Workflows of which items ended, each once: a server must look at them.
    pub workflows: Vec<WorkflowId>,
}

/// The fate of a batch whose outcome was unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    /// It took effect, and this is what it did.
    Applied(Applied),
    /// It took no effect, and never will.
    NotApplied,
    /// It cannot be found out any more.
    Unknown,
}

/// The outcome of one command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of `Enqueue`.
    Enqueued(Result<Enqueued, EnqueueRefusal>),
    /// Of `EnqueueAll`: all of them or the first refusal with its position.
    EnqueuedAll(Result<Vec<Enqueued>, (usize, EnqueueRefusal)>),
    /// Of `EnqueueOnce`.
    EnqueuedOnce(Result<EnqueuedOnce, EnqueueOnceRefusal>),
    /// Of `EnqueueArrived`.
    EnqueuedArrived(EnqueuedArrived),
    /// Of `Claim`.
    Claimed(Result<Claims, ClaimRefusal>),
    /// Of `Start`, `Finish`, `Progress` and `Order`.
    Moved(Result<Moved, MoveRefusal>),
    /// Of `Extend`.
    Extended(Extended),
    /// Of `Renew`.
    Renewed(Result<Renewed, RenewRefusal>),
    /// Of `Register`: its standing; for an id known before and still alive, its present
    /// one (a registration is safe to repeat).
    Registered(Result<Standing, WorkerRefusal>),
    /// Of `Attach`: the session's number.
    Attached(Result<Attached, RenewRefusal>),
    /// Of `Worker` and `Lapse`.
    WorkerMoved(Result<WorkerMoved, WorkerMoveRefusal>),
    /// Of `OrderWorkers`.
    WorkersOrdered(Result<WorkersOrdered, OrderRefusal>),
    /// Of `Sweep`.
    Swept(Swept),
    /// Of `Strand`.
    Stranded(Stranded),
    /// Of `Leadership`: the lease as it is now, or why it is not the asker's.
    Leadership(Result<Leadership, LeadershipRefusal>),
    /// Of `Prune`; refused when another server leads by now.
    Pruned(Result<Pruned, LeadershipRefusal>),
    /// Of `SetLimit` and `RemoveLimit`: what changed, or why nothing did.
    LimitChanged(Result<LimitChange, LimitRefusal>),
    /// Of `Recount`: the gates that were corrected; refused when another server leads by now.
    Recounted(Result<Vec<Miscount>, LeadershipRefusal>),
    /// Of `SetQueue`: whether anything changed, or why nothing did.
    QueueSet(Result<QueueChanged, QueueRefusal>),
    /// Of `WriteSchedule`: what was stored, or why nothing was.
    ScheduleWritten(Result<ScheduleWritten, ScheduleRefusal>),
    /// Of `WriteWorkflow`: what was stored, or why nothing was.
    WorkflowWritten(Result<WorkflowWritten, WorkflowRefusal>),
    /// Of `BeginSession`: the session.
    SessionBegun(BrowserSession),
    /// Of `EndSessions`: those that were ended, by id.
    SessionsEnded(Vec<BrowserSession>),
    /// Of `WriteOperation`: how it stands and which jobs moved, or why nothing happened.
    OperationWritten(Result<OperationWritten, OperationRefusal>),
    /// Of `ForgetWorker` and `ForgetDeadLetter`.
    Forgotten(Result<(), NotFound>),
    /// Of `Queue`, `Log`, `ReportHealth`, `RenewSession` and `Reset`.
    Done,
}
