//! How a step starts: its condition, its items, their inputs.

use serde_json::Value;

use super::decide::Decision;
use super::event::Effect;
use super::{Walk, values};
use crate::definition::{Definition, StepDefinition, When};
use crate::expression::{ItemScope, References, Scope, Work};
use crate::limits::{INPUTS_BYTES_MAX, ITEMS_MAX};
use crate::state::{StepStatus, WorkflowState};
use crate::template::size;

/// Why a step fails before it starts.
type Started<T> = Result<T, String>;

impl Walk<'_> {
    /// Asks the expression of `when`.
    pub(super) fn ask(&self, step: usize) -> Started<Decision> {
        let When::Expression(expression) = &self.definition.steps()[step].when else {
            return Ok(Decision::Run);
        };
        let steps = self.seen(expression.references())?;
        let scope = self.scope(&steps);
        match expression.evaluate(&scope, &mut Work::of_expression()) {
            Ok(Value::Bool(true)) => Ok(Decision::Run),
            Ok(Value::Bool(false)) => Ok(Decision::Skip),
            Ok(_) => Err(format!("when: {expression}: is neither true nor false")),
            Err(error) => Err(format!("when: {expression}: {error}")),
        }
    }

    /// Starts a step, or goes on with the items that it did not complete before a retry.
    pub(super) fn start(&mut self, step: usize) -> Started<()> {
        if self.state.steps[step].total > 0 {
            self.go_on(step);
            return Ok(());
        }
        let inputs = self.item_inputs(step)?;
        let total = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        let known = &mut self.state.steps[step];
        (known.total, known.held) = (total, total);
        (known.reason, known.after_failure) = (None, false);
        if total == 0 {
            self.end_step(step, StepStatus::Completed);
            return Ok(());
        }
        known.status = StepStatus::Running;
        self.advance.effects.push(Effect::StoreItems { step, inputs });
        self.refill(step);
        Ok(())
    }

    fn go_on(&mut self, step: usize) {
        let known = &mut self.state.steps[step];
        known.held += known.unsuccessful();
        (known.failed, known.timed_out) = (0, 0);
        (known.cancelled, known.abandoned) = (0, 0);
        (known.reason, known.after_failure) = (None, false);
        if known.held == 0 {
            // All of its items had completed, but it was skipped or cancelled.
            self.end_step(step, StepStatus::Completed);
            return;
        }
        known.status = StepStatus::Running;
        self.advance.effects.push(Effect::HoldUnsuccessful { step });
        self.refill(step);
    }

    /// Renders the inputs of all items of a step.
    fn item_inputs(&self, step: usize) -> Started<Vec<Value>> {
        let described = &self.definition.steps()[step];
        let Some(items) = self.items(described)? else {
            let steps = self.seen(&described.input.references())?;
            let scope = self.scope(&steps);
            let input = described.input.render(&scope, &mut Work::of_expression());
            return Ok(vec![input.map_err(|error| error.to_string())?]);
        };
        let steps = self.seen(&described.input.references())?;
        let mut inputs = Vec::with_capacity(items.len());
        let mut bytes = 0;
        for (index, value) in items.iter().enumerate() {
            let item = ItemScope { value, index: u32::try_from(index).unwrap_or(u32::MAX) };
            let scope = Scope { item: Some(item), ..self.scope(&steps) };
            let input = described
                .input
                .render(&scope, &mut Work::of_item(items.len()))
                .map_err(|error| format!("item {index}: {error}"))?;
            bytes += size(&input);
            if bytes > INPUTS_BYTES_MAX {
                return Err(format!("its items take more than {INPUTS_BYTES_MAX} bytes"));
            }
            inputs.push(input);
        }
        Ok(inputs)
    }

    /// Returns the list of `for_each`; `None` if the step has none.
    fn items(&self, described: &StepDefinition) -> Started<Option<Vec<Value>>> {
        let Some(list) = &described.for_each else { return Ok(None) };
        let steps = self.seen(&list.references())?;
        let rendered = list.render(&self.scope(&steps), &mut Work::of_expression());
        match rendered.map_err(|error| format!("for_each: {error}"))? {
            Value::Array(items) if items.len() <= ITEMS_MAX => Ok(Some(items)),
            Value::Array(items) => {
                Err(format!("for_each: has {} items, more than {ITEMS_MAX}", items.len()))
            }
            _ => Err("for_each: its value is no list".to_owned()),
        }
    }

    fn seen(&self, references: &References) -> Started<Value> {
        values::steps(self.definition, self.state, references, self.inputs.values)
    }

    fn scope<'s>(&'s self, steps: &'s Value) -> Scope<'s> {
        Scope {
            parameters: self.inputs.parameters,
            steps,
            item: None,
            workflow: self.inputs.workflow,
        }
    }
}

/// Says whether a step may end in the advance that starts it: nothing to do, or an expression that
/// has no value.
pub(super) fn may_end_at_once(definition: &Definition, state: &WorkflowState, step: usize) -> bool {
    let described = &definition.steps()[step];
    state.steps[step].total > 0 || described.for_each.is_some() || !described.input.is_plain()
}
