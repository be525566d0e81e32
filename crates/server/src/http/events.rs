//! `GET /api/v1/events`: the event log as a stream, or a page of it.

use super::error::ApiError;
use super::event_log;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, get};
use super::schema::Schema;
use super::stream;
use crate::access::Scope;

const FILTERS: &[(&str, &str)] = &[
    ("execution", "Only events about this job"),
    ("worker", "Only events about or by this worker (id or name)"),
    ("queue", "Only of these queues"),
    ("type", "Only of these types, such as `job.completed,job.failed` or `worker.*`"),
    ("audit", "`true` for changes by requests only: each has `from`, the address of its author"),
    ("cursor", "Only events after this one"),
    ("stream", "`false` for a page of JSON, as with `Accept: application/json`"),
    ("newest", "`true` for a page of the newest events, oldest first, instead of the oldest"),
    ("since", "Only events at or after this time, or within this long, such as `3h`"),
    ("until", "Only events before this time, or longer ago than this; with `newest=true`"),
    ("before", "Only events before this `previous_cursor`; with `newest=true`"),
    ("limit", "Page size"),
    ("job_id", "Alias of `execution`, from the OJS standard"),
    ("types", "Alias of `type`"),
    ("queues", "Alias of `queue`"),
    ("after", "Alias of `cursor`"),
];

pub(super) fn routes() -> Routes {
    Routes::new().add(
        get("/api/v1/events", Scope::Read, "Streams events as they happen", Schema::Events)
            .query(FILTERS)
            .streams(),
        events,
    )
}

/// A stream unless JSON or the newest events are asked for. It begins with what happens next, a page
/// with the oldest event that is kept, and both after a cursor or at a time where one is given.
async fn events(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = event_log::filter(&mut req).await?;
    if req.flag("newest")? || !stream::is_wanted(&req, true)? {
        return event_log::list_as_data(req, query).await;
    }
    let (req, mut query) = event_log::begin(req, query).await?;
    if query.after.is_none() {
        query.after = Some(req.app.engine.store().events_end().await?);
    }
    stream::respond(req, query).await
}
