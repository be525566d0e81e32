//! What can be read outside a batch.

use std::collections::BTreeMap;
use std::path::PathBuf;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, State, Turn};
use outlast_core::queue::WAITING;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::workflow::WorkflowId;
use uuid::Uuid;

use crate::command::{ClassId, ClassKey, LetterKey, Stream};
use crate::error::StoreError;
use crate::job::rank;
use crate::record::{JobRecord, WorkerRecord};
use crate::tally::{ClassCounts, Counts};

/// Which page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many rows at most; at least 1.
    pub limit: u32,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
}

/// A status of a job: its state, and what else tells statuses with the same state apart.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StatusFilter {
    /// In one of these states.
    pub states: Vec<State>,
    /// Only dead letters after losses, or only others.
    pub abandoned: Option<bool>,
    /// Only jobs whose last attempt ended by its time limit, or only others.
    pub timed_out: Option<bool>,
    /// Only active jobs whose attempt is known to have started, or only others.
    pub started: Option<bool>,
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
    /// With one of these statuses, whose states are all in `states`; empty means any.
    pub statuses: Vec<StatusFilter>,
    /// With these keys, each of this value.
    pub keys: BTreeMap<String, String>,
    /// Stored by a fire of this schedule.
    pub schedule: Option<ScheduleName>,
    /// Of this workflow; not together with a schedule.
    pub workflow: Option<WorkflowId>,
    /// Whose latest error contains this, whether in upper or lower case.
    pub error: Option<String>,
    /// With an id that ends with these digits, in lower case and without hyphens.
    pub id_suffix: Option<String>,
    /// With an id from the first to the second, both included.
    pub ids: Option<(JobId, JobId)>,
    /// Made at this time or later.
    pub created_from: Option<Timestamp>,
    /// Made before this time.
    pub created_before: Option<Timestamp>,
    /// Only dead letters, of these.
    pub letters: Option<LetterFilter>,
    /// Which page.
    pub page: Page,
}

/// Which dead letters. Every filter that is set must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LetterFilter {
    /// For this reason.
    pub reason: Option<DeadLetterReason>,
    /// Dead-lettered at this time or later.
    pub from: Option<Timestamp>,
    /// Dead-lettered before this time.
    pub before: Option<Timestamp>,
}

impl LetterFilter {
    /// Whether a dead letter matches.
    #[must_use]
    pub fn matches(&self, reason: DeadLetterReason, at: Timestamp) -> bool {
        self.reason.is_none_or(|wanted| wanted == reason)
            && self.from.is_none_or(|from| at >= from)
            && self.before.is_none_or(|before| at < before)
    }
}

impl JobQuery {
    /// Returns a query of all dead letters: no other filter is set.
    #[must_use]
    pub fn dead_letters(page: Page) -> Self {
        let letters = LetterFilter { reason: None, from: None, before: None };
        Self { letters: Some(letters), ..Self::all(page) }
    }

    /// Returns a query of all jobs: no filter is set.
    #[must_use]
    pub const fn all(page: Page) -> Self {
        Self {
            states: Vec::new(),
            queue: None,
            job_type: None,
            worker: None,
            abandoned: None,
            timed_out: None,
            started: None,
            tenant: None,
            statuses: Vec::new(),
            keys: BTreeMap::new(),
            schedule: None,
            workflow: None,
            error: None,
            id_suffix: None,
            ids: None,
            created_from: None,
            created_before: None,
            letters: None,
            page,
        }
    }

    /// Whether only looking at a job tells if it matches, however the counts are.
    #[must_use]
    pub fn looks_inside(&self) -> bool {
        !self.statuses.is_empty()
            || !self.keys.is_empty()
            || self.schedule.is_some()
            || self.workflow.is_some()
            || self.error.is_some()
            || self.id_suffix.is_some()
    }

