//! A workflow as it was described: steps, what each waits for, what each does.
//!
//! ```text
//!  YAML, JSON ──read──▶ Definition ──to_json──▶ stored text ──of_stored──▶ the same Definition
//!  the standard's forms ──of_standard──┘
//! ```
//!
//! Everything that can be wrong is found here, so that a stored workflow can always go on: names,
//! cycles, expressions, and which steps they read. What belongs to jobs (retries, resources,
//! options) is kept as it was written; the store or server that makes jobs of it checks it as for any job.

mod graph;
mod read;
mod standard;
mod step;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use outlast_core::time::Span;
use serde_json::Value;

use crate::fault::Fault;
use crate::template::Template;
use graph::Graph;
pub use step::{JobSettings, OnFailure, StepDefinition, Target, When};

/// A workflow as it was described, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// How it is called, if it has a name.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// The schema of its parameters, as written.
    pub parameters: Option<Value>,
    /// How long it may take, from its begin or its last retry.
    pub timeout: Option<Span>,
    /// Keys that its jobs inherit, rendered over `parameters` and `workflow`.
    pub keys: Option<Template>,
    /// Labels that its jobs inherit.
    pub labels: BTreeMap<String, String>,
    /// In which form it was given.
    pub form: Form,
    steps: Vec<StepDefinition>,
    graph: Graph,
}

/// In which form a workflow was given. All become steps that wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    /// Ours.
    #[default]
    Steps,
    /// The standard's steps with `depends_on`.
    Dag,
    /// The standard's jobs one after another.
    Chain,
    /// The standard's jobs beside each other.
    Group,
    /// A group with callbacks.
    Batch,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 5] = [Self::Steps, Self::Dag, Self::Chain, Self::Group, Self::Batch];

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Dag => "dag",
            Self::Chain => "chain",
            Self::Group => "group",
            Self::Batch => "batch",
        }
    }

    /// Says whether its jobs are shown the results of the steps before them, as the standard has it.
    #[must_use]
    pub const fn passes_results(self) -> bool {
        !matches!(self, Self::Steps)
    }
}

impl Definition {
    /// Reads a workflow in our form. YAML is turned into JSON by the caller.
    ///
    /// # Errors
    ///
    /// Returns the first fault, with its place and what would be right.
    pub fn read(value: &Value) -> Result<Self, Fault> {
        read::read(value, read::Origin::User)
    }

    /// Reads a workflow in one of the standard's forms.
    ///
    /// # Errors
    ///
    /// Returns the first fault, with its place and what would be right.
    pub fn of_standard(value: &Value) -> Result<Self, Fault> {
        standard::read(value)
    }

    /// Reads what [`Self::to_json`] returned.
    ///
    /// # Errors
    ///
    /// Fails if it is not that.
    pub fn of_stored(value: &Value) -> Result<Self, Fault> {
        read::read(value, read::Origin::Store)
    }

    /// Returns the definition as JSON for a store, the same for the same definition.
    #[must_use]
    pub fn to_json(&self) -> Value {
        write::to_json(self)
    }

    /// Returns the steps in the order they were written. Other places name them by their index.
    #[must_use]
    pub fn steps(&self) -> &[StepDefinition] {
        &self.steps
    }

    /// Returns the index of the step with this name.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<usize> {
        self.graph.by_name.get(name).copied()
    }

    /// Returns the steps that wait for a step.
    #[must_use]
    pub fn children(&self, step: usize) -> &[usize] {
        &self.graph.children[step]
    }

    /// Returns how many steps are on the longest way to a step.
    #[must_use]
    pub fn depth(&self, step: usize) -> usize {
        self.graph.depth[step]
    }

    /// Returns the steps so that each comes after those it waits for; for equals, as written.
    #[must_use]
    pub fn order(&self) -> &[usize] {
        &self.graph.order
    }

    /// Returns where a step is in [`Self::order`].
    pub(crate) fn position(&self, step: usize) -> usize {
        self.graph.position[step]
    }

    /// Says whether a step, or one behind it, reads a result.
    pub(crate) fn reads_results_from(&self, step: usize) -> bool {
        self.graph.reads_results[step]
    }

    /// Returns the steps that no step waits for but such as run only after a failure. Their results are the workflow's: the result of
    /// the only one, or an object of them by name. A step that runs only after a failure is none.
    #[must_use]
    pub fn last_steps(&self) -> Vec<usize> {
        let lasts = |step: &usize| {
            let is_other = |child: &usize| !matches!(self.steps[*child].when, When::Failure);
            let has_children = self.children(*step).iter().any(is_other);
            !has_children && !matches!(self.steps[*step].when, When::Failure)
        };
        (0..self.steps.len()).filter(lasts).collect()
    }

    fn new(steps: Vec<StepDefinition>, graph: Graph) -> Self {
        Self {
            name: None,
            description: None,
            parameters: None,
            timeout: None,
            keys: None,
            labels: BTreeMap::new(),
            form: Form::default(),
            steps,
            graph,
        }
    }
}
