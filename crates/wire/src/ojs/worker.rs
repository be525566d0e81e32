//! What plain workers send: fetch, ack, nack, heartbeat.

use outlast_core::id::{Epoch, JobId};
use outlast_core::limits::{FETCH_JOBS_MAX, FETCH_QUEUES_MAX, LONG_POLL_MAX};
use outlast_core::time::Span;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::duration;
use crate::fault::Fault;
use crate::json::{self, Object};
use crate::ojs::quirks::ActiveJobs;
use crate::ojs::{names, quirks};

/// A wish to take jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Queues, most wanted first.
    pub queues: Vec<String>,
    /// How many at most; at least 1.
    pub count: u32,
    /// The id that the worker gave itself.
    pub worker: Option<String>,
    /// Visibility for jobs that do not say.
    pub visibility: Option<Span>,
    /// How long to wait for jobs.
    pub wait: Option<Span>,
}

/// Values are read as they come, so that a wrong one is named by its field.
#[derive(Deserialize)]
struct FetchBody {
    queues: Option<Value>,
    count: Option<Value>,
    worker_id: Option<Value>,
    visibility_timeout_ms: Option<Value>,
    wait_ms: Option<Value>,
}

impl Fetch {
    /// Reads a fetch.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let body: FetchBody = json::read(body)?;
        let queues = body.queues.ok_or_else(|| Fault::field("queues", "is missing"))?;
        let worker = body.worker_id.map(|id| match id {
            Value::String(id) => names::worker(&id).map(|()| id),
            _ => Err(Fault::field("worker_id", "must be a string")),
        });
        let length = |millis: Value| {
            let length = duration::milliseconds(millis.as_u64());
            length.map_err(|wrong| Fault::field("visibility_timeout_ms", wrong))
        };
        let wait = |millis: Value| {
            let problem = "must be a whole number of milliseconds";
            millis.as_u64().map(Span).ok_or_else(|| Fault::field("wait_ms", problem))
        };
        Ok(Self {
            queues: fetch_queues(queues)?,
            count: body.count.as_ref().map_or(Ok(1), fetch_count)?,
            worker: worker.transpose()?,
            visibility: body.visibility_timeout_ms.map(length).transpose()?,
            wait: body.wait_ms.map(wait).transpose()?.map(|wait| wait.min(LONG_POLL_MAX)),
        })
    }
}

fn fetch_queues(queues: Value) -> Result<Vec<String>, Fault> {
    let wrong = |problem: String| Fault::field("queues", problem);
    let queues: Option<Vec<String>> = serde_json::from_value(queues).ok();
    let queues = queues.ok_or_else(|| wrong("must be an array of strings".to_owned()))?;
    if queues.is_empty() {
        return Err(wrong("must name at least one queue".to_owned()));
    }
    if queues.len() > FETCH_QUEUES_MAX {
        let count = queues.len();
        return Err(wrong(format!("names {count} queues; at most {FETCH_QUEUES_MAX} are taken")));
    }
    match queues.iter().find(|queue| !names::is_queue(queue)) {
        Some(queue) => Err(wrong(format!("holds {queue:?}, but a queue {}", names::QUEUE))),
        None => Ok(queues),
    }
}

fn fetch_count(count: &Value) -> Result<u32, Fault> {
    let number = count.as_u64().and_then(|count| u32::try_from(count).ok());
    number.filter(|count| (1..=FETCH_JOBS_MAX).contains(count)).ok_or_else(|| {
        Fault::field("count", format!("must be a whole number from 1 to {FETCH_JOBS_MAX}"))
    })
}

/// What a report says about the attempt it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The job.
    pub job: JobId,
    /// The id that the worker gave itself.
    pub worker: Option<String>,
    /// Attempt number on the wire.
    pub attempt: Option<u32>,
    /// The claim.
    pub lease: Option<Epoch>,
}

#[derive(Deserialize)]
struct ReportBody<'a> {
    job_id: Option<String>,
    worker_id: Option<String>,
    attempt: Option<u32>,
    #[serde(borrow)]
    lease: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Value>,
    requeue: Option<bool>,
}

impl<'a> ReportBody<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Fault> {
        serde_json::from_str(json::text(body)?).map_err(|error| json::syntax(&error))
    }

    fn about(&self) -> Result<About, Fault> {
        let id = self.job_id.as_deref().ok_or_else(|| Fault::field("job_id", "is missing"))?;
        let job = Uuid::try_parse(id).map_err(|_not| Fault::field("job_id", "is not a UUID"))?;
        let lease = self.lease.map(|raw| {
            let text = raw.get().trim_matches('"');
            let epoch = text.parse().map(Epoch);
            epoch.map_err(|_not| Fault::field("lease", "is not a lease of this server"))
        });
        let lease = lease.transpose()?;
        self.worker_id.as_deref().map(names::worker).transpose()?;
        Ok(About { job: JobId(job), worker: self.worker_id.clone(), attempt: self.attempt, lease })
    }
}

/// A report that an attempt ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which attempt.
    pub about: About,
    /// JSON: the result.
    pub result: Option<String>,
}

impl Ack {
    /// Reads an ack.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let body = ReportBody::read(body)?;
        let result = body.result.map(|result| result.get().to_owned());
        Ok(Self { about: body.about()?, result })
    }
}

/// A report that an attempt ended badly, or is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Which attempt.
    pub about: About,
    /// How it ended.
    pub sort: NackSort,
    /// JSON object: the error, with `type`, `code` and `message`.
    pub error: String,
}

