//! Health, metrics, and the plain status page.

use std::time::Duration;

use http::StatusCode;
use outlast_store::Store;

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::page;
use super::route::{Routes, get};
use super::shape::Shape;
use crate::access::Need;
use crate::clock::boot_time;

/// The Prometheus text format, for clients that ask for a version of it.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Longest that the store is waited for: whoever probes does not wait for ever either.
const READY_LIMIT: Duration = Duration::from_secs(2);

pub(super) fn routes<S: Store>() -> Routes<S> {
    Routes::new()
        .add(
            get("/health/live", Need::Nothing, "Says whether the process answers", Shape::Live),
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
        .add(get("/metrics", Need::Read, "Shows metrics for Prometheus", Shape::Text), metrics)
        .add(get("/", Need::Read, "Shows a plain status page", Shape::Page), page::status)
}

/// Answers as long as the process can answer at all.
async fn live<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    let up = boot_time().since(call.app.started).as_secs();
    Ok(Answer::object(|object| {
        object.text("status", "live");
        object.number("uptime_seconds", up);
        object.text("version", call.app.engine.settings().version);
    }))
}

/// Ready means that the store answers and the server is not on its way out, whatever the
/// number of workers.
async fn ready<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    let health = call.app.engine.health();
    // The loop notices an outage when it next writes; an idle server asks here.
    let asked = tokio::time::timeout(READY_LIMIT, call.app.engine.store().now()).await;
    let ready = health.ready && matches!(asked, Ok(Ok(_)));
    let store = match &asked {
        Ok(Ok(_)) => health.store.to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_elapsed) => format!("no answer within {} s", READY_LIMIT.as_secs()),
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let answer = Answer::object(|object| {
        object.text("status", if ready { "ready" } else { "unavailable" });
        object.flag("ready", ready);
        object.text("store", &store);
        // False only with --unsafe-no-fsync.
        object.flag("durable", call.app.engine.store().facts().durable);
        object.flag("stopping", health.stopping);
        object.text("version", call.app.engine.settings().version);
    });
    Ok(answer.with_status(status))
}

async fn metrics<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    let asks = call.header("accept").is_some_and(|accept| accept.contains("version="));
    let kind = if asks { PROMETHEUS } else { "text/plain" };
    Ok(Answer::text(kind, call.app.engine.metrics().into_bytes()))
}
