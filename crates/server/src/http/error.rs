//! Errors of the API: one match from the cause to the error code, and one from that to the HTTP
//! status.

use std::borrow::Cow;

use http::StatusCode;
use outlast_core::id::JobId;
use outlast_core::queue::Depth;
use outlast_store::StoreError;
use outlast_store::reply::{EnqueueRefusal, MoveRefusal, WorkerMoveRefusal};
use outlast_wire::Fault;
use outlast_wire::execution::status::Status;
use outlast_wire::ojs::error::Code;
use serde_json::{Value, json};

use crate::access::Denied;
use crate::engine::{ClaimError, OrderError, Unavailable};
use crate::intake::IntakeError;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The request is wrong.
    Fault(Fault),
    /// The request becomes no job.
    Intake(IntakeError),
    /// The body is longer than allowed.
    TooLarge { max: usize },
    /// The body was not received in time.
    TooSlow,
    /// The token is missing, unknown, or does not allow this.
    Denied(Denied),
    /// It does not exist.
    NotFound(Missing, String),
    /// The path has other methods.
    Method(String),
    /// Its state does not allow this.
    Conflict(String),
    /// An idempotency key was used for something else.
    KeyReused(String),
    /// The standard's version, or a part of it, is not served.
    Unsupported(String),
    /// A job was not stored.
    Enqueue(EnqueueRefusal),
    /// An execution was not stored, because another one has its unique key.
    NotUnique { holder: JobId, status: Status },
    /// A request with several jobs is wrong, or refused, for the one at this place.
    OfJob(usize, Box<Self>),
    /// A workflow is wrong for this step.
    OfStep(String, Box<Self>),
    /// The server cannot do this now.
    Unavailable(Unavailable),
    /// A bug in the server.
    Internal(String),
}

/// What does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Job,
    DeadLetter,
    Pack,
    Queue,
    Worker,
    Limit,
    Schedule,
    Workflow,
    Session,
    Operation,
    Path,
}

impl Missing {
    /// Returns its name in `details`.
    const fn resource(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::DeadLetter => "dead_letter",
            Self::Pack => "pack",
            Self::Queue => "queue",
            Self::Worker => "worker",
            Self::Limit => "limit",
            Self::Schedule => "schedule",
            Self::Workflow => "workflow",
            Self::Session => "session",
            Self::Operation => "operation",
            Self::Path => "path",
        }
    }

    /// Returns where to look.
    const fn hint(self) -> &'static str {
        match self {
            Self::Job => {
                "GET /api/v1/executions lists jobs; ended ones are kept for `retention.finished`"
            }
            Self::DeadLetter => "GET /ojs/v1/dead-letter lists all dead letters",
            Self::Pack => "GET /api/v1/packs lists all packs",
            Self::Queue => "GET /ojs/v1/queues lists all queues",
            Self::Worker => "GET /api/v1/workers lists all workers",
            Self::Limit => "GET /api/v1/limits lists all limits",
            Self::Schedule => "GET /api/v1/schedules lists all schedules",
            Self::Workflow => {
                "GET /api/v1/workflows lists those that were begun, GET /api/v1/packs those of packs"
            }
            Self::Session => "GET /api/v1/sessions lists those that you may end",
            Self::Operation => "GET /api/v1/operations lists operations",
            Self::Path => "GET /openapi.json lists all paths",
        }
    }
}

/// Where to look for an action.
const ACTION_HINT: &str = "GET /api/v1/actions lists all actions; SIGHUP makes a server read its \
                           packs again";

impl ApiError {
    pub(crate) fn not_found(what: Missing, message: impl Into<String>) -> Self {
        Self::NotFound(what, message.into())
    }

    pub(crate) fn no_job(id: &str) -> Self {
        Self::not_found(Missing::Job, format!("job {id} is not known"))
    }