    /// Whether a job has the error that is asked for. Statements of stores find too many: they
    /// compare a part of the text with all that is stored of errors.
    #[must_use]
    pub fn has_error(&self, job: &JobRecord) -> bool {
        let Some(wanted) = &self.error else { return true };
        let wanted = wanted.to_lowercase();
        let contains = |text: &str| text.to_lowercase().contains(&wanted);
        let Some(error) = job.error.as_deref() else { return false };
        match serde_json::from_str(error) {
            Ok(serde_json::Value::Object(parts)) => ["type", "code", "message", "error"]
                .iter()
                .filter_map(|name| parts.get(*name)?.as_str())
                .any(contains),
            _ => contains(error),
        }
    }
}

/// A page of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPage {
    /// The jobs, newest first, without their long texts. Fewer than were asked
    /// for if they are far apart or long: the next page goes on.
    pub jobs: Vec<JobRecord>,
    /// Of each of them the cursor of a page that begins behind it.
    pub cursors: Vec<String>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
    /// How many match in all, where the live counts tell or there are few to count; `None`
    /// where only reading many of them would.
    pub total: Option<u64>,
}

/// Which workers. Every filter that is set must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerQuery {
    /// `active` or `inactive`.
    pub status: Option<String>,
    /// In this state.
    pub state: Option<String>,
    /// Of this role.
    pub role: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// Of this name, or with this id of its own giving.
    pub called: Option<String>,
    /// With an id from the first to the second.
    pub ids: Option<(WorkerId, WorkerId)>,
    /// Which page.
    pub page: Page,
}

impl WorkerQuery {
    /// The first page of all workers.
    #[must_use]
    pub const fn all(limit: u32) -> Self {
        let page = Page { limit, cursor: None };
        Self { status: None, state: None, role: None, name: None, called: None, ids: None, page }
    }

    /// Returns the conditions on a row `w` of the table `worker`, each with `$` in place of the
    /// word that follows. The range of ids is not among them.
    pub fn conditions(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let conditions = [
            ("w.status = $", &self.status),
            ("w.state = $", &self.state),
            ("w.worker_role = $", &self.role),
            ("w.name = $", &self.name),
            ("(w.name = $ or w.plain_id = $)", &self.called),
        ];
        conditions.into_iter().filter_map(|(condition, word)| Some((condition, word.as_ref()?)))
    }

    /// Returns before which worker the page begins, by when it registered and its id.
    ///
    /// # Errors
    /// Returns that the cursor is none.
    pub fn before(&self) -> Result<(i64, WorkerId), StoreError> {
        let Some(text) = &self.page.cursor else {
            return Ok((i64::MAX, WorkerId(Uuid::max())));
        };
        let parts = text.split_once('.');
        let place = parts.and_then(|(created, id)| {
            Some((created.parse().ok()?, WorkerId(Uuid::try_parse(id).ok()?)))
        });
        place.ok_or_else(|| StoreError::Rejected(format!("`{text}` is not a cursor")))
    }
}

/// A page of workers.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerPage {
    /// The workers, latest registered first.
    pub workers: Vec<WorkerRecord>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
    /// How many match in all.
    pub total: u64,
}

impl WorkerPage {
    /// Makes a page of those from its beginning on, of which one more than fits was looked for.
    #[must_use]
    pub fn of(mut workers: Vec<WorkerRecord>, total: u64, page: &Page) -> Self {
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let more = workers.len() > limit;
        workers.truncate(limit);
        let place = |worker: &WorkerRecord| format!("{}.{}", worker.created.0, worker.id);
        let next = workers.last().filter(|_| more).map(place);
        Self { workers, next, total }
    }
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

/// A class that has claimable jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// Its number.
    pub id: ClassId,
    /// What it routes.
    pub key: ClassKey,
    /// How many there are, as far as was counted; at least 1.
    pub count: u32,
}

/// Asks how many claimable jobs go before one, of its class and with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadQuery {
    /// The job.
    pub job: JobId,
    /// The class that it is claimed in.
    pub class: ClassId,
    /// Its lane in that class: [`outlast_core::keys::Keys::lane`].
    pub lane: i64,
    /// Its priority.
    pub priority: i8,
    /// Counting stops here.
    pub max: u32,
}

