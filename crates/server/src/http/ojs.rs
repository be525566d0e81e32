//! Open Job Spec over HTTP, levels 0 to 2.
//!
//! - [`jobs`]: enqueue, show, cancel
//! - [`reports`]: fetch, ack, nack
//! - [`heartbeats`]: heartbeats of plain workers, and [`plain_workers`]: which workers these are
//! - [`cron`], [`queues`], [`dead_letters`], [`events`], [`workflows`], [`service`]

mod cron;
mod dead_letters;
mod events;
mod heartbeats;
mod jobs;
pub(super) mod plain_workers;
pub(super) mod queues;
mod reports;
mod service;
mod workflows;

use outlast_wire::ojs::error::Code;

use super::route::{Routes, delete, get, patch, post};
use super::schema::Schema;
use crate::access::Scope;

const LETTERS: &[(&str, &str)] = &[
    ("queue", "Only those in this queue"),
    ("type", "Only those of this type, or action reference"),
    ("reason", "Only those for this reason: `exhausted`, `poison_suspect` or `at_most_once`"),
    ("since", "Only those dead-lettered at or after this time, or within this long, such as `2h`"),
    ("until", "Only those dead-lettered before this time, or longer ago than this"),
    ("error_contains", "Only those whose latest error contains this, in upper or lower case"),
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
    let routes = routes.merge(cron()).merge(workflows());
    if !conformance {
        return routes;
    }
    let reset = post(
        "/ojs/v1/admin/reset",
        Scope::Administer,
        "Deletes everything in the store",
        Schema::Reset,
    );
    routes.add(reset, service::reset)
}

fn cron() -> Routes {
    const ALL: &str = "/ojs/v1/cron";
    const ONE: &str = "/ojs/v1/cron/{name}";
    Routes::new()
        .add(
            post(ALL, Scope::Operate, "Registers a cron job", Schema::Cron)
                .takes(Schema::CronRequest)
                .statuses(&[200, 201])
                .refuses(&[Code::Conflict, Code::NotFound, Code::ValidationError]),
            cron::register,
        )
        .add(
            get(ALL, Scope::Read, "Lists cron jobs", Schema::Crons)
                .refuses(&[Code::InvalidRequest]),
            cron::list,
        )
        .add(get(ONE, Scope::Read, "Shows a cron job", Schema::Cron), cron::show)
        .add(
            patch(ONE, Scope::Operate, "Switches a cron job on or off", Schema::Cron)
                .takes(Schema::CronUpdate)
                .refuses(&[Code::Conflict]),
            cron::update,
        )
        .add(
            delete(ONE, Scope::Operate, "Removes a cron job; its jobs stay", Schema::Cron)
                .refuses(&[Code::Conflict]),
            cron::remove,
        )
}

fn workflows() -> Routes {
    const ALL: &str = "/ojs/v1/workflows";
    const ONE: &str = "/ojs/v1/workflows/{id}";
    let cancels = "Cancels a workflow, and the jobs of it that have not ended";
    Routes::new()
        .add(
            post(ALL, Scope::Produce, "Begins a workflow", Schema::OjsWorkflow)
                .enqueues(Schema::OjsWorkflowRequest)
                .refuses(&[Code::Conflict]),
            workflows::begin,
        )
        .add(
            get(ALL, Scope::Read, "Lists the latest workflows", Schema::OjsWorkflows)
                .query(&[("limit", "How many, 50 by default")]),
            workflows::list,
        )
        .add(get(ONE, Scope::Read, "Shows a workflow", Schema::OjsWorkflow), workflows::show)
        .add(
            delete(ONE, Scope::Produce, cancels, Schema::OjsWorkflow).refuses(&[Code::Conflict]),
            workflows::cancel,
        )
        .add(
            post("/ojs/v1/workflows/{id}/cancel", Scope::Produce, cancels, Schema::OjsWorkflow)
                .refuses(&[Code::Conflict]),
            workflows::cancel,
        )
}

