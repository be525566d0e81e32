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

use outlast_store::Store;

use super::route::{Routes, delete, get, post};
use crate::access::Need;

pub(super) fn routes<S: Store>(conformance: bool) -> Routes<S> {
    let routes = jobs().merge(working()).merge(queues()).merge(dead_letters()).merge(service());
    if !conformance {
        return routes;
    }
    let reset = post("/ojs/v1/admin/reset", Need::Administer, "Empties the store");
    routes.add(reset, service::reset)
}

fn jobs<S: Store>() -> Routes<S> {
    Routes::new()
        .add(post("/ojs/v1/jobs", Need::Produce, "Enqueues a job"), jobs::enqueue)
        .add(
            post("/ojs/v1/jobs/batch", Need::Produce, "Enqueues jobs, all or none"),
            jobs::enqueue_all,
        )
        .add(get("/ojs/v1/jobs/{id}", Need::Read, "Shows a job"), jobs::show)
        .add(delete("/ojs/v1/jobs/{id}", Need::Produce, "Cancels a job"), jobs::cancel)
        .add(post("/ojs/v1/jobs/{id}/cancel", Need::Produce, "Cancels a job"), jobs::cancel)
}

fn working<S: Store>() -> Routes<S> {
    let beat = "Keeps a worker and its jobs alive";
    Routes::new()
        .add(post("/ojs/v1/workers/fetch", Need::Work, "Takes jobs"), reports::fetch)
        .add(post("/ojs/v1/workers/ack", Need::Work, "Reports success"), reports::ack)
        .add(post("/ojs/v1/workers/nack", Need::Work, "Reports a failure"), reports::nack)
        .add(post("/ojs/v1/workers/heartbeat", Need::Work, beat), beats::beat)
        .add(post("/ojs/v1/workers/beat", Need::Work, beat), beats::beat)
        .add(get("/ojs/v1/workers/{id}/health", Need::Read, "Shows a worker"), beats::health)
}

fn queues<S: Store>() -> Routes<S> {
    let stats = "Counts a queue's jobs";
    let path = |rest: &str| format!("/ojs/v1/queues/{{name}}{rest}");
    Routes::new()
        .add(get("/ojs/v1/queues", Need::Read, "Lists queues"), queues::list)
        .add(get(path(""), Need::Read, stats), queues::stats)
        .add(get(path("/stats"), Need::Read, stats), queues::stats)
        .add(post(path("/pause"), Need::Operate, "Stops handing out jobs"), queues::pause)
        .add(post(path("/resume"), Need::Operate, "Hands out jobs again"), queues::resume)
}

fn dead_letters<S: Store>() -> Routes<S> {
    let path = |rest: &str| format!("/ojs/v1/dead-letter{rest}");
    Routes::new()
        .add(get(path(""), Need::Read, "Lists dead letters"), dead_letters::list)
        .add(get(path("/{id}"), Need::Read, "Shows a dead letter"), dead_letters::show)
        .add(delete(path("/{id}"), Need::Operate, "Removes a dead letter"), dead_letters::forget)
        .add(
            post(path("/{id}/retry"), Need::Operate, "Gives a job a new life"),
            dead_letters::retry,
        )
}

fn service<S: Store>() -> Routes<S> {
    Routes::new()
        .add(get("/ojs/manifest", Need::Read, "Says what is served"), service::manifest)
        .add(get("/ojs/v1/health", Need::Read, "Says whether the server is well"), service::health)
        .add(get("/ojs/v1/events", Need::Read, "Lists events"), events::list)
}
