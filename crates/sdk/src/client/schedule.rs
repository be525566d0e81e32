//! Schedules: jobs that the server stores by the clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use outlast_core::id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::http::HttpRequest;
use super::{Client, ClientError, NewJob, encoded, instant};

/// Path of all schedules.
const ALL: [&str; 3] = ["api", "v1", "schedules"];

/// A schedule to be set: when it fires, and the job that each fire stores. Options that are not set
/// are the server's defaults.
///
/// ```
/// # use outlast_sdk::{NewJob, NewSchedule};
/// let nightly = NewSchedule::new("0 2 * * *", NewJob::new("report.make", "sales"))
///     .time_zone("Europe/Vienna")
///     .overlap("queue");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewSchedule {
    fields: Map<String, Value>,
    /// Kept until it is sent: only then can an error be returned.
    job: Template,
}

#[derive(Clone, Debug)]
enum Template {
    Job(Box<NewJob>),
    /// An action or a workflow, with its parameters.
    Named(Named, Result<Value, Arc<serde_json::Error>>),
}

#[derive(Clone, Debug)]
struct Named {
    field: &'static str,
    reference: String,
}

impl NewSchedule {
    /// Stores such a job at each time of the expression: five or six fields as in a crontab, a
    /// nickname such as `@daily`, or `@every 90s`. The job must not have a delay, a time to run at,
    /// an idempotency key or [`NewJob::unique`].
    pub fn new(expression: impl Into<String>, job: NewJob) -> Self {
        Self::with(expression.into(), Template::Job(Box::new(job)))
    }

    /// Runs a packaged action with these parameters at each time of the expression.
    pub fn action(
        expression: impl Into<String>,
        action_ref: impl Into<String>,
        parameters: impl Serialize,
    ) -> Self {
        let action = Named { field: "action_ref", reference: action_ref.into() };
        let parameters = serde_json::to_value(parameters).map_err(Arc::new);
        Self::with(expression.into(), Template::Named(action, parameters))
    }

    /// Starts the workflow of a pack with these parameters at each time of the expression.
    pub fn workflow(
        expression: impl Into<String>,
        workflow_ref: impl Into<String>,
        parameters: impl Serialize,
    ) -> Self {
        let workflow = Named { field: "workflow_ref", reference: workflow_ref.into() };
        let parameters = serde_json::to_value(parameters).map_err(Arc::new);
        Self::with(expression.into(), Template::Named(workflow, parameters))
    }

    fn with(expression: String, job: Template) -> Self {
        let mut fields = Map::new();
        fields.insert("cron".to_owned(), Value::String(expression));
        Self { fields, job }
    }

    /// The place whose clock the expression is read on, such as `Europe/Vienna`. Default: UTC.
    pub fn time_zone(self, place: impl Into<String>) -> Self {
        self.option("time_zone", json!(place.into()))
    }

    /// What a fire does while an earlier job waits or runs: `skip`, `queue`, `replace` or `allow`.
    /// Default: `skip`.
    pub fn overlap(self, word: impl Into<String>) -> Self {
        self.option("overlap", json!(word.into()))
    }

    /// What becomes of fires that were missed while no server ran: `none`, `one` or `all`.
    /// Default: `one`.
    pub fn catch_up(self, word: impl Into<String>) -> Self {
        self.option("catch_up", json!(word.into()))
    }

    /// Most that a fire is put off, so that many do not come at once. Default: nothing. In
    /// milliseconds.
    pub fn jitter(self, most: Duration) -> Self {
        self.option("jitter", json!(format!("{}ms", most.as_millis())))
    }

    /// The last moment at which it fires. Default: it has no end.
    pub fn until(self, at: SystemTime) -> Self {
        self.option("until", json!(instant::text(at)))
    }

    /// An option by its name in the API, for those without a method here.
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.fields.insert(name.into(), value);
        self
    }

    fn into_body(self) -> Result<Vec<u8>, ClientError> {
        let mut fields = self.fields;
        match self.job {
            Template::Job(job) => {
                let (envelope, key) = job.into_parts()?;
                if key.is_some() {
                    let problem = "the job of a schedule has an idempotency key".to_owned();
                    return Err(ClientError::usage(problem, "each fire stores a job of its own"));
                }
                fields.extend(envelope.as_object().cloned().unwrap_or_default());
            }
            Template::Named(Named { field, reference }, parameters) => {
                let parameters =
                    parameters.map_err(|source| ClientError::encode("parameters", source))?;
                fields.insert(field.to_owned(), Value::String(reference));
                fields.insert("parameters".to_owned(), parameters);
            }
        }
        encoded("schedule", &fields)
    }
}

