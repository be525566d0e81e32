//! What is stored, as read back.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::{Charge, ScheduledTimeout, Spent};
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, Outcome, Rules, State};
use outlast_core::keys::Keys;
use outlast_core::resources::Usage;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Standing;
use outlast_core::worker::order::GivenOrder;

use crate::command::WorkerRole;
use crate::job::{ClassId, ClassKey, Origin, Payload};

/// The immutable part of a job: written once, never updated.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// Id.
    pub id: JobId,
    /// Class it was enqueued in.
    pub class: ClassId,
    /// That class.
    pub key: Arc<ClassKey>,
    /// What it is limited, shared and found by.
    pub keys: Keys,
    /// -100 (last) to 100 (first).
    pub priority: i8,
    /// The payload as sent.
    pub payload: Payload,
    /// What it obeys.
    pub rules: Rules,
    /// Longest an attempt may run.
    pub timeout: Option<Span>,
    /// Visibility of a plain OJS attempt.
    pub visibility: Option<Span>,
    /// How long it is kept while no live worker can run it.
    pub scheduled_timeout: ScheduledTimeout,
    /// Which door it came in by.
    pub origin: Origin,
    /// When it was stored.
    pub created: Timestamp,
    /// When it was to run first, if that was later.
    pub scheduled_for: Option<Timestamp>,
}

/// A job with everything about it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// The immutable part.
    pub job: Arc<StoredJob>,
    /// Stored state.
    pub state: State,
    /// Epoch of the latest claim.
    pub epoch: Epoch,
    /// Life.
    pub life: NonZeroU32,
    /// Budgets used up in this life.
    pub spent: Spent,
    /// Attempt number on the OJS wire.
    pub attempt: u32,
    /// Whether it must run alone.
    pub isolated: bool,
    /// Since when it is in its present state; for `available` since when it waits.
    pub since: Timestamp,
    /// When it is due, for `scheduled` and `retryable`.
    pub due: Option<Timestamp>,
    /// Who holds the attempt.
    pub holder: Option<HolderRecord>,
    /// Who holds or held the latest attempt.
    pub last_holder: Option<HolderRecord>,
    /// When the latest attempt was claimed.
    pub claimed: Option<Timestamp>,
    /// When the latest attempt started.
    pub started: Option<Timestamp>,
    /// When it ended, for terminal states.
    pub finished: Option<Timestamp>,
    /// JSON: the result of the completed attempt.
    pub result: Option<String>,
    /// JSON object: the latest error of this life; none once it completed.
    pub error: Option<String>,
    /// Why it ended without an attempt: `expired`, `cancelled`, `stranded`; else empty.
    pub ended_by: String,
    /// Why it is a dead letter, if it is.
    pub dead_letter: Option<DeadLetterReason>,
    /// What a list left out.
    pub omitted: Omitted,
}

/// Values of a job that a list leaves out because they are longer than
/// [`LISTED_BYTES_MAX`](outlast_core::limits::LISTED_BYTES_MAX), with their lengths in bytes. A job that is read by itself has all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// The arguments; an empty list is in their place.
    pub args: Option<u64>,
    /// The result; it looks as if there were none.
    pub result: Option<u64>,
}

impl Omitted {
    /// What stands for arguments that were left out.
    pub const ARGS: &str = "[]";
}

impl JobRecord {
    /// A job that was never claimed and has not ended: what else is known is filled in.
    #[must_use]
    pub const fn new(job: Arc<StoredJob>, state: State, spent: Spent) -> Self {
        Self {
            job,
            state,
            epoch: Epoch::ZERO,
            life: NonZeroU32::MIN,
            spent,
            attempt: spent.failures,
            isolated: false,
            since: Timestamp(0),
            due: None,
            holder: None,
            last_holder: None,
            claimed: None,
            started: None,
            finished: None,
            result: None,
            error: None,
            ended_by: String::new(),
            dead_letter: None,
            omitted: Omitted { args: None, result: None },
        }
    }

    /// Returns how long its texts are in all, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.job.payload.bytes() + of(&self.result) + of(&self.error)
    }
}

/// Who holds an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderRecord {
    /// Native worker.
    pub worker: Option<WorkerId>,
    /// The worker's name, or the id a plain client gave itself.
    pub name: Option<String>,
    /// Until when a plain attempt is visible to its holder only.
    pub visible_until: Option<Timestamp>,
}

