//! Health; the routes of the metrics and of the status page.

use http::StatusCode;

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::route::{Routes, get};
use super::shape::Shape;
use super::{metrics, page};
use crate::access::Need;
use crate::clock::boot_time;

pub(super) fn routes() -> Routes {
    Routes::new()
        .add(
            get("/health/live", Need::Nothing, "Says whether the process answers", Shape::Live)
                .statuses(&[200, 503]),
            live,
        )
        .add(
            get("/health/ready", Need::Nothing, "Says whether the store answers", Shape::Ready)
                .statuses(&[200, 503]),
            ready,
        )
        .add(
            get("/health", Need::Read, "Says whether the store answers", Shape::Ready)
                .statuses(&[200, 503]),
            ready,
        )
        .add(
            get("/metrics", Need::Read, "Shows metrics for Prometheus", Shape::Text),
            metrics::show,
        )
        .add(get("/", Need::Read, "Shows a plain status page", Shape::Page), page::status)
}

/// Answers as long as the process can answer at all and nothing vital has ended.
async fn live(call: Call) -> Result<Answer, Failure> {
    let up = boot_time().since(call.app.started).as_secs();
    let dead = call.app.engine.health().dead;
    let status = if dead.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let answer = Answer::object(|object| {
        object.text("status", dead.as_deref().unwrap_or("live"));
        object.number("uptime_seconds", up);
        object.text("version", call.app.engine.settings().version);
    });
    Ok(answer.with_status(status))
}

/// Ready means that the store takes writes and the server is not on its way out, whatever the
/// number of workers. It is answered from what is known: whoever asks, however often, costs
/// the store nothing.
async fn ready(call: Call) -> Result<Answer, Failure> {
    let health = call.app.engine.health();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let words =
        if health.ready { "ready" } else { health.dead.as_deref().unwrap_or("unavailable") };
    let answer = Answer::object(|object| {
        object.text("status", words);
        object.flag("ready", health.ready);
        object.text("store", &health.store);
        // False only with --unsafe-no-fsync.
        object.flag("durable", call.app.engine.store().facts().durable);
        object.flag("stopping", health.stopping);
        object.text("version", call.app.engine.settings().version);
    });
    Ok(answer.with_status(status))
}
