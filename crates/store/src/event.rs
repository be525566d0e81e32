//! The event log: for every transition who did it, on what evidence, at which epoch.
//!
//! A sequence number alone is not a cursor: with several writers, the second can be committed
//! before the first. Each writer commits its own batches in order, so a cursor is a vector
//! with a place for each (`outlast_store_rules::cursor`), kept here as the text that the store handed out.

use outlast_core::author::Author;
use outlast_core::evidence::Evidence;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Outcome, State};
use outlast_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};

/// One fact. Field names are short in the store and plain in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What, as a dotted word: `job.enqueued`, `job.started`, `worker.lapsed` …
    pub kind: EventName,
    /// The job it is about.
    pub job: Option<JobId>,
    /// The worker it is about, or that did it.
    pub worker: Option<WorkerId>,
    /// Epoch after the event.
    pub epoch: Option<Epoch>,
    /// The job's type.
    pub job_type: Option<String>,
    /// The job's queue.
    pub queue: Option<String>,
    /// State the job moved to.
    pub state: Option<State>,
    /// How the attempt ended.
    pub outcome: Option<Outcome>,
    /// Attempt number on the OJS wire.
    pub attempt: Option<u32>,
    /// How long the attempt ran.
    pub duration: Option<Span>,
    /// Who did it.
    pub by: String,
    /// On what evidence.
    pub evidence: Evidence,
}

impl Event {
    /// Returns an event that is about no job and no worker.
    #[must_use]
    pub fn new(at: Timestamp, kind: EventName, by: &str, evidence: impl Into<Evidence>) -> Self {
        Self {
            at,
            kind,
            job: None,
            worker: None,
            epoch: None,
            job_type: None,
            queue: None,
            state: None,
            outcome: None,
            attempt: None,
            duration: None,
            by: by.to_owned(),
            evidence: evidence.into(),
        }
    }

    /// Returns who did it by a request, and from where; `None` if it was no request.
    #[must_use]
    pub fn author(&self) -> Option<Author<'_>> {
        Author::parse(&self.by)
    }
}

/// Names of events (OJS events, sections "Core" and "Worker", and ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is its dotted word")]
pub enum EventName {
    #[serde(rename = "job.enqueued")]
    JobEnqueued,
    #[serde(rename = "job.available")]
    JobAvailable,
    #[serde(rename = "job.claimed")]
    JobClaimed,
    #[serde(rename = "job.started")]
    JobStarted,
    #[serde(rename = "job.completed")]
    JobCompleted,
    #[serde(rename = "job.failed")]
    JobFailed,
    #[serde(rename = "job.retrying")]
    JobRetrying,
    #[serde(rename = "job.interrupted")]
    JobInterrupted,
    #[serde(rename = "job.lost")]
    JobLost,
    #[serde(rename = "job.released")]
    JobReleased,
    #[serde(rename = "job.discarded")]
    JobDiscarded,
    #[serde(rename = "job.dead_lettered")]
    JobDeadLettered,
    #[serde(rename = "job.cancelled")]
    JobCancelled,
    #[serde(rename = "job.vacated")]
    JobVacated,
    /// The job runs with other files of its pack than its parameters were validated with.
    #[serde(rename = "job.pack_skew")]
    JobPackSkew,
    #[serde(rename = "job.unconfirmed")]
    JobUnconfirmed,
    #[serde(rename = "job.expired")]
    JobExpired,
    #[serde(rename = "job.stranded")]
    JobStranded,
    #[serde(rename = "job.replayed")]
    JobReplayed,
    #[serde(rename = "job.purged")]
    JobPurged,
    #[serde(rename = "job.interruption_budget_spent")]
    JobInterruptionBudgetSpent,
    /// An execution reached a terminal status.
    #[serde(rename = "execution.completed")]
    ExecutionCompleted,
    #[serde(rename = "queue.paused")]
    QueuePaused,
    #[serde(rename = "queue.resumed")]
    QueueResumed,
    #[serde(rename = "queue.set")]
    QueueSet,
    #[serde(rename = "limit.set")]
    LimitSet,
    #[serde(rename = "limit.removed")]
    LimitRemoved,
    #[serde(rename = "limit.recounted")]
    LimitRecounted,
    /// A schedule was made or changed.
    #[serde(rename = "cron.set")]
    CronSet,
    #[serde(rename = "cron.removed")]
    CronRemoved,
    #[serde(rename = "cron.paused")]
    CronPaused,
    #[serde(rename = "cron.resumed")]
    CronResumed,
    /// A schedule fired: its job is stored.
    #[serde(rename = "cron.triggered")]
    CronTriggered,
    /// A fire of a schedule was left out; the evidence says why.
    #[serde(rename = "cron.skipped")]
    CronSkipped,
    #[serde(rename = "workflow.started")]
    WorkflowStarted,
    /// A step of a workflow ended; the evidence says which, and how.
    #[serde(rename = "workflow.step_ended")]
    WorkflowStepEnded,
    /// A workflow is to end: it was cancelled, or took too long.
    #[serde(rename = "workflow.stopping")]
    WorkflowStopping,
    /// A workflow goes on after a retry, or since a job of it lives again.
    #[serde(rename = "workflow.retried")]
    WorkflowRetried,
    /// A workflow ended; the evidence says how.
    #[serde(rename = "workflow.ended")]
    WorkflowEnded,
    /// An operation began; the evidence says on which jobs.
    #[serde(rename = "operation.started")]
    OperationStarted,
    /// An operation ended; the evidence says what became of the jobs.
    #[serde(rename = "operation.ended")]
    OperationEnded,
    #[serde(rename = "worker.registered")]
    WorkerRegistered,
    #[serde(rename = "worker.attached")]
    WorkerAttached,
    #[serde(rename = "worker.suspect")]
    WorkerSuspect,
    #[serde(rename = "worker.quiet")]
    WorkerQuiet,
    #[serde(rename = "worker.resumed")]
    WorkerResumed,
    #[serde(rename = "worker.draining")]
    WorkerDraining,
    #[serde(rename = "worker.lapsed")]
    WorkerLapsed,
    #[serde(rename = "worker.stopped")]
    WorkerStopped,
    #[serde(rename = "worker.unhealthy")]
    WorkerUnhealthy,
    #[serde(rename = "worker.healthy")]
    WorkerHealthy,
    /// An order to all workers that are chosen stands from now on.
    #[serde(rename = "worker.order_set")]
    WorkerOrderSet,
    #[serde(rename = "worker.order_lifted")]
    WorkerOrderLifted,
    /// A worker that had ended was taken off the list; the evidence is its name.
    #[serde(rename = "worker.forgotten")]
    WorkerForgotten,
    /// Someone signed in with a browser; the evidence names the session, and where from.
    #[serde(rename = "session.began")]
    SessionBegan,
    /// Someone signed out, or a session was ended; the evidence names it.
    #[serde(rename = "session.ended")]
    SessionEnded,
    /// A standby took the place of the store's primary, and some of what was acknowledged is lost.
    #[serde(rename = "store.failed_over")]
    StoreFailedOver,
    /// A job was acknowledged and is not stored any more.
    #[serde(rename = "store.job_lost")]
    StoreJobLost,
    /// It is not stored any more that a worker was given the job.
    #[serde(rename = "store.claim_lost")]
    StoreClaimLost,
    /// It is not stored any more that the job was cancelled, retried or moved by another order.
    #[serde(rename = "store.order_lost")]
    StoreOrderLost,
    /// It is not stored any more how an attempt of the job ended.
    #[serde(rename = "store.result_lost")]
    StoreResultLost,
}

