//! What can happen to a job. A closed list: every pair with a state is decided.

use crate::evidence::EvidenceCode;
use crate::id::WorkerId;

/// Something that happened to a job, or was asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A pending job was activated from outside.
    Activate,
    /// The time a scheduled or retryable job waited for has come.
    Due,
    /// A worker takes the job.
    Claim {
        /// The claimant; `None` for a plain OJS fetch that named no worker.
        worker: Option<WorkerId>,
        /// Whether the claim is itself the start, as for a plain OJS fetch.
        starts: bool,
    },
    /// The worker says the attempt started.
    Start,
    /// The attempt ended well.
    Complete,
    /// The attempt ended by the job's own error.
    Fail {
        /// The error's type or code, for the policy's `non_retryable_errors`.
        error_type: &'a str,
        /// Whether the reporter thinks another attempt can help.
        retryable: bool,
    },
    /// The attempt used up its time.
    TimeOut,
    /// The attempt was ended by shutdown, drain or eviction.
    Interrupt,
    /// The worker ended the attempt by itself, because its own lease was over: it had no contact
    /// with the server. It did not die.
    CutOff,
    /// The attempt was handed over and certainly never started.
    Release,
    /// The client gives the job back at no cost (OJS nack with `requeue`).
    Requeue,
    /// The worker that held the attempt was given up.
    Lose {
        /// Whether the job was alone on its worker, so that only it can be to blame.
        alone: bool,
        /// Whether many workers were lost together, so that the job is not suspected.
        mass: bool,
    },
    /// A plain OJS attempt's visibility passed without a sign of life, or the heartbeats of
    /// the worker that holds it stopped.
    ExpireVisibility,
    /// Someone wants the job cancelled.
    Cancel,
    /// The job's `expires_at` has come.
    Expire,
    /// No live worker was eligible for longer than the job's scheduled timeout.
    Strand,
    /// A person replays a discarded job.
    Replay,
}

/// An [`Event`] without its details, for tables and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are those of Event, documented there")]
pub enum EventKind {
    Activate,
    Due,
    Claim,
    Start,
    Complete,
    Fail,
    TimeOut,
    Interrupt,
    CutOff,
    Release,
    Requeue,
    Lose,
    ExpireVisibility,
    Cancel,
    Expire,
    Strand,
    Replay,
}

impl Event<'_> {
    /// Returns what a worker's own report of a lost attempt means. `alone` says whether the worker
    /// held nothing else.
    ///
    /// A worker that could not renew its lease had lost contact, which no job is to blame for.
    /// Anything else may have been the job's doing.
    #[must_use]
    pub const fn of_reported_loss(evidence: Option<EvidenceCode>, alone: bool) -> Self {
        match evidence {
            Some(EvidenceCode::Lease) => Self::CutOff,
            Some(
                EvidenceCode::Drained
                | EvidenceCode::GuardianKilled
                | EvidenceCode::EngineKilled
                | EvidenceCode::WorkerKilled
                | EvidenceCode::Frozen
                | EvidenceCode::ShimLost
                | EvidenceCode::Restored
                | EvidenceCode::Oom
                | EvidenceCode::Host
                | EvidenceCode::HandedBack
                | EvidenceCode::NotHeld,
            )
            | None => Self::Lose { alone, mass: false },
        }
    }

    /// Returns what kind of event this is.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Activate => EventKind::Activate,
            Self::Due => EventKind::Due,
            Self::Claim { .. } => EventKind::Claim,
            Self::Start => EventKind::Start,
            Self::Complete => EventKind::Complete,
            Self::Fail { .. } => EventKind::Fail,
            Self::TimeOut => EventKind::TimeOut,
            Self::Interrupt => EventKind::Interrupt,
            Self::CutOff => EventKind::CutOff,
            Self::Release => EventKind::Release,
            Self::Requeue => EventKind::Requeue,
            Self::Lose { .. } => EventKind::Lose,
            Self::ExpireVisibility => EventKind::ExpireVisibility,
            Self::Cancel => EventKind::Cancel,
            Self::Expire => EventKind::Expire,
            Self::Strand => EventKind::Strand,
            Self::Replay => EventKind::Replay,
        }
    }
}

impl EventKind {
    /// Every kind of event.
    pub const ALL: [Self; 17] = [
        Self::Activate,
        Self::Due,
        Self::Claim,
        Self::Start,
        Self::Complete,
        Self::Fail,
        Self::TimeOut,
        Self::Interrupt,
        Self::CutOff,
        Self::Release,
        Self::Requeue,
        Self::Lose,
        Self::ExpireVisibility,
        Self::Cancel,
        Self::Expire,
        Self::Strand,
        Self::Replay,
    ];
}
