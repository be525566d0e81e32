//! The event log: which events a request asks for, reading them, and writing them in the OJS
//! format.

use outlast_core::id::{JobId, WorkerId};
use outlast_store::event::{Event, EventName, EventPage, EventQuery};
use outlast_wire::Fault;
use outlast_wire::json::Object;
use uuid::Uuid;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::{App, workers};

/// Most events in one page.
pub(super) const PAGE: u32 = 200;
/// Most pages read for one response: a filter that matches little must not take forever.
const PAGES_MAX: usize = 4;

/// Reads which events a request is about.
pub(super) async fn filter(req: &mut ApiRequest) -> Result<EventQuery, ApiError> {
    let (names, queues) = (list(req, "type", "types"), list(req, "queue", "queues"));
    if let Some(name) = names.iter().find(|name| !EventName::is_pattern(name)) {
        let problem = format!("holds {name:?}, which names no event; `job.*` is every one of jobs");
        return Err(Fault::field("type", problem).into());
    }
    let job = req.query("execution").or_else(|| req.query("job_id"));
    let job = job.map(|id| Uuid::try_parse(&id).map(JobId)).transpose();
    let job = job.map_err(|_not| Fault::field("execution", "is not a UUID"))?;
    let worker = match req.query("worker") {
        None => None,
        // A worker that is forgotten may still be in the log.
        Some(name) => Some(match Uuid::try_parse(&name) {
            Ok(id) => WorkerId(id),
            Err(_name) => workers::find(&req.app, &name).await?.id,
        }),
    };
    Ok(EventQuery { after: None, names, queues, job, worker, limit: PAGE })
}

/// Returns a list of the query by either of its names.
fn list(req: &ApiRequest, name: &str, other: &str) -> Vec<String> {
    let list = req.list(name);
    if list.is_empty() { req.list(other) } else { list }
}

/// Returns where a stream resumes: after the last event that the client received, if it says.
pub(super) fn cursor(req: &ApiRequest) -> Option<String> {
    let last = req.header("last-event-id").map(ToOwned::to_owned);
    let last = last.filter(|cursor| !cursor.is_empty());
    last.or_else(|| req.query("cursor")).or_else(|| req.query("after"))
}

/// Answers with a page of events under `data`.
pub(crate) async fn list_as_data(app: &App, query: EventQuery) -> Result<ApiResponse, ApiError> {
    let (events, next) = read(app, query).await?;
    Ok(ApiResponse::object(|object| {
        object.array("data", &events, |out, (cursor, event)| write(out, cursor, event));
        object.text_or_null("next_cursor", next.as_deref());
    }))
}

/// Reads one page.
pub(crate) async fn page(app: &App, query: &EventQuery) -> Result<EventPage, ApiError> {
    let page = app.engine.store().events(query.clone()).await;
    page.map_err(|error| ApiError::of_page(error, query.after.is_some()))
}

/// Reads until the page is full, there are no more events, or many were looked at.
pub(crate) async fn read(
    app: &App,
    mut query: EventQuery,
) -> Result<(Vec<(String, Event)>, Option<String>), ApiError> {
    let limit = query.limit;
    let mut events = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = page(app, &query).await?;
        let moved_on = query.after.as_ref() != Some(&page.next) && !page.next.is_empty();
        events.extend(page.events);
        if moved_on {
            query.after = Some(page.next);
        }
        let got = u32::try_from(events.len()).unwrap_or(u32::MAX);
        if got >= limit || !moved_on {
            break;
        }
        query.limit = limit - got;
    }
    Ok((events, query.after))
}

/// Writes an event in the OJS format.
pub(crate) fn write(out: &mut Vec<u8>, cursor: &str, event: &Event) {
    let mut object = Object::begin(out);
    object.text("specversion", "1.0");
    object.text("id", cursor);
    if let Ok(name) = serde_json::to_string(&event.kind) {
        object.raw("type", &name);
    }
    object.text("source", "outlast");
    object.time("time", event.at);
    if let Some(job) = event.job {
        object.plain("subject", job);
    }
    object.object("data", |object| data(object, event));
    object.end();
}

fn data(object: &mut Object<'_>, event: &Event) {
    if let Some(job) = event.job {
        object.plain("job_id", job);
    }
    if let Some(job_type) = &event.job_type {
        object.text("job_type", job_type);
    }
    if let Some(queue) = &event.queue {
        object.text("queue", queue);
    }
    if let Some(state) = event.state {
        object.plain("state", state);
    }
    if let Some(attempt) = event.attempt {
        object.number("attempt", attempt);
    }
    if let Some(epoch) = event.epoch {
        object.number("epoch", epoch);
    }
    if let Some(outcome) = event.outcome {
        object.text("outcome", outcome.as_str());
    }
    if let Some(duration) = event.duration {
        object.number("duration_ms", duration.as_millis());
    }
    if let Some(worker) = event.worker {
        object.plain("worker_id", worker);
    }
    object.text("by", &event.by);
    object.text("evidence", &event.evidence);
    if let Some(code) = event.evidence.word() {
        object.text("evidence_code", code);
    }
}