/// An attempt that a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "three independent facts")]
pub struct InFlightJob {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub epoch: Epoch,
    /// Whether it is known to have started.
    pub started: bool,
    /// Whether the job was cancelled and only its process tree is awaited.
    pub cancelled: bool,
    /// Whether it must be alone on its worker.
    pub isolated: bool,
    /// When it was claimed.
    pub claimed: Timestamp,
}

/// An attempt of a cancelled job whose process tree is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelledAttempt {
    /// The worker that holds it.
    pub worker: WorkerId,
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub epoch: Epoch,
}

/// One attempt, running or ended.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// The claim's epoch.
    pub epoch: Epoch,
    /// Life it belongs to.
    pub life: NonZeroU32,
    /// Attempt number on the OJS wire.
    pub attempt: u32,
    /// Native worker.
    pub worker: Option<WorkerId>,
    /// The worker's name, or the id a plain client gave itself.
    pub worker_name: Option<String>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When it started, if that is known.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// How it ended; `None` while it runs.
    pub outcome: Option<Outcome>,
    /// What it was charged; `None` while it runs, and of one that a build ended that did not store it.
    pub charge: Option<Charge>,
    /// State the job moved to.
    pub next_state: Option<State>,
    /// JSON object: its error.
    pub error: Option<String>,
    /// The length of its error in bytes, if that is left out: the errors of later attempts come to
    /// [`PAGE_BYTES_MAX`](outlast_core::limits::PAGE_BYTES_MAX).
    pub omitted: Option<u64>,
    /// Exit code of the program.
    pub exit_code: Option<i32>,
    /// Who said that it ended.
    pub by: String,
    /// On what evidence; `unattributed` if a plain client named no worker.
    pub evidence: Evidence,
    /// Digest of the pack that it ran.
    pub pack_digest: Option<Arc<str>>,
    /// What it used; nothing is known while it runs.
    pub usage: Usage,
}

/// A worker as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerRecord {
    /// Identity.
    pub id: WorkerId,
    /// Label.
    pub name: String,
    /// Kind.
    pub role: WorkerRole,
    /// Phase and liveness.
    pub standing: Standing,
    /// Slots.
    pub concurrency: u32,
    /// Queues it serves.
    pub queues: Vec<String>,
    /// Runtimes it has.
    pub runtimes: Vec<String>,
    /// Labels it carries.
    pub labels: BTreeMap<String, String>,
    /// Its latest heartbeat.
    pub last_heartbeat: Timestamp,
    /// When it registered.
    pub created: Timestamp,
    /// When its row changed last, heartbeats excepted.
    pub updated: Timestamp,
    /// Number of its latest renewal.
    pub renewal: u64,
    /// Number of its latest session.
    pub session: u64,
    /// Number of its latest attachment, by its own count.
    pub attachment: u64,
    /// Length of its lease.
    pub lease: Span,
    /// When its lease ends by the store's clock.
    pub lease_until: Timestamp,
    /// Attempts that it holds.
    pub in_flight: u32,
    /// When the first of these was claimed.
    pub oldest_claim: Option<Timestamp>,
    /// Why its standing is what it is.
    pub evidence: String,
    /// JSON object: host, pid, version, containment.
    pub about: String,
    /// For a plain OJS worker: the id it gave itself.
    pub plain_id: Option<String>,
    /// Why it can run nothing, by what it says; `None` while it is healthy.
    pub unhealthy: Option<Unhealthy>,
    /// The latest order to it, or to the one that it follows.
    pub given: Option<GivenOrder>,
    /// The identity that the same process had before, if it had one.
    pub previous: Option<WorkerId>,
    /// The identity that the same process had next, if it had another one.
    pub followed_by: Option<WorkerId>,
    /// The word for why its standing is what it is, if there is one.
    pub evidence_code: Option<EvidenceCode>,
}

/// A worker that can run nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy {
    /// Why, in words.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// What changes about a worker while it works: little, since it is read each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerBrief {
    /// Identity.
    pub id: WorkerId,
    /// Phase and liveness.
    pub standing: Standing,
    /// Number of its latest renewal.
    pub renewal: u64,
    /// Length of its lease.
    pub lease: Span,
    /// Its latest heartbeat.
    pub last_heartbeat: Timestamp,
    /// When its row changed last, heartbeats excepted: what it can run, too.
    pub updated: Timestamp,
    /// Whether it has lapsed and still holds attempts.
    pub lapsed_holding: bool,
    /// Whether it says that it can run nothing.
    pub unhealthy: bool,
}
