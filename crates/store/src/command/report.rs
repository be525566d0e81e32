//! Reports about attempts: that one started, what it did meanwhile, how it ended.

use std::sync::Arc;

use outlast_core::evidence::Evidence;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Outcome, Refusal, State};
use outlast_core::resources::Usage;
use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::WorkflowId;

use crate::job::{ClassId, ClassKey};
use crate::request::{boxed_requests, requests, unit_requests};

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
    /// What it used.
    pub usage: Usage,
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
    /// The workflow that it is of.
    pub workflow: Option<WorkflowId>,
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

/// Notes that a job runs with other files of its pack than its parameters were validated with.
#[derive(Clone, Debug)]
pub struct NoteSkew {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub epoch: Epoch,
    /// What routes the job.
    pub class: Arc<ClassKey>,
    /// The native worker that runs it.
    pub worker: WorkerId,
    /// Which files these are.
    pub words: String,
    /// Who says so, for the event log.
    pub by: String,
}

requests! {
    Start as Start -> Moved(Result<Moved, MoveRefusal>);
}
boxed_requests! {
    Finish as Finish -> Moved(Result<Moved, MoveRefusal>);
    Progress as Progress -> Moved(Result<Moved, MoveRefusal>);
}
unit_requests! {
    LogChunk as Log;
    NoteSkew as NoteSkew;
}
