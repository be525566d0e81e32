//! Open Job Spec over HTTP, levels 0 and 1.
//!
//! - [`jobs`]: enqueue, show, cancel
//! - [`reports`]: fetch, ack, nack
//! - [`heartbeats`]: heartbeats of plain workers, and [`plain_workers`]: which workers these are
//! - [`queues`], [`dead_letters`], [`events`], [`service`]

mod dead_letters;
mod events;
mod heartbeats;
mod jobs;
pub(super) mod plain_workers;
mod queues;
mod reports;
mod service;

use outlast_wire::ojs::error::Code;

use super::route::{Routes, delete, get, post};
use super::schema::Schema;
use crate::access::Need;

const LETTERS: &[(&str, &str)] = &[
    ("queue", "Only those in this queue"),
    ("limit", "Page size, 50 by default"),
    ("cursor", "`next_cursor` of the previous page"),
    ("offset", "Rows to skip"),
];
const EVENTS: &[(&str, &str)] = &[
    ("job_id", "Only events about this job"),
    ("types", "Only of these types"),
    ("queues", "Only of these queues"),
    ("limit", "Page size"),
    ("after", "Only events after this one"),
];

/// What a report is refused for.
const REPORT: &[Code] = &[Code::NotFound, Code::Conflict];

pub(super) fn routes(conformance: bool) -> Routes {
    let routes = jobs().merge(working()).merge(queues()).merge(dead_letters()).merge(service());
    if !conformance {
        return routes;
    }
    let reset = post(
        "/ojs/v1/admin/reset",
        Need::Administer,
        "Deletes everything in the store",
        Schema::Reset,
    );
    routes.add(reset, service::reset)
}

fn jobs() -> Routes {
    Routes::new()
        .add(
            post("/ojs/v1/jobs", Need::Produce, "Enqueues a job", Schema::NewJob)
                .enqueues(Schema::JobRequest),
            jobs::enqueue,
        )
        .add(
            post(
                "/ojs/v1/jobs/batch",
                Need::Produce,
                "Enqueues jobs, all or none",
                Schema::NewJobs,
            )
            .enqueues(Schema::BatchRequest),
            jobs::enqueue_all,
        )
        .add(get("/ojs/v1/jobs/{id}", Need::Read, "Shows a job", Schema::Job), jobs::show)
        .add(
            delete("/ojs/v1/jobs/{id}", Need::Produce, "Cancels a job", Schema::Job)
                .refuses(&[Code::Conflict]),
            jobs::cancel,
        )
        .add(
            post("/ojs/v1/jobs/{id}/cancel", Need::Produce, "Cancels a job", Schema::Job)
                .refuses(&[Code::Conflict]),
            jobs::cancel,
        )
        .add(
            post("/ojs/v1/jobs/{id}/activate", Need::Produce, "Activates a job", Schema::Activated)
                .refuses(&[Code::Conflict]),
            jobs::activate,
        )
}

fn working() -> Routes {
    let beat = "Renews a worker and the visibility of its jobs";
    Routes::new()
        .add(
            post("/ojs/v1/workers/fetch", Need::Work, "Fetches jobs", Schema::Fetched)
                .takes(Schema::Fetch)
                .refuses(&[Code::Conflict]),
            reports::fetch,
        )
        .add(
            post("/ojs/v1/workers/ack", Need::Work, "Reports success", Schema::Acked)
                .takes(Schema::Ack)
                .refuses(REPORT),
            reports::ack,
        )
        .add(
            post("/ojs/v1/workers/nack", Need::Work, "Reports a failure", Schema::Nacked)
                .takes(Schema::Nack)
                .refuses(REPORT),
            reports::nack,
        )
        .add(
            post("/ojs/v1/workers/heartbeat", Need::Work, beat, Schema::Beaten)
                .takes(Schema::Beat)
                .refuses(&[Code::Conflict]),
            heartbeats::beat,
        )
        .add(
            post("/ojs/v1/workers/beat", Need::Work, beat, Schema::Beaten)
                .takes(Schema::Beat)
                .refuses(&[Code::Conflict]),
            heartbeats::beat,
        )
        .add(
            get("/ojs/v1/workers/{id}/health", Need::Read, "Shows a worker", Schema::WorkerHealth)
                .statuses(&[200, 503]),
            heartbeats::health,
        )
}

fn queues() -> Routes {
    let stats = "Counts a queue's jobs";
    let path = |rest: &str| format!("/ojs/v1/queues/{{name}}{rest}");
    Routes::new()
        .add(get("/ojs/v1/queues", Need::Read, "Lists queues", Schema::Queues), queues::list)
        .add(get(path(""), Need::Read, stats, Schema::QueueStats), queues::stats)
        .add(get(path("/stats"), Need::Read, stats, Schema::QueueStats), queues::stats)
        .add(
            post(path("/pause"), Need::Operate, "Pauses a queue", Schema::QueueOrder),
            queues::pause,
        )
        .add(
            post(path("/resume"), Need::Operate, "Resumes a queue", Schema::QueueOrder),
            queues::resume,
        )
}

fn dead_letters() -> Routes {
    let path = |rest: &str| format!("/ojs/v1/dead-letter{rest}");
    Routes::new()
        .add(
            get(path(""), Need::Read, "Lists dead letters", Schema::DeadLetters).query(LETTERS),
            dead_letters::list,
        )
        .add(get(path("/{id}"), Need::Read, "Shows a dead letter", Schema::Job), dead_letters::show)
        .add(
            delete(path("/{id}"), Need::Operate, "Removes a dead letter", Schema::DeadLetterGone),
            dead_letters::forget,
        )
        .add(
            post(path("/{id}/retry"), Need::Operate, "Retries a dead letter", Schema::Job)
                .refuses(&[Code::Conflict]),
            dead_letters::retry,
        )
}

fn service() -> Routes {
    Routes::new()
        .add(
            get(
                "/ojs/manifest",
                Need::Read,
                "Shows which parts of the standard are served",
                Schema::Manifest,
            ),
            service::manifest,
        )
        .add(
            get(
                "/ojs/v1/health",
                Need::Read,
                "Reports whether the server is healthy",
                Schema::Health,
            )
            .statuses(&[200, 503]),
            service::health,
        )
        .add(
            get("/ojs/v1/events", Need::Read, "Lists events", Schema::OjsEvents).query(EVENTS),
            events::list,
        )
}
