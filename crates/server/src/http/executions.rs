//! The executions API.
//!
//! Every path is served under `/api/v1` and, as the systems it comes from call it, without.

mod create;
mod detail;
mod list;
mod view;
mod wait;

pub(super) use create::create;
pub(super) use detail::{cancel, rerun, retry, run_now};
pub(super) use list::{asked, keys};
pub(super) use view::status;
pub(super) use wait::asked as wait_asked;

use outlast_wire::ojs::error::Code;

use super::route::{Routes, get, post};
use super::schema::Schema;
use crate::access::Scope;

pub(super) fn routes() -> Routes {
    ["/api/v1/executions", "/executions"].into_iter().map(below).fold(Routes::new(), Routes::merge)
}

const LIST: &[(&str, &str)] = &[
    ("status", "Only executions with one of these statuses, such as `failed,timeout`"),
    ("action_ref", "Only executions of this action"),
    ("worker", "Only those run by this worker (id or name)"),
    ("queue", "Only those in this queue"),
    ("key", "Only those with this key, as `name=value`; may be given several times"),
    ("schedule", "Only those that this schedule stored"),
    ("workflow", "Only those of this workflow, by its id"),
    ("error_contains", "Only those whose latest error contains this, in upper or lower case"),
    ("id", "Only those whose id starts with this, at least 4 digits"),
    ("id_suffix", "Only those whose id ends with this, at least 4 digits"),
    ("created_after", "Only those created after this time, or within this long, such as `2h`"),
    ("created_before", "Only those created before this time, or longer ago than this"),
    ("limit", "Page size, 50 by default"),
    ("cursor", "`next_cursor` of the previous page"),
];
const SHOW: &[(&str, &str)] =
    &[("wait", "Answer when it has ended, or after this long, such as `30s`; at most `60s`")];
const IF_STATUS: &[(&str, &str)] = &[("if_status", "Only if this is still its status; else 409")];
const LOGS: &[(&str, &str)] = &[
    ("after", "Only chunks after this number"),
    ("limit", "Page size"),
    ("format", "`json`, or `text` for the raw output"),
];
const EVENTS: &[(&str, &str)] = &[
    ("stream", "`true` for a stream of Server-Sent Events"),
    ("type", "Only events of these types, such as `job.completed,job.failed` or `worker.*`"),
    ("newest", "`true` for a page of the newest events, oldest first, instead of the oldest"),
    ("since", "Only events at or after this time, or within this long, such as `3h`"),
    ("until", "Only events before this time, or longer ago than this; with `newest=true`"),
    ("before", "Only events before this `previous_cursor`; with `newest=true`"),
    ("limit", "Page size"),
    ("cursor", "Only events after this one"),
    ("types", "Alias of `type`"),
    ("after", "Alias of `cursor`"),
    ("audit", "`true` for changes by requests only: each has `from`, the address of its author"),
    ("queue", "Only events of these queues"),
    ("queues", "Alias of `queue`"),
    ("worker", "Only events by this worker (id or name)"),
];

fn below(root: &'static str) -> Routes {
    let path = |rest: &str| format!("{root}{rest}");
    Routes::new()
        .merge(history(root))
        .add(
            post(root, Scope::Produce, "Enqueues an execution of an action", Schema::Execution)
                .enqueues(Schema::ExecutionRequest)
                .refuses(&[Code::NotFound]),
            create,
        )
        .add(get(root, Scope::Read, "Lists executions", Schema::Executions).query(LIST), list::list)
        .add(
            get(path("/{id}"), Scope::Read, "Shows an execution", Schema::Execution).query(SHOW),
            detail::show,
        )
        .add(
            post(path("/{id}/cancel"), Scope::Produce, "Cancels an execution", Schema::Execution)
                .query(IF_STATUS)
                .refuses(&[Code::Conflict]),
            cancel,
        )
        .add(
            post(
                path("/{id}/retry"),
                Scope::Operate,
                "Retries an execution that failed",
                Schema::Execution,
            )
            .query(IF_STATUS)
            .refuses(&[Code::Conflict]),
            retry,
        )
        .add(
            post(
                path("/{id}/run-now"),
                Scope::Operate,
                "Runs a delayed or retrying execution now",
                Schema::Execution,
            )
            .refuses(&[Code::Conflict]),
            run_now,
        )
        .add(
            post(
                path("/{id}/rerun"),
                Scope::Produce,
                "Enqueues a copy as a new execution",
                Schema::Execution,
            )
            .creates()
            .refuses(&[Code::Conflict, Code::ValidationError]),
            rerun,
        )
}

fn history(root: &'static str) -> Routes {
    let path = |rest: &str| format!("{root}{rest}");
    Routes::new()
        .add(
            get(path("/{id}/logs"), Scope::Read, "Shows the output", Schema::Logs)
                .query(LOGS)
                .also("text/plain"),
            detail::logs,
        )
        .add(
            get(
                path("/{id}/events"),
                Scope::Read,
                "Lists the events, or streams them until the execution has ended",
                Schema::Events,
            )
            .query(EVENTS)
            .streams(),
            detail::events,
        )
        .add(
            get(path("/{id}/attempts"), Scope::Read, "Lists the attempts", Schema::Attempts),
            detail::attempts,
        )
}
