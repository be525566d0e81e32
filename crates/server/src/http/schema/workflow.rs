//! Schemas of workflows, in our own API and in the standard's.

use outlast_wire::workflow::{Ending, Form, Status, StepStatus};
use serde_json::Value;

use super::build::{any, flag, int, list, object, one_of, open, text, time, uuid};

pub(super) fn workflow() -> Value {
    let parent = object(&[("workflow", uuid()), ("step", text()), ("item", int())]);
    let fire = object(&[("name", text()), ("fire_time", time())]);
    object(&[
        ("id", uuid()),
        ("name?", text()),
        ("workflow_ref?", text()),
        ("status", one_of(&Status::ALL.map(Status::as_str))),
        ("ending?", one_of(&Ending::ALL.map(Ending::as_str))),
        ("form", one_of(&Form::ALL.map(Form::as_str))),
        ("parameters?", open(&[])),
        ("labels?", open(&[])),
        ("keys?", open(&[])),
        ("parent?", parent),
        ("schedule?", fire),
        ("retries", int()),
        ("result?", any()),
        ("error?", text()),
        ("created", time()),
        ("updated", time()),
        ("finished?", time()),
        ("deadline?", time()),
        ("steps?", list(step())),
        ("drawing?", text()),
    ])
}

fn step() -> Value {
    object(&[
        ("name", text()),
        ("status", one_of(&StepStatus::ALL.map(StepStatus::as_str))),
        ("after", list(text())),
        ("action?", text()),
        ("type?", text()),
        ("workflow?", text()),
        ("callback?", flag()),
        ("total", int()),
        ("held", int()),
        ("running", int()),
        ("completed", int()),
        ("failed", int()),
        ("job_ids", list(uuid())),
        ("workflow_ids?", list(uuid())),
        ("jobs_left_out?", flag()),
        ("result?", any()),
        ("result_left_out?", flag()),
        ("error?", text()),
        ("started?", time()),
        ("finished?", time()),
    ])
}

pub(super) fn workflow_request() -> Value {
    object(&[
        ("workflow?", open(&[])),
        ("workflow_ref?", text()),
        ("parameters?", open(&[])),
        ("labels?", open(&[])),
        ("keys?", open(&[])),
        ("name?", text()),
    ])
}

/// A workflow of the standard; its main fields are at the root too.
pub(super) fn ojs_workflow() -> Value {
    open(&[("workflow", open(&[("id", uuid()), ("type", text()), ("state", text())]))])
}

pub(super) fn ojs_workflow_request() -> Value {
    open(&[("type?", text()), ("name?", text())])
}
