//! Health; the routes of the metrics and of the status page.

use http::StatusCode;

use super::error::ApiError;
use super::metrics;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, get};
use super::schema::Schema;
use crate::access::Scope;
use crate::clock::boot_time;

pub(super) fn routes() -> Routes {
    Routes::new()
        .add(
            get(
                "/health/live",
                Scope::Nothing,
                "Reports whether the process is alive",
                Schema::Live,
            )
            .statuses(&[200, 503]),
            live,
        )
        .add(
            get(
                "/health/ready",
                Scope::Nothing,
                "Reports whether the server is ready",
                Schema::Ready,
            )
            .statuses(&[200, 503]),
            ready,
        )
        .add(
            get("/health", Scope::Read, "Reports whether the server is ready", Schema::Ready)
                .statuses(&[200, 503]),
            ready,
        )
        .add(
            get("/metrics", Scope::Read, "Shows metrics for Prometheus", Schema::Text),
            metrics::show,
        )
}

/// Returns 200 as long as no vital task has ended or hangs.
async fn live(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let up = boot_time().since(req.app.started).as_secs();
    let health = req.app.engine.health();
    let dead = health.dead.or(health.hung);
    let status = if dead.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let answer = ApiResponse::object(|object| {
        object.text("status", dead.as_deref().unwrap_or("live"));
        object.number("uptime_seconds", up);
        object.text("version", req.app.engine.settings().version);
    });
    Ok(answer.with_status(status))
}

/// Ready means that the store takes writes and the server is not stopping, whatever the number
/// of workers. The answer comes from memory, so probes cost the store nothing.
async fn ready(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let health = req.app.engine.health();
    let out_of_order = health.dead.as_deref().or(health.hung.as_deref());
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let words = if health.ready { "ready" } else { out_of_order.unwrap_or("unavailable") };
    let answer = ApiResponse::object(|object| {
        object.text("status", words);
        object.flag("ready", health.ready);
        object.text("store", &health.store);
        object.text_or_null("reason", health.reason);
        // False only with --unsafe-no-fsync.
        object.flag("durable", req.app.engine.store().facts().durable);
        object.flag("stopping", health.stopping);
        object.text("version", req.app.engine.settings().version);
    });
    Ok(answer.with_status(status))
}
