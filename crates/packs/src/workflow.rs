//! One workflow of a pack: its steps, and the parameters that it takes.

mod read;

use outlast_workflow::Definition;
use serde_json::{Map, Value};

pub(crate) use read::read;

use crate::parameters::{Parameters, Strictness, Violation};

/// A workflow that is started by its reference, such as `reports.nightly`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Workflow {
    /// The full name: pack, dot, workflow.
    pub reference: String,
    /// The pack's name.
    pub pack: String,
    /// What it does.
    pub description: String,
    /// Whether it may be started: its pack is not switched off.
    pub enabled: bool,
    /// Its steps. It has the name that the reference ends with.
    pub definition: Definition,
    /// Its file as JSON.
    pub source: Value,
    /// What it takes.
    pub parameters: WorkflowParameters,
    /// Its file, as errors name it.
    pub(crate) file: String,
    /// The line of each step, where that is known.
    pub(crate) lines: Vec<Option<u64>>,
}

/// The parameters that a workflow takes, described as those of an action are.
#[derive(Debug)]
pub struct WorkflowParameters(Parameters);

impl WorkflowParameters {
    /// Reads the `parameters` of a workflow; one without takes anything.
    ///
    /// # Errors
    /// What is wrong with the description.
    pub fn read(described: Option<&Value>) -> Result<Self, String> {
        Parameters::new(described.cloned().unwrap_or_default()).map(Self)
    }

    /// Checks parameters and returns them with the defaults filled in. Messages never repeat a
    /// parameter's value.
    ///
    /// # Errors
    /// Everything that is wrong with them, up to [`crate::limits::VIOLATIONS_MAX`].
    pub fn check(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, Vec<Violation>> {
        let complete = self.0.check(&Value::Object(given.clone()), Strictness::NamedOnly)?;
        Ok(into_map(complete))
    }

    /// Replaces the values of secret parameters by `***`, for showing them.
    #[must_use]
    pub fn mask(&self, parameters: &Map<String, Value>) -> Map<String, Value> {
        into_map(self.0.mask(&Value::Object(parameters.clone())))
    }

    /// The parameters as JSON Schema, whatever style the workflow uses.
    #[must_use]
    pub const fn schema(&self) -> &Value {
        self.0.schema()
    }

    /// What in the description has no effect, and defaults that the schema itself refuses.
    fn remarks(&self) -> impl Iterator<Item = String> {
        let notes = self.0.notes().iter().map(|note| format!("parameters: {note}"));
        let unfit = self.0.unfit_defaults();
        notes.chain(unfit.map(|violation| format!("default of parameter {violation}")))
    }
}

/// What is made of an object is one.
fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