/// How an attempt ended, as a nack has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NackSort {
    /// By its own error.
    Failed {
        /// Type or code.
        error_type: String,
        /// Whether another attempt may help.
        retryable: bool,
    },
    /// By its time limit.
    TimedOut,
    /// By the worker's shutdown.
    Interrupted,
    /// The worker gives it back.
    Requeued,
}

impl Nack {
    /// Reads a nack.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let body = ReportBody::read(body)?;
        let about = body.about()?;
        let requeue = body.requeue.unwrap_or(false);
        let error = match body.error {
            Some(Value::Object(error)) => error,
            Some(Value::String(message)) => {
                serde_json::Map::from_iter([("message".to_owned(), Value::String(message))])
            }
            None if requeue => serde_json::Map::new(),
            Some(_) | None => return Err(Fault::field("error", "must be an object")),
        };
        let error_type = quirks::error_type(&error);
        let retryable = error.get("retryable").and_then(Value::as_bool).unwrap_or(true);
        let sort = if requeue {
            NackSort::Requeued
        } else if quirks::is_shutdown(&error_type) || quirks::is_grace_over(&error) {
            NackSort::Interrupted
        } else if error_type == "timeout" && retryable {
            NackSort::TimedOut
        } else {
            NackSort::Failed { error_type: error_type.clone(), retryable }
        };
        Ok(Self { about, sort, error: error_text(error, &error_type) })
    }
}

fn error_text(mut error: serde_json::Map<String, Value>, error_type: &str) -> String {
    let text = |text: &str| Value::String(text.to_owned());
    let code = error.get("code").cloned().unwrap_or_else(|| text(error_type));
    error.entry("code").or_insert_with(|| code.clone());
    error.entry("type").or_insert(code);
    error.entry("message").or_insert_with(|| text(""));
    Value::Object(error).to_string()
}

/// A plain worker's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The id that the worker gave itself.
    pub worker: String,
    /// What it holds.
    pub active_jobs: ActiveJobs,
    /// What it does about new work, if it says so.
    pub phase: Option<BeatPhase>,
    /// Slots, if it says so.
    pub concurrency: Option<u32>,
    /// Queues that it serves, if it says so.
    pub queues: Vec<String>,
    /// Where it runs, if it says so.
    pub host: Option<String>,
}

/// What a worker does about new work, in the words of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeatPhase {
    /// It takes work.
    Running,
    /// It takes none for now.
    Quiet,
    /// It takes none any more.
    Drain,
    /// This is its last word.
    Terminated,
}

#[derive(Deserialize)]
struct HeartbeatBody {
    worker_id: Option<String>,
    active_jobs: Option<Value>,
    active_job_ids: Option<Value>,
    state: Option<String>,
    shutdown: Option<bool>,
    concurrency: Option<u32>,
    queues: Option<Vec<String>>,
    hostname: Option<String>,
}

impl Heartbeat {
    /// Returns the heartbeat of a worker of which only its id is known.
    #[must_use]
    pub fn first(worker: &str) -> Self {
        Self {
            worker: worker.to_owned(),
            active_jobs: ActiveJobs::Count(None),
            phase: None,
            concurrency: None,
            queues: Vec::new(),
            host: None,
        }
    }

    /// Reads a heartbeat.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let body: HeartbeatBody = json::read(body)?;
        let worker = body.worker_id.ok_or_else(|| Fault::field("worker_id", "is missing"))?;
        names::worker(&worker)?;
        let (ids, jobs) = (body.active_job_ids.as_ref(), body.active_jobs.as_ref());
        let active_jobs = quirks::active_jobs(ids, jobs)?;
        let said = body.state.as_deref().map(phase).transpose()?;
        let phase = match (said, body.shutdown) {
            (Some(BeatPhase::Running | BeatPhase::Quiet) | None, Some(true)) => {
                Some(BeatPhase::Drain)
            }
            (said, _) => said,
        };
        Ok(Self {
            worker,
            active_jobs,
            phase,
            concurrency: body.concurrency,
            queues: body.queues.unwrap_or_default(),
            host: body.hostname,
        })
    }
}

fn phase(word: &str) -> Result<BeatPhase, Fault> {
    match word {
        "running" | "active" | "idle" | "busy" => Ok(BeatPhase::Running),
        "quiet" => Ok(BeatPhase::Quiet),
        "drain" | "draining" | "terminate" | "terminating" | "shutting_down" | "stopping" => {
            Ok(BeatPhase::Drain)
        }
        "terminated" | "stopped" => Ok(BeatPhase::Terminated),
        _ => Err(Fault::field("state", "must be `running`, `quiet`, `drain` or `terminated`")),
    }
}

/// Writes the answer to a report about an attempt whose job was cancelled meanwhile: nothing
/// came of it, and its sender did nothing wrong. Clients end themselves over an error here.
pub fn unacknowledged(object: &mut Object<'_>, job: JobId, attempt: u32) {
    object.flag("acknowledged", false);
    object.plain("id", job);
    object.plain("job_id", job);
    object.text("state", "cancelled");
    object.number("attempt", attempt);
}

/// Writes the fields that an ack's and a nack's answer share.
pub fn report_fields(object: &mut Object<'_>, job: JobId) {
    object.flag("acknowledged", true);
    object.plain("id", job);
    object.plain("job_id", job);
}
