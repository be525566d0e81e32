//! Workflows: jobs that follow jobs.

mod id;
mod new;

use std::time::{Duration, SystemTime};

use outlast_core::id::JobId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::http::HttpRequest;
use super::{Client, ClientError, Repeat, instant};
use crate::clock::Stopwatch;
use crate::session::backoff::Backoff;
pub use id::WorkflowId;
pub use new::{NewStep, NewWorkflow, StartWorkflow};

/// Path of all workflows.
const ALL: [&str; 3] = ["api", "v1", "workflows"];

/// Longest that one request waits for an end.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// A workflow as the server knew it when it answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Workflow {
    /// Its id.
    pub id: WorkflowId,
    /// What it is called, if it has a name.
    #[serde(default)]
    pub name: Option<String>,
    /// The workflow of a pack that it is, unless its steps were in the request.
    #[serde(default)]
    pub workflow_ref: Option<String>,
    /// `running`, `completed`, `failed`, `cancelled` or `timeout`.
    pub status: String,
    /// How it will end, while its last jobs are being stopped: `cancelled` or `timeout`.
    #[serde(default)]
    pub ending: Option<String>,
    /// Its parameters, defaults included; secret ones are masked.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// How often it was retried.
    #[serde(default)]
    pub retries: u32,
    /// Its result, once it has ended: that of the last step, or of the last steps by name.
    #[serde(default)]
    pub result: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// When it was stored.
    #[serde(deserialize_with = "instant::read")]
    pub created: SystemTime,
    /// When it ended.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub finished: Option<SystemTime>,
    /// Its steps, as they were written.
    #[serde(default)]
    pub steps: Vec<WorkflowStep>,
    /// What else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A step of a workflow.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct WorkflowStep {
    /// Its name.
    pub name: String,
    /// `waiting`, `running`, `completed`, `failed`, `timeout`, `abandoned`, `cancelled` or
    /// `skipped`.
    pub status: String,
    /// The steps it waits for.
    #[serde(default)]
    pub after: Vec<String>,
    /// Its items, once it has started; one without `for_each`.
    #[serde(default)]
    pub total: u32,
    /// Items that succeeded.
    #[serde(default)]
    pub completed: u32,
    /// Items that ended without success.
    #[serde(default)]
    pub failed: u32,
    /// Its jobs.
    #[serde(default, deserialize_with = "job_ids")]
    pub job_ids: Vec<JobId>,
    /// Its result: with `for_each`, the list of the results in order.
    #[serde(default)]
    pub result: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// When it started.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub started: Option<SystemTime>,
    /// When it ended.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub finished: Option<SystemTime>,
    /// What else the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A workflow that ended without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workflow {id} ended as {status}{}", because(.error.as_deref()))]
#[non_exhaustive]
pub struct WorkflowUnsuccessful {
    /// Which workflow.
    pub id: WorkflowId,
    /// Its status.
    pub status: String,
    /// Why.
    pub error: Option<String>,
}

fn because(error: Option<&str>) -> String {
    error.map_or_else(String::new, |error| format!(": {error}"))
}

impl Workflow {
    /// Whether it has ended. A retry goes on with it all the same.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status != "running"
    }

    /// Returns the step with this name.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<&WorkflowStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Reads the result; a missing one is null.
    ///
    /// # Errors
    /// When the result is of another type.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        let result = self.result.clone().unwrap_or_default();
        let what = || format!("result of workflow {}", self.id);
        serde_json::from_value(result)
            .map_err(|source| ClientError::Decode { what: what(), source })
    }

    /// Returns the workflow if it completed.
    ///
    /// # Errors
    /// When it did not: it failed, was cancelled or ran out of time, or has not ended.
    pub fn completed(self) -> Result<Self, WorkflowUnsuccessful> {
        if self.status == "completed" {
            return Ok(self);
        }
        Err(WorkflowUnsuccessful { id: self.id, status: self.status, error: self.error })
    }
}

fn job_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<JobId>, D::Error> {
    let ids = Vec::<Uuid>::deserialize(deserializer)?;
    Ok(ids.into_iter().map(JobId).collect())
}

#[derive(Deserialize)]
struct One {
    data: Workflow,
}

