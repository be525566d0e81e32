//! Open Job Spec over HTTP, levels 0 and 1.
//!
//! - [`jobs`]: enqueue, look, cancel
//! - [`reports`]: fetch, ack, nack
//! - [`beats`]: heartbeats of plain workers, and [`plain`]: who they are
//! - [`queues`], [`dead_letters`], [`events`], [`service`]

mod beats;
mod dead_letters;
pub(super) mod events;
mod jobs;
pub(super) mod plain;
mod queues;
mod reports;
mod service;

use axum::Router;
use outlast_store::Store;

use super::{App, delete, get, post};

pub(super) fn routes<S: Store>(conformance: bool) -> Router<App<S>> {
    let job = get(jobs::show).merge(delete(jobs::cancel));
    let beat = || post(beats::beat);
    let dead_letter = delete(dead_letters::forget).merge(get(dead_letters::show));
    let router = Router::new()
        .route("/ojs/manifest", get(service::manifest))
        .route("/ojs/v1/health", get(service::health))
        .route("/ojs/v1/jobs", post(jobs::enqueue))
        .route("/ojs/v1/jobs/batch", post(jobs::enqueue_all))
        .route("/ojs/v1/jobs/{id}", job)
        .route("/ojs/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/ojs/v1/workers/fetch", post(reports::fetch))
        .route("/ojs/v1/workers/ack", post(reports::ack))
        .route("/ojs/v1/workers/nack", post(reports::nack))
        .route("/ojs/v1/workers/heartbeat", beat())
        .route("/ojs/v1/workers/beat", beat())
        .route("/ojs/v1/workers/{id}/health", get(beats::health))
        .route("/ojs/v1/queues", get(queues::list))
        .route("/ojs/v1/queues/{name}", get(queues::stats))
        .route("/ojs/v1/queues/{name}/stats", get(queues::stats))
        .route("/ojs/v1/queues/{name}/pause", post(queues::pause))
        .route("/ojs/v1/queues/{name}/resume", post(queues::resume))
        .route("/ojs/v1/dead-letter", get(dead_letters::list))
        .route("/ojs/v1/dead-letter/{id}", dead_letter)
        .route("/ojs/v1/dead-letter/{id}/retry", post(dead_letters::retry))
        .route("/ojs/v1/events", get(events::list));
    if conformance { router.route("/ojs/v1/admin/reset", post(service::reset)) } else { router }
}
