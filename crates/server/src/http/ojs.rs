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

use outlast_wire::ojs::error::Code;

use super::route::{Routes, delete, get, post};
use super::shape::Shape;
use crate::access::Need;

const LETTERS: &[(&str, &str)] = &[
    ("queue", "Only of this queue"),
    ("limit", "Most rows; 50 unless said"),
    ("cursor", "Where the page before ended"),
    ("offset", "Rows to leave out"),
];
const EVENTS: &[(&str, &str)] = &[
    ("job_id", "Only events about this job"),
    ("types", "Only of these types"),
    ("queues", "Only of these queues"),
    ("limit", "Most events"),
    ("after", "Only events after this one"),
];

/// What a report is refused for.
const REPORT: &[Code] = &[Code::NotFound, Code::Conflict];

pub(super) fn routes(conformance: bool) -> Routes {
    let routes = jobs().merge(working()).merge(queues()).merge(dead_letters()).merge(service());
    if !conformance {
        return routes;
    }
    let reset = post("/ojs/v1/admin/reset", Need::Administer, "Empties the store", Shape::Reset);
    routes.add(reset, service::reset)
}

fn jobs() -> Routes {
    Routes::new()
        .add(
            post("/ojs/v1/jobs", Need::Produce, "Enqueues a job", Shape::NewJob)
                .enqueues(Shape::JobRequest),
            jobs::enqueue,
        )
        .add(
            post("/ojs/v1/jobs/batch", Need::Produce, "Enqueues jobs, all or none", Shape::NewJobs)
                .enqueues(Shape::BatchRequest),
            jobs::enqueue_all,
        )
        .add(get("/ojs/v1/jobs/{id}", Need::Read, "Shows a job", Shape::Job), jobs::show)
        .add(
            delete("/ojs/v1/jobs/{id}", Need::Produce, "Cancels a job", Shape::Job)
                .refuses(&[Code::Conflict]),
            jobs::cancel,
        )
        .add(
            post("/ojs/v1/jobs/{id}/cancel", Need::Produce, "Cancels a job", Shape::Job)
                .refuses(&[Code::Conflict]),
            jobs::cancel,
        )
        .add(
            post("/ojs/v1/jobs/{id}/activate", Need::Produce, "Activates a job", Shape::Activated)
                .refuses(&[Code::Conflict]),
            jobs::activate,
        )
}

fn working() -> Routes {
    let beat = "Keeps a worker and its jobs alive";
    Routes::new()
        .add(
            post("/ojs/v1/workers/fetch", Need::Work, "Takes jobs", Shape::Fetched)
                .takes(Shape::Fetch)
                .refuses(&[Code::Conflict]),
            reports::fetch,
        )
        .add(
            post("/ojs/v1/workers/ack", Need::Work, "Reports success", Shape::Acked)
                .takes(Shape::Ack)
                .refuses(REPORT),
            reports::ack,
        )
        .add(
            post("/ojs/v1/workers/nack", Need::Work, "Reports a failure", Shape::Nacked)
                .takes(Shape::Nack)
                .refuses(REPORT),
            reports::nack,
        )
        .add(
            post("/ojs/v1/workers/heartbeat", Need::Work, beat, Shape::Beaten)
                .takes(Shape::Beat)
                .refuses(&[Code::Conflict]),
            beats::beat,
        )
        .add(
            post("/ojs/v1/workers/beat", Need::Work, beat, Shape::Beaten)
                .takes(Shape::Beat)
                .refuses(&[Code::Conflict]),
            beats::beat,
        )
        .add(
            get("/ojs/v1/workers/{id}/health", Need::Read, "Shows a worker", Shape::WorkerHealth)
                .statuses(&[200, 503]),
            beats::health,
        )
}

fn queues() -> Routes {
    let stats = "Counts a queue's jobs";
    let path = |rest: &str| format!("/ojs/v1/queues/{{name}}{rest}");
    Routes::new()
        .add(get("/ojs/v1/queues", Need::Read, "Lists queues", Shape::Queues), queues::list)
        .add(get(path(""), Need::Read, stats, Shape::QueueStats), queues::stats)
        .add(get(path("/stats"), Need::Read, stats, Shape::QueueStats), queues::stats)
        .add(
            post(path("/pause"), Need::Operate, "Stops handing out jobs", Shape::QueueOrder),
            queues::pause,
        )
        .add(
            post(path("/resume"), Need::Operate, "Hands out jobs again", Shape::QueueOrder),
            queues::resume,
        )
}

fn dead_letters() -> Routes {
    let path = |rest: &str| format!("/ojs/v1/dead-letter{rest}");
    Routes::new()
        .add(
            get(path(""), Need::Read, "Lists dead letters", Shape::DeadLetters).query(LETTERS),
            dead_letters::list,
        )
        .add(get(path("/{id}"), Need::Read, "Shows a dead letter", Shape::Job), dead_letters::show)
        .add(
            delete(path("/{id}"), Need::Operate, "Removes a dead letter", Shape::DeadLetterGone),
            dead_letters::forget,
        )
        .add(
            post(path("/{id}/retry"), Need::Operate, "Gives a job a new life", Shape::Job)
                .refuses(&[Code::Conflict]),
            dead_letters::retry,
        )
}

fn service() -> Routes {
    Routes::new()
        .add(
            get("/ojs/manifest", Need::Read, "Says what is served", Shape::Manifest),
            service::manifest,
        )
        .add(
            get("/ojs/v1/health", Need::Read, "Says whether the server is well", Shape::Health)
                .statuses(&[200, 503]),
            service::health,
        )
        .add(
            get("/ojs/v1/events", Need::Read, "Lists events", Shape::OjsEvents).query(EVENTS),
            events::list,
        )
}
