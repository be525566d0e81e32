//! Enqueue jobs and follow them, over HTTP.
//!
//! ```text
//! Client ─▶ http: one request, retried while that is safe ──────▶ server
//!    ├─ NewJob    what is wanted         ─▶ POST   enqueue, enqueue_all
//!    ├─ Job       what the server knows  ◀─ GET    get, wait, cancel, retry
//!    ├─ Schedule  jobs by the clock      ─▶ PUT    schedule, trigger_schedule, …
//!    ├─ Workflow  jobs that follow jobs  ─▶ POST   workflow, start_workflow, …
//!    └─ Events    what happens, in order ◀─ stream of Server-Sent Events
//! ```
//!
//! A request is repeated only if that cannot do anything twice: an enqueue carries an
//! `Idempotency-Key`, which the client generates if its caller gives none.

mod error;
mod events;
mod http;
mod instant;
mod job;
mod new_job;
mod schedule;
mod sse;
mod unique;
mod wait;
mod workflow;

use std::path::PathBuf;
use std::time::Duration;

use outlast_core::id::JobId;
use outlast_core::limits::BULK_JOBS_MAX;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::error::{ClientError, QueueFull, Refusal};
pub use self::events::{Event, EventData, EventFilter, Events};
use self::http::{Http, HttpRequest, Repeat};
pub use self::job::{AttemptError, Job, Unsuccessful};
pub use self::new_job::{NewJob, Retry};
pub use self::schedule::{NewSchedule, Schedule};
pub use self::unique::Unique;
pub use self::workflow::{
    NewStep, NewWorkflow, StartWorkflow, Workflow, WorkflowId, WorkflowStep, WorkflowUnsuccessful,
};
use crate::session::{BadAddress, Token, TokenSource};
use crate::tls::Tls;

/// Enqueues jobs and follows them. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
}

/// Describes a [`Client`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder {
    url: String,
    token: TokenSource,
    tls: Tls,
    connect_timeout: Duration,
    request_timeout: Duration,
    retry_for: Duration,
}

#[derive(Deserialize)]
struct OneJob {
    job: Job,
    #[serde(default)]
    deduplicated: bool,
}

#[derive(Deserialize)]
struct ManyJobs {
    jobs: Vec<Job>,
}

