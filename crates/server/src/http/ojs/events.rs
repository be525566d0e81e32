//! The event log in the standard's shape.

use outlast_store::event::{Event, EventPage, EventQuery};
use outlast_wire::json::Object;

use crate::http::App;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::stream;

/// Most pages looked at to fill one answer: a filter that matches little must not hold a
/// reader for ever.
const PAGES_MAX: usize = 64;

pub(super) async fn list(mut call: Call) -> Result<Answer, Failure> {
    let mut query = stream::filter(&mut call).await?;
    query.after = stream::cursor(&call);
    query.limit = call.page()?.limit;
    let (events, next) = read(&call.app, query).await?;
    Ok(Answer::object(|object| {
        object.array("events", &events, |out, (cursor, event)| write(out, cursor, event));
        object.text_or_null("next_cursor", next.as_deref());
    }))
}

/// Answers with a page of events under `data`.
pub(crate) async fn list_as_data(app: &App, query: EventQuery) -> Result<Answer, Failure> {
    let (events, next) = read(app, query).await?;
    Ok(Answer::object(|object| {
        object.array("data", &events, |out, (cursor, event)| write(out, cursor, event));
        object.text_or_null("next_cursor", next.as_deref());
    }))
}

/// Reads one page.
pub(crate) async fn page(app: &App, query: &EventQuery) -> Result<EventPage, Failure> {
    let page = app.engine.store().events(query.clone()).await;
    page.map_err(|error| Failure::of_page(error, query.after.is_some()))
}

/// Reads on until the page is full or nothing is left.
pub(crate) async fn read(
    app: &App,
    mut query: EventQuery,
) -> Result<(Vec<(String, Event)>, Option<String>), Failure> {
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

/// Writes an event in the standard's shape.
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