impl AheadQuery {
    /// Returns the ranks of which the job has one while it is claimable: in front of others of its
    /// priority, as after a loss, and behind those.
    #[must_use]
    pub fn ranks(&self) -> [i64; 2] {
        [Turn::Front, Turn::InOrder].map(|turn| rank(self.priority, turn))
    }
}

/// The job of a class that has been claimable for longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldestClaimable {
    /// The class in whose line it waits.
    pub class: ClassId,
    /// The job.
    pub job: JobId,
    /// Since when it has been claimable.
    pub since: Timestamp,
}

impl From<ClassCounts> for ClassBacklog {
    fn from(class: ClassCounts) -> Self {
        let ready = class.counts.state(State::Available) > 0;
        Self { id: class.id, key: class.key, ready }
    }
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
    /// Since when the oldest claimable job waits, to the second: the beginning of the second in which
    /// it became claimable.
    pub oldest_available: Option<Timestamp>,
}

impl QueueStats {
    /// Returns how many jobs wait: what a bound of the queue counts.
    #[must_use]
    pub fn depth(&self) -> u64 {
        let mut all = self.clone();
        WAITING.iter().map(|state| *all.count_mut(*state)).sum()
    }

    /// Adds jobs.
    pub fn add(&mut self, counts: &Counts) {
        for state in State::ALL {
            *self.count_mut(state) += counts.state(state);
        }
    }

    /// Returns the count of a state.
    pub const fn count_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Scheduled => &mut self.scheduled,
            State::Available => &mut self.available,
            State::Pending => &mut self.pending,
            State::Active => &mut self.active,
            State::Completed => &mut self.completed,
            State::Retryable => &mut self.retryable,
            State::Cancelled => &mut self.cancelled,
            State::Discarded => &mut self.discarded,
        }
    }
}

/// A queue that was paused, resumed or set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePause {
    /// Name.
    pub name: String,
    /// Whether fetching is stopped.
    pub paused: bool,
}

/// Returns how many of the claimable jobs that are next in line, at each priority of each of
/// so many classes, are looked at for the oldest.
#[must_use]
pub fn looked_at(classes: usize) -> i64 {
    let classes = i64::try_from(classes).unwrap_or(i64::MAX);
    (OLDEST_LOOKED_MAX / classes.max(1)).max(OLDEST_LOOKED_MIN)
}

/// Claimable jobs that are looked at for the oldest, in all; more take longer than an answer
/// should.
pub const OLDEST_LOOKED_MAX: i64 = 20_000;
/// How many of each class are looked at even so.
pub const OLDEST_LOOKED_MIN: i64 = 5;

/// A dead letter.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Its job.
    pub job: JobRecord,
    /// Why it was dead-lettered.
    pub reason: DeadLetterReason,
    /// When.
    pub at: Timestamp,
    /// Cursor of a page that begins after it.
    pub cursor: String,
}

/// A dead letter that no server has handled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhandledLetter {
    /// Which one.
    pub key: LetterKey,
    /// The queue of its job.
    pub queue: String,
    /// The type of its job.
    pub job_type: String,
    /// Why it was dead-lettered.
    pub reason: DeadLetterReason,
    /// When.
    pub at: Timestamp,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterPage {
    /// The letters, newest first; jobs without their long texts. Fewer than
    /// were asked for if they are long.
    pub letters: Vec<DeadLetter>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
    /// How many match in all, where that is known.
    pub total: Option<u64>,
}

/// Which output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The job.
    pub job: JobId,
    /// After this line: the `id` of a [`LogLine`]; 0 for all.
    pub after: u64,
    /// How many chunks at most; fewer if these come to
    /// [`PAGE_BYTES_MAX`](outlast_core::limits::PAGE_BYTES_MAX).
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
    /// Rises from 1 with each restore of a backup, and when a store loses what it has
    /// acknowledged.
    pub generation: u64,
    /// The generation of the latest restore. Beyond it, the generation rises when the store loses
    /// what it has acknowledged: what workers hold of this generation or later stays valid.
    pub restored: u64,
}
