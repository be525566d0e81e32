//! Schemas of executions, workers and related resources.

use outlast_core::evidence::EvidenceCode;
use outlast_core::job::DeadLetterReason;
use serde_json::{Value, json};

use super::build::{
    any, data, flag, int, list, number, object, one_of, open, or_null, state, text, texts, time,
    unique, uuid,
};

pub(super) fn execution() -> Value {
    let holder = object(&[("id", or_null(uuid())), ("name", or_null(text()))]);
    object(&[
        ("id", uuid()),
        ("action_ref", text()),
        ("parameters", any()),
        (
            "status",
            one_of(&[
                "requested",
                "scheduled",
                "running",
                "completed",
                "failed",
                "timeout",
                "cancelled",
                "abandoned",
            ]),
        ),
        ("state", state()),
        ("queue", text()),
        ("priority", int()),
        ("attempt", int()),
        ("epoch", int()),
        ("life", int()),
        ("max_attempts", int()),
        ("failures", int()),
        ("losses", int()),
        ("interruptions", int()),
        ("worker", or_null(holder)),
        ("waiting_reason", or_null(text())),
        ("result", any()),
        ("error", any()),
        ("omitted?", object(&[("parameters?", int()), ("result?", int())])),
        ("ended_by", or_null(text())),
        ("enqueued_by", text()),
        ("dead_letter", or_null(text())),
        ("created", time()),
        ("scheduled", or_null(time())),
        ("started", or_null(time())),
        ("finished", or_null(time())),
        ("due", or_null(time())),
        ("timeout", or_null(number())),
        ("scheduled_timeout", or_null(number())),
        ("overlap", one_of(&["allowed", "forbidden"])),
        ("validated_with", or_null(text())),
        (
            "schedule",
            or_null(object(&[("name", text()), ("fire_time", time()), ("late_seconds", number())])),
        ),
        (
            "workflow",
            or_null(object(&[
                ("id", uuid()),
                ("name", or_null(text())),
                ("step", text()),
                ("item", int()),
            ])),
        ),
        ("resources", resources()),
        ("labels", texts()),
        ("requires", text()),
        ("prefers", text()),
        ("keys", texts()),
        ("attempts_url", text()),
    ])
}

pub(super) fn execution_request() -> Value {
    let duration = || json!({"type": ["number", "string"]});
    object(&[
        ("action_ref", text()),
        ("parameters?", any()),
        ("queue?", text()),
        ("priority?", json!({"type": "integer", "minimum": -100, "maximum": 100})),
        ("timeout?", duration()),
        ("scheduled_timeout?", duration()),
        ("retry?", any()),
        ("labels?", texts()),
        ("requires?", text()),
        ("prefers?", text()),
        ("keys?", texts()),
        ("unique?", unique()),
        ("resources?", resources_request()),
        ("overlap?", one_of(&["allowed", "forbidden"])),
        ("packs?", one_of(&["any", "pinned"])),
        ("delay?", duration()),
    ])
}

pub(super) fn attempt() -> Value {
    object(&[
        ("attempt", int()),
        ("epoch", int()),
        ("life", int()),
        ("charged", int()),
        ("worker", or_null(object(&[("id", or_null(uuid())), ("name", or_null(text()))]))),
        ("claimed", time()),
        ("started", or_null(time())),
        ("finished", or_null(time())),
        ("outcome", or_null(text())),
        ("charges", or_null(list(one_of(&["interruption", "loss", "failure"])))),
        ("next_state", or_null(state())),
        ("error", any()),
        ("omitted?", object(&[("error", int())])),
        ("exit_code", or_null(int())),
        ("by", text()),
        ("evidence", text()),
        ("evidence_code", or_null(evidence_code())),
        ("pack_digest", or_null(text())),
        ("peak_memory_bytes", or_null(int())),
        ("cpu_seconds", or_null(number())),
    ])
}

fn resources() -> Value {
    object(&[("memory?", int()), ("cpu?", number()), ("processes?", int())])
}

