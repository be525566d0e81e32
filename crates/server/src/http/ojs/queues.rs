//! Queues: counts, pause and resume.

use outlast_store::command::QueueOrder;
use outlast_store::query::QueueStats;
use outlast_wire::json::Object;
use outlast_wire::ojs::quirks;

use crate::http::App;
use crate::http::error::{ApiError, Missing};
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;

pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let queues = req.app.engine.store().queues().await?;
    Ok(ApiResponse::object(|object| {
        object.array("queues", &queues, |out, queue| {
            let mut object = Object::begin(out);
            fields(&mut object, queue);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("total", queues.len());
            object.number("limit", queues.len());
            object.number("offset", 0);
            object.flag("has_more", false);
        });
    }))
}

pub(super) async fn stats(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, tenant) = (req.queue().await?, req.tenant()?);
    let store = req.app.engine.store();
    let queue = store
        .queue(name.clone())
        .await?
        .ok_or_else(|| ApiError::not_found(Missing::Queue, format!("queue {name} is not known")))?;
    let settings = store.queue_settings().await?.into_iter().find(|it| it.queue == name);
    let bound = settings.and_then(|record| record.settings.max_depth);
    let queue = match tenant {
        Some(tenant) => of_tenant(&req.app, queue, &tenant).await?,
        None => queue,
    };
    let now = req.app.now().await?;
    let as_text = quirks::queue_is_text(req.header("ojs-version"));
    Ok(ApiResponse::object(|object| {
        if as_text {
            object.text("queue", &queue.name);
        } else {
            object.object("queue", |object| fields(object, &queue));
        }
        object.text("status", status(queue.paused));
        object.object("stats", |object| {
            object.text("queue", &queue.name);
            counts(object, &queue);
            max_depth(object, bound);
        });
        object.time("computed_at", now);
    }))
}

pub(in crate::http) async fn pause(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    order(req, true).await
}

pub(in crate::http) async fn resume(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    order(req, false).await
}

async fn order(mut req: ApiRequest, paused: bool) -> Result<ApiResponse, ApiError> {
    let queue = req.queue().await?;
    let order = QueueOrder { queue: queue.clone(), paused, by: req.by() };
    req.app.engine.submit(order).await?;
    req.app.snapshots.forget().await;
    Ok(ApiResponse::object(|object| {
        object.object("queue", |object| {
            object.text("name", &queue);
            object.flag("paused", paused);
            object.text("status", status(paused));
        });
    }))
}

/// Counts one tenant's jobs only.
async fn of_tenant(app: &App, queue: QueueStats, tenant: &str) -> Result<QueueStats, ApiError> {
    let theirs = app.engine.store().counts_of(queue.name.clone(), Some(tenant.to_owned())).await?;
    let mut stats = QueueStats { name: queue.name, paused: queue.paused, ..QueueStats::default() };
    stats.add(&theirs);
    Ok(stats)
}

const fn status(paused: bool) -> &'static str {
    if paused { "paused" } else { "active" }
}

/// Writes what the standard has about a queue.
pub(in crate::http) fn fields(object: &mut Object<'_>, queue: &QueueStats) {
    object.text("name", &queue.name);
    object.text("status", status(queue.paused));
    object.flag("paused", queue.paused);
    counts(object, queue);
}

/// Writes how many jobs are in which state.
pub(in crate::http) fn counts(object: &mut Object<'_>, queue: &QueueStats) {
    object.number("available", queue.available);
    object.number("active", queue.active);
    object.number("scheduled", queue.scheduled);
    object.number("pending", queue.pending);
    object.number("retryable", queue.retryable);
    object.number("completed", queue.completed);
    object.number("cancelled", queue.cancelled);
    object.number("discarded", queue.discarded);
    object.number("depth", queue.depth());
    object.time_if("oldest_available_at", queue.oldest_available);
}

/// Writes how many jobs may wait in a queue.
pub(in crate::http) fn max_depth(object: &mut Object<'_>, max: Option<u32>) {
    object.raw_or_null("max_depth", max.map(|max| max.to_string()).as_deref());
}
