//! Manifest, health, and the reset for conformance runs.

use http::StatusCode;
use outlast_wire::ojs::manifest as wire;

use crate::clock::boot_time;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use outlast_store::command::Reset;

pub(super) async fn manifest(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(wire::document(req.app.engine.settings().version)))
}

pub(super) async fn health(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let app = &req.app;
    let health = app.engine.health();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let answer = ApiResponse::object(|object| {
        object.text("status", if health.ready { "ok" } else { "unhealthy" });
        object.text("version", app.engine.settings().version);
        object.number("uptime_seconds", boot_time().since(app.started).as_secs());
        object.object("backend", |object| {
            object.text("type", "durable");
            object.text("status", &health.store);
        });
    });
    Ok(answer.with_status(status))
}

/// Drops everything. Routed only in conformance runs.
pub(super) async fn reset(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let app = &req.app;
    app.engine.submit(Reset).await?;
    app.plain.clear();
    Ok(ApiResponse::object(|object| object.flag("reset", true)))
}
