//! Lists executions.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_store::query::JobQuery;
use outlast_wire::execution::status::Status;
use outlast_wire::json::Object;
use outlast_wire::time::When;
use outlast_wire::{Fault, duration};
use serde_json::Value;

use super::view;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::workers;

pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let status = req.query("status").map(|word| status("status", &word)).transpose()?;
    let worker = match req.query("worker") {
        Some(name) => Some(workers::find(&req.app, &name).await?.id),
        None => None,
    };
    let now = req.app.now().await?;
    let page = req.page()?;
    let limit = page.limit;
    let query = JobQuery {
        states: Vec::new(),
        queue: req.query("queue"),
        job_type: req.query("action_ref"),
        worker,
        abandoned: None,
        timed_out: None,
        started: None,
        tenant: None,
        ids: req.ids()?.map(|(first, last)| (JobId(first), JobId(last))),
        created_from: time(&req, "created_after", now)?,
        created_before: time(&req, "created_before", now)?,
        page,
    };
    let query = match status {
        Some(status) => narrowed(query, status),
        None => query,
    };
    let has_cursor = query.page.cursor.is_some();
    let page = req.app.engine.store().jobs(query).await;
    let page = page.map_err(|error| ApiError::of_page(error, has_cursor))?;
    let reasons = req.app.engine.waiting_reasons(&page.jobs).await;
    let jobs: Vec<_> = page.jobs.iter().zip(&reasons).collect();
    Ok(ApiResponse::object(|object| {
        object.array("data", &jobs, |out, (record, reason)| {
            let mut object = Object::begin(out);
            view::fields(&mut object, &req.app, record, reason.as_deref());
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", limit);
            object.text_or_null("next_cursor", page.next.as_deref());
            let total = page.total.map(|total| total.to_string());
            object.raw_or_null("total", total.as_deref());
        });
    }))
}

/// Reads a time, or how long ago it was.
fn time(req: &ApiRequest, name: &str, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
    let Some(text) = req.query(name) else { return Ok(None) };
    if let Some(When::At(at)) = When::parse(&text) {
        return Ok(Some(at));
    }
    let ago = duration::value(&Value::String(text));
    let before = |ago: Span| now.0.saturating_sub(i64::try_from(ago.0).unwrap_or(i64::MAX));
    ago.map(|ago| Some(Timestamp(before(ago)))).ok_or_else(|| {
        Fault::field(name, "must be a time such as 2026-11-21T12:00:00Z, or how long ago: 2h")
    })
}

/// Reads the status in the parameter `name`.
pub(super) fn status(name: &str, word: &str) -> Result<Status, Fault> {
    Status::parse(word).ok_or_else(|| {
        let known = Status::ALL.map(Status::as_str).join(", ");
        Fault::field(name, format!("must be one of {known}"))
    })
}

/// Limits a query to the jobs that have a status; the other way round is `view::status`.
fn narrowed(query: JobQuery, status: Status) -> JobQuery {
    let of = |states: &[State]| JobQuery { states: states.to_vec(), ..query.clone() };
    let discarded = of(&[State::Discarded]);
    match status {
        Status::Requested => {
            of(&[State::Available, State::Scheduled, State::Pending, State::Retryable])
        }
        Status::Scheduled => JobQuery { started: Some(false), ..of(&[State::Active]) },
        Status::Running => JobQuery { started: Some(true), ..of(&[State::Active]) },
        Status::Completed => of(&[State::Completed]),
        Status::Cancelled => of(&[State::Cancelled]),
        Status::Failed => JobQuery { abandoned: Some(false), timed_out: Some(false), ..discarded },
        Status::Timeout => JobQuery { abandoned: Some(false), timed_out: Some(true), ..discarded },
        Status::Abandoned => JobQuery { abandoned: Some(true), ..discarded },
    }
}
