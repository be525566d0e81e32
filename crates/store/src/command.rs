//! What can be asked of a batch: a closed list of commands.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Budgets;
use outlast_core::evidence::Evidence;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Event, Job, State};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use uuid::Uuid;

use crate::arrival::EnqueueArrived;
use crate::extend::Extend;
use crate::idempotency::EnqueueOnce;
pub use crate::job::{ClassId, ClassKey, First, NewJob, Origin, Payload, Route};
pub use crate::limit::{Recount, RemoveLimit, SetLimit};
pub use crate::queue::SetQueue;

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
    /// Moves a worker's standing; see [`WorkerEvent`]. `Lapse` has a command of its own.
    Worker(WorkerMove),
    /// Gives a worker up and moves its attempts.
    Lapse(Lapse),
    /// Moves a job, as an operator or a producer orders.
    Order(JobOrder),
    /// Takes a dead letter off the list; the job stays discarded.
    ForgetDeadLetter(ForgetDeadLetter),
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
    /// Corrects what gates count.
    Recount(Recount),
    /// Keeps what an attempt printed.
    Log(LogChunk),
    /// Keeps an attempt's progress or checkpoint.
    Progress(Box<Progress>),
    /// Forgets a worker that is no longer live.
    ForgetWorker(WorkerId),
    /// Takes, keeps or gives back what one server does for all.
    Leadership(LeadershipRequest),
    /// Deletes what is older than it must be kept.
    Prune(Prune),
    /// Drops every job, queue and worker. Conformance runs only.
    Reset,
}

impl Command {
    /// Returns the jobs that producers want it to store.
    #[must_use]
    pub fn new_jobs(&self) -> &[NewJob] {
        match self {
            Self::Enqueue(job) => std::slice::from_ref(&**job),
            Self::EnqueueAll(jobs) => jobs,
            Self::EnqueueOnce(once) => &once.jobs,
            _ => &[],
        }
    }

    /// Whether it stores jobs that take unique keys.
    #[must_use]
    pub fn takes_keys(&self) -> bool {
        self.new_jobs().iter().any(|job| job.unique.is_some())
    }
}

/// A wish to take jobs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who takes them.
    pub claimant: Claimant,
    /// Which may be taken.
    pub from: ClaimFrom,
    /// How many at most.
    pub max: NonZeroU32,
    /// Whether the worker has no free slot for them: they wait there, and hold slots of their limits
    /// meanwhile. So at most half of a limit goes to such jobs.
    pub is_prefetch: bool,
    /// Jobs that it leaves to others: the claimant has just failed them. If it comes back short for
    /// that, it says so of their classes.
    pub avoids: Vec<JobId>,
    /// What queues asked of workers when it was chosen where a native worker's claim takes from. The
    /// claim is refused if that has changed.
    pub asked: AskedByQueues,
}

impl Claim {
    /// Whether it leaves a job to others.
    #[must_use]
    pub fn avoids(&self, job: JobId) -> bool {
        self.avoids.contains(&job)
    }
}

/// A digest of what all queues ask of workers; that of nothing is the default. It is compared with
/// others of the same process only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedByQueues(pub u64);

/// Who takes jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// A native worker, by its lease. Refused unless it is live, running and its session
    /// has this number.
    Native {
        /// The worker.
        worker: WorkerId,
        /// Number of its session.
        session: u64,
    },
    /// A plain OJS fetch. Each job gets a visibility of its own; the claim is the start.
    Plain {
        /// The id the client gave itself, if any. Refused (nothing is claimed) when a
        /// worker of that id is known and not running.
        worker: Option<String>,
        /// Visibility for jobs that do not say.
        visibility: Span,
    },
}

/// Which jobs may be taken. Best priority first, then front before order, then oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimFrom {
    /// These classes together. Paused queues give nothing.
    Classes(Arc<[ClassId]>),
    /// The plain classes of these queues, one queue after the other, of this tenant if
    /// one is named.
    Queues {
        /// Names, most wanted first.
        queues: Vec<String>,
        /// Tenant that the fetch is limited to.
        tenant: Option<String>,
    },
}

/// What a report must match to be about the current attempt. See
/// [`outlast_core::job::fence`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Fence {
    /// Epoch that the reporter holds.
    pub epoch: Option<Epoch>,
    /// Native worker that reports, or the id a plain client gave itself.
    pub worker: Option<Reporter>,
    /// Attempt number that a plain client sent.
    pub attempt: Option<u32>,
}

/// Who reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// A native worker.
    Native(WorkerId),
    /// A plain OJS client, by the id it gave itself.
    Plain(String),
}

/// A report that an attempt started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub fence: Fence,
    /// Digest of the pack that the worker runs it with.
    pub pack_digest: Option<Arc<str>>,
}

/// A report that an attempt ended.
#[derive(Clone, Debug)]
pub struct Finish {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub fence: Fence,
    /// How it ended.
    pub reported: ReportedOutcome,
    /// What else is known.
    pub detail: EndDetail,
    /// The reporter, for the event log.
    pub by: String,
}

