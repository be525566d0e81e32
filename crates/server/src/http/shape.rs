//! The shape of every body: what is sent and what is answered, as JSON Schema.
//!
//! A test sends requests to every route and compares what comes back with what is said here,
//! so a field that is added to an answer is added here too.

use serde_json::{Map, Value, json};

/// Bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
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
    Doctor,
    Live,
    Ready,
    Text,
    Page,
    Description,
    Job,
    JobRequest,
    NewJob,
    NewJobs,
    BatchRequest,
    Fetch,
    Fetched,
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

impl Shape {
    /// Returns the media type, `None` for JSON in its caller's flavour.
    pub(crate) const fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Text => Some("text/plain"),
            Self::Page => Some("text/html"),
            _ => None,
        }
    }

    /// Returns the schema.
    pub(crate) fn schema(self) -> Value {
        match self {
            Self::Execution => data(named("Execution")),
            Self::Executions => page("Execution"),
            Self::Logs => object(&[
                ("data", list(named("LogPiece"))),
                ("pagination", object(&[("limit", int()), ("next_cursor", int())])),
            ]),
            Self::Events => {
                object(&[("data", list(named("Event"))), ("next_cursor", or_null(text()))])
            }
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
            Self::Text | Self::Page => text(),
            Self::Description => json!({"type": "object", "required": ["openapi", "paths"]}),
            Self::Live => {
                object(&[("status", text()), ("uptime_seconds", int()), ("version", text())])
            }
            Self::Ready => object(&[
                ("status", one_of(&["ready", "unavailable"])),
                ("ready", flag()),
                ("store", text()),
                ("stopping", flag()),
                ("version", text()),
            ]),
            Self::Doctor => doctor(),
            Self::ExecutionRequest => execution_request(),
            other => other.of_the_standard(),
        }
    }

    fn of_the_standard(self) -> Value {
        match self {
            Self::Job => open(&[("job", named("Job"))]),
            Self::NewJob => object(&[("job", named("Job"))]),
            Self::NewJobs => object(&[("count", int()), ("jobs", list(named("Job")))]),
            Self::Fetched => object(&[("jobs", list(named("Job")))]),
            Self::JobRequest => named("JobRequest"),
            Self::BatchRequest => object(&[("jobs", list(named("JobRequest")))]),
            Self::Acked => reported(&[("completed_at", time())]),
            Self::Nacked => reported(&[
                ("max_attempts", int()),
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

    /// What the standard answers about queues, dead letters and the server itself.
    fn of_queues(self) -> Value {
        match self {
            Self::Queues => {
                object(&[("queues", list(named("Queue"))), ("pagination", offsets(&[]))])
            }
            Self::QueueStats => object(&[
                ("queue", json!({"anyOf": [named("Queue"), text()]})),
                ("status", text()),
                ("stats", object(&counts())),
                ("computed_at", time()),
            ]),
            Self::QueueOrder => {
                let queue = [("name", text()), ("paused", flag()), ("status", text())];
                object(&[("queue", object(&queue))])
            }
            Self::DeadLetters => object(&[
                ("jobs", list(named("Job"))),
                ("pagination", offsets(&[("next_cursor", or_null(text()))])),
            ]),
            Self::DeadLetterGone => object(&[("deleted", flag()), ("job_id", uuid())]),
            Self::Health => object(&[
                ("status", one_of(&["ok", "unhealthy"])),
                ("version", text()),
                ("uptime_seconds", int()),
                ("backend", object(&[("type", text()), ("status", text())])),
            ]),
            Self::Reset => object(&[("reset", flag())]),
            // The manifest; every other shape has its schema above.
            _ => open(&[("specversion", text()), ("capabilities", open(&[]))]),
        }
    }
}

/// Returns the shapes that others refer to by name.
pub(crate) fn components() -> Value {
    json!({
        "Error": object(&[("error", object(&[
            ("code", text()),
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
            ("notes", list(text())),
        ]),
        "Worker": worker(),
        "Queue": queue(),
        "Job": job(),
        "JobRequest": job_request(),
    })
}

fn execution() -> Value {
    let somebody = object(&[("id", or_null(uuid())), ("name", or_null(text()))]);
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
        ("worker", or_null(somebody)),
        ("waiting_reason", or_null(text())),
        ("result", any()),
        ("error", any()),
        ("ended_by", or_null(text())),
        ("dead_letter", or_null(text())),
        ("created", time()),
        ("scheduled", or_null(time())),
        ("started", or_null(time())),
        ("finished", or_null(time())),
        ("due", or_null(time())),
        ("timeout", or_null(number())),
        ("scheduled_timeout", or_null(number())),
        ("overlap", one_of(&["allowed", "forbidden"])),
        ("labels", texts()),
        ("attempts_url", text()),
    ])
}

fn execution_request() -> Value {
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
        ("overlap?", one_of(&["allowed", "forbidden"])),
        ("delay?", duration()),
    ])
}

fn attempt() -> Value {
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
        ("next_state", or_null(state())),
        ("error", any()),
        ("exit_code", or_null(int())),
        ("by", text()),
        ("evidence", text()),
    ])
}