fn jobs() -> Routes {
    Routes::new()
        .add(
            post("/ojs/v1/jobs", Scope::Produce, "Enqueues a job", Schema::NewJob)
                .enqueues(Schema::JobRequest),
            jobs::enqueue,
        )
        .add(
            post(
                "/ojs/v1/jobs/batch",
                Scope::Produce,
                "Enqueues jobs, all or none",
                Schema::NewJobs,
            )
            .enqueues(Schema::BatchRequest),
            jobs::enqueue_all,
        )
        .add(get("/ojs/v1/jobs/{id}", Scope::Read, "Shows a job", Schema::Job), jobs::show)
        .add(
            delete("/ojs/v1/jobs/{id}", Scope::Produce, "Cancels a job", Schema::Job)
                .refuses(&[Code::Conflict]),
            jobs::cancel,
        )
        .add(
            post("/ojs/v1/jobs/{id}/cancel", Scope::Produce, "Cancels a job", Schema::Job)
                .refuses(&[Code::Conflict]),
            jobs::cancel,
        )
        .add(
            post(
                "/ojs/v1/jobs/{id}/activate",
                Scope::Produce,
                "Activates a job",
                Schema::Activated,
            )
            .refuses(&[Code::Conflict]),
            jobs::activate,
        )
}

fn working() -> Routes {
    let beat = "Renews a worker and the visibility of its jobs";
    Routes::new()
        .add(
            post("/ojs/v1/workers/fetch", Scope::Work, "Fetches jobs", Schema::Fetched)
                .takes(Schema::Fetch)
                .refuses(&[Code::Conflict]),
            reports::fetch,
        )
        .add(
            post("/ojs/v1/workers/ack", Scope::Work, "Reports success", Schema::Acked)
                .takes(Schema::Ack)
                .refuses(REPORT),
            reports::ack,
        )
        .add(
            post("/ojs/v1/workers/nack", Scope::Work, "Reports a failure", Schema::Nacked)
                .takes(Schema::Nack)
                .refuses(REPORT),
            reports::nack,
        )
        .add(
            post("/ojs/v1/workers/heartbeat", Scope::Work, beat, Schema::Beaten)
                .takes(Schema::Beat)
                .refuses(&[Code::Conflict]),
            heartbeats::beat,
        )
        .add(
            post("/ojs/v1/workers/beat", Scope::Work, beat, Schema::Beaten)
                .takes(Schema::Beat)
                .refuses(&[Code::Conflict]),
            heartbeats::beat,
        )
        .add(
            get("/ojs/v1/workers/{id}/health", Scope::Read, "Shows a worker", Schema::WorkerHealth)
                .statuses(&[200, 503]),
            heartbeats::health,
        )
}

fn queues() -> Routes {
    let stats = "Counts a queue's jobs";
    let path = |rest: &str| format!("/ojs/v1/queues/{{name}}{rest}");
    Routes::new()
        .add(get("/ojs/v1/queues", Scope::Read, "Lists queues", Schema::Queues), queues::list)
        .add(get(path(""), Scope::Read, stats, Schema::QueueStats), queues::stats)
        .add(get(path("/stats"), Scope::Read, stats, Schema::QueueStats), queues::stats)
        .add(
            post(path("/pause"), Scope::Operate, "Pauses a queue", Schema::QueueOrder),
            queues::pause,
        )
        .add(
            post(path("/resume"), Scope::Operate, "Resumes a queue", Schema::QueueOrder),
            queues::resume,
        )
}

fn dead_letters() -> Routes {
    let path = |rest: &str| format!("/ojs/v1/dead-letter{rest}");
    Routes::new()
        .add(
            get(path(""), Scope::Read, "Lists dead letters", Schema::DeadLetters).query(LETTERS),
            dead_letters::list,
        )
        .add(
            get(path("/{id}"), Scope::Read, "Shows a dead letter", Schema::Job),
            dead_letters::show,
        )
        .add(
            delete(path("/{id}"), Scope::Operate, "Removes a dead letter", Schema::DeadLetterGone),
            dead_letters::forget,
        )
        .add(
            post(path("/{id}/retry"), Scope::Operate, "Retries a dead letter", Schema::Job)
                .refuses(&[Code::Conflict]),
            dead_letters::retry,
        )
}

fn service() -> Routes {
    Routes::new()
        .add(
            get(
                "/ojs/manifest",
                Scope::Read,
                "Shows which parts of the standard are served",
                Schema::Manifest,
            ),
            service::manifest,
        )
        .add(
            get(
                "/ojs/v1/health",
                Scope::Read,
                "Reports whether the server is healthy",
                Schema::Health,
            )
            .statuses(&[200, 503]),
            service::health,
        )
        .add(
            get("/ojs/v1/events", Scope::Read, "Lists events", Schema::OjsEvents).query(EVENTS),
            events::list,
        )
}