/// With a size such as `64MiB`.
pub(super) fn resources_request() -> Value {
    let amount = || json!({"type": ["number", "string"]});
    object(&[("memory?", amount()), ("cpu?", amount()), ("processes?", amount())])
}

/// Which dead letters; `all` if no filter is set.
pub(super) fn letters_request() -> Value {
    let reasons = DeadLetterReason::ALL.map(DeadLetterReason::as_str);
    object(&[
        ("queue?", text()),
        ("type?", text()),
        ("reason?", one_of(&reasons)),
        ("since?", text()),
        ("until?", text()),
        ("error_contains?", text()),
        ("all?", flag()),
        ("dry_run?", flag()),
        ("limit?", int()),
        ("cursor?", text()),
    ])
}

pub(super) fn letters_changed() -> Value {
    data(object(&[
        ("matched", int()),
        ("changed", int()),
        ("dry_run", flag()),
        ("since", or_null(time())),
        ("until", time()),
        ("next_cursor", or_null(text())),
    ]))
}

fn evidence_code() -> Value {
    one_of(&EvidenceCode::ALL.map(EvidenceCode::as_str))
}

pub(super) fn event() -> Value {
    let about = object(&[
        ("job_id?", uuid()),
        ("job_type?", text()),
        ("queue?", text()),
        ("state?", state()),
        ("attempt?", int()),
        ("epoch?", int()),
        ("outcome?", text()),
        ("duration_ms?", int()),
        ("worker_id?", uuid()),
        ("worker_name?", text()),
        ("by", text()),
        ("from?", text()),
        ("evidence", text()),
        ("evidence_code?", evidence_code()),
    ]);
    object(&[
        ("specversion", text()),
        ("id", text()),
        ("type", text()),
        ("source", text()),
        ("time", time()),
        ("subject?", text()),
        ("data", about),
    ])
}

pub(super) fn action() -> Value {
    object(&[
        ("ref", text()),
        ("pack", text()),
        ("label", text()),
        ("description", text()),
        ("runner_type", one_of(&["shell", "python", "node"])),
        ("interpreter", or_null(text())),
        ("enabled", flag()),
        ("parameters", open(&[])),
        ("parameter_delivery", one_of(&["stdin", "file", "env"])),
        ("parameter_format", one_of(&["json", "yaml", "dotenv"])),
        ("output_format", one_of(&["text", "json", "yaml", "jsonl"])),
        ("timeout", or_null(number())),
        ("queue", text()),
        ("priority", int()),
        ("retry", retry_policy()),
        ("interruptible", flag()),
        ("on_drain", one_of(&["finish", "stop"])),
        ("overlap", one_of(&["allowed", "forbidden"])),
        ("packs", one_of(&["any", "pinned"])),
        ("resources", resources()),
        ("required_labels", texts()),
        ("requires", text()),
        ("prefers", text()),
        ("keys", texts()),
        ("tags", list(text())),
        ("secrets", list(text())),
    ])
}

fn retry_policy() -> Value {
    object(&[
        ("max_attempts", int()),
        ("initial_interval", number()),
        ("max_interval", number()),
        ("backoff_coefficient", number()),
        ("backoff_strategy", one_of(&["constant", "linear", "exponential", "polynomial"])),
        ("jitter", flag()),
        ("non_retryable_errors", list(text())),
        ("on_exhaustion", one_of(&["discard", "dead_letter"])),
    ])
}

/// Which live workers have a pack: the same files as this server, others, or none.
pub(super) fn pack_workers() -> Value {
    let other = object(&[("worker", text()), ("version", or_null(text())), ("digest", text())]);
    object(&[("same", int()), ("without", int()), ("other", list(other))])
}

