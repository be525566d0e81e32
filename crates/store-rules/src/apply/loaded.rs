//! Jobs and workers as a backend reads them from its tables.

use std::sync::Arc;

use outlast_core::evidence::EvidenceCode;
use outlast_core::id::WorkerId;
use outlast_core::job::{DeadLetterReason, Job};
use outlast_core::limit::GateId;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Standing;
use outlast_core::worker::order::GivenOrder;
use outlast_store::command::ClassId;
use outlast_store::record::StoredJob;

/// A job, with where its row is.
///
/// A job is in exactly one of four tables: ready, waiting, active or finished. A cancelled job
/// whose process tree has not ended yet is in active and finished.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its number in the store.
    pub seq: i64,
    /// Its immutable part, without the payload: no decision needs that.
    pub stored: Arc<StoredJob>,
    /// What the rules see of it.
    pub job: Job,
    /// Where it is.
    pub location: Location,
    /// Whether an attempt left a checkpoint.
    pub checkpoint: bool,
}

/// The table that a job is in, with what else its row says.
#[derive(Clone, Debug)]
pub enum Location {
    /// Claimable.
    Ready {
        /// The class it can be claimed in: its own, or the isolated twin.
        class: ClassId,
        /// Its place in the class.
        rank: i64,
        /// Since when it has been claimable.
        since: Timestamp,
    },
    /// It waits for a time or an activation.
    Waiting,
    /// An attempt holds it.
    Active(ActiveAttempt),
    /// It has ended; with the reason why it is a dead letter, if it is one.
    Finished(Option<DeadLetterReason>),
}

/// The row of a running attempt.
#[derive(Clone, Debug)]
pub struct ActiveAttempt {
    /// The native worker that holds it.
    pub worker: Option<WorkerId>,
    /// The id that its plain holder gave itself.
    pub plain: Option<String>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When it started, if that is known.
    pub started: Option<Timestamp>,
    /// How long a plain claim stays invisible to others.
    pub visibility: Option<Span>,
    /// Whether the job was cancelled, and its process tree has not ended yet.
    pub cancelled: bool,
    /// Digest of the pack that it runs, once that is known.
    pub pack_digest: Option<Arc<str>>,
    /// The gates that count it.
    pub gates: Vec<GateId>,
}

impl Loaded {
    /// Returns the attempt that holds the job.
    #[must_use]
    pub const fn attempt(&self) -> Option<&ActiveAttempt> {
        match &self.location {
            Location::Active(attempt) => Some(attempt),
            Location::Ready { .. } | Location::Waiting | Location::Finished(_) => None,
        }
    }

    /// Returns the id that a plain holder gave itself.
    #[must_use]
    pub fn plain_holder(&self) -> Option<&str> {
        self.attempt().and_then(|attempt| attempt.plain.as_deref())
    }

    /// Returns the class that the job counts in: the one it can be claimed in, else its own.
    #[must_use]
    pub fn counted_in(&self) -> ClassId {
        match self.location {
            Location::Ready { class, .. } => class,
            Location::Waiting | Location::Active(_) | Location::Finished(_) => self.stored.class,
        }
    }

    /// Names the holder of the attempt, as the event log does.
    pub(super) fn holder_name(&self) -> String {
        let Some(attempt) = self.attempt() else { return String::new() };
        match attempt.worker {
            Some(worker) => format!("worker {worker}"),
            None => attempt.plain.clone().unwrap_or_default(),
        }
    }
}

/// What a decision about a worker looks at.
#[derive(Clone, Copy, Debug)]
pub struct KnownWorker {
    /// Its phase and liveness.
    pub standing: Standing,
    /// The number of its newest session.
    pub session: u64,
    /// The number it gave its newest attempt to attach.
    pub attachment: u64,
    /// How often its lease was renewed.
    pub renewal: u64,
    /// Until when its lease lasts.
    pub lease_until: Timestamp,
    /// Whether it is a plain worker.
    pub plain: bool,
    /// Whether it said that it can run nothing.
    pub unhealthy: bool,
    /// The latest order to it, or to the one that it follows.
    pub given: Option<GivenOrder>,
    /// The identity that the same process had before, if it had one.
    pub previous: Option<WorkerId>,
    /// The identity that the same process had next, if it had another one.
    pub followed_by: Option<WorkerId>,
    /// How its standing changed last, if there is a word for it.
    pub ended_by: Option<EvidenceCode>,
    /// When its row changed last, heartbeats excepted.
    pub updated: Timestamp,
}
