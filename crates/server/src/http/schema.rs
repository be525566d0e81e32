//! The schema of every request and response body, as JSON Schema.
//!
//! A test sends requests to every route and checks the responses against these schemas, so a
//! field that is added to a response must be added here too.

mod build;
mod native;
mod ojs;
mod operation;
mod schedule;
mod workflow;

use outlast_wire::ojs::error::Code;
use serde_json::{Value, json};

use build::{
    any, cursor_page, data, flag, int, list, long_page, named, object, one_of, open, or_null, page,
    text, time, uuid,
};
use native::{
    action, attempt, doctor, event, execution, execution_request, letters_changed, letters_request,
    limit, limit_in_list, limit_request, pack_workers, worker, worker_order, worker_order_request,
    workers_ordered,
};
use ojs::{job, job_request, queue, queue_counted, queue_request, queue_set, queues_counted};
use operation::{operation, operation_request};
use schedule::{cron, cron_request, schedule, schedule_request};
use workflow::{ojs_workflow, ojs_workflow_request, workflow, workflow_request};

/// Bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    Execution,
    Executions,
    ExecutionRequest,
    Logs,
    Events,
    OjsEvents,
    Attempts,
    Action,
    Actions,
    Pack,
    Packs,
    Worker,
    Workers,
    Forgotten,
    Limit,
    WorkerOrders,
    WorkersOrdered,
    WorkerOrderRequest,
    LettersRequest,
    LettersChanged,
    LimitRequest,
    Limits,
    LimitGone,
    Schedule,
    Schedules,
    ScheduleRequest,
    ScheduleGone,
    Sessions,
    SessionGone,
    PauseRequest,
    Nothing,
    Triggered,
    Cron,
    Crons,
    CronRequest,
    CronUpdate,
    Workflow,
    Workflows,
    WorkflowRequest,
    Operation,
    Operations,
    OperationRequest,
    OjsWorkflow,
    OjsWorkflows,
    OjsWorkflowRequest,
    QueueSet,
    QueuesSet,
    QueueRequest,
    Doctor,
    Live,
    Ready,
    Text,
    Description,
    Job,
    JobRequest,
    NewJob,
    NewJobs,
    BatchRequest,
    Fetch,
    Fetched,
    Activated,
    Ack,
    Acked,
    Nack,
    Nacked,
    Beat,
    Beaten,
    WorkerHealth,
    Queues,
    QueueStats,
    QueueOrder,
    DeadLetters,
    DeadLetterGone,
    Manifest,
    Health,
    Reset,
}

