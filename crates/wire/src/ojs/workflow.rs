//! A workflow as the standard shows it: under `workflow`, and its main fields at the root too.
//!
//! | Ours | The standard's |
//! |---|---|
//! | `running`, but cancelled, while its last jobs run | `cancelled` |
//! | `timeout` | `failed` |
//! | a step that is `skipped` | `cancelled` |
//! | a step that is `timeout` or `abandoned` | `failed` |
//! | a step that is `running` | `active`; `pending` until it has started |
//!
//! A batch counts its jobs, not its callbacks. An empty group has no jobs.

#[cfg(test)]
mod tests;

use outlast_core::time::Timestamp;
use uuid::Uuid;

use crate::json::{Object, string};
use crate::workflow::{Ending, Form, Status, StepStatus, StepView, WorkflowView};

/// Callbacks of a batch: the name of the step, the key.
const CALLBACKS: [(&str, &str); 3] =
    [("on-complete", "on_complete"), ("on-success", "on_success"), ("on-failure", "on_failure")];

/// Writes a workflow as the answer to a request.
#[must_use]
pub fn document(workflow: &WorkflowView) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object.object("workflow", |object| all(object, workflow));
    main(&mut object, workflow);
    object.end();
    out
}

/// Writes a workflow as one object, such as for a list.
pub fn write(out: &mut Vec<u8>, workflow: &WorkflowView) {
    let mut object = Object::begin(out);
    all(&mut object, workflow);
    object.end();
}

/// How many jobs a workflow has, callbacks left out.
#[derive(Clone, Copy, Default)]
struct Count {
    total: u32,
    completed: u32,
    failed: u32,
}

impl Count {
    fn of(workflow: &WorkflowView) -> Self {
        members(workflow).fold(Self::default(), |count, step| Self {
            total: count.total + jobs_of(step),
            completed: count.completed + step.completed,
            failed: count.failed + step.failed,
        })
    }
}

fn members(workflow: &WorkflowView) -> impl Iterator<Item = &StepView> {
    workflow.steps.iter().filter(|step| !step.callback)
}

/// A step that has not started, or never does, is one job. Only the step that stands for an empty
/// group completes without any.
const fn jobs_of(step: &StepView) -> u32 {
    match (step.total, step.status) {
        (0, StepStatus::Completed) => 0,
        (0, _) => 1,
        (total, _) => total,
    }
}

const fn state(workflow: &WorkflowView) -> &'static str {
    match (workflow.status, workflow.ending) {
        (Status::Running, Some(Ending::Cancelled)) | (Status::Cancelled, _) => "cancelled",
        (Status::Running, _) => "running",
        (Status::Completed, _) => "completed",
        (Status::Failed | Status::Timeout, _) => "failed",
    }
}

const fn step_state(step: &StepView) -> &'static str {
    match (step.status, step.started) {
        (StepStatus::Waiting, _) => "waiting",
        (StepStatus::Running, None) => "pending",
        (StepStatus::Running, Some(_)) => "active",
        (StepStatus::Completed, _) => "completed",
        (StepStatus::Failed | StepStatus::Timeout | StepStatus::Abandoned, _) => "failed",
        (StepStatus::Cancelled | StepStatus::Skipped, _) => "cancelled",
    }
}

/// Steps are ours, so what is neither a chain, a group nor a batch is a graph.
const fn form(form: Form) -> &'static str {
    match form {
        Form::Steps | Form::Dag => "dag",
        Form::Chain => "chain",
        Form::Group => "group",
        Form::Batch => "batch",
    }
}

/// When its first step started.
fn started(workflow: &WorkflowView) -> Option<Timestamp> {
    workflow.steps.iter().filter_map(|step| step.started).min()
}

/// When it was cancelled: while its last jobs run, that was its last change.
fn cancelled(workflow: &WorkflowView) -> Option<Timestamp> {
    (state(workflow) == "cancelled").then(|| workflow.finished.unwrap_or(workflow.updated))
}

fn main(object: &mut Object<'_>, workflow: &WorkflowView) {
    object.plain("id", workflow.id);
    if let Some(name) = &workflow.name {
        object.text("name", name);
    }
    object.text("type", form(workflow.form));
    object.text("state", state(workflow));
    let steps = members(workflow);
    object.number("steps_total", steps.count());
    let completed = members(workflow).filter(|step| step.status == StepStatus::Completed);
    object.number("steps_completed", completed.count());
    let jobs = Count::of(workflow);
    object.number("jobs_total", jobs.total);
    object.number("jobs_completed", jobs.completed);
    object.number("jobs_failed", jobs.failed);
    object.time("created_at", workflow.created);
    object.time_if("started_at", started(workflow));
    object.time_if("completed_at", workflow.finished);
    object.time_if("cancelled_at", cancelled(workflow));
}