impl Client {
    /// Makes a client of the server at `url`, such as `http://127.0.0.1:8080`, or of several servers
    /// of one deployment, with commas between them, with every option at its default. It asks one of
    /// them, and moves on to the next when that one is away.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn new(url: impl Into<String>) -> Result<Self, BadAddress> {
        Self::builder(url).build()
    }

    /// Describes a client of the server or servers at `url`: see [`Self::new`].
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            url: url.into(),
            token: TokenSource::default(),
            tls: Tls::new(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            retry_for: Duration::from_secs(30),
        }
    }

    /// Stores a job. Once this returns, the job survives a crash of the server.
    ///
    /// # Errors
    /// When the arguments cannot be written as JSON, the server refuses the job, or it cannot be
    /// reached.
    /// Only [`ClientError::Unreachable`] leaves open whether the job was stored; the same
    /// job under the same [`NewJob::idempotency_key`] may then be enqueued again.
    pub async fn enqueue(&self, job: NewJob) -> Result<Job, ClientError> {
        let (envelope, key) = job.into_parts()?;
        let body = encoded("job", &envelope)?;
        let path = ["ojs", "v1", "jobs"];
        let answer = self.http.send(HttpRequest::post(&path, body).keyed(key)?).await?;
        let OneJob { job, deduplicated } = answer.read()?;
        Ok(Job { deduplicated, ..job })
    }

    /// Stores several jobs in one transaction, all of them or none; at most 10,000, within
    /// the server's limit of a request's size (1 MiB unless it is configured).
    ///
    /// # Errors
    /// As [`Self::enqueue`]; and when a job has an idempotency key of its own: jobs that are
    /// stored together are repeated together.
    pub async fn enqueue_all(
        &self,
        jobs: impl IntoIterator<Item = NewJob>,
    ) -> Result<Vec<Job>, ClientError> {
        self.enqueue_all_keyed(None, jobs).await
    }

    /// As [`Self::enqueue_all`], with an idempotency key for all of them.
    ///
    /// # Errors
    /// As [`Self::enqueue_all`].
    pub async fn enqueue_all_once(
        &self,
        idempotency_key: impl Into<String>,
        jobs: impl IntoIterator<Item = NewJob>,
    ) -> Result<Vec<Job>, ClientError> {
        self.enqueue_all_keyed(Some(idempotency_key.into()), jobs).await
    }

    async fn enqueue_all_keyed(
        &self,
        key: Option<String>,
        jobs: impl IntoIterator<Item = NewJob>,
    ) -> Result<Vec<Job>, ClientError> {
        let mut envelopes: Vec<Box<RawValue>> = Vec::new();
        let mut may_be_ignored = false;
        for job in jobs {
            let (envelope, key) = job.into_parts()?;
            if let Some(key) = key {
                let problem = format!("a job of a bulk has the idempotency key {key:?}");
                return Err(ClientError::usage(problem, "give one key to `enqueue_all_once`"));
            }
            if envelopes.len() == BULK_JOBS_MAX {
                let problem = format!("a bulk holds more than {BULK_JOBS_MAX} jobs");
                return Err(ClientError::usage(problem, "enqueue them in several"));
            }
            may_be_ignored |= unique::may_be_ignored(&envelope);
            let raw = serde_json::value::to_raw_value(&envelope);
            envelopes.push(raw.map_err(|source| ClientError::encode("job", source))?);
        }
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        let body = encoded("jobs", &serde_json::json!({ "jobs": envelopes }))?;
        let path = ["ojs", "v1", "jobs", "batch"];
        let request = HttpRequest::post(&path, body);
        // The server gives no two answers to such a request under one key.
        let request = match key {
            None if may_be_ignored => request.repeated(Repeat::IfNotSent),
            key => request.keyed(key)?,
        };
        let answer = self.http.send(request).await?;
        answer.read::<ManyJobs>().map(|answer| answer.jobs)
    }

    /// Reads a job.
    ///
    /// # Errors
    /// When it is not known ([`ClientError::is_not_found`]), or the server cannot be reached.
    pub async fn get(&self, id: JobId) -> Result<Job, ClientError> {
        let id = id.to_string();
        let answer = self.http.send(HttpRequest::get(&["ojs", "v1", "jobs", &id])).await?;
        answer.read::<OneJob>().map(|answer| answer.job)
    }

    /// Cancels a job. It is `cancelled` from now on; a running attempt is ordered to stop.
    /// Cancelling a job that is cancelled already changes nothing and is no error.
    ///
    /// # Errors
    /// When the job is not known, or has completed or been discarded
    /// ([`ClientError::is_conflict`]), or the server cannot be reached.
    pub async fn cancel(&self, id: JobId) -> Result<Job, ClientError> {
        let text = id.to_string();
        let path = ["ojs", "v1", "jobs", &text, "cancel"];
        let request = HttpRequest::post(&path, Vec::new()).repeated(Repeat::Safe);
        match self.http.send(request).await {
            Ok(answer) => answer.read::<OneJob>().map(|answer| answer.job),
            Err(error) if error.is_conflict() => {
                let job = self.get(id).await?;
                if job.state == crate::JobState::Cancelled { Ok(job) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a discarded job a new life: its budgets start over. Needs a token of an operator.
    ///
    /// It is sent once, unless no connection was made: repeated, it could start one more life.
    ///
    /// # Errors
    /// When the job is not known or not discarded, or the server cannot be reached.
    pub async fn retry(&self, id: JobId) -> Result<Job, ClientError> {
        let text = id.to_string();
        let path = ["api", "v1", "executions", &text, "retry"];
        self.http.send(HttpRequest::post(&path, Vec::new()).repeated(Repeat::IfNotSent)).await?;
        self.get(id).await
    }

    /// Waits until a job has ended, however it ended, for at most `patience`.
    ///
    /// It follows the job's events, so it learns of the end at once; without events it polls. It
    /// rides through a restart of the server.
    ///
    /// # Errors
    /// [`ClientError::WaitTimedOut`] with the job as it was last seen, when the time is over; also
    /// when the job is not known, or the token may not read it.
    pub async fn wait(&self, id: JobId, patience: Duration) -> Result<Job, ClientError> {
        wait::wait(self, id, patience).await
    }

    /// Follows what happens on the server. Nothing is sent before the first
    /// [`Events::next`].
    #[must_use]
    pub fn events(&self, filter: EventFilter) -> Events {
        Events::new(self.http.clone(), filter)
    }
}

impl ClientBuilder {
    /// Bearer token. Default: none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token.text = Some(Token(token.into()));
        self
    }

    /// File that holds the bearer token. It is read when the client is built, unless [`Self::token`]
    /// is given too, and again when a server refuses the token: a request that was refused for it is
    /// then sent once more. So a token may be replaced while the client and its event streams are
    /// in use. Default: none.
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token.file = Some(file.into());
        self
    }

    /// How the certificate of an `https://` server is verified, and which client certificate is
    /// presented to it. Default: the system's authorities, and none.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Longest time that connecting may take. Default: 5 s.
    pub const fn connect_timeout(mut self, longest: Duration) -> Self {
        self.connect_timeout = longest;
        self
    }

    /// Longest time that one request may take, response included. Default: 10 s. Event streams
    /// have no such limit; one that is silent for 30 s is considered lost.
    pub const fn request_timeout(mut self, longest: Duration) -> Self {
        self.request_timeout = longest;
        self
    }

    /// How long a request is retried, with growing pauses, while the server cannot be reached or
    /// is not available. Default: 30 s. Zero sends everything once, and enqueues without a
    /// generated key.
    pub const fn retry_for(mut self, period: Duration) -> Self {
        self.retry_for = period;
        self
    }

    /// Makes the client. Nothing is sent.
    ///
    /// # Errors
    /// When the address or the token cannot be used.
    pub fn build(self) -> Result<Client, BadAddress> {
        Ok(Client { http: Http::new(self)? })
    }
}

fn encoded(what: &'static str, value: &impl serde::Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(value).map_err(|source| ClientError::encode(what, source))
}
