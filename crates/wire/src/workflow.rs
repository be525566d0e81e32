//! Workflows as our own API writes them: what a request asks for, and what answers show. What a
//! definition may be is read elsewhere.

mod view;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::execution::request::labels;
use crate::fault::Fault;
use crate::json;
use crate::json::fields::{given, known, text};
use crate::keys;

pub use view::{
    Ending, Form, Pagination, Parent, ScheduleFire, Status, StepStatus, StepView, WorkflowList,
    WorkflowView, document,
};

/// Fields of the body.
const KNOWN: &[&str] = &["workflow", "workflow_ref", "name", "parameters", "labels", "keys"];

/// Longest name, in bytes, as of the workflow itself.
const NAME_MAX: usize = 128;
/// Longest reference.
const REFERENCE_MAX: usize = 255;

/// A workflow that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowRequest {
    /// Where its steps are.
    pub source: Source,
    /// Its parameters, not checked against the workflow.
    pub parameters: Map<String, Value>,
    /// Labels that its jobs get, beside those of the workflow.
    pub labels: BTreeMap<String, String>,
    /// Keys that its jobs get, beside those of the workflow.
    pub keys: BTreeMap<String, String>,
    /// Name of this run, in place of the name in the workflow.
    pub name: Option<String>,
}

/// Where the steps of a workflow are.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// In the request: an object, otherwise not checked.
    Inline(Value),
    /// In a pack, by reference.
    Ref(String),
}

/// Reads which workflow is to start.
///
/// # Errors
/// Returns what is wrong with the request, and what would be right.
pub fn read(body: &[u8]) -> Result<WorkflowRequest, Fault> {
    let fields = known(KNOWN, body)?;
    // What is stored is written again from what was read.
    let whole = json::text(body)?;
    if json::changed_number(whole).is_some() {
        for field in ["workflow", "parameters"] {
            if let Some(value) = json::field(whole, field) {
                json::keeps_numbers(field, value.get())?;
            }
        }
    }
    let keys = given(&fields, "keys").map(keys::read).transpose()?.unwrap_or_default();
    Ok(WorkflowRequest {
        source: source(&fields)?,
        parameters: parameters(&fields)?,
        labels: given(&fields, "labels").map(labels).transpose()?.unwrap_or_default(),
        keys: keys.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        name: text(&fields, "name")?.map(name).transpose()?,
    })
}

fn source(fields: &Map<String, Value>) -> Result<Source, Fault> {
    match (given(fields, "workflow"), text(fields, "workflow_ref")?) {
        (Some(workflow @ Value::Object(_)), None) => Ok(Source::Inline(workflow.clone())),
        (Some(Value::String(_)), None) => {
            let problem = "must be an object with `steps`; a workflow of a pack is named by \
                           `workflow_ref`";
            Err(Fault::field("workflow", problem))
        }
        (Some(_), None) => Err(Fault::field("workflow", "must be an object with `steps`")),
        (None, Some(reference)) => reference_of(reference).map(Source::Ref),
        (None, None) => {
            let problem = "is missing, and so is `workflow_ref`: a request has one of them";
            Err(Fault::field("workflow", problem))
        }
        (Some(_), Some(_)) => {
            let problem = "and `workflow_ref` are both given: a request has one of them";
            Err(Fault::field("workflow", problem))
        }
    }
}

fn reference_of(reference: &str) -> Result<String, Fault> {
    let parts = reference.split_once('.').filter(|(pack, name)| {
        let is_short = reference.len() <= REFERENCE_MAX;
        is_short && !pack.is_empty() && !name.is_empty() && !name.contains('.')
    });
    let problem = "must be a pack and a name, such as `reports.nightly`";
    parts.map(|_| reference.to_owned()).ok_or_else(|| Fault::field("workflow_ref", problem))
}

fn parameters(fields: &Map<String, Value>) -> Result<Map<String, Value>, Fault> {
    match given(fields, "parameters") {
        None => Ok(Map::new()),
        Some(Value::Object(parameters)) => Ok(parameters.clone()),
        Some(_) => {
            let problem = "must be an object of names and values, such as `{\"folder\": \"in\"}`";
            Err(Fault::field("parameters", problem))
        }
    }
}

fn name(name: &str) -> Result<String, Fault> {
    let fits = (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    let problem = || format!("must have 1 to {NAME_MAX} bytes of text without control characters");
    fits.then(|| name.to_owned()).ok_or_else(|| Fault::field("name", problem()))
}

/// Reads the status in the parameter `name` of a list.
///
/// # Errors
/// Returns which there are.
pub fn status(name: &str, word: &str) -> Result<Status, Fault> {
    Status::parse(word).ok_or_else(|| {
        let known = Status::ALL.map(Status::as_str).join(", ");
        Fault::field(name, format!("must be one of {known}"))
    })
}

#[cfg(test)]
mod tests;
