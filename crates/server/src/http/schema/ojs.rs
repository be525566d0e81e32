//! Schemas of the Open Job Spec: jobs, reports, queues, dead letters, the server itself.

use outlast_core::queue::{DEPTH_MAX, WEIGHT_MAX};
use serde_json::{Value, json};

use super::Schema;
use super::build::{
    any, flag, int, list, named, number, object, one_of, open, or_null, state, text, texts, time,
    unique, uuid,
};
use super::native::resources_request;
use crate::snapshot::Reason;

impl Schema {
    pub(super) fn of_the_standard(self) -> Value {
        match self {
            Self::Job => open(&[("job", named("Job"))]),
            Self::Activated => open(&[("job", named("Job"))]),
            Self::NewJob => object(&[("job", named("Job"))]),
            Self::NewJobs => object(&[("count", int()), ("jobs", list(named("Job")))]),
            Self::Fetched => object(&[("jobs", list(named("Job")))]),
            Self::JobRequest => named("JobRequest"),
            Self::BatchRequest => object(&[("jobs", list(named("JobRequest")))]),
            Self::Acked => reported(&[("completed_at?", time())]),
            Self::Nacked => reported(&[
                ("max_attempts?", int()),
                ("next_attempt_at?", time()),
                ("retry_delay_ms?", int()),
                ("discarded_at?", time()),
                ("completed_at?", time()),
                ("dead_letter?", flag()),
            ]),
            Self::Fetch => open(&[
                ("queues", list(text())),
                ("worker_id?", text()),
                ("count?", int()),
                ("visibility_timeout_ms?", int()),
                ("wait_ms?", int()),
            ]),
            Self::Ack => report(&[("result?", any())]),
            Self::Nack => report(&[("error?", open(&[])), ("requeue?", flag())]),
            Self::Beat => open(&[
                ("worker_id", text()),
                ("active_jobs?", any()),
                ("active_job_ids?", list(text())),
                ("state?", text()),
                ("concurrency?", int()),
                ("queues?", list(text())),
                ("hostname?", text()),
            ]),
            Self::Beaten => object(&[
                ("acknowledged", flag()),
                ("state", one_of(&["running", "quiet", "terminate"])),
                ("worker_id", text()),
                ("incarnation", uuid()),
                ("jobs_extended", list(uuid())),
                ("stale_jobs", list(uuid())),
                ("unconfirmed_jobs", list(uuid())),
                ("server_time", time()),
            ]),
            Self::WorkerHealth => object(&[
                ("worker_id", text()),
                ("state", text()),
                ("status", one_of(&["healthy", "degraded"])),
                ("active_jobs", int()),
                ("last_heartbeat", time()),
            ]),
            other => other.of_queues(),
        }
    }

    /// Schemas of queues, dead letters and the server itself.
    fn of_queues(self) -> Value {
        match self {
            Self::Queues => object(&[("queues", list(named("Queue"))), ("pagination", offsets())]),
            Self::QueueStats => object(&[
                ("queue", json!({"anyOf": [named("Queue"), text()]})),
                ("status", text()),
                ("stats", object(&stats())),
                ("computed_at", time()),
            ]),
            Self::QueueOrder => {
                let queue = [("name", text()), ("paused", flag()), ("status", text())];
                object(&[("queue", object(&queue))])
            }
            Self::DeadLetters => object(&[
                ("jobs", list(named("Job"))),
                (
                    "pagination",
                    object(&[
                        ("total", or_null(int())),
                        ("limit", int()),
                        ("offset", int()),
                        ("has_more", flag()),
                        ("next_cursor", or_null(text())),
                    ]),
                ),
            ]),
            Self::DeadLetterGone => object(&[("deleted", flag()), ("job_id", uuid())]),
            Self::Health => object(&[
                ("status", one_of(&["ok", "unhealthy"])),
                ("version", text()),
                ("uptime_seconds", int()),
                ("backend", object(&[("type", text()), ("status", text())])),
            ]),
            Self::Reset => object(&[("reset", flag())]),
            // The manifest; every other schema is above.
            _ => open(&[("specversion", text()), ("capabilities", open(&[]))]),
        }
    }
}

fn counts() -> Vec<(&'static str, Value)> {
    let states = [
        "available",
        "active",
        "scheduled",
        "pending",
        "retryable",
        "completed",
        "cancelled",
        "discarded",
    ];
    let mut fields: Vec<_> = states.into_iter().map(|state| (state, int())).collect();
    fields.extend([("depth", int()), ("oldest_available_at?", time())]);
    fields
}

fn stats() -> Vec<(&'static str, Value)> {
    let mut fields = vec![("queue", text())];
    fields.extend(counts());
    fields.push(("max_depth", or_null(int())));
    fields
}

pub(super) fn queue() -> Value {
    object(&queue_fields())
}

fn queue_fields() -> Vec<(&'static str, Value)> {
    let mut fields = vec![("name", text()), ("status", text()), ("paused", flag())];
    fields.extend(counts());
    fields
}