    /// Returns what to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::NotFound(what, _) => what.hint(),
            Self::Intake(IntakeError::UnknownAction { .. }) => ACTION_HINT,
            Self::Enqueue(EnqueueRefusal::NotUnique { .. }) | Self::NotUnique { .. } => {
                "look the other job up, or send `on_conflict` `ignore` or `replace`"
            }
            Self::OfJob(_, error) | Self::OfStep(_, error) => error.hint(),
            Self::KeyReused(_) => "repeat the first request unchanged, or choose another key",
            _ => self.code().hint(),
        }
    }

    /// Says which job of a request with several it is about. A full queue is full for all.
    pub(crate) fn of_job(self, place: usize) -> Self {
        match self {
            Self::Fault(fault) => Self::Fault(fault.of_job(place)),
            full @ Self::Enqueue(EnqueueRefusal::QueueFull { .. }) => full,
            error => Self::OfJob(place, Box::new(error)),
        }
    }

    /// Returns why a page could not be read; a cursor that the store does not know is the
    /// client's fault.
    pub(crate) fn of_page(error: StoreError, has_cursor: bool) -> Self {
        match error {
            StoreError::Rejected(_) if has_cursor => {
                Fault::field("cursor", "is not a cursor from this server").into()
            }
            other => other.into(),
        }
    }

    /// Names the job that a refusal is about.
    pub(crate) fn moving(job: JobId, refusal: &MoveRefusal) -> Self {
        match refusal {
            MoveRefusal::NotFound => Self::no_job(&job.to_string()),
            MoveRefusal::Refused(refusal) => Self::Conflict(format!("job {job}: {refusal}")),
            MoveRefusal::Moved => Self::Conflict(format!("job {job}: {refusal}")),
        }
    }

    /// Returns the code on the wire.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Fault(fault) => Code::of(fault.kind),
            Self::Intake(error) => error.code(),
            Self::Enqueue(EnqueueRefusal::Expired(_) | EnqueueRefusal::RepeatedKey(_)) => {
                Code::ValidationError
            }
            Self::OfJob(_, error) | Self::OfStep(_, error) => error.code(),
            Self::NotUnique { .. } => Code::Duplicate,
            Self::TooLarge { .. } => Code::PayloadTooLarge,
            Self::TooSlow => Code::RequestTimeout,
            Self::Denied(Denied::Unauthenticated(_) | Denied::NoCredentials { .. }) => {
                Code::Unauthenticated
            }
            Self::Denied(Denied::Forbidden(_)) => Code::PermissionDenied,
            Self::NotFound(..) => Code::NotFound,
            Self::Method(_) => Code::MethodNotAllowed,
            Self::Conflict(_) | Self::KeyReused(_) => Code::Conflict,
            Self::Unsupported(_) => Code::Unsupported,
            Self::Enqueue(EnqueueRefusal::DuplicateId(_) | EnqueueRefusal::NotUnique { .. }) => {
                Code::Duplicate
            }
            Self::Enqueue(EnqueueRefusal::QueueFull { .. }) => Code::QueueFull,
            Self::Enqueue(EnqueueRefusal::Busy(_)) | Self::Unavailable(_) => Code::Unavailable,
            Self::Internal(_) => Code::Internal,
        }
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> Cow<'_, str> {
        match self {
            Self::Fault(fault) => Cow::Borrowed(&fault.message),
            Self::Denied(
                Denied::Unauthenticated(message)
                | Denied::Forbidden(message)
                | Denied::NoCredentials { message, .. },
            )
            | Self::NotFound(_, message)
            | Self::Method(message)
            | Self::Conflict(message)
            | Self::KeyReused(message)
            | Self::Unsupported(message)
            | Self::Internal(message) => Cow::Borrowed(message),
            Self::TooLarge { max } => {
                Cow::Owned(format!("request body is longer than {max} bytes"))
            }
            Self::TooSlow => Cow::Borrowed("request body was not received in time"),
            Self::Intake(error) => Cow::Owned(error.to_string()),
            Self::Enqueue(refusal) => Cow::Owned(refusal.to_string()),
            Self::NotUnique { holder, status } => Cow::Owned(format!(
                "execution {holder}, which is {}, has the same unique key",
                status.as_str()
            )),
            Self::OfJob(place, error) => Cow::Owned(format!("jobs[{place}]: {}", error.message())),
            Self::OfStep(step, error) => Cow::Owned(format!("step `{step}`: {}", error.message())),
            Self::Unavailable(unavailable) => Cow::Borrowed(&unavailable.reason),
        }
    }

    /// Returns details.
    pub(crate) fn details(&self) -> Option<Value> {
        match self {
            Self::Fault(Fault { field: Some(field), .. }) => Some(json!({ "field": field })),
            Self::Intake(error) => error.details(),
            Self::NotFound(what, _) => Some(json!({ "resource": what.resource() })),
            Self::Denied(Denied::NoCredentials { accepts, .. }) => {
                Some(json!({ "accepts": accepts }))
            }
            Self::KeyReused(_) => Some(json!({ "reason": "idempotency_key_reused" })),
            Self::Unavailable(unavailable) if unavailable.disk_full => {
                Some(json!({ "reason": "disk_full" }))
            }
            Self::Enqueue(EnqueueRefusal::NotUnique { holder, state }) => {
                let (id, state) = (holder.to_string(), state.as_str());
                Some(json!({ "existing_job_id": id, "existing_job_state": state }))
            }
            Self::NotUnique { holder, status } => {
                let (id, status) = (holder.to_string(), status.as_str());
                Some(json!({ "existing_job_id": id, "existing_job_status": status }))
            }
            Self::OfJob(place, error) => {
                let mut details = error.details().unwrap_or_else(|| json!({}));
                if let Some(details) = details.as_object_mut() {
                    details.insert("field".to_owned(), json!(format!("jobs[{place}]")));
                }
                Some(details)
            }
            Self::OfStep(step, error) => {
                let mut details = error.details().unwrap_or_else(|| json!({}));
                if let Some(details) = details.as_object_mut() {
                    details.insert("step".to_owned(), json!(step));
                }
                Some(details)
            }
            Self::Enqueue(EnqueueRefusal::QueueFull { queue, depth, .. }) => {
                Some(json!({ "queue": queue, "depth": depth.jobs, "max_depth": depth.max }))
            }
            _ => None,
        }
    }

    /// Returns after how many seconds the same request may succeed.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Unavailable(unavailable) => {
                Some(unavailable.retry_after.as_millis().div_ceil(1000).max(1))
            }
            Self::Enqueue(EnqueueRefusal::Busy(_) | EnqueueRefusal::QueueFull { .. }) => Some(1),
            Self::OfJob(_, error) | Self::OfStep(_, error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns how full the queue is that has no room for the request.
    pub(crate) const fn depth(&self) -> Option<Depth> {
        match self {
            Self::Enqueue(EnqueueRefusal::QueueFull { depth, .. }) => Some(*depth),
            _ => None,
        }
    }
}

