//! Why a request of the client failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::{Job, Workflow};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server refused. Nothing has been done, except that a status of 500 and above leaves
    /// it open.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No answer came: it is not known whether anything was done.
    #[error("server {server} cannot be reached (tried {tries} times): {reason}")]
    Unreachable {
        /// The server; commas separate several.
        server: String,
        /// How often it was tried.
        tries: u32,
        /// Why the last try failed.
        reason: String,
    },
    /// The job had not ended when the time limit was reached.
    #[error("job had not ended after {waited:?}{}", last_seen(.job.as_deref()))]
    WaitTimedOut {
        /// How long it was waited for.
        waited: Duration,
        /// The job as it was last seen, if it was.
        job: Option<Box<Job>>,
    },
    /// The workflow had not ended when the time limit was reached.
    #[error("workflow had not ended after {waited:?}{}", workflow_seen(.workflow.as_deref()))]
    WorkflowWaitTimedOut {
        /// How long it was waited for.
        waited: Duration,
        /// The workflow as it was last seen, if it was.
        workflow: Option<Box<Workflow>>,
    },
    /// The job has ended, and all of its events were returned.
    #[error("the job has ended: it has no more events")]
    JobEnded,
    /// The request cannot be written as JSON.
    #[error("cannot write {what} as JSON")]
    Encode {
        /// Which part.
        what: &'static str,
        /// Why.
        #[source]
        source: Arc<serde_json::Error>,
    },
    /// The response cannot be read.
    #[error("cannot read {what} from the server's response")]
    Decode {
        /// What was to be read.
        what: String,
        /// Why it cannot.
        #[source]
        source: serde_json::Error,
    },
    /// The call is not valid. Nothing was sent.
    #[error("{problem}; {remedy}")]
    Usage {
        /// What is wrong.
        problem: String,
        /// How to fix it.
        remedy: &'static str,
    },
}

fn last_seen(job: Option<&Job>) -> String {
    match job {
        Some(job) => format!("; it is {}", job.state),
        None => "; it was never seen".to_owned(),
    }
}

fn workflow_seen(workflow: Option<&Workflow>) -> String {
    match workflow {
        Some(workflow) => format!("; it is {}", workflow.status),
        None => "; it was never seen".to_owned(),
    }
}

/// What a server says when it refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// A code, such as `validation_error`; `http_NNN` where the server gave none.
    pub code: String,
    /// What is wrong, naming the thing.
    pub message: String,
    /// What to do about it, if the server says.
    pub hint: Option<String>,
    /// More about it; null if there is nothing.
    pub details: Value,
    /// The id of the request in the server's log.
    pub request_id: Option<String>,
    /// After what time the same request may succeed, if the server says; at most a minute.
    pub retry_after: Option<Duration>,
}

/// The code of a bounded queue that has no room.
pub(super) const QUEUE_FULL: &str = "QUEUE_FULL";

/// A queue that has no room for a request. None of the request's jobs was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueFull {
    /// The queue.
    pub queue: String,
    /// How many jobs wait in it.
    pub depth: u64,
    /// How many may.
    pub max_depth: u64,
    /// After what time to try again.
    pub retry_after: Duration,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server refused: {} ({} {})", self.message, self.status, self.code)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Refusal {
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = &body["error"];
        let text = |name: &str| error[name].as_str().map(ToOwned::to_owned);
        Self {
            status: status.as_u16(),
            code: text("code").unwrap_or_else(|| format!("http_{}", status.as_u16())),
            message: text("message")
                .unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given").into()),
            hint: text("hint"),
            details: error["details"].clone(),
            request_id: text("request_id"),
            retry_after: None,
        }
    }

    /// Which queue is full, if that is why the server refused.
    #[must_use]
    pub fn queue_full(&self) -> Option<QueueFull> {
        let number = |name: &str| self.details[name].as_u64().unwrap_or_default();
        (self.code == QUEUE_FULL).then(|| QueueFull {
            queue: self.details["queue"].as_str().unwrap_or_default().to_owned(),
            depth: number("depth"),
            max_depth: number("max_depth"),
            retry_after: self.retry_after.unwrap_or(Duration::from_secs(1)),
        })
    }
}

impl ClientError {
    pub(crate) fn encode(what: &'static str, source: impl Into<Arc<serde_json::Error>>) -> Self {
        Self::Encode { what, source: source.into() }
    }

    pub(crate) const fn usage(problem: String, remedy: &'static str) -> Self {
        Self::Usage { problem, remedy }
    }

    /// What the server said, if it refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Unreachable { .. }
            | Self::WaitTimedOut { .. }
            | Self::WorkflowWaitTimedOut { .. }
            | Self::JobEnded
            | Self::Encode { .. }
            | Self::Decode { .. }
            | Self::Usage { .. } => None,
        }
    }

    /// The HTTP status, if the server refused.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.status)
    }

    /// The server's error code, if it refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.code.as_str())
    }

    /// What to do about it, if the server says.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.refusal().and_then(|refusal| refusal.hint.as_deref())
    }

    /// Which queue is full, if that is why the server refused. Such a request is not repeated by the
    /// client: a full queue may stay so for long, and its producer knows what to do meanwhile.
    #[must_use]
    pub fn queue_full(&self) -> Option<QueueFull> {
        self.refusal()?.queue_full()
    }

    /// Whether the resource does not exist, or no longer.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.status(), Some(404 | 410))
    }

    /// Whether the state of the resource does not allow the request.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status() == Some(409)
    }

    /// Whether the token is missing or wrong, or its role does not allow this.
    #[must_use]
    pub fn is_not_allowed(&self) -> bool {
        matches!(self.status(), Some(401 | 403))
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::{ClientError, Refusal};

    #[test]
    fn a_refusal_says_what_is_wrong_and_what_to_do() {
        let body = br#"{"error":{"code":"invalid_request","message":"field `queue` must be a text",
            "hint":"correct the field","details":{"field":"queue"},"request_id":"r1"}}"#;
        let refusal = Refusal::read(StatusCode::BAD_REQUEST, body);
        assert_eq!(refusal.details["field"], "queue");
        let error = ClientError::Refused(Box::new(refusal));
        assert_eq!((error.status(), error.code()), (Some(400), Some("invalid_request")));
        assert_eq!(
            error.to_string(),
            "server refused: field `queue` must be a text (400 invalid_request); \
             correct the field"
        );
    }

    #[test]
    fn a_refusal_by_something_else_than_the_server_is_told_by_its_status() {
        let refusal = Refusal::read(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(refusal.to_string(), "server refused: Bad Gateway (502 http_502)");
    }
}