/// Workflows. Starting, cancelling and retrying may need a token of an operator.
impl Client {
    /// Describes a workflow step by step, to be started.
    ///
    /// ```no_run
    /// # async fn example(client: outlast_sdk::Client) -> Result<(), outlast_sdk::ClientError> {
    /// # use serde_json::json;
    /// let started = client
    ///     .workflow()
    ///     .name("nightly")
    ///     .step("load").action("ase.load").with(json!({"folder": "in"}))
    ///     .then("each").action("ase.elaborate")
    ///     .for_each("${{ steps.load.result.files }}").with(json!({"file": "${{ item }}"}))
    ///     .then("send").action("ase.send")
    ///     .start()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn workflow(&self) -> NewWorkflow {
        NewWorkflow::new(self.clone())
    }

    /// Starts a workflow of a pack, such as `reports.nightly`, once its parameters are given:
    ///
    /// ```no_run
    /// # async fn example(client: outlast_sdk::Client) -> Result<(), outlast_sdk::ClientError> {
    /// let started = client.start_workflow("reports.nightly").parameter("day", 7).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_workflow(&self, reference: impl Into<String>) -> StartWorkflow {
        StartWorkflow::of(self.clone(), reference.into())
    }

    /// Reads a workflow.
    ///
    /// # Errors
    /// When it is not known ([`ClientError::is_not_found`]), or the server cannot be reached.
    pub async fn workflow_status(&self, id: WorkflowId) -> Result<Workflow, ClientError> {
        self.look_at_workflow(id, Duration::ZERO).await
    }

    async fn look_at_workflow(
        &self,
        id: WorkflowId,
        wait: Duration,
    ) -> Result<Workflow, ClientError> {
        let id = id.to_string();
        let path = path(&id);
        let mut request = HttpRequest::get(&path);
        if !wait.is_zero() {
            request = request.query("wait", format!("{}ms", wait.as_millis()));
        }
        self.http.send(request).await?.read::<One>().map(|answer| answer.data)
    }

    /// Waits until a workflow has ended, however it ended, for at most `patience`. It rides through
    /// a restart of the server.
    ///
    /// # Errors
    /// [`ClientError::WorkflowWaitTimedOut`] with the workflow as it was last seen, when the time is
    /// over; also when the workflow is not known, or the token may not read it.
    pub async fn wait_for_workflow(
        &self,
        id: WorkflowId,
        patience: Duration,
    ) -> Result<Workflow, ClientError> {
        let mut last = None;
        match tokio::time::timeout(patience, self.until_workflow_ends(id, &mut last)).await {
            Ok(ended) => ended,
            Err(_elapsed) => Err(ClientError::WorkflowWaitTimedOut {
                waited: patience,
                workflow: last.map(Box::new),
            }),
        }
    }

    async fn until_workflow_ends(
        &self,
        id: WorkflowId,
        last: &mut Option<Workflow>,
    ) -> Result<Workflow, ClientError> {
        let mut backoff = Backoff::default();
        // The answer has to come before the request is given up.
        let look = LOOK_MAX.min(self.http.request_timeout() / 2);
        loop {
            let watch = Stopwatch::start();
            let wait = if last.is_some() { look } else { Duration::ZERO };
            match self.look_at_workflow(id, wait).await {
                Ok(workflow) if workflow.has_ended() => return Ok(workflow),
                Ok(workflow) => {
                    let is_first = last.replace(workflow).is_none();
                    // A server that stops answers early.
                    if is_first || watch.elapsed() >= wait {
                        backoff.reset();
                        continue;
                    }
                }
                // The caller has set a limit: until then the server may come back.
                Err(ClientError::Unreachable { .. }) => {}
                Err(error) if error.status().is_some_and(|status| status >= 500) => {}
                Err(error) => return Err(error),
            }
            let jitter = rand::random_range(0.0..1.0);
            tokio::time::sleep(backoff.next(jitter)).await;
        }
    }

    /// Cancels a workflow: its jobs are cancelled, and nothing more is started. Cancelling one that
    /// is cancelled already changes nothing and is no error.
    ///
    /// # Errors
    /// When it is not known or has ended otherwise ([`ClientError::is_conflict`]), or the server
    /// cannot be reached.
    pub async fn cancel_workflow(&self, id: WorkflowId) -> Result<Workflow, ClientError> {
        match self.order_workflow(id, "cancel", Repeat::Safe).await {
            Err(error) if error.is_conflict() => {
                let workflow = self.workflow_status(id).await?;
                if workflow.status == "cancelled" { Ok(workflow) } else { Err(error) }
            }
            answer => answer,
        }
    }

    /// Goes on with a workflow that did not complete: what completed stays, what failed runs again.
    /// It is sent once, unless no connection was made.
    ///
    /// # Errors
    /// When it is not known, runs or has completed ([`ClientError::is_conflict`]), or the server
    /// cannot be reached.
    pub async fn retry_workflow(&self, id: WorkflowId) -> Result<Workflow, ClientError> {
        self.order_workflow(id, "retry", Repeat::IfNotSent).await
    }

    async fn order_workflow(
        &self,
        id: WorkflowId,
        verb: &str,
        repeat: Repeat,
    ) -> Result<Workflow, ClientError> {
        let id = id.to_string();
        let [api, version, workflows, id] = path(&id);
        let path = [api, version, workflows, id, verb];
        let request = HttpRequest::post(&path, Vec::new()).repeated(repeat);
        self.http.send(request).await?.read::<One>().map(|answer| answer.data)
    }

    async fn send_workflow(
        &self,
        body: Vec<u8>,
        key: Option<String>,
    ) -> Result<Workflow, ClientError> {
        let answer = self.http.send(HttpRequest::post(&ALL, body).keyed(key)?).await?;
        answer.read::<One>().map(|answer| answer.data)
    }
}

fn path(id: &str) -> [&str; 4] {
    let [api, version, workflows] = ALL;
    [api, version, workflows, id]
}