/// A schedule as the server knew it when it answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// Its expression.
    #[serde(rename = "cron")]
    pub expression: String,
    /// The place whose clock that is read on.
    pub time_zone: String,
    /// What a fire does while an earlier job waits or runs.
    pub overlap: String,
    /// What becomes of fires that were missed.
    pub catch_up: String,
    /// `active`, `paused` or `ended`.
    pub status: String,
    /// When it fires next, unless it is paused or has ended.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub next_fire: Option<SystemTime>,
    /// How many jobs it has stored.
    pub fired: u64,
    /// How many fires were left out.
    pub skipped: u64,
    /// Whether it belongs to a server's configuration, so that a client cannot change it.
    pub configured: bool,
    /// What else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Deserialize)]
struct One {
    data: Schedule,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Schedule>,
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Triggered {
    data: Fired,
}

#[derive(Deserialize)]
struct Fired {
    #[serde(alias = "workflow_id")]
    job_id: Uuid,
}

fn path(name: &str) -> [&str; 4] {
    let [api, version, schedules] = ALL;
    [api, version, schedules, name]
}

/// Schedules. All but reading needs a token of an operator.
impl Client {
    /// Sets a schedule, or changes the one of this name. Setting the same again changes nothing,
    /// so a program may do it at each start.
    ///
    /// # Errors
    /// When the server refuses it, for example because the expression cannot be read or the
    /// schedule belongs to a server's configuration ([`ClientError::is_conflict`]), or it cannot be
    /// reached.
    pub async fn schedule(
        &self,
        name: &str,
        schedule: NewSchedule,
    ) -> Result<Schedule, ClientError> {
        let path = path(name);
        let answer = self.http.send(HttpRequest::put(&path, schedule.into_body()?)).await?;
        answer.read::<One>().map(|answer| answer.data)
    }

    /// Reads a schedule.
    ///
    /// # Errors
    /// When it is not known ([`ClientError::is_not_found`]), or the server cannot be reached.
    pub async fn get_schedule(&self, name: &str) -> Result<Schedule, ClientError> {
        let answer = self.http.send(HttpRequest::get(&path(name))).await?;
        answer.read::<One>().map(|answer| answer.data)
    }

    /// Reads all schedules, by name.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn schedules(&self) -> Result<Vec<Schedule>, ClientError> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let mut request = HttpRequest::get(&ALL).query("limit", "1000");
            if let Some(cursor) = cursor {
                request = request.query("cursor", cursor);
            }
            let page: Page = self.http.send(request).await?.read()?;
            all.extend(page.data);
            cursor = page.pagination.next_cursor;
            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// Removes a schedule. Its jobs stay.
    ///
    /// # Errors
    /// When it is not known or belongs to a server's configuration, or the server cannot be
    /// reached.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), ClientError> {
        self.http.send(HttpRequest::delete(&path(name))).await.map(|_| ())
    }

    /// Stops a schedule from firing until it is resumed.
    ///
    /// # Errors
    /// When it is not known, or the server cannot be reached.
    pub async fn pause_schedule(&self, name: &str, reason: &str) -> Result<Schedule, ClientError> {
        let [api, version, schedules, name] = path(name);
        let body = encoded("reason", &json!({ "reason": reason }))?;
        let path = [api, version, schedules, name, "pause"];
        let request = HttpRequest::post(&path, body).repeated(super::Repeat::Safe);
        self.http.send(request).await?.read::<One>().map(|answer| answer.data)
    }

    /// Lets a paused schedule fire again. What it missed stays missed.
    ///
    /// # Errors
    /// When it is not known, or the server cannot be reached.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule, ClientError> {
        let [api, version, schedules, name] = path(name);
        let path = [api, version, schedules, name, "resume"];
        let request = HttpRequest::post(&path, Vec::new()).repeated(super::Repeat::Safe);
        self.http.send(request).await?.read::<One>().map(|answer| answer.data)
    }

    /// Fires a schedule now, beside its times; returns the job, or the id of the workflow if that is what
    /// it starts. It is sent once, unless no connection
    /// was made: repeated, it could fire twice.
    ///
    /// # Errors
    /// When it is not known, an earlier job has not ended and `overlap` is `skip`
    /// ([`ClientError::is_conflict`]), or the server cannot be reached.
    pub async fn trigger_schedule(&self, name: &str) -> Result<JobId, ClientError> {
        let [api, version, schedules, name] = path(name);
        let path = [api, version, schedules, name, "trigger"];
        let answer = self.http.send(HttpRequest::post(&path, Vec::new())).await?;
        answer.read::<Triggered>().map(|answer| JobId(answer.data.job_id))
    }
}
