//! Where expressions get their values from.

use serde_json::{Map, Value, json};

use crate::definition::Definition;
use crate::expression::References;
use crate::state::{StepState, StepStatus, WorkflowState};

/// Results of steps, as the store has them.
pub trait Values {
    /// Returns the result of a step: of its job, of its workflow, or for `for_each` the list of
    /// results in the order of the items, with null for items that have none. Asked only for steps
    /// of which an item completed, and only for those that [`super::reads()`] named.
    ///
    /// # Errors
    ///
    /// Says why there is none, such as that it was deleted. The step that wants it then fails.
    fn result(&self, step: usize) -> Result<Value, ValueError>;
}

/// Why a store has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub String);

/// What expressions read.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The parameters of the workflow, checked against its schema by the caller.
    pub parameters: &'a Value,
    /// What it says of itself: at least `id` and `name`.
    pub workflow: &'a Value,
    /// The results of its steps.
    pub values: &'a dyn Values,
}

impl std::fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs").field("workflow", self.workflow).finish_non_exhaustive()
    }
}

/// Returns the steps that were referred to as expressions see them.
pub(crate) fn steps(
    definition: &Definition,
    state: &WorkflowState,
    references: &References,
    values: &dyn Values,
) -> Result<Value, String> {
    let mut seen = Map::new();
    for (name, with_result) in &references.steps {
        // The definition knows every step that its expressions read.
        let Some(step) = definition.step(name) else { continue };
        let known = &state.steps[step];
        let result = if *with_result && has_result(known) {
            let missing = |error| format!("the result of the step `{name}` is not there: {error}");
            values.result(step).map_err(missing)?
        } else if known.status == StepStatus::Completed && known.total == 0 {
            Value::Array(Vec::new())
        } else {
            Value::Null
        };
        let shown = json!({
            "status": known.status.as_str(),
            "result": result,
            "error": known.reason.as_ref().map(|reason| reason.text.as_str()),
            "total": known.total,
            "completed": known.completed,
            "failed": known.unsuccessful(),
        });
        seen.insert(name.clone(), shown);
    }
    Ok(Value::Object(seen))
}

/// Says whether a store has a result of the step.
pub(crate) const fn has_result(state: &StepState) -> bool {
    state.completed > 0
}

/// Returns the result of a workflow that completed: of its last step, or an object of the last
/// steps by name. Steps without a result are null.
///
/// # Errors
///
/// Fails if the store has no result of a step that completed.
pub fn result(
    definition: &Definition,
    state: &WorkflowState,
    values: &dyn Values,
) -> Result<Value, ValueError> {
    let of = |step: usize| {
        let known = &state.steps[step];
        if has_result(known) {
            values.result(step)
        } else if known.status == StepStatus::Completed {
            Ok(Value::Array(Vec::new()))
        } else {
            Ok(Value::Null)
        }
    };
    let last = definition.last_steps();
    if let [only] = last.as_slice() {
        return of(*only);
    }
    let mut by_name = Map::new();
    for step in last {
        by_name.insert(definition.steps()[step].name.clone(), of(step)?);
    }
    Ok(Value::Object(by_name))
}
