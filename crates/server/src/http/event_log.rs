//! The event log: which events a request asks for, reading them, and writing them in the OJS
//! format.

use std::collections::{BTreeSet, HashMap};

use outlast_core::author::Author;
use outlast_core::id::{JobId, WorkerId};
use outlast_store::event::{Event, EventName, EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store::{Store, StoreError};
use outlast_store_rules::cursor::TimePosition;
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
/// How often the log is looked at for one page of the newest events.
const LOOKS_MAX: usize = 4;

/// Reads which events a request is about.
pub(super) async fn filter(req: &mut ApiRequest) -> Result<EventQuery, ApiError> {
    asked(req).await
}

/// The same for a page, whose parameter is called `job`.
pub(super) async fn asked(req: &ApiRequest) -> Result<EventQuery, ApiError> {
    let (names, queues) = (list(req, "type", "types"), list(req, "queue", "queues"));
    if let Some(name) = names.iter().find(|name| !EventName::is_pattern(name)) {
        let problem = format!("holds {name:?}, which names no event; `job.*` is every one of jobs");
        return Err(Fault::field("type", problem).into());
    }
    let job = ["execution", "job_id", "job"].into_iter().find_map(|name| req.query(name));
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
    let audit = req.flag("audit")?;
    Ok(EventQuery { audit, after: None, names, queues, job, worker, limit: PAGE })
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

/// Sets where a stream, or a page that is read forwards, begins: after a cursor, or at the time in
/// `since`. Refuses what only a page of the newest events has.
pub(super) async fn begin(
    req: ApiRequest,
    mut query: EventQuery,
) -> Result<(ApiRequest, EventQuery), ApiError> {
    for name in ["until", "before"] {
        if req.query(name).is_some() {
            let problem = "goes with `newest=true`: other pages and streams go forwards";
            return Err(Fault::field(name, problem).into());
        }
    }
    query.after = cursor(&req);
    if query.after.is_none() && req.query("since").is_some() {
        let now = req.app.now().await?;
        let since = req.time("since", now)?;
        query.after = since.map(|since| TimePosition::at(since.0.max(0)).to_string());
    }
    Ok((req, query))
}

/// Answers with a page of events under `data`: the newest ones if they are asked for.
pub(super) async fn list_as_data(
    req: ApiRequest,
    mut query: EventQuery,
) -> Result<ApiResponse, ApiError> {
    query.limit = req.page()?.limit;
    if req.flag("newest")? {
        return newest_as_data(req, query).await;
    }
    let (req, query) = begin(req, query).await?;
    let (events, next) = read(&req.app, query).await?;
    let names = names(&req.app, &events).await?;
    Ok(ApiResponse::object(|object| {
        object.array("data", &events, |out, (cursor, event)| {
            write_named(out, cursor, event, &names);
        });
        object.text_or_null("next_cursor", next.as_deref());
    }))
}

async fn newest_as_data(req: ApiRequest, of: EventQuery) -> Result<ApiResponse, ApiError> {
    if cursor(&req).is_some() {
        let problem = "goes forwards; the newest events are read backwards, with `before`";
        return Err(Fault::field("cursor", problem).into());
    }
    let now = req.app.now().await?;
    let (since, until) = (req.time("since", now)?, req.time("until", now)?);
    let query = NewestQuery { of, since, until, before: req.query("before") };
    let has_place = query.before.is_some();
    let page = req.app.engine.store().newest_events(query).await;
    let NewestPage { events, previous } =
        page.map_err(|error| ApiError::of_page(error, has_place))?;
    let names = names(&req.app, &events).await?;
    Ok(ApiResponse::object(|object| {
        object.array("data", &events, |out, (cursor, event)| {
            write_named(out, cursor, event, &names);
        });
        object.text_or_null("next_cursor", events.last().map(|(cursor, _)| cursor.as_str()));
        object.text_or_null("previous_cursor", previous.as_deref());
    }))
}

/// Looks up what the workers of some events are called; not those that were forgotten.
pub(super) async fn names(
    app: &App,
    events: &[(String, Event)],
) -> Result<HashMap<WorkerId, String>, ApiError> {
    let workers: BTreeSet<WorkerId> = events.iter().filter_map(|(_, event)| event.worker).collect();
    if workers.is_empty() {
        return Ok(HashMap::new());
    }
    let found = app.engine.store().workers_named(workers.into_iter().collect()).await?;
    Ok(found.into_iter().map(|worker| (worker.id, worker.name)).collect())
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

/// Events with their places, the latest first, and the place before which there may be others.
pub(super) struct Found {
    pub(super) events: Vec<(String, Event)>,
    pub(super) earlier: Option<String>,
}

/// Reads the newest events that match, as far back as a few looks go: each one ends after many events,
/// whether they match or not.
pub(super) async fn newest(store: &dyn Store, mut query: NewestQuery) -> Result<Found, StoreError> {
    let mut events = Vec::new();
    for _ in 0..LOOKS_MAX {
        let page = store.newest_events(query.clone()).await?;
        let got = u32::try_from(page.events.len()).unwrap_or(u32::MAX);
        events.extend(page.events.into_iter().rev());
        query.before = page.previous;
        query.of.limit = query.of.limit.saturating_sub(got);
        if query.before.is_none() || query.of.limit == 0 {
            break;
        }
    }
    Ok(Found { events, earlier: query.before })
}

/// Writes an event in the OJS format.
pub(crate) fn write(out: &mut Vec<u8>, cursor: &str, event: &Event) {
    write_with(out, cursor, event, None);
}

/// Writes an event with the name of its worker.
fn write_named(out: &mut Vec<u8>, cursor: &str, event: &Event, names: &HashMap<WorkerId, String>) {
    let name = event.worker.and_then(|worker| names.get(&worker));
    write_with(out, cursor, event, name.map(String::as_str));
}

fn write_with(out: &mut Vec<u8>, cursor: &str, event: &Event, name: Option<&str>) {
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
    object.object("data", |object| data(object, event, name));
    object.end();
}

fn data(object: &mut Object<'_>, event: &Event, worker_name: Option<&str>) {
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
    if let Some(name) = worker_name {
        object.text("worker_name", name);
    }
    match event.author() {
        Some(Author { who, from }) => {
            object.text("by", who);
            object.plain("from", from);
        }
        None => object.text("by", &event.by),
    }
    object.text("evidence", &event.evidence);
    if let Some(code) = event.evidence.word() {
        object.text("evidence_code", code);
    }
}
