//! The job of an item, and the workflow that an item starts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_store::command::{NewJob, Payload};
use outlast_store::workflow::FIELD as WORKFLOW;
use outlast_wire::execution::request::Request;
use outlast_wire::ojs::enqueue;
use outlast_workflow::{StepDefinition, Target};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::id;
use crate::intake::{IntakeError, Requester, execution, ojs};
use crate::settings::Settings;

/// The field in which the standard's jobs are shown the results of the steps before them.
const PARENT_RESULTS: &str = "parent_results";

/// What the jobs of a workflow have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'a> {
    pub(super) settings: &'a Settings,
    pub(super) id: WorkflowId,
    pub(super) name: &'a str,
    pub(super) tenant: Option<&'a str>,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) keys: &'a BTreeMap<String, String>,
    /// How often the workflow was retried: a retry makes other jobs.
    pub(super) retries: u32,
    pub(super) now: Timestamp,
}

/// Returns the id of what carries out an item. It follows from the workflow, the item, the retry and the
/// time.
pub(super) fn id_of(common: Common<'_>, item: WorkflowItem) -> Uuid {
    let digest = Sha256::new()
        .chain_update(b"workflow\0")
        .chain_update(common.id.0.as_bytes())
        .chain_update(item.step.to_be_bytes())
        .chain_update(item.item.to_be_bytes())
        .chain_update(common.retries.to_be_bytes())
        .finalize();
    id::of_digest(common.now, &digest)
}

/// Plans the job of an item. Its type or action is given `input`, and the standard's jobs are shown
/// `results`.
pub(super) fn plan(
    common: Common<'_>,
    step: &StepDefinition,
    item: WorkflowItem,
    input: Value,
    results: Option<&[Value]>,
) -> Result<NewJob, IntakeError> {
    let by = match common.name {
        "" => format!("workflow {}", common.id),
        name => format!("workflow {name}"),
    };
    let mut job = match &step.target {
        Target::Type(job_type) => {
            let text = of_type(common, step, job_type, input).to_string();
            let requester = Requester { tenant: common.tenant, name: Some(&by) };
            ojs::plan(common.settings, enqueue::one(text.as_bytes())?, requester, common.now)?
        }
        Target::Action(action) | Target::Workflow(action) => {
            let text = of_action(common, step, action, input).to_string();
            execution::plan(
                common.settings,
                Request::read(text.as_bytes())?,
                Some(&by),
                common.now,
            )?
        }
    };
    job.id = JobId(id_of(common, item));
    job.rules.workflow = Some(item);
    marked(&mut job.payload, common, step, item, results);
    Ok(job)
}

pub(super) fn of_action(
    common: Common<'_>,
    step: &StepDefinition,
    action: &str,
    input: Value,
) -> Value {
    let mut job = settings_of(common, step);
    job.insert("action_ref".to_owned(), json!(action));
    if !common.labels.is_empty() {
        job.insert("labels".to_owned(), json!(common.labels));
    }
    if let Some(resources) = &step.job.resources {
        job.insert("resources".to_owned(), resources.clone());
    }
    job.insert("parameters".to_owned(), input);
    Value::Object(job)
}

pub(super) fn of_type(
    common: Common<'_>,
    step: &StepDefinition,
    job_type: &str,
    input: Value,
) -> Value {
    let mut job = settings_of(common, step);
    job.insert("type".to_owned(), json!(job_type));
    // Requests for types know policies only, and no labels.
    if let Some(attempts) = step.job.retry.as_ref().filter(|retry| retry.is_u64()) {
        job.insert("retry".to_owned(), json!({ "max_attempts": attempts }));
    }
    if let Some(requires) = with_labels(common, step) {
        job.insert("requires".to_owned(), json!(requires));
    }
    let others = [("options", &step.job.options), ("meta", &step.job.meta)];
    for (name, value) in others {
        if let Some(value) = value {
            job.insert(name.to_owned(), value.clone());
        }
    }
    job.insert("args".to_owned(), input);
    Value::Object(job)
}

/// Returns which workers may run a job of a type: those that the step requires, with the workflow's labels.
fn with_labels(common: Common<'_>, step: &StepDefinition) -> Option<String> {
    let labels = common.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let all: Vec<String> = step.job.requires.iter().cloned().chain(labels).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns what a request calls what a step says of its jobs.
fn settings_of(common: Common<'_>, step: &StepDefinition) -> Map<String, Value> {
    let of = &step.job;
    let seconds = of.timeout.map(|span| format!("{}ms", span.0));
    let all = [
        ("queue", of.queue.as_ref().map(|queue| json!(queue))),
        ("priority", of.priority.map(|priority| json!(priority))),
        ("timeout", seconds.map(|text| json!(text))),
        ("retry", of.retry.clone()),
        ("requires", of.requires.as_ref().map(|selector| json!(selector))),
        ("prefers", of.prefers.as_ref().map(|selector| json!(selector))),
        ("keys", (!common.keys.is_empty()).then(|| json!(common.keys))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Writes into a job which item it carries out.
fn marked(
    payload: &mut Payload,
    common: Common<'_>,
    step: &StepDefinition,
    item: WorkflowItem,
    results: Option<&[Value]>,
) {
    let results = results.map(|results| json!(results).to_string());
    let without: &[&str] =
        if results.is_some() { &[WORKFLOW, PARENT_RESULTS] } else { &[WORKFLOW] };
    payload.extra = outlast_wire::json::with(&payload.extra, without, |object| {
        if let Some(results) = &results {
            object.raw(PARENT_RESULTS, results);
        }
        object.object(WORKFLOW, |object| {
            object.plain("id", common.id);
            if !common.name.is_empty() {
                object.text("name", common.name);
            }
            object.text("step", &step.name);
            object.number("item", item.item);
        });
    });
}

/// The item that a job carries out, as it is stored with the job.
#[derive(Debug, Deserialize)]
pub(crate) struct ItemOfJob<'a> {
    /// The workflow.
    pub(crate) id: Uuid,
    /// What it is called.
    #[serde(borrow, default)]
    pub(crate) name: Option<Cow<'a, str>>,
    /// The step.
    #[serde(borrow)]
    pub(crate) step: Cow<'a, str>,
    /// The item of the step, from 0.
    pub(crate) item: u32,
}

/// Returns which item a job carries out, if it is of a workflow.
pub(crate) fn item_of(extra: &str) -> Option<ItemOfJob<'_>> {
    let raw = outlast_wire::json::field(extra, WORKFLOW)?;
    serde_json::from_str(raw.get()).ok()
}
