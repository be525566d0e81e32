//! What workflows are, read from their texts, and the ones that were read last.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::time::Timestamp;
use outlast_core::workflow::WorkflowId;
use outlast_store::workflow::{NewWorkflow, WorkflowRecord};
use outlast_workflow::{Definition, When};
use serde_json::{Value, json};

use super::stored::StoredDefinition;

/// How long the texts of the workflows are that are kept in memory, in bytes. What is read from a text
/// takes some times as much.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a workflow is, read from its text.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its name, tenant and parent; without the text.
    pub(super) new: NewWorkflow,
    /// When it was stored; not known of one that is about to be.
    created: Option<Timestamp>,
    pub(super) definition: Definition,
    pub(super) parameters: Value,
    /// What its expressions see of itself.
    pub(super) about: Value,
    /// What else was stored; without the steps and parameters.
    pub(super) stored: StoredDefinition,
    /// By step: whether results are kept.
    pub(super) keeps_results: Vec<bool>,
    /// Whether a step has expressions.
    pub(super) has_expressions: bool,
    bytes: usize,
}

impl Known {
    /// Reads a record with its definition.
    pub(super) fn parse(record: WorkflowRecord) -> Result<Self, String> {
        let known = Self::of(record.id, record.new)?;
        Ok(Self { created: Some(record.created), ..known })
    }

    /// Says whether it is the workflow of a record.
    pub(super) fn is(&self, record: &WorkflowRecord) -> bool {
        self.created == Some(record.created)
    }

    /// Reads the text of a workflow.
    pub(super) fn of(id: WorkflowId, new: NewWorkflow) -> Result<Self, String> {
        let mut stored: StoredDefinition =
            serde_json::from_str(&new.definition).map_err(|error| error.to_string())?;
        let steps = stored.steps.take();
        let definition = Definition::of_stored(&steps).map_err(|fault| fault.to_string())?;
        let keeps_results = keeps_results(&definition);
        let has_expressions = definition.steps().iter().any(|step| {
            let asks = matches!(step.when, When::Expression(_));
            asks || step.for_each.is_some() || !step.input.is_plain()
        });
        Ok(Self {
            definition,
            parameters: Value::Object(std::mem::take(&mut stored.parameters)),
            about: json!({ "id": id.to_string(), "name": new.name }),
            stored,
            keeps_results,
            has_expressions,
            bytes: new.definition.len(),
            created: None,
            new,
        })
    }
}

/// Says of each step whether its results are kept with the workflow: those that are read, those that the
/// workflow's own are made of, and those of single jobs, for who looks at it.
fn keeps_results(definition: &Definition) -> Vec<bool> {
    let all = definition.form.passes_results();
    let mut keeps: Vec<bool> =
        definition.steps().iter().map(|step| all || step.for_each.is_none()).collect();
    let read = definition.steps().iter().flat_map(|step| step.references().steps);
    let read = read.filter(|(_, result)| *result).filter_map(|(name, _)| definition.step(&name));
    for step in read.chain(definition.last_steps()) {
        if let Some(keeps) = keeps.get_mut(step) {
            *keeps = true;
        }
    }
    keeps
}

/// The workflows that were read last. What one is does not change; another one may have its id once it
/// is deleted.
#[derive(Debug, Default)]
pub(crate) struct KnownWorkflows(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<WorkflowId, Arc<Known>>,
    /// In the order in which they were read.
    order: VecDeque<WorkflowId>,
    bytes: usize,
}

impl KnownWorkflows {
    pub(super) fn get(&self, id: WorkflowId) -> Option<Arc<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()
    }

    /// Removes a workflow whose definition has changed since it was read.
    pub(super) fn forget(&self, id: WorkflowId) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = kept.by_id.remove(&id).map_or(0, |known| known.bytes);
        kept.bytes = kept.bytes.saturating_sub(gone);
        kept.order.retain(|of| *of != id);
    }

    /// Keeps a workflow, and removes those that were read first if there is no room.
    pub(super) fn keep(&self, id: WorkflowId, known: &Arc<Known>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.bytes > BYTES_MAX || kept.by_id.contains_key(&id) {
            return;
        }
        kept.by_id.insert(id, Arc::clone(known));
        kept.order.push_back(id);
        kept.bytes += known.bytes;
        while kept.bytes > BYTES_MAX
            && let Some(first) = kept.order.pop_front()
        {
            let gone = kept.by_id.remove(&first).map_or(0, |known| known.bytes);
            kept.bytes = kept.bytes.saturating_sub(gone);
        }
    }
}
