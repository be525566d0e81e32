//! Taking jobs for a worker or a client.

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Standing;

use crate::job::ClassId;
use crate::record::StoredJob;
use crate::request::requests;

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
    /// Jobs that it leaves to others: the claimant has just failed them, or taking them was slow. If
    /// it comes back short for that, it says so of their classes.
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

requests! {
    Claim as Claim -> Claimed(Result<Claims, ClaimRefusal>);
}