impl Schema {
    /// Returns the media type, `None` for JSON in the client's format.
    pub(crate) const fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Text => Some("text/plain"),
            _ => None,
        }
    }

    /// Returns whether it is served from memory, without the store.
    pub(crate) const fn is_at_hand(self) -> bool {
        matches!(
            self,
            Self::Live
                | Self::Description
                | Self::Manifest
                | Self::Action
                | Self::Actions
                | Self::Pack
                | Self::Packs
        )
    }

    /// Returns the schema.
    pub(crate) fn schema(self) -> Value {
        match self {
            Self::Execution => data(named("Execution")),
            Self::Executions => long_page("Execution"),
            Self::Logs => object(&[
                ("data", list(named("LogPiece"))),
                ("pagination", object(&[("limit", int()), ("next_cursor", int())])),
            ]),
            Self::Events => object(&[
                ("data", list(named("Event"))),
                ("next_cursor", or_null(text())),
                ("previous_cursor?", or_null(text())),
            ]),
            Self::OjsEvents => {
                object(&[("events", list(named("Event"))), ("next_cursor", or_null(text()))])
            }
            Self::Attempts => object(&[("data", list(named("Attempt")))]),
            Self::Action => data(named("Action")),
            Self::Actions => page("Action"),
            Self::Pack => data(named("Pack")),
            Self::Packs => page("Pack"),
            Self::Worker => data(named("Worker")),
            Self::Workers => page("Worker"),
            Self::Forgotten => data(object(&[("id", uuid()), ("forgotten", flag())])),
            Self::LettersRequest => letters_request(),
            Self::LettersChanged => letters_changed(),
            Self::Limit => data(named("Limit")),
            Self::WorkerOrders => object(&[("data", list(worker_order()))]),
            Self::WorkersOrdered => data(workers_ordered()),
            Self::WorkerOrderRequest => worker_order_request(),
            Self::LimitRequest => limit_request(),
            Self::Limits => object(&[("data", list(limit_in_list()))]),
            Self::LimitGone => data(object(&[("name", text()), ("removed", flag())])),
            Self::QueueSet => queue_counted(),
            Self::QueuesSet => queues_counted(),
            Self::QueueRequest => queue_request(),
            Self::Text => text(),
            Self::Description => json!({"type": "object", "required": ["openapi", "paths"]}),
            Self::Live => {
                object(&[("status", text()), ("uptime_seconds", int()), ("version", text())])
            }
            Self::Ready => object(&[
                ("status", one_of(&["ready", "unavailable"])),
                ("ready", flag()),
                ("store", text()),
                ("reason", or_null(text())),
                ("durable", flag()),
                ("stopping", flag()),
                ("version", text()),
            ]),
            Self::Doctor => doctor(),
            Self::ExecutionRequest => execution_request(),
            other => other.of_schedules(),
        }
    }

    /// Schemas of schedules, workflows and operations.
    fn of_schedules(self) -> Value {
        match self {
            Self::Schedule => data(named("Schedule")),
            Self::Schedules => cursor_page("Schedule"),
            Self::Workflow => data(named("Workflow")),
            Self::Workflows => cursor_page("Workflow"),
            Self::WorkflowRequest => workflow_request(),
            Self::Operation => data(named("Operation")),
            Self::Operations => cursor_page("Operation"),
            Self::OperationRequest => operation_request(),
            Self::OjsWorkflow => ojs_workflow(),
            Self::OjsWorkflows => {
                object(&[("workflows", list(open(&[("id", uuid())]))), ("count", int())])
            }
            Self::OjsWorkflowRequest => ojs_workflow_request(),
            Self::ScheduleRequest => schedule_request(),
            Self::Sessions => cursor_page("Session"),
            Self::SessionGone => data(object(&[("id", uuid()), ("ended", flag())])),
            Self::ScheduleGone => data(object(&[("name", text()), ("removed", flag())])),
            Self::PauseRequest => object(&[("reason?", text())]),
            Self::Nothing => object(&[]),
            Self::Triggered => data(object(&[
                ("name", text()),
                ("job_id?", uuid()),
                ("workflow_id?", uuid()),
                ("fire_time", time()),
                ("waits", flag()),
            ])),
            Self::Cron => object(&[("cron", named("Cron")), ("cron_job", named("Cron"))]),
            Self::Crons => object(&[
                ("crons", list(named("Cron"))),
                ("cron_jobs", list(named("Cron"))),
                ("count", int()),
            ]),
            Self::CronRequest => cron_request(),
            Self::CronUpdate => object(&[("enabled", flag())]),
            other => other.of_the_standard(),
        }
    }
}

/// Returns the schemas that others refer to by name.
pub(crate) fn components() -> Value {
    json!({
        "Error": object(&[("error", object(&[
            ("code", one_of(&Code::ALL.map(Code::as_str))),
            ("type", text()),
            ("message", text()),
            ("retryable", flag()),
            ("request_id", text()),
            ("hint", text()),
            ("docs_url", text()),
            ("details?", any()),
        ]))]),
        "Execution": execution(),
        "Attempt": attempt(),
        "LogPiece": object(&[
            ("n", int()),
            ("epoch", int()),
            ("stream", text()),
            ("at", time()),
            ("text", text()),
        ]),
        "Event": event(),
        "Action": action(),
        "Pack": object(&[
            ("ref", text()),
            ("label", text()),
            ("description", text()),
            ("version", or_null(text())),
            ("enabled", flag()),
            ("built_in", flag()),
            ("replaces_built_in", flag()),
            ("tags", list(text())),
            ("actions", list(text())),
            ("workflows", list(text())),
            ("notes", list(text())),
            ("digest", text()),
            ("faults", list(text())),
            ("workers", pack_workers()),
        ]),
        "Worker": worker(),
        "Limit": limit(),
        "Schedule": schedule(),
        "Session": object(&[
            ("id", uuid()),
            ("token", text()),
            ("role", or_null(text())),
            ("address", text()),
            ("browser", text()),
            ("created_at", time()),
            ("used_at", time()),
            ("expires_at", time()),
        ]),
        "Workflow": workflow(),
        "Operation": operation(),
        "Cron": cron(),
        "Queue": queue(),
        "QueueSet": queue_set(),
        "Job": job(),
        "JobRequest": job_request(),
    })
}