fn event() -> Value {
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
        ("by", text()),
        ("evidence", text()),
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

fn action() -> Value {
    object(&[
        ("ref", text()),
        ("pack", text()),
        ("label", text()),
        ("description", text()),
        ("runner_type", one_of(&["shell", "python", "node"])),
        ("enabled", flag()),
        ("parameters", open(&[])),
        ("parameter_delivery", one_of(&["stdin", "file", "env"])),
        ("parameter_format", one_of(&["json", "yaml", "dotenv"])),
        ("output_format", one_of(&["text", "json", "yaml", "jsonl"])),
        ("timeout", or_null(number())),
        ("interruptible", flag()),
        ("overlap", one_of(&["allowed", "forbidden"])),
        ("required_labels", texts()),
        ("tags", list(text())),
    ])
}

fn worker() -> Value {
    object(&[
        ("id", uuid()),
        ("name", text()),
        ("worker_role", one_of(&["action", "sdk", "ojs", "sensor"])),
        ("status", one_of(&["active", "inactive"])),
        ("state", one_of(&["running", "quiet", "draining", "suspect", "lapsed", "stopped"])),
        ("runtimes", list(text())),
        ("queues", list(text())),
        ("labels", texts()),
        ("concurrency", int()),
        ("in_flight", int()),
        ("last_heartbeat", time()),
        ("heartbeat_age_seconds", number()),
        ("started", time()),
        ("updated", time()),
        ("lease_until", time()),
        ("evidence", text()),
        ("about", any()),
        ("plain_id", or_null(text())),
    ])
}

fn doctor() -> Value {
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
        ("untaken", rows()),
        ("queues", rows()),
        ("start_timeout_seconds", number()),
        ("unstarted", rows()),
        ("workers", rows()),
    ]))
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
    fields.push(("oldest_available_at?", time()));
    fields
}

fn queue() -> Value {
    let mut fields = vec![("name", text()), ("status", text()), ("paused", flag())];
    fields.extend(counts());
    object(&fields)
}

/// Whatever else its producer sent is given back.
fn job() -> Value {
    open(&[
        ("specversion", text()),
        ("id", uuid()),
        ("type", text()),
        ("state", state()),
        ("queue", text()),
        ("args", json!({"type": "array"})),
        ("meta?", open(&[])),
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
        ("epoch?", int()),
        ("lease?", text()),
    ])
}

fn job_request() -> Value {
    let options = open(&[
        ("queue?", text()),
        ("priority?", int()),
        ("timeout_ms?", int()),
        ("visibility_timeout_ms?", int()),
        ("delay_until?", text()),
        ("expires_at?", text()),
        ("retry?", open(&[])),
    ]);
    open(&[
        ("type", text()),
        ("args?", json!({"type": "array"})),
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

fn offsets(more: &[(&str, Value)]) -> Value {
    let mut fields =
        vec![("total", int()), ("limit", int()), ("offset", int()), ("has_more", flag())];
    fields.extend_from_slice(more);
    object(&fields)
}

fn data(schema: Value) -> Value {
    object(&[("data", schema)])
}

fn page(name: &str) -> Value {
    let pagination =
        object(&[("limit", int()), ("next_cursor", or_null(text())), ("total", int())]);
    object(&[("data", list(named(name))), ("pagination", pagination)])
}

/// An object of these fields. A name that ends with `?` may be missing.
fn object(fields: &[(&str, Value)]) -> Value {
    let required: Vec<_> =
        fields.iter().map(|(name, _)| *name).filter(|name| !name.ends_with('?')).collect();
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, schema)| (name.trim_end_matches('?').to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object of these fields and others.
fn open(fields: &[(&str, Value)]) -> Value {
    let mut schema = object(fields);
    schema["additionalProperties"] = true.into();
    schema
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": text()})
}

fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn list(schema: Value) -> Value {
    json!({"type": "array", "items": schema})
}

fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

fn state() -> Value {
    let states = outlast_core::job::State::ALL.map(outlast_core::job::State::as_str);
    one_of(&states)
}

fn any() -> Value {
    json!({})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn int() -> Value {
    json!({"type": "integer"})
}

fn number() -> Value {
    json!({"type": "number"})
}