/// How an attempt ended, as reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedOutcome {
    /// It succeeded.
    Completed,
    /// It failed; the type is matched against `non_retryable_errors`.
    Failed {
        /// Type or code.
        error_type: String,
        /// Whether another attempt may help.
        retryable: bool,
    },
    /// It exceeded its time limit.
    TimedOut,
    /// A shutdown, drain or eviction interrupted it.
    Interrupted,
    /// It never started.
    NotStarted,
    /// The client gives it back.
    Requeued,
    /// The worker no longer has it, and the server missed its report.
    Lost,
}

/// What else is known about an attempt's end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EndDetail {
    /// JSON: the result.
    pub result: Option<String>,
    /// JSON object: the error.
    pub error: Option<String>,
    /// When the attempt started by the worker's account, if it did.
    pub started: Option<Timestamp>,
    /// Exit code of the program.
    pub exit_code: Option<i32>,
    /// Checkpoint to give to the next attempt.
    pub checkpoint: Option<Vec<u8>>,
    /// Why it ended so, in words: the evidence.
    pub evidence: Evidence,
    /// Digest of the pack that the worker ran it with; `None` leaves what its start said.
    pub pack_digest: Option<Arc<str>>,
}

/// A native worker's heartbeat.
#[derive(Clone, Debug)]
pub struct Renew {
    /// The worker.
    pub worker: WorkerId,
    /// Lease from now on.
    pub lease: Span,
    /// Attempts it says it holds.
    pub in_flight: u32,
}

/// A worker that makes itself known.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Its identity: one process start.
    pub id: WorkerId,
    /// Its label.
    pub name: String,
    /// `action`, `sdk`, `ojs` or `sensor`.
    pub role: WorkerRole,
    /// Slots.
    pub concurrency: u32,
    /// Queues it serves.
    pub queues: Vec<String>,
    /// Runtimes it has.
    pub runtimes: Vec<String>,
    /// Labels it carries.
    pub labels: BTreeMap<String, String>,
    /// Lease from now on.
    pub lease: Span,
    /// JSON object: such as host, pid, version and containment.
    pub about: String,
    /// For a plain OJS worker: the id it gave itself.
    pub plain_id: Option<String>,
}

/// What kind of worker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerRole {
    /// Runs packaged actions.
    Action,
    /// Runs registered handlers through an SDK's session.
    Sdk,
    /// A plain OJS client that fetches and acks.
    Ojs,
    /// A sensor.
    Sensor,
}

impl WorkerRole {
    /// Returns the word in the store and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Sdk => "sdk",
            Self::Ojs => "ojs",
            Self::Sensor => "sensor",
        }
    }

    /// Returns the role called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Action, Self::Sdk, Self::Ojs, Self::Sensor]
            .into_iter()
            .find(|role| role.as_str() == word)
    }
}

/// A session that attaches.
#[derive(Clone, Copy, Debug)]
pub struct Attach {
    /// The worker.
    pub worker: WorkerId,
    /// Which of its attachments this is, by its own count: one that comes after a later
    /// one is refused, since it cannot know what the later one was given.
    pub attachment: u64,
    /// Lease from now on.
    pub lease: Span,
}

/// A change of a worker's standing.
#[derive(Clone, Debug)]
pub struct WorkerMove {
    /// The worker.
    pub worker: WorkerId,
    /// What happened. Not [`WorkerEvent::Lapse`] and not [`WorkerEvent::Beat`].
    pub event: WorkerEvent,
    /// Only if its session still has this number (a drop seen by an old session says
    /// nothing about the new one).
    pub session: Option<u64>,
    /// The reporter, for the event log.
    pub by: String,
    /// On what evidence.
    pub evidence: Evidence,
}

/// A worker that is given up for silence. The compare-and-set is on its renewal number.
///
/// `Gone` workers (goodbye, proof of death) release at once through
/// [`Command::Worker`]: the same transaction moves everything they hold.
#[derive(Clone, Debug)]
pub struct Lapse {
    /// The worker.
    pub worker: WorkerId,
    /// The renewal number that was watched; another one refuses the lapse.
    pub renewal: u64,
    /// What may move.
    pub scope: LapseScope,
    /// Whether jobs are not suspected: many workers lapse together, or no server took heartbeats.
    pub mass: bool,
    /// The actor, for the event log.
    pub by: String,
    /// On what evidence.
    pub evidence: Evidence,
}

/// What a lapse moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LapseScope {
    /// The reconnect window passed: the worker lapses, attempts that may overlap move, and
    /// those that must not stay held.
    OverlapAllowed,
    /// The whole lease passed, by the store's clock too: everything the worker still
    /// holds moves. Also accepted for a worker that has lapsed already.
    Everything,
}

/// An order to move one job.
#[derive(Clone, Debug)]
pub struct JobOrder {
    /// The job.
    pub job: JobId,
    /// What to do with it.
    pub action: JobAction,
    /// Tenant that the order is limited to; another tenant's job is not found.
    pub tenant: Option<String>,
    /// Who orders it, for the event log.
    pub by: String,
    /// What the job has to be still; one that has moved since stays as it is.
    pub expected: Option<Seen>,
}

