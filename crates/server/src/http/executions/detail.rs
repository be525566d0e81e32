//! One execution: show, cancel, retry, and its history.

use std::time::Duration;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_store::command::{JobAction, JobOrder, Seen};
use outlast_store::event::EventQuery;
use outlast_store::query::{LogLine, LogQuery};
use outlast_store::record::{AttemptRecord, JobRecord};
use outlast_store::reply::MoveRefusal;
use outlast_wire::Fault;
use outlast_wire::json::Object;

use super::{list, view, wait};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::{App, event_log, orders, stream};
use crate::intake::execution;

/// How often a command is tried on an execution that changes between read and command.
const LOOKS_MAX: usize = 3;

pub(super) async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let id = req.job().await?;
    let record = match wait::asked(&req)? {
        Some(wait) => wait::for_end(&req.app, id, wait).await?,
        None => orders::job(&req.app, id, None).await?,
    };
    Ok(ApiResponse::ok(view::document(&req.app, &record).await))
}

pub(in crate::http) async fn cancel(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let allowed = "only one that has not ended can be cancelled";
    let record = ordered(&mut req, JobAction::Cancel, allowed).await?;
    Ok(ApiResponse::ok(view::document(&req.app, &record).await))
}

pub(in crate::http) async fn run_now(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let id = req.job().await?;
    let action = JobAction::RunNow;
    let order = JobOrder { job: id, action, tenant: None, by: req.by(), expected: None };
    let moved = orders::carry_out(&req.app, order).await;
    let allowed = "only one that waits for a time, delayed or for a retry, can be run now";
    let record = in_words(&req.app, id, moved, allowed).await?;
    Ok(ApiResponse::ok(view::document(&req.app, &record).await))
}

/// Enqueues a copy of a job with a new id. Its parameters are checked again because the action
/// may have changed.
pub(in crate::http) async fn rerun(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let id = req.job().await?;
    let record = orders::job(&req.app, id, None).await?;
    if !record.state.is_terminal() {
        let status = view::status(&record).as_str();
        let message = format!("execution {id} is {status}; only one that has ended can be rerun");
        return Err(ApiError::Conflict(message));
    }
    let by = req.token().map(|token| token.name.as_str());
    let job = execution::rerun(req.app.engine.settings(), &record, by)?;
    let id = job.id;
    req.app.engine.submit(job).await?.map_err(ApiError::Enqueue)?;
    let record = orders::job(&req.app, id, None).await?;
    Ok(ApiResponse::created(view::document(&req.app, &record).await))
}

/// Describes a refused command in the terms of this API, and what would be allowed.
async fn in_words(
    app: &App,
    id: JobId,
    moved: Result<JobRecord, ApiError>,
    allowed: &str,
) -> Result<JobRecord, ApiError> {
    let Err(ApiError::Conflict(_)) = &moved else { return moved };
    let record = orders::job(app, id, None).await?;
    let status = view::status(&record).as_str();
    Err(ApiError::Conflict(format!("execution {id} is {status}; {allowed}")))
}

pub(in crate::http) async fn retry(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let allowed = "only one that failed, timed out or was abandoned can be retried; \
                   a rerun makes another one of any that has ended";
    let record = ordered(&mut req, JobAction::Replay, allowed).await?;
    Ok(ApiResponse::ok(view::document(&req.app, &record).await))
}

/// Submits an order about the execution, if it has the status that the request requires.
async fn ordered(
    req: &mut ApiRequest,
    action: JobAction,
    allowed: &str,
) -> Result<JobRecord, ApiError> {
    let id = req.job().await?;
    let wanted = req.query("if_status").map(|word| list::status("if_status", &word)).transpose()?;
    for _ in 0..LOOKS_MAX {
        let mut expected = None;
        if let Some(wanted) = wanted {
            let record = orders::job(&req.app, id, None).await?;
            let status = view::status(&record);
            if status != wanted {
                let (status, wanted) = (status.as_str(), wanted.as_str());
                let problem = format!("is {status}, not {wanted}; nothing was changed");
                return Err(ApiError::Conflict(format!("execution {id} {problem}")));
            }
            let started = record.state == State::Active && record.started.is_some();
            expected = Some(Seen { state: record.state, epoch: record.epoch, started });
        }
        let order = JobOrder { job: id, action, tenant: None, by: req.by(), expected };
        match orders::try_move(&req.app, order).await? {
            // It may still have that status, or again.
            Err(MoveRefusal::Moved) => {}
            Ok(_) => return orders::job(&req.app, id, None).await,
            Err(refusal) => {
                return in_words(&req.app, id, Err(ApiError::moving(id, &refusal)), allowed).await;
            }
        }
    }
    Err(ApiError::Conflict(format!("execution {id} changed concurrently; nothing was changed")))
}

