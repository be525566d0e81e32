//! One step as it was described.

use std::num::NonZeroU32;

use outlast_core::time::Span;
use serde_json::Value;

use crate::expression::{Expression, References};
use crate::template::Template;

/// One step as it was described.
#[derive(Clone, Debug, PartialEq)]
pub struct StepDefinition {
    /// How others refer to it.
    pub name: String,
    /// What it does.
    pub target: Target,
    /// The steps it waits for, by index.
    pub after: Vec<usize>,
    /// When it runs, once those have ended.
    pub when: When,
    /// The list it does it for. Without it, it does it once.
    pub for_each: Option<Template>,
    /// How many items run at once; all if nothing is said.
    pub concurrency: Option<NonZeroU32>,
    /// What it is given: an object for an action or a workflow, a list for a type.
    pub input: Template,
    /// What its failure means for the steps after it.
    pub on_failure: OnFailure,
    /// What its jobs are made with.
    pub job: JobSettings,
    /// Whether it is a callback of a batch.
    pub callback: bool,
    /// Whether a callback of its batch deals with its failure. It then does not fail the workflow.
    pub handled: bool,
}

/// What the jobs of a step are made with, as it was written.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct JobSettings {
    /// The retry policy.
    pub retry: Option<Value>,
    /// The time limit of an attempt.
    pub timeout: Option<Span>,
    /// Which workers may run it.
    pub requires: Option<String>,
    /// Which workers should run it.
    pub prefers: Option<String>,
    /// What it needs.
    pub resources: Option<Value>,
    /// Its queue.
    pub queue: Option<String>,
    /// Its priority.
    pub priority: Option<i64>,
    /// The standard's `options`.
    pub options: Option<Value>,
    /// The standard's `meta`.
    pub meta: Option<Value>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Runs an action by its reference, such as `core.echo`.
    Action(String),
    /// Enqueues a job of a type.
    Type(String),
    /// Starts another workflow and ends with it.
    Workflow(String),
}

/// When a step runs, once the steps it waits for have ended. See [`mod@crate::advance`] for the table.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// All of them succeeded.
    #[default]
    Success,
    /// One of them failed, or was skipped since one before it failed.
    Failure,
    /// In any case.
    Always,
    /// None of them failed, or was skipped after a failure. Only the standard's forms need it.
    NoFailure,
    /// An expression says so.
    Expression(Expression),
}

/// What the failure of a step means for the steps after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// It is a failure.
    #[default]
    Fail,
    /// It counts as success.
    Continue,
}

impl When {
    /// Returns the word or the expression.
    #[must_use]
    pub fn as_text(&self) -> String {
        match self {
            Self::Success => "success".to_owned(),
            Self::Failure => "failure".to_owned(),
            Self::Always => "always".to_owned(),
            Self::NoFailure => "no_failure".to_owned(),
            Self::Expression(expression) => expression.to_string(),
        }
    }
}

impl OnFailure {
    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Continue => "continue",
        }
    }
}

impl Target {
    /// Returns the key that says it.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Action(_) => "action",
            Self::Type(_) => "type",
            Self::Workflow(_) => "workflow",
        }
    }

    /// Returns what it names.
    #[must_use]
    pub fn reference(&self) -> &str {
        match self {
            Self::Action(name) | Self::Type(name) | Self::Workflow(name) => name,
        }
    }
}

impl StepDefinition {
    pub(crate) fn new(name: String, target: Target, input: Template) -> Self {
        Self {
            name,
            target,
            after: Vec::new(),
            when: When::default(),
            for_each: None,
            concurrency: None,
            input,
            on_failure: OnFailure::default(),
            job: JobSettings::default(),
            callback: false,
            handled: false,
        }
    }

    /// Returns what its expressions read.
    #[must_use]
    pub fn references(&self) -> References {
        let mut found = self.input.references();
        if let Some(list) = &self.for_each {
            found.merge(&list.references());
        }
        if let When::Expression(expression) = &self.when {
            found.merge(expression.references());
        }
        found
    }

    /// Returns how many of `total` items run at once.
    #[must_use]
    pub fn window(&self, total: u32) -> u32 {
        self.concurrency.map_or(total, |most| most.get().min(total))
    }
}