/// A queue with its settings, which the standard does not have.
pub(super) fn queue_set() -> Value {
    let mut fields = queue_fields();
    fields.extend([
        ("max_depth", or_null(int())),
        ("fair_by", or_null(text())),
        ("weights", weights()),
        ("requires", or_null(text())),
        ("prefers", or_null(text())),
        ("dead_letters", list(letter_rule(""))),
        ("set_by", or_null(text())),
        ("set_at", or_null(time())),
    ]);
    object(&fields)
}

/// One queue, with the time of its numbers.
pub(super) fn queue_counted() -> Value {
    object(&[("data", named("QueueSet")), ("counted_at", time()), ("age_seconds", number())])
}

/// All queues at one moment.
pub(super) fn queues_counted() -> Value {
    let group = object(&[
        ("reason", one_of(&Reason::ALL.map(Reason::as_str))),
        ("queue", text()),
        ("type", or_null(text())),
        ("jobs", int()),
    ]);
    object(&[
        ("data", list(named("QueueSet"))),
        ("totals", object(&counts())),
        ("waiting", object(&[("groups", list(group)), ("others", int())])),
        ("counted_at", time()),
        ("age_seconds", number()),
    ])
}

pub(super) fn queue_request() -> Value {
    let depth = json!({"type": "integer", "minimum": 1, "maximum": DEPTH_MAX});
    object(&[
        ("fair_by?", or_null(text())),
        ("weights?", weights()),
        ("max_depth?", or_null(depth)),
        ("requires?", or_null(text())),
        ("prefers?", or_null(text())),
        ("dead_letters?", or_null(list(letter_rule("?")))),
    ])
}

/// What happens when a job of the queue becomes a dead letter; in requests, fields may be left out.
fn letter_rule(mark: &str) -> Value {
    let reasons = list(one_of(&["exhausted", "poison_suspect", "at_most_once"]));
    let of = |name: &str| format!("{name}{mark}");
    object(&[
        (&*of("webhook"), or_null(text())),
        (&*of("action"), or_null(text())),
        (&*of("reasons"), reasons),
    ])
}

fn weights() -> Value {
    let weight = json!({"type": "integer", "minimum": 1, "maximum": WEIGHT_MAX});
    json!({"type": "object", "additionalProperties": weight})
}

/// Other fields that its producer sent are returned.
pub(super) fn job() -> Value {
    open(&[
        ("specversion", text()),
        ("id", uuid()),
        ("type", text()),
        ("state", state()),
        ("queue", text()),
        ("args", json!({"type": "array"})),
        ("meta?", open(&[])),
        ("keys?", texts()),
        ("requires?", text()),
        ("prefers?", text()),
        ("options?", open(&[("keys?", texts()), ("requires?", text()), ("prefers?", text())])),
        ("priority", int()),
        ("attempt", int()),
        ("max_attempts", int()),
        ("created_at", time()),
        ("enqueued_at", time()),
        ("scheduled_at?", time()),
        ("expires_at?", time()),
        ("started_at?", time()),
        ("completed_at?", time()),
        ("cancelled_at?", time()),
        ("discarded_at?", time()),
        ("next_attempt_at?", time()),
        ("retry_delay_ms?", int()),
        ("result?", any()),
        ("error?", open(&[])),
        ("errors?", list(open(&[]))),
        ("omitted?", object(&[("args?", int()), ("result?", int())])),
        ("epoch?", int()),
        ("lease?", text()),
    ])
}

pub(super) fn job_request() -> Value {
    let options = open(&[
        ("queue?", text()),
        ("priority?", int()),
        ("timeout_ms?", int()),
        ("visibility_timeout_ms?", int()),
        ("delay_until?", text()),
        ("expires_at?", text()),
        ("retry?", open(&[])),
        ("keys?", texts()),
        ("requires?", text()),
        ("prefers?", text()),
        ("resources?", resources_request()),
        ("unique?", unique()),
        ("pending?", flag()),
    ]);
    open(&[
        ("type", text()),
        ("args", json!({"type": "array"})),
        ("id?", uuid()),
        ("meta?", open(&[])),
        ("options?", options),
    ])
}

fn report(more: &[(&str, Value)]) -> Value {
    let mut fields = vec![
        ("job_id", uuid()),
        ("worker_id?", text()),
        ("attempt?", int()),
        ("lease?", json!({"type": ["string", "integer"]})),
    ];
    fields.extend_from_slice(more);
    open(&fields)
}

fn reported(more: &[(&str, Value)]) -> Value {
    let mut fields = vec![
        ("acknowledged", flag()),
        ("id", uuid()),
        ("job_id", uuid()),
        ("state", state()),
        ("attempt", int()),
    ];
    fields.extend_from_slice(more);
    object(&fields)
}

fn offsets() -> Value {
    object(&[("total", int()), ("limit", int()), ("offset", int()), ("has_more", flag())])
}
