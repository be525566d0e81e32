//! Schemas of operations.

use outlast_core::operation::{OperationKind, OperationStatus};
use outlast_wire::execution::status::Status;
use serde_json::{Value, json};

use super::build::{flag, int, list, object, one_of, or_null, text, texts, time, uuid};

fn kind() -> Value {
    one_of(&OperationKind::ALL.map(OperationKind::as_str))
}

fn filter() -> Value {
    let status = one_of(&Status::ALL.map(Status::as_str));
    object(&[
        ("status?", json!({"anyOf": [list(status), text()]})),
        ("action_ref?", text()),
        ("type?", text()),
        ("queue?", text()),
        ("worker?", text()),
        ("keys?", texts()),
        ("schedule?", text()),
        ("workflow?", uuid()),
        ("error_contains?", text()),
        ("id?", text()),
        ("id_suffix?", text()),
        ("created_after?", text()),
        ("created_before?", text()),
        ("all?", flag()),
    ])
}

pub(super) fn operation_request() -> Value {
    object(&[
        ("kind", kind()),
        ("filter", filter()),
        ("dry_run?", flag()),
        ("expected?", int()),
        ("as_of?", text()),
        ("reason?", text()),
    ])
}

/// With `dry_run` there are examples, and nothing of how it goes.
pub(super) fn operation() -> Value {
    let example = object(&[
        ("id", uuid()),
        ("action_ref", text()),
        ("queue", text()),
        ("status", text()),
        ("created", time()),
        ("error", or_null(text())),
    ]);
    let counts = json!({"type": "object", "additionalProperties": int()});
    object(&[
        ("id?", uuid()),
        ("kind", kind()),
        ("filter?", filter()),
        ("selection", text()),
        ("as_of", time()),
        ("reason?", text()),
        ("damaged?", text()),
        ("status?", one_of(&OperationStatus::ALL.map(OperationStatus::as_str))),
        ("dry_run", flag()),
        ("expected?", or_null(int())),
        ("estimate?", or_null(int())),
        ("matched", int()),
        ("at_least", flag()),
        ("examples?", list(example)),
        ("changed?", int()),
        ("skipped?", int()),
        ("skipped_by_reason?", counts),
        ("rate_per_second?", int()),
        ("seconds_left?", or_null(int())),
        ("by?", text()),
        ("note?", text()),
        ("created?", time()),
        ("updated?", time()),
        ("ended?", or_null(time())),
        ("revision?", int()),
    ])
}