/// Returns the execution's output: chunks as JSON, or with `format=text` the raw bytes.
pub(super) async fn logs(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let job = known(&mut req).await?;
    let after = req.number::<u64>("after")?.unwrap_or(0);
    let limit = req.page()?.limit;
    let page = req.app.engine.store().logs(LogQuery { job, after, limit }).await?;
    match req.query("format").as_deref() {
        Some("text") => {
            let bytes = page.lines.into_iter().flat_map(|line| line.bytes).collect();
            Ok(ApiResponse::text("text/plain; charset=utf-8", bytes))
        }
        None | Some("json") => Ok(ApiResponse::object(|object| {
            object.array("data", &page.lines, piece);
            // An empty page has one too, so that followers can continue from there.
            let next = page.lines.last().map_or(after, |last| last.id);
            object.object("pagination", |object| {
                object.number("limit", u64::from(limit));
                object.number("next_cursor", next);
            });
        })),
        Some(_) => Err(Fault::field("format", "must be `json` or `text`").into()),
    }
}

fn piece(out: &mut Vec<u8>, line: &LogLine) {
    let mut object = Object::begin(out);
    object.number("n", line.id);
    object.number("epoch", line.epoch);
    object.text("stream", line.stream.as_str());
    object.time("at", line.at);
    // Invalid UTF-8 gets replacement characters; `format=text` returns the raw bytes.
    object.text("text", &String::from_utf8_lossy(&line.bytes));
    object.end();
}

/// Returns the execution's events: a page, or a stream from the first one on.
pub(super) async fn events(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let job = known(&mut req).await?;
    let query = EventQuery { job: Some(job), ..event_log::filter(&mut req).await? };
    if !req.flag("newest")? && stream::is_wanted(&req, false)? {
        let (req, query) = event_log::begin(req, query).await?;
        return stream::respond(req, query).await;
    }
    event_log::list_as_data(req, query).await
}

pub(super) async fn attempts(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let job = known(&mut req).await?;
    let attempts = req.app.engine.store().attempts(job).await?;
    Ok(ApiResponse::object(|object| {
        object.array("data", &attempts, |out, record| {
            let mut object = Object::begin(out);
            attempt(&mut object, record);
            object.end();
        });
    }))
}

fn attempt(object: &mut Object<'_>, record: &AttemptRecord) {
    // Deliveries, as `attempt` of an execution; the OJS attempt number is `charged`.
    object.number("attempt", record.epoch);
    object.number("epoch", record.epoch);
    object.number("life", record.life);
    object.number("charged", record.attempt);
    if record.worker.is_none() && record.worker_name.is_none() {
        object.raw("worker", "null");
    } else {
        object.object("worker", |object| {
            match record.worker {
                Some(id) => object.plain("id", id),
                None => object.raw("id", "null"),
            }
            object.text_or_null("name", record.worker_name.as_deref());
        });
    }
    object.time("claimed", record.claimed);
    object.time_or_null("started", record.started);
    object.time_or_null("finished", record.finished);
    object.text_or_null("outcome", record.outcome.map(outlast_core::job::Outcome::as_str));
    match record.charge {
        Some(charge) => object.texts("charges", charge.words()),
        None => object.raw("charges", "null"),
    }
    object.text_or_null("next_state", record.next_state.map(State::as_str));
    object.raw_or_null("error", record.error.as_deref());
    if let Some(length) = record.omitted {
        object.object("omitted", |object| object.number("error", length));
    }
    match record.exit_code {
        Some(code) => object.number("exit_code", code),
        None => object.raw("exit_code", "null"),
    }
    object.text("by", &record.by);
    object.text("evidence", &record.evidence);
    object.text_or_null("evidence_code", record.evidence.word());
    object.text_or_null("pack_digest", record.pack_digest.as_deref());
    match record.usage.peak_memory {
        Some(bytes) => object.number("peak_memory_bytes", bytes),
        None => object.raw("peak_memory_bytes", "null"),
    }
    match record.usage.cpu {
        Some(time) => {
            object.number("cpu_seconds", Duration::from_millis(time.as_millis()).as_secs_f64())
        }
        None => object.raw("cpu_seconds", "null"),
    }
}

/// Returns the job that the path names, if there is one.
async fn known(req: &mut ApiRequest) -> Result<JobId, ApiError> {
    let id = req.job().await?;
    orders::job(&req.app, id, None).await.map(|record| record.job.id)
}