/// What is done with a job by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// It is cancelled.
    Cancel,
    /// It is activated, if it is pending.
    Activate,
    /// It becomes claimable, if it waits for a time.
    RunNow,
    /// It is replayed in a new life, if it is discarded.
    Replay,
}

impl JobAction {
    /// Returns what happens to the job.
    #[must_use]
    pub const fn event(self) -> Event<'static> {
        match self {
            Self::Cancel => Event::Cancel,
            Self::Activate => Event::Activate,
            Self::RunNow => Event::Due,
            Self::Replay => Event::Replay,
        }
    }
}

/// An order to take a dead letter off the list.
#[derive(Clone, Debug)]
pub struct ForgetDeadLetter {
    /// The job.
    pub job: JobId,
    /// Tenant that the order is limited to; another tenant's job is not found.
    pub tenant: Option<String>,
    /// Who orders it, for the event log.
    pub by: String,
}

/// The job as its caller saw it when giving an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its state.
    pub state: State,
    /// The epoch of its latest claim.
    pub epoch: Epoch,
    /// Whether an attempt is known to have started.
    pub started: bool,
}

impl JobOrder {
    /// Returns whether the job is still as the caller saw it.
    #[must_use]
    pub fn still_meets(&self, job: &Job) -> bool {
        let started = job.holder.is_some_and(|holder| holder.started.is_some());
        let now = Seen { state: job.state, epoch: job.epoch, started };
        self.expected.is_none_or(|expected| expected == now)
    }
}

/// A look at what is due.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// How many jobs to touch at most, of each sort.
    pub limit: u32,
    /// Whether this server has watched plain attempts for their visibility, so that their
    /// silence may count (I8): only attempts whose visibility is at most this long.
    pub watched: Span,
}

/// A look for stranded jobs of one class.
#[derive(Clone, Debug)]
pub struct Strand {
    /// The class.
    pub class: ClassId,
    /// Since when no live worker is eligible.
    pub since: Timestamp,
    /// Which workers were considered and why each was not eligible.
    pub reason: String,
    /// How many jobs to touch at most.
    pub limit: u32,
}

/// An order about a queue.
#[derive(Clone, Debug)]
pub struct QueueOrder {
    /// Its name.
    pub queue: String,
    /// Whether fetching stops.
    pub paused: bool,
    /// Who orders it.
    pub by: String,
}

/// A piece of an attempt's output.
#[derive(Clone, Debug)]
pub struct LogChunk {
    /// The job.
    pub job: JobId,
    /// The attempt; a superseded one may still deliver what it printed. Output of one that never
    /// was is passed over.
    pub epoch: Epoch,
    /// Position among the attempt's chunks, from 0. A chunk stored before is not stored
    /// again.
    pub n: u32,
    /// Which stream.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Which stream output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The worker's own remarks about the attempt (truncated, killed …).
    Worker,
}

impl Stream {
    /// Returns the word in the store and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Worker => "worker",
        }
    }
}

/// What an attempt tells of itself under way.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub fence: Fence,
    /// Checkpoint to give to the next attempt.
    pub checkpoint: Option<Vec<u8>>,
}

/// A look for what need not be kept any longer. Dead letters are kept until someone
/// deals with them.
#[derive(Clone, Debug)]
pub struct Prune {
    /// The lease it is done under; refused when another server has taken over.
    pub leadership: LeadershipFence,
    /// Jobs that ended before this go, with their attempts and output; events of the UTC
    /// days before it too, in the end (see [`crate::Store::maintain`]).
    pub finished_before: Timestamp,
    /// Lapsed and stopped workers whose row changed last before this go; leaders of tasks whose
    /// leases were over before it too, but for this one's.
    pub workers_before: Timestamp,
    /// How many rows of each sort at most.
    pub limit: u32,
    /// Whether the jobs are looked at from the oldest on. Otherwise the look goes on where the
    /// last one ended, behind those that were not to go, such as dead letters.
    pub from_start: bool,
}

impl Prune {
    /// Returns which leases of leadership go: those that were over before this.
    #[must_use]
    pub fn leaders_before(&self, now: Timestamp) -> Timestamp {
        self.workers_before.min(now)
    }
}

/// The task of deleting what need not be kept.
pub const RETENTION: &str = "retention";

/// A server wants to lead a task, or resigns; see [`outlast_core::leadership`].
#[derive(Clone, Debug)]
pub struct LeadershipRequest {
    /// The task.
    pub name: String,
    /// The server process that asks.
    pub holder: Uuid,
    /// How long from now it leads; `None` resigns.
    pub hold: Option<Span>,
}

/// The lease of leadership that work is done under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipFence {
    /// The task.
    pub name: String,
    /// The server process that holds it.
    pub holder: Uuid,
    /// The epoch of its lease.
    pub epoch: Epoch,
}