/// Returns the status that goes with a code.
pub(crate) const fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidPayload | Code::InvalidRequest => StatusCode::BAD_REQUEST,
        Code::ValidationError | Code::Unsupported => StatusCode::UNPROCESSABLE_ENTITY,
        Code::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::Duplicate | Code::Conflict => StatusCode::CONFLICT,
        Code::QueueFull => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<IntakeError> for ApiError {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Invalid(fault) => Self::Fault(fault),
            other => Self::Intake(other),
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<Unavailable> for ApiError {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt(_) | StoreError::Rejected(_) => Self::Internal(error.to_string()),
            _ => Self::Unavailable(Unavailable {
                disk_full: matches!(error, StoreError::Full(_)),
                ..Unavailable::new(error.to_string())
            }),
        }
    }
}

impl From<ClaimError> for ApiError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Unavailable(unavailable) => Self::Unavailable(unavailable),
            ClaimError::Refused(refusal) => Self::Conflict(refusal.to_string()),
        }
    }
}

impl From<OrderError> for ApiError {
    fn from(error: OrderError) -> Self {
        match error {
            OrderError::Unavailable(unavailable) => Self::Unavailable(unavailable),
            OrderError::Refused(WorkerMoveRefusal::UnknownWorker) => {
                Self::not_found(Missing::Worker, "worker is not known")
            }
            OrderError::Refused(refusal) => Self::Conflict(refusal.to_string()),
        }
    }
}
