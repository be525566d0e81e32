//! Schemas of schedules, in our own API and in the standard's.

use serde_json::{Value, json};

use super::build::{any, flag, int, list, number, object, one_of, open, or_null, text, time, uuid};

fn overlap() -> Value {
    one_of(&["skip", "queue", "replace", "allow"])
}

fn catch_up() -> Value {
    one_of(&["none", "one", "all"])
}

fn duration() -> Value {
    json!({"type": ["number", "string"]})
}

pub(super) fn schedule() -> Value {
    let pause = object(&[("reason", text()), ("by", text()), ("at", time())]);
    let fire = object(&[
        ("fire_time", time()),
        ("late_seconds", number()),
        ("job_id?", uuid()),
        ("workflow_id?", uuid()),
    ]);
    let skip = object(&[("fire_time", time()), ("at", time()), ("reason", text())]);
    object(&[
        ("name", text()),
        ("cron", text()),
        ("time_zone", text()),
        ("overlap", overlap()),
        ("catch_up", catch_up()),
        ("jitter_seconds", number()),
        ("until", or_null(time())),
        ("action_ref?", text()),
        ("type?", text()),
        ("workflow_ref?", text()),
        ("job", open(&[])),
        ("status", one_of(&["active", "paused", "ended"])),
        ("paused", or_null(pause)),
        ("anchor", time()),
        ("next_fire", or_null(time())),
        ("last_fire", or_null(fire)),
        ("last_skip", or_null(skip)),
        ("fired", int()),
        ("skipped", int()),
        ("open_jobs", list(uuid())),
        ("configured", flag()),
        ("set_by", text()),
        ("created", time()),
        ("updated", time()),
        ("revision", int()),
    ])
}

pub(super) fn schedule_request() -> Value {
    object(&[
        ("cron", text()),
        ("time_zone?", text()),
        ("overlap?", overlap()),
        ("catch_up?", catch_up()),
        ("jitter?", duration()),
        ("until?", text()),
        ("paused?", flag()),
        ("pause_reason?", text()),
        ("action_ref?", text()),
        ("parameters?", any()),
        ("type?", text()),
        ("workflow_ref?", text()),
        ("args?", list(any())),
        ("meta?", open(&[])),
        ("options?", open(&[])),
        ("queue?", text()),
        ("priority?", int()),
        ("timeout?", duration()),
        ("scheduled_timeout?", duration()),
        ("retry?", any()),
        ("labels?", open(&[])),
        ("keys?", open(&[])),
        ("requires?", text()),
        ("prefers?", text()),
        ("resources?", open(&[])),
        ("packs?", one_of(&["any", "pinned"])),
    ])
}

fn policy() -> Value {
    one_of(&["skip", "allow", "cancel_previous", "enqueue"])
}

pub(super) fn cron() -> Value {
    object(&[
        ("name", text()),
        ("expression", text()),
        ("cron", text()),
        ("timezone", text()),
        ("overlap_policy", policy()),
        ("enabled", flag()),
        ("job_template", open(&[("type", text()), ("args", list(any()))])),
        ("next_run_at", or_null(time())),
        ("last_run_at", or_null(time())),
        ("created_at", time()),
        ("updated_at", time()),
    ])
}

pub(super) fn cron_request() -> Value {
    object(&[
        ("name", text()),
        ("expression?", text()),
        ("cron?", text()),
        ("timezone?", text()),
        ("overlap_policy?", policy()),
        ("enabled?", flag()),
        ("description?", text()),
        ("job_template?", open(&[("type", text())])),
        ("type?", text()),
        ("args?", list(any())),
        ("meta?", open(&[])),
        ("options?", open(&[])),
        ("catch_up?", catch_up()),
        ("jitter?", duration()),
        ("until?", text()),
    ])
}
