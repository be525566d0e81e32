//! A workflow's YAML file, from its keys to a [`Workflow`].

use outlast_wire::json::long_number;
use outlast_workflow::{Definition, Fault};
use serde_json::Value;

use super::{Workflow, WorkflowParameters};
use crate::action::is_name;
use crate::error::PackError;
use crate::note::Note;
use crate::yaml::Document;

/// What workflows of other systems have in place of `steps`.
const FOREIGN: &str = "tasks";

/// What was read from a workflow file.
pub(crate) struct Read {
    /// The workflow, unless it is one of another system.
    pub(crate) workflow: Option<Workflow>,
    pub(crate) notes: Vec<Note>,
}

/// Reads the workflow of a pack; `stem` is the file's name without its ending.
pub(crate) fn read(
    document: &Document,
    pack: &str,
    enabled: bool,
    stem: &str,
) -> Result<Read, PackError> {
    let mut keys = document.mapping()?;
    if keys.contains_key(FOREIGN) && !keys.contains_key("steps") {
        let message = format!(
            "workflow {pack}.{stem} is left out: it has `{FOREIGN}` in place of `steps`, as those \
             of other systems"
        );
        let notes = vec![Note::new(document.file(), message)];
        return Ok(Read { workflow: None, notes });
    }
    keys.retain(|key, _| !key.starts_with("x-"));
    let source = Value::Object(keys);
    if let Some(number) = long_number(&source) {
        let problem = format!("it holds {number}, which may have lost digits");
        return Err(document.fault(None, problem, "write it as a text"));
    }
    let mut definition = Definition::read(&source).map_err(|fault| located(document, &fault))?;
    let name = definition.name.take().unwrap_or_else(|| stem.to_owned());
    if !is_name(&name) {
        let problem = format!("`{name}` is not a workflow's name");
        let remedy = "write `name: nightly`: lower-case letters, digits, hyphens and underscores";
        return Err(document.fault(document.line_at("name"), problem, remedy));
    }
    let parameters =
        WorkflowParameters::read(definition.parameters.as_ref()).map_err(|problem| {
            let remedy = "describe each parameter, such as `folder: {type: string}`";
            document.fault(document.line_at("parameters"), format!("parameters: {problem}"), remedy)
        })?;
    let notes = parameters.remarks().map(|remark| Note::new(document.file(), remark)).collect();
    let steps = definition.steps().iter();
    let lines = steps.map(|step| document.line_at(&format!("steps.{}", step.name))).collect();
    let reference = format!("{pack}.{name}");
    definition.name = Some(name);
    let workflow = Workflow {
        reference,
        pack: pack.to_owned(),
        description: definition.description.clone().unwrap_or_default(),
        enabled,
        definition,
        source,
        parameters,
        file: document.file().to_owned(),
        lines,
    };
    Ok(Read { workflow: Some(workflow), notes })
}

/// A fault of the definition, with its place in the file.
fn located(document: &Document, fault: &Fault) -> PackError {
    let (problem, remedy) = fault.problem.split_once("; ").unwrap_or((&fault.problem, REMEDY));
    let place = if fault.place.is_empty() { String::new() } else { format!("{}: ", fault.place) };
    document.fault(document.line_at(&fault.place), format!("{place}{problem}"), remedy)
}

const REMEDY: &str = "correct it there";
