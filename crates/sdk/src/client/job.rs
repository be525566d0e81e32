//! A job as the server knows it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{ClientError, instant};

/// A job as the server knew it when it answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Job {
    /// Its id.
    #[serde(deserialize_with = "job_id")]
    pub id: JobId,
    /// Type: names the handler or the action.
    #[serde(rename = "type")]
    pub job_type: String,
    /// State.
    #[serde(deserialize_with = "state")]
    pub state: State,
    /// Queue.
    pub queue: String,
    /// Arguments; secret parameters of actions are masked.
    pub args: Vec<Value>,
    /// Metadata of its producer.
    #[serde(default)]
    pub meta: Map<String, Value>,
    /// Its keys, those of its action included.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// From -100 to 100; higher goes first.
    pub priority: i8,
    /// Attempts that counted against its retries.
    pub attempt: u32,
    /// Attempts in all.
    pub max_attempts: u32,
    /// When it was stored.
    #[serde(deserialize_with = "instant::read")]
    pub created_at: SystemTime,
    /// When it is or was to run first, if not at once.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub scheduled_at: Option<SystemTime>,
    /// When it expires: it is not started from then on.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub expires_at: Option<SystemTime>,
    /// When the latest attempt started.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub started_at: Option<SystemTime>,
    /// When it completed, or an attempt discarded it.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub completed_at: Option<SystemTime>,
    /// When it was cancelled.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub cancelled_at: Option<SystemTime>,
    /// When it was discarded.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub discarded_at: Option<SystemTime>,
    /// When it is tried again.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub next_attempt_at: Option<SystemTime>,
    /// Its result, once it has completed.
    #[serde(default)]
    pub result: Option<Value>,
    /// Its latest error.
    #[serde(default)]
    pub error: Option<AttemptError>,
    /// Errors of this life, oldest first.
    #[serde(default)]
    pub errors: Vec<AttemptError>,
    /// Whether it was there before it was asked for as a [`Unique`](crate::Unique) job that is
    /// ignored then.
    #[serde(default)]
    pub deduplicated: bool,
    /// The claim of the worker that runs it.
    #[serde(default, deserialize_with = "epoch_if")]
    pub epoch: Option<Epoch>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AttemptError {
    /// A fixed word, such as `timeout`.
    #[serde(rename = "type", default)]
    pub error_type: String,
    /// What went wrong.
    #[serde(default)]
    pub message: String,
    /// Which attempt, in a job's history.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// When, in a job's history.
    #[serde(default, deserialize_with = "instant::read_if")]
    pub occurred_at: Option<SystemTime>,
    /// Further details of the worker.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A job that ended without a result.
#[derive(Debug, thiserror::Error)]
#[error("job {id} is {state}{}", because(.error.as_deref()))]
#[non_exhaustive]
pub struct Unsuccessful {
    /// Which job.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// Its latest error.
    pub error: Option<Box<AttemptError>>,
}

fn because(error: Option<&AttemptError>) -> String {
    match error {
        Some(AttemptError { error_type, message, .. }) => format!(": {message} ({error_type})"),
        None => String::new(),
    }
}

impl Job {
    /// Whether it has ended, in this life.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.state.is_terminal()
    }

    /// Reads the result of a completed job; a missing one is null.
    ///
    /// # Errors
    /// When the result is not an `R`.
    pub fn result_as<R: DeserializeOwned>(&self) -> Result<R, ClientError> {
        let result = self.result.clone().unwrap_or(Value::Null);
        serde_json::from_value(result).map_err(|source| {
            let what = format!("result of job {} ({})", self.id, self.job_type);
            ClientError::Decode { what, source }
        })
    }

    /// Returns the job if it has completed, and otherwise its state and error.
    ///
    /// # Errors
    /// When it has not completed.
    pub fn completed(self) -> Result<Self, Unsuccessful> {
        match self.state {
            State::Completed => Ok(self),
            State::Scheduled
            | State::Available
            | State::Pending
            | State::Active
            | State::Retryable
            | State::Cancelled
            | State::Discarded => {
                let error = self.error.map(Box::new);
                Err(Unsuccessful { id: self.id, state: self.state, error })
            }
        }
    }
}

fn job_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JobId, D::Error> {
    Uuid::deserialize(deserializer).map(JobId)
}

pub(super) fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
    let word = String::deserialize(deserializer)?;
    State::parse(&word).ok_or_else(|| D::Error::custom(format_args!("{word:?} is no state")))
}

fn epoch_if<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Epoch>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Epoch))
}
