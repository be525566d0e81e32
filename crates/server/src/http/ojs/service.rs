//! Manifest, health, and the reset that only conformance runs have.

use http::StatusCode;
use outlast_store::{Command, Reply};
use outlast_wire::ojs::manifest as wire;

use crate::clock::boot_time;
use crate::engine::unexpected;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;

pub(super) async fn manifest(call: Call) -> Result<Answer, Failure> {
    Ok(Answer::ok(wire::document(call.app.engine.settings().version)))
}

pub(super) async fn health(call: Call) -> Result<Answer, Failure> {
    let app = &call.app;
    let health = app.engine.health();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let answer = Answer::object(|object| {
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
pub(super) async fn reset(call: Call) -> Result<Answer, Failure> {
    let app = &call.app;
    match app.engine.submit(Command::Reset).await? {
        Reply::Done => {}
        other => return Err(unexpected("a reset", &other).into()),
    }
    app.plain.clear();
    Ok(Answer::object(|object| object.flag("reset", true)))
}