pub(super) fn worker() -> Value {
    object(&[
        ("id", uuid()),
        ("name", text()),
        ("worker_role", one_of(&["action", "sdk", "ojs", "sensor"])),
        ("status", one_of(&["active", "inactive"])),
        ("state", one_of(&["running", "quiet", "draining", "suspect", "lapsed", "stopped"])),
        ("ended", or_null(one_of(&["drained", "killed", "lapsed", "stopped"]))),
        ("runtimes", list(text())),
        ("queues", list(text())),
        ("pool", or_null(text())),
        ("labels", texts()),
        ("concurrency", int()),
        ("in_flight", int()),
        ("oldest_claim", or_null(time())),
        ("last_heartbeat", time()),
        ("heartbeat_age_seconds", number()),
        ("started", time()),
        ("updated", time()),
        ("lease_until", time()),
        ("evidence", text()),
        ("evidence_code", or_null(text())),
        ("ordered", or_null(one_of(&["quiet", "resume", "drain"]))),
        ("ordered_at", or_null(time())),
        ("previous", or_null(uuid())),
        ("followed_by", or_null(uuid())),
        (
            "health",
            object(&[
                ("status", one_of(&["healthy", "unhealthy"])),
                ("reason", or_null(text())),
                ("since", or_null(time())),
            ]),
        ),
        ("skew", list(text())),
        ("about", any()),
        ("plain_id", or_null(text())),
    ])
}

pub(super) fn limit() -> Value {
    let worker = object(&[("id", or_null(uuid())), ("name", or_null(text()))]);
    let holder = object(&[("job", uuid()), ("worker", worker), ("since", time())]);
    let gate = object(&[
        ("value", or_null(text())),
        ("in_flight", int()),
        ("concurrency", or_null(int())),
        ("rate_opens", or_null(time())),
        ("holders", list(holder)),
    ]);
    let mut fields = limit_fields();
    fields.push(("in_use", list(gate)));
    fields.push(("more", flag()));
    object(&fields)
}

pub(super) fn limit_in_list() -> Value {
    let mut fields = limit_fields();
    fields.push(("in_flight", or_null(int())));
    object(&fields)
}

fn limit_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("name", text()),
        ("scope", limit_scope()),
        ("of", text()),
        ("concurrency", or_null(int())),
        ("rate", or_null(text())),
        ("configured", flag()),
        ("set_by", text()),
        ("set_at", time()),
    ]
}

fn limit_scope() -> Value {
    one_of(&["queue", "type", "key"])
}

fn worker_order_word() -> Value {
    one_of(&["quiet", "resume", "drain"])
}

pub(super) fn worker_order_request() -> Value {
    object(&[("order", worker_order_word()), ("selector?", text()), ("all?", flag())])
}

pub(super) fn worker_order() -> Value {
    object(&[
        ("selector", text()),
        ("order", one_of(&["quiet", "drain"])),
        ("set_by", text()),
        ("set_at", time()),
        ("workers", int()),
    ])
}

pub(super) fn workers_ordered() -> Value {
    object(&[
        ("order", worker_order_word()),
        ("selector", text()),
        ("standing_order", one_of(&["set", "lifted", "unchanged"])),
        ("reached", list(object(&[("id", uuid())]))),
        ("kept", list(object(&[("id", uuid()), ("by_selector", text())]))),
    ])
}

pub(super) fn limit_request() -> Value {
    object(&[
        ("scope", limit_scope()),
        ("of", text()),
        ("concurrency?", json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})),
        ("rate?", text()),
    ])
}

pub(super) fn doctor() -> Value {
    let store = open(&[
        ("kind", text()),
        ("folder", or_null(text())),
        ("durability", text()),
        ("durable", flag()),
    ]);
    let rows = || list(open(&[]));
    data(object(&[
        ("version", text()),
        ("wall_time", time()),
        ("store_time", time()),
        ("store", store),
        ("skew", list(text())),
        (
            "findings",
            list(object(&[
                ("rule", text()),
                ("stands_still", flag()),
                ("what", text()),
                ("evidence", text()),
                ("fix", text()),
                ("page", text()),
            ])),
        ),
        ("untaken", rows()),
        ("isolated", rows()),
        ("queues", rows()),
        ("start_timeout_seconds", number()),
        ("unstarted", rows()),
        ("workers", rows()),
    ]))
}
