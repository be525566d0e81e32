//! What comes back for each command of a batch.

use std::sync::Arc;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Outcome, Refusal, State};
use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::queue::QueueRefusal;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::{Standing, WorkerRefusal};

use crate::apply::claim::selection::Remaining;
use crate::arrival::EnqueuedArrived;
use crate::idempotency::{EnqueueOnceRefusal, EnqueuedOnce};
use crate::job::{ClassId, ClassKey};
pub use crate::job::{EnqueueRefusal, Enqueued};
use crate::limit::{LimitChange, LimitRefusal, Miscount};
use crate::queue::QueueChanged;
use crate::record::StoredJob;

/// A batch that was committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The store's time at which its commands took effect.
    pub at: Timestamp,
    /// One reply for each command, in order.
    pub replies: Vec<Reply>,
    /// Whether attempts ended that limits counted: jobs that wait for a limit may start.
    pub freed: bool,
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
    /// Of `ForgetWorker` and `ForgetDeadLetter`.
    Forgotten(Result<(), NotFound>),
    /// Of `Queue`, `Log` and `Reset`.
    Done,
}

/// There is nothing to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing to forget")]
pub struct NotFound;

/// What a plain heartbeat prolonged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The jobs whose visibility was prolonged.
    pub jobs: Vec<JobId>,
    /// Jobs that its sender holds and that were passed over, since another transaction has
    /// them locked: a heartbeat waits for no job.
    pub passed_over: Vec<JobId>,
    /// Jobs that the store holds for its sender and that it did not count, as far as is known.
    pub unconfirmed: Vec<JobId>,
}

impl Extended {
    /// Returns the outcome when no job was passed over, and none is unconfirmed.
    #[must_use]
    pub const fn all(jobs: Vec<JobId>) -> Self {
        Self { jobs, passed_over: Vec::new(), unconfirmed: Vec::new() }
    }
}

/// What a claim took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// The jobs, best first.
    pub jobs: Vec<Claimed>,
    /// If these are fewer than were asked for, from classes: those that have claimable jobs all
    /// the same, which another transaction has locked or the claim avoids. The others have none.
    pub passed_over: Vec<ClassId>,
    /// If these are fewer than were asked for, from classes: those whose claimable jobs all wait
    /// for a limit, as far as the claim looked.
    pub blocked: Vec<Blocked>,
    /// Of a prefetch: classes that may have jobs for workers with free slots, which limits keep for
    /// these.
    pub kept: Vec<ClassId>,
    /// Whether it ended because its jobs came to
    /// [`CLAIM_BYTES_MAX`](outlast_core::limits::CLAIM_BYTES_MAX), or would have: there may be more
    /// in all of its classes.
    pub cut: bool,
}

/// A class whose claimable jobs wait for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The class.
    pub class: ClassId,
    /// When a rate lets the next one start; `None` if an attempt must end first.
    pub until: Option<Timestamp>,
}

impl Claims {
    /// Returns what was taken when nothing was passed over.
    #[must_use]
    pub fn all(jobs: Vec<Claimed>) -> Self {
        Self { jobs, ..Self::default() }
    }

    /// Returns what was taken by a claim that ended at its bytes.
    #[must_use]
    pub fn cut(jobs: Vec<Claimed>) -> Self {
        Self { jobs, cut: true, ..Self::default() }
    }

    /// Notes that a job of a class was left to others.
    pub fn pass_over(&mut self, class: ClassId) {
        if !self.passed_over.contains(&class) {
            self.passed_over.push(class);
        }
    }

    /// Notes what limits leave of the classes.
    pub fn leave(&mut self, left: Remaining) {
        left.retry.into_iter().for_each(|class| self.pass_over(class));
        self.blocked.extend(left.blocked);
        self.kept.extend(left.reserved);
    }
}

/// A job was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// What was stored.
    pub job: Arc<StoredJob>,
    /// The claim's epoch.
    pub epoch: Epoch,
    /// Attempt on the OJS wire: charged attempts + 1.
    pub attempt: u32,
    /// Whether it must run alone on its worker.
    pub isolated: bool,
    /// When.
    pub claimed: Timestamp,
    /// Until when a plain claim is visible to its holder only.
    pub visible_until: Option<Timestamp>,
    /// What an earlier attempt left.
    pub checkpoint: Option<Vec<u8>>,
}