/// Which events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventQuery {
    /// After this cursor; `None` from the oldest retained.
    pub after: Option<String>,
    /// Only these dotted words; empty means all. `job.*` and `worker.*` match a family.
    pub names: Vec<String>,
    /// Only of these queues; empty means all.
    pub queues: Vec<String>,
    /// Only about this job.
    pub job: Option<JobId>,
    /// Only about this worker, or done by it.
    pub worker: Option<WorkerId>,
    /// Only changes by requests, whose [`Author`] is known: the audit.
    pub audit: bool,
    /// How many at most.
    pub limit: u32,
}

impl EventQuery {
    /// Returns the query of all events that are kept, the oldest first.
    #[must_use]
    pub const fn all(limit: u32) -> Self {
        Self {
            after: None,
            names: Vec::new(),
            queues: Vec::new(),
            job: None,
            worker: None,
            audit: false,
            limit,
        }
    }

    /// Returns whether an event is one of those asked for.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        let named =
            self.names.is_empty() || self.names.iter().any(|pattern| event.kind.matches(pattern));
        let queued = self.queues.is_empty()
            || event.queue.as_ref().is_some_and(|queue| self.queues.contains(queue));
        let about = self.job.is_none() || event.job == self.job;
        let done_by = self.worker.is_none() || event.worker == self.worker;
        let audited = !self.audit || event.author().is_some();
        named && queued && about && done_by && audited
    }
}

/// A page of events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPage {
    /// The events, each with the cursor that continues after it.
    pub events: Vec<(String, Event)>,
    /// Cursor that continues after everything looked at, matching or not.
    pub next: String,
    /// Whether the log was looked at to its end.
    pub is_complete: bool,
}

/// Which of the newest events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestQuery {
    /// What they are about, and how many at most. Where it begins does not matter.
    pub of: EventQuery,
    /// Logged at this time or later.
    pub since: Option<Timestamp>,
    /// Logged before this time.
    pub until: Option<Timestamp>,
    /// Before this place: [`NewestPage::previous`], or the id of an event of such a page.
    pub before: Option<String>,
}

/// The newest events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestPage {
    /// The events, each with a cursor that continues after it.
    pub events: Vec<(String, Event)>,
    /// Where the page before this one ends; `None` if nothing is before it.
    pub previous: Option<String>,
}

impl EventName {
    /// Returns the event's dotted word.
    #[must_use]
    pub fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            _ => String::new(),
        }
    }

    /// Returns whether some event may match a pattern.
    #[must_use]
    pub fn is_pattern(pattern: &str) -> bool {
        let family = |prefix| {
            [
                "job.",
                "execution.",
                "queue.",
                "limit.",
                "cron.",
                "workflow.",
                "session.",
                "operation.",
                "worker.",
                "store.",
            ]
            .contains(&prefix)
        };
        match pattern.strip_suffix('*') {
            Some(prefix) => prefix.is_empty() || family(prefix),
            None => serde_json::from_value::<Self>(pattern.into()).is_ok(),
        }
    }

    /// Returns whether a pattern (`job.completed`, `job.*`) matches the event.
    #[must_use]
    pub fn matches(self, pattern: &str) -> bool {
        let word = self.word();
        pattern.strip_suffix('*').map_or(word == pattern, |prefix| word.starts_with(prefix))
    }
}
