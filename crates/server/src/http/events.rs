//! `GET /api/v1/events`: the event log as a stream, or a page of it.

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::ojs::events as event_log;
use super::route::{Routes, get};
use super::shape::Shape;
use super::stream;
use crate::access::Need;

const FILTERS: &[(&str, &str)] = &[
    ("execution", "Only events about this job"),
    ("worker", "Only about this worker, or done by it; by id or name"),
    ("queue", "Only of these queues"),
    ("type", "Only of these types, such as `job.completed,job.failed` or `worker.*`"),
    ("cursor", "Only events after this one; as is the header Last-Event-ID"),
    ("stream", "`false` for a page of JSON, as is `Accept: application/json`"),
    ("limit", "Most events of a page"),
    ("job_id", "The same as `execution`, as the standard has it"),
    ("types", "The same as `type`"),
    ("queues", "The same as `queue`"),
    ("after", "The same as `cursor`"),
];

pub(super) fn routes() -> Routes {
    Routes::new().add(
        get("/api/v1/events", Need::Read, "Streams events as they happen", Shape::Events)
            .query(FILTERS)
            .streams(),
        events,
    )
}

/// A stream unless JSON is asked for. It begins with what happens next, a page with the
/// oldest event that is kept, and both after a cursor where one is given.
async fn events(mut call: Call) -> Result<Answer, Failure> {
    let mut query = stream::filter(&mut call).await?;
    query.after = stream::cursor(&call);
    if !stream::is_wanted(&call, true)? {
        query.limit = call.page()?.limit;
        return event_log::list_as_data(&call.app, query).await;
    }
    if query.after.is_none() {
        query.after = Some(call.app.engine.store().events_end().await?);
    }
    stream::answer(call, query).await
}