impl Claimed {
    /// Returns how long its texts and its checkpoint are together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.job.payload.bytes() + self.checkpoint.as_ref().map_or(0, Vec::len)
    }
}

/// Why nothing may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefusal {
    /// The worker is not known.
    #[error("worker is not known")]
    UnknownWorker,
    /// The worker takes no new work.
    #[error("worker is {}", .0.state())]
    NotActive(Standing),
    /// A newer session of the worker is attached.
    #[error("session was superseded by {current}")]
    StaleSession {
        /// Number of the newer one.
        current: u64,
    },
    /// Queues ask something else of workers than when it was chosen where the claim takes from.
    #[error("queues ask something else of workers now")]
    Outdated,
}

/// A job moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The job.
    pub job: JobId,
    /// Its class now, in which it may have become claimable.
    pub class: ClassId,
    /// State before.
    pub from: State,
    /// State now.
    pub state: State,
    /// Its epoch now.
    pub epoch: Epoch,
    /// Attempt number on the OJS wire.
    pub attempt: u32,
    /// How many attempts its retry policy allows.
    pub max_attempts: u32,
    /// When it is due again, for `retryable`.
    pub due: Option<Timestamp>,
    /// How the attempt ended, if one did.
    pub outcome: Option<Outcome>,
    /// How long it ran, if one did.
    pub ran: Option<Span>,
    /// Native worker that still holds (for a cancel: that must be told) the attempt.
    pub holder: Option<WorkerId>,
    /// Whether it became a dead letter.
    pub dead_letter: bool,
    /// When.
    pub at: Timestamp,
}

/// Why a job did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefusal {
    /// There is no such job.
    #[error("job is not known")]
    NotFound,
    /// The rules refuse.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The job is not as it was when the order was given.
    #[error("job changed since it was read")]
    Moved,
}

/// A lease was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The renewal's number.
    pub renewal: u64,
    /// The worker's standing.
    pub standing: Standing,
    /// How many attempts the store has for it.
    pub in_flight: u32,
}

/// Why a lease was not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewRefusal {
    /// The worker is not known.
    #[error("worker is not known")]
    UnknownWorker,
    /// The worker must register again.
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    /// The worker has attached again since it said this.
    #[error("attachment {said} was left by its worker for attachment {current}")]
    Abandoned {
        /// The attachment that was asked for.
        said: u64,
        /// The latest one.
        current: u64,
    },
}

/// A session was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its number: higher than any before.
    pub session: u64,
    /// The worker's standing.
    pub standing: Standing,
}

/// A worker's standing changed, and perhaps its attempts moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerMoved {
    /// The worker.
    pub worker: WorkerId,
    /// Its standing now.
    pub standing: Standing,
    /// Jobs that moved, and where to.
    pub moved: Vec<Moved>,
    /// How many attempts it still holds (after a lapse: those that must not overlap).
    pub kept: u32,
}

/// Why a worker's standing did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerMoveRefusal {
    /// The worker is not known.
    #[error("worker is not known")]
    UnknownWorker,
    /// The rules refuse.
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    /// It renewed meanwhile, or the store's clock has not passed its lease.
    #[error("worker renewed its lease in the meantime")]
    Renewed,
    /// A newer session of the worker is attached.
    #[error("session was superseded by {current}")]
    StaleSession {
        /// Number of the newer one.
        current: u64,
    },
}

/// What time alone did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Swept {
    /// Jobs that moved.
    pub moved: Vec<Moved>,
    /// Whether a limit was reached, so that another sweep should follow at once.
    pub more: bool,
}

/// What stranding did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Stranded {
    /// Jobs that failed.
    pub moved: Vec<Moved>,
    /// When the class's next job is stranded too long, if one has a limit.
    pub next: Option<Timestamp>,
}

/// Classes are numbered by the store; this is one with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedClass {
    /// Its number.
    pub id: ClassId,
    /// What it routes.
    pub key: ClassKey,
}

/// What pruning deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Jobs.
    pub jobs: u32,
    /// Workers.
    pub workers: u32,
    /// Classes that had no jobs left.
    pub classes: u32,
    /// Whether a limit was reached, so that another prune should follow.
    pub more: bool,
}
