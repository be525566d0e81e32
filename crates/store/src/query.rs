//! What can be read outside a batch.

use std::path::PathBuf;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, State};
use outlast_core::time::Timestamp;

use crate::command::{ClassId, ClassKey, Stream};
use crate::record::JobRecord;

/// Which page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many rows at most; at least 1.
    pub limit: u32,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// Which jobs. Every filter that is set must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobQuery {
    /// In one of these states; empty means any.
    pub states: Vec<State>,
    /// Of this queue.
    pub queue: Option<String>,
    /// Of this type, or action reference.
    pub job_type: Option<String>,
    /// Whose latest attempt is or was held by this worker.
    pub worker: Option<WorkerId>,
    /// Only dead letters after losses (`abandoned` in the executions API), or only others.
    pub abandoned: Option<bool>,
    /// Only jobs whose last attempt ended by its time limit, or only others.
    pub timed_out: Option<bool>,
    /// Only active jobs whose attempt is known to have started, or only others.
    pub started: Option<bool>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// Which page.
    pub page: Page,
}

/// A page of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<JobRecord>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
    /// How many match in all; counting stops at 10,000.
    pub total: u64,
}

/// A class and whether it has claimable jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassBacklog {
    /// Its number.
    pub id: ClassId,
    /// What it routes.
    pub key: ClassKey,
    /// Whether any job of it is claimable.
    pub ready: bool,
}

/// A queue with its counts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Name.
    pub name: String,
    /// Whether fetching is stopped.
    pub paused: bool,
    /// Jobs by state; terminal states count what is retained.
    pub scheduled: u64,
    /// Claimable.
    pub available: u64,
    /// Waiting for activation.
    pub pending: u64,
    /// Held by a worker.
    pub active: u64,
    /// Waiting for their next attempt.
    pub retryable: u64,
    /// Ended well.
    pub completed: u64,
    /// Ended by request.
    pub cancelled: u64,
    /// Ended without success.
    pub discarded: u64,
    /// Since when the oldest claimable job waits.
    pub oldest_available: Option<Timestamp>,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Its job.
    pub job: JobRecord,
    /// Why it waits for a person.
    pub reason: DeadLetterReason,
    /// Since when.
    pub at: Timestamp,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterPage {
    /// The letters, newest first.
    pub letters: Vec<DeadLetter>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
    /// How many there are in all.
    pub total: u64,
}

/// Which output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The job.
    pub job: JobId,
    /// After this line: the `id` of a [`LogLine`]; 0 for all.
    pub after: u64,
    /// How many chunks at most.
    pub limit: u32,
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Rises within the job.
    pub id: u64,
    /// Attempt that printed it.
    pub epoch: Epoch,
    /// Which stream.
    pub stream: Stream,
    /// When it was stored.
    pub at: Timestamp,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A page of output, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The pieces.
    pub lines: Vec<LogLine>,
}

/// Where a store keeps its data, and how safely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// `sqlite`, `postgres`, or `memory`.
    pub kind: &'static str,
    /// The folder on this machine that it writes to, if it is one.
    pub folder: Option<PathBuf>,
    /// What makes a commit durable, in the backend's own words.
    pub durability: &'static str,
    /// Whether a commit survives a power cut.
    pub durable: bool,
}
