//! Where the standard's text, its suites and its clients disagree: one function for each,
//! with the case or client it is for. What is decided here is decided nowhere else.

use outlast_core::id::JobId;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::fault::Fault;
use crate::json;

/// The standard's content type. Suites compare it exactly (L0-ENV-001).
pub const CONTENT_TYPE: &str = "application/openjobspec+json";

/// Returns the content type that a client can read.
///
/// The Python client drops bodies whose type does not contain `application/json`, so it
/// gets both names in one; a client that asks for plain JSON first gets plain JSON.
#[must_use]
pub fn content_type(user_agent: Option<&str>, accept: Option<&str>) -> &'static str {
    if user_agent.is_some_and(|agent| agent.starts_with("python-httpx/")) {
        return "application/openjobspec+json; alias=\"application/json\"";
    }
    let first = accept.and_then(|accept| accept.split(',').next()).unwrap_or_default();
    let first = first.split(';').next().unwrap_or_default().trim();
    if first == "application/json" { "application/json" } else { CONTENT_TYPE }
}

/// Returns whether queue statistics give `queue` as a text, as the standard's text has
/// it, rather than as an object, as L4-QOPS has it.
///
/// All four SDKs read a text and send `OJS-Version`; the suites' statistics cases do not.
#[must_use]
pub const fn queue_is_text(ojs_version: Option<&str>) -> bool {
    ojs_version.is_some()
}

/// What a heartbeat says about the jobs its sender holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActiveJobs {
    /// Nothing is said, or only how many.
    Count(Option<u32>),
    /// These.
    Jobs(Vec<JobId>),
}

impl ActiveJobs {
    /// Returns how many jobs are held, as far as it is said.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Count(count) => count.unwrap_or(0),
            Self::Jobs(jobs) => u32::try_from(jobs.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Reads what a heartbeat says about held jobs: `active_jobs` is a number for the
/// JavaScript and Go clients (EXT-GS-001) and an array of ids for Python's, Rust's and
/// L1-WRK-001.
///
/// # Errors
/// Returns what is wrong with it.
pub fn active_jobs(ids: Option<&Value>, jobs: Option<&Value>) -> Result<ActiveJobs, Fault> {
    match ids.filter(|ids| !ids.is_null()).or(jobs) {
        None | Some(Value::Null) => Ok(ActiveJobs::Count(None)),
        Some(Value::Number(number)) => {
            let count = number.as_u64().and_then(|count| u32::try_from(count).ok());
            let problem = "must be a count or an array of job ids";
            let count = count.ok_or_else(|| Fault::field("active_jobs", problem))?;
            Ok(ActiveJobs::Count(Some(count)))
        }
        Some(Value::Array(ids)) => {
            let id = |id: &Value| id.as_str().and_then(|id| Uuid::try_parse(id).ok()).map(JobId);
            let jobs = ids.iter().map(id).collect::<Option<Vec<_>>>();
            jobs.map(ActiveJobs::Jobs)
                .ok_or_else(|| Fault::field("active_jobs", "holds something that is no job id"))
        }
        Some(Value::Bool(_) | Value::String(_) | Value::Object(_)) => {
            Err(Fault::field("active_jobs", "must be a count or an array of job ids"))
        }
    }
}

/// Returns the type of a reported error, for `non_retryable_errors`: clients put it into
/// `type`, into `details.error_class` (L1-RTR-004, L1-RTR-005) or into `code`.
#[must_use]
pub fn error_type(error: &Map<String, Value>) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
    let class = error.get("details").and_then(|details| details.get("error_class"));
    text(error.get("type"))
        .or_else(|| text(class))
        .or_else(|| text(error.get("code")))
        .unwrap_or_else(|| "error".to_owned())
}

/// Returns whether an error type means that the worker shut down: the standard says
/// `shutdown`, clients also `ShutdownError` and `ShutdownTimeout`.
#[must_use]
pub fn is_shutdown(error_type: &str) -> bool {
    matches!(error_type, "shutdown" | "ShutdownError" | "ShutdownTimeout")
}

/// Returns whether an error is what the Python SDK says of a handler that it ends when its own
/// grace period is over: code `cancelled`, to be tried again. A handler's own errors never
/// look like that: they are `handler_error`.
#[must_use]
pub fn is_grace_over(error: &Map<String, Value>) -> bool {
    let code = error.get("code").and_then(Value::as_str);
    let retryable = error.get("retryable").and_then(Value::as_bool);
    code == Some("cancelled") && retryable == Some(true) && !error.contains_key("type")
}

/// Returns the state that a job's `options.metadata.test_directive` wants a heartbeat to
/// answer with (L1-WRK-002, L1-WRK-003). Only conformance runs may ask.
#[must_use]
pub fn test_directive(extra: &str) -> Option<&'static str> {
    let options = json::field(extra, "options")?;
    let metadata = json::field(options.get(), "metadata")?;
    match json::field(metadata.get(), "test_directive")?.get() {
        "\"quiet\"" => Some("quiet"),
        "\"terminate\"" => Some("terminate"),
        _ => None,
    }
}

/// Returns `meta` with the tenant that the `X-OJS-Tenant` header names (EXT-MT-001).
#[must_use]
pub fn with_tenant(meta: &str, tenant: &str) -> String {
    json::with(meta, &["tenant_id"], |object| object.text("tenant_id", tenant))
}
