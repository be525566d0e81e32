//! The executions API.
//!
//! Every path is served under `/api/v1` and, as the systems it comes from call it, without.

mod create;
mod detail;
mod list;
mod view;

use outlast_wire::ojs::error::Code;

use super::route::{Routes, get, post};
use super::shape::Shape;
use crate::access::Need;

pub(super) fn routes() -> Routes {
    ["/api/v1/executions", "/executions"].into_iter().map(below).fold(Routes::new(), Routes::merge)
}

const LIST: &[(&str, &str)] = &[
    ("status", "Only executions of this status"),
    ("action_ref", "Only of this action"),
    ("worker", "Only of this worker, by id or name"),
    ("queue", "Only of this queue"),
    ("id", "Only those whose id begins so, with at least 4 digits"),
    ("created_after", "Only those made since: a time, or how long ago, such as `2h`"),
    ("created_before", "Only those made before: a time, or how long ago"),
    ("limit", "Most rows; 50 unless said"),
    ("cursor", "Where the page before ended"),
];
const IF_STATUS: &[(&str, &str)] =
    &[("if_status", "Only if this is its status still; in another one it is refused with 409")];
const LOGS: &[(&str, &str)] = &[
    ("after", "Only pieces after this number"),
    ("limit", "Most pieces"),
    ("format", "`json`, or `text` for the bytes as they were"),
];
const EVENTS: &[(&str, &str)] = &[
    ("stream", "`true` for Server-Sent Events that go on"),
    ("type", "Only events of these types, such as `job.completed,job.failed` or `worker.*`"),
    ("limit", "Most events of a page"),
    ("cursor", "Only events after this one"),
    ("types", "The same as `type`"),
    ("after", "The same as `cursor`"),
    ("queue", "Only events of these queues"),
    ("queues", "The same as `queue`"),
    ("worker", "Only events by this worker, by id or name"),
];

fn below(root: &'static str) -> Routes {
    let path = |rest: &str| format!("{root}{rest}");
    Routes::new()
        .add(
            post(root, Need::Produce, "Enqueues an execution of an action", Shape::Execution)
                .enqueues(Shape::ExecutionRequest)
                .refuses(&[Code::NotFound]),
            create::create,
        )
        .add(get(root, Need::Read, "Lists executions", Shape::Executions).query(LIST), list::list)
        .add(get(path("/{id}"), Need::Read, "Shows an execution", Shape::Execution), detail::show)
        .add(
            post(path("/{id}/cancel"), Need::Produce, "Cancels an execution", Shape::Execution)
                .query(IF_STATUS)
                .refuses(&[Code::Conflict]),
            detail::cancel,
        )
        .add(
            post(path("/{id}/retry"), Need::Operate, "Gives it a new life", Shape::Execution)
                .query(IF_STATUS)
                .refuses(&[Code::Conflict]),
            detail::retry,
        )
        .add(
            post(
                path("/{id}/run-now"),
                Need::Operate,
                "Lets it run before its time",
                Shape::Execution,
            )
            .refuses(&[Code::Conflict]),
            detail::run_now,
        )
        .add(
            post(
                path("/{id}/rerun"),
                Need::Produce,
                "Enqueues the same again, as another execution",
                Shape::Execution,
            )
            .creates()
            .refuses(&[Code::Conflict, Code::ValidationError]),
            detail::rerun,
        )
        .add(
            get(path("/{id}/logs"), Need::Read, "Shows its output", Shape::Logs)
                .query(LOGS)
                .also("text/plain"),
            detail::logs,
        )
        .add(
            get(
                path("/{id}/events"),
                Need::Read,
                "Lists its events, or streams them",
                Shape::Events,
            )
            .query(EVENTS)
            .streams(),
            detail::events,
        )
        .add(
            get(path("/{id}/attempts"), Need::Read, "Lists its attempts", Shape::Attempts),
            detail::attempts,
        )
}