fn all(object: &mut Object<'_>, workflow: &WorkflowView) {
    main(object, workflow);
    if state(workflow) == "cancelled" {
        let is_cancelled = |step: &&StepView| step_state(step) == "cancelled";
        object.number("steps_cancelled", members(workflow).filter(is_cancelled).count());
    }
    metadata(object, workflow);
    if let Some(result) = &workflow.result {
        object.raw("result", result.get());
    }
    let steps = || workflow.steps.iter().enumerate().filter(|(_, step)| !step.callback);
    object.array("steps", steps(), |out, (index, one)| step(out, index, one));
    if matches!(workflow.form, Form::Group | Form::Batch) {
        object.array("jobs", steps(), |out, (index, one)| step(out, index, one));
    }
    callbacks(object, workflow);
    errors(object, workflow);
}

fn metadata(object: &mut Object<'_>, workflow: &WorkflowView) {
    let jobs = Count::of(workflow);
    object.object("metadata", |object| {
        object.time("created_at", workflow.created);
        object.time_if("started_at", started(workflow));
        object.time_if("completed_at", workflow.finished);
        object.time_if("cancelled_at", cancelled(workflow));
        object.number("job_count", jobs.total);
        object.number("completed_count", jobs.completed);
        object.number("failed_count", jobs.failed);
    });
}

fn callbacks(object: &mut Object<'_>, workflow: &WorkflowView) {
    let mut found = workflow.steps.iter().enumerate().filter(|(_, step)| step.callback).peekable();
    if found.peek().is_none() {
        return;
    }
    object.object("callbacks", |object| {
        for (index, callback) in found {
            // One of a batch within another form keeps the name of its step.
            let own = CALLBACKS.iter().find(|(name, _)| *name == callback.name);
            let key = own.map_or(callback.name.as_str(), |(_, key)| key);
            object.object(key, |object| step_fields(object, index, callback));
        }
    });
}

/// Writes which jobs failed, and why.
fn errors(object: &mut Object<'_>, workflow: &WorkflowView) {
    let failed =
        || workflow.steps.iter().enumerate().filter(|(_, step)| step_state(step) == "failed");
    let Some((first, _)) = failed().next() else { return };
    if workflow.form == Form::Chain {
        object.number("failed_step_index", first);
    }
    let ids = failed().flat_map(|(_, step)| failed_jobs(step));
    object.array("failed_job_ids", ids, |out, id| string(out, &id.to_string()));
    object.array("errors", failed(), |out, (_, step)| {
        let mut object = Object::begin(out);
        object.text("step", &step.name);
        if let Some(id) = failed_jobs(step).first() {
            object.plain("job_id", id);
        }
        error_fields(&mut object, step);
        object.end();
    });
}

/// Which of many items failed is not known here.
fn failed_jobs(step: &StepView) -> &[Uuid] {
    if step.failed == step.total { &step.job_ids } else { &[] }
}

fn error_fields(object: &mut Object<'_>, step: &StepView) {
    object.text(
        "code",
        match step.status {
            StepStatus::Timeout => "timeout",
            StepStatus::Abandoned => "worker_death",
            _ => "handler_error",
        },
    );
    object.text("message", step.error.as_deref().unwrap_or_default());
}

fn step(out: &mut Vec<u8>, index: usize, step: &StepView) {
    let mut object = Object::begin(out);
    step_fields(&mut object, index, step);
    object.end();
}

fn step_fields(object: &mut Object<'_>, index: usize, step: &StepView) {
    object.number("index", index);
    object.text("id", &step.name);
    object.text("name", &step.name);
    let does = step.job_type.as_ref().or(step.action.as_ref()).or(step.workflow.as_ref());
    object.text_or_null("type", does.map(String::as_str));
    object.text("state", step_state(step));
    match step.job_ids.first() {
        Some(id) => object.plain("job_id", id),
        None => object.raw("job_id", "null"),
    }
    object.texts("depends_on", step.after.iter().map(String::as_str));
    if let Some(result) = &step.result {
        object.raw("result", result.get());
    }
    if step_state(step) == "failed" {
        object.object("error", |object| error_fields(object, step));
    }
    object.time_if("started_at", step.started);
    object.time_if("completed_at", step.finished);
}
