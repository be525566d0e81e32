//! Workflows as a store keeps them.
//!
//! ```text
//!  a job of an item ends ─▶ workflow_end ──┐ read by a server, which decides what follows
//!  workflow: revision, status, due         ├─▶ WriteWorkflow, as it was read: state, items, jobs,
//!  workflow_step, workflow_item            │   and the ends are taken, or nothing
//!        └─────────────────────────────────┘
//! ```
//!
//! A store knows when a workflow is due, which job carries out which item, and which ends were not
//! yet looked at. What a workflow is and how it stands are texts that the server reads and writes.
//! A change names the revision that was read, and is refused if another one came first. The end of
//! an item is noted in the transaction that ends its job, and is taken by the one that moves the
//! workflow on: so each counts once, whichever server does it and wherever one is killed.

use std::cmp::Ordering;

use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_core::workflow::{ItemOutcome, WorkflowId, WorkflowItem};

use crate::event::EventName;
use crate::job::{Enqueued, NewJob};
use crate::request::boxed_requests;

/// Makes or changes a workflow, unless another has changed it since it was read.
#[derive(Clone, Debug)]
pub struct WriteWorkflow {
    /// Its id.
    pub id: WorkflowId,
    /// The revision that was read; `None` if there was no workflow of that id.
    pub expected: Option<u64>,
    /// How it stands from now on; `None` for one that is not there, of which only ends are taken.
    pub to: Option<WorkflowState>,
    /// What it is. Only of one that is made.
    pub new: Option<NewWorkflow>,
    /// How steps stand from now on.
    pub steps: Vec<StepRecord>,
    /// How items stand from now on. Those of `jobs` need not be among them.
    pub items: Vec<ItemRecord>,
    /// The jobs of items. One that cannot be stored is an end of its item.
    pub jobs: Vec<NewJob>,
    /// Workflows that items start, unless there is one of the same id.
    pub started: Vec<StartedWorkflow>,
    /// What this means to the item of another workflow that it was started for.
    pub ends: Vec<ItemEnd>,
    /// The ends that were read, by number. They do not come again.
    pub taken: Vec<i64>,
    /// What happened, for the event log.
    pub events: Vec<WorkflowEvent>,
    /// Who does it, for the event log.
    pub by: String,
}

/// What does not change of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWorkflow {
    /// How it is called; may be empty.
    pub name: String,
    /// Whose it is; empty for one of all.
    pub tenant: String,
    /// JSON object: its definition, parameters and what else it was given.
    pub definition: String,
    /// The item of another workflow that started it.
    pub parent: Option<WorkflowItem>,
}

/// What can change of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowState {
    /// The word for its status.
    pub status: String,
    /// When a server must look at it next, whatever happens to its jobs.
    pub due: Option<Timestamp>,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// JSON object: how it stands.
    pub progress: String,
}

/// A workflow that is about to begin: a server looks at it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedWorkflow {
    /// Its id.
    pub id: WorkflowId,
    /// What it is.
    pub new: NewWorkflow,
    /// How it stands.
    pub state: WorkflowState,
}

/// A workflow as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRecord {
    /// Its id.
    pub id: WorkflowId,
    /// Rises with every change.
    pub revision: u64,
    /// What does not change of it. Its definition is empty where it was not asked for.
    pub new: NewWorkflow,
    /// What can change of it.
    pub state: WorkflowState,
    /// When it was made.
    pub created: Timestamp,
    /// When it changed last.
    pub updated: Timestamp,
}

/// How a step stands. One that waits has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The step, by its index.
    pub step: u32,
    /// JSON object.
    pub state: String,
}

/// How an item stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRecord {
    /// The step, by its index.
    pub step: u32,
    /// The item of the step, from zero.
    pub item: u32,
    /// Whether it waits, runs, or how it ended.
    pub state: ItemState,
    /// What carries it out, or carried it out last.
    pub runs: Option<Runs>,
    /// JSON: what it is given, while it waits for the first time.
    pub input: Option<String>,
    /// JSON: its result, if the workflow needs it.
    pub result: Option<String>,
}

impl ItemRecord {
    /// Returns how long its values are, in bytes.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        [&self.input, &self.result].into_iter().flatten().map(String::len).sum()
    }
}

/// What carries out an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// A job.
    Job(JobId),
    /// A workflow that the item started.
    Workflow(WorkflowId),
}

/// Whether an item waits, runs, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// It waits for its turn.
    Held,
    /// It is enqueued or runs.
    Running,
    /// It ended.
    Ended(ItemOutcome),
}

/// What happened to an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemEnd {
    /// The item.
    pub of: WorkflowItem,
    /// What carried it out.
    pub runs: Runs,
    /// What happened.
    pub what: ItemHappened,
    /// What its error says, if it has one.
    pub error: Option<String>,
    /// JSON: its result, if the workflow needs it.
    pub result: Option<String>,
}

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemHappened {
    /// It ended.
    Ended(ItemOutcome),
    /// Its job had ended, and lives again.
    Replayed,
}

/// An end that no server has taken, with what is known of its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntakenEnd {
    /// Its number; rises, but not in the order of commits.
    pub number: i64,
    /// The end.
    pub end: ItemEnd,
    /// How the item stands; `None` if there is no such item.
    pub item: Option<(ItemState, Option<Runs>)>,
}

/// What a server reads of a workflow before it decides what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowLook {
    /// The workflow; `None` if it is gone.
    pub record: Option<WorkflowRecord>,
    /// How its steps stand, by index.
    pub steps: Vec<StepRecord>,
    /// Ends that no server has taken, by number; not necessarily all.
    pub ends: Vec<UntakenEnd>,
    /// Whether there are more ends.
    pub more: bool,
}

/// Which items of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemQuery {
    /// The workflow.
    pub workflow: WorkflowId,
    /// Of this step; of all if none is named.
    pub step: Option<u32>,
    /// Only these.
    pub which: WhichItems,
    /// Whether inputs and results are read.
    pub with_values: bool,
    /// Only those after this step and item.
    pub after: Option<(u32, u32)>,
    /// How many at most.
    pub limit: u32,
    /// How long their values may be together, in bytes; the first item is returned whatever its length.
    pub bytes: usize,
}

/// Which items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichItems {
    /// All.
    All,
    /// Those that wait for their turn.
    Held,
    /// Those that are enqueued or run.
    Running,
    /// Those that completed.
    Completed,
    /// Those that ended in another way.
    Unsuccessful,
}

/// Which workflows.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WorkflowQuery {
    /// Only with this status.
    pub status: Option<String>,
    /// Only with this name.
    pub name: Option<String>,
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only those that come after this one in the list: when it was made, and its id.
    pub after: Option<(Timestamp, WorkflowId)>,
    /// How many at most.
    pub limit: u32,
}

/// Which workflows a server must look at: those that are due, and those with ends that no server took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueWorkflows {
    /// Due until this time, or with ends noted until then.
    pub until: Timestamp,
    /// Only ends noted from this time on.
    pub ends_from: Timestamp,
    /// How many at most.
    pub max: u32,
}

/// An item that runs, with what carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkflowItemRun {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The step, by its index.
    pub step: u32,
    /// The item of the step, from zero.
    pub item: u32,
    /// What carries it out.
    pub runs: Runs,
}

/// How workflows stand, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WorkflowCounts {
    /// Those that run.
    pub running: u64,
    /// When the oldest end was noted that no server has taken.
    pub oldest_end: Option<Timestamp>,
}

/// Something that happened to a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowEvent {
    /// What.
    pub kind: EventName,
    /// The details in words, to follow the workflow's id; may be empty.
    pub words: String,
}

/// A workflow was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowWritten {
    /// Its revision from now on.
    pub revision: u64,
    /// The jobs that were stored.
    pub jobs: Vec<Enqueued>,
}

/// Why a workflow stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowRefusal {
    /// It was changed, made or removed since it was read.
    #[error("workflow was changed by someone else in the meantime")]
    Changed,
}

/// The field of what is given back beside a job that says of which workflow it is: an object that begins
/// with the workflow's `id`.
pub const FIELD: &str = "workflow";

/// Returns the text that is found in what is given back beside each job of a workflow, and beside no
/// other: quotation marks within a text are escaped.
#[must_use]
pub fn mark(id: WorkflowId) -> String {
    format!(r#""{FIELD}":{{"id":"{id}""#)
}

impl ItemState {
    /// Returns the word for it in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Running => "running",
            Self::Ended(outcome) => outcome.as_str(),
        }
    }

    /// Returns the state called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "held" => Some(Self::Held),
            "running" => Some(Self::Running),
            other => ItemOutcome::parse(other).map(Self::Ended),
        }
    }
}

impl ItemHappened {
    /// Returns the word for it in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Ended(outcome) => outcome.as_str(),
        }
    }

    /// Returns what is called `word`, if there is anything.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "replayed" => Some(Self::Replayed),
            other => ItemOutcome::parse(other).map(Self::Ended),
        }
    }
}

impl ItemQuery {
    /// Returns after which item the items of one step begin; of all steps, after which step and item.
    #[must_use]
    pub fn begins_after(&self) -> (i64, i64) {
        match (self.step, self.after) {
            (Some(step), Some((after, item))) => match after.cmp(&step) {
                Ordering::Less => (step.into(), -1),
                Ordering::Equal => (step.into(), item.into()),
                Ordering::Greater => (step.into(), i64::MAX),
            },
            (Some(step), None) => (step.into(), -1),
            (None, Some((step, item))) => (step.into(), item.into()),
            (None, None) => (-1, 0),
        }
    }
}

impl WhichItems {
    /// Returns the condition for it on the column `state`.
    #[must_use]
    pub const fn condition(self) -> &'static str {
        match self {
            Self::All => "true",
            Self::Held => "state = 'held'",
            Self::Running => "state = 'running'",
            Self::Completed => "state = 'completed'",
            Self::Unsuccessful => "state not in ('held', 'running', 'completed')",
        }
    }

    /// Says whether an item in this state is one of them.
    #[must_use]
    pub const fn contains(self, state: ItemState) -> bool {
        let completed = matches!(state, ItemState::Ended(ItemOutcome::Completed));
        match self {
            Self::All => true,
            Self::Held => matches!(state, ItemState::Held),
            Self::Running => matches!(state, ItemState::Running),
            Self::Completed => completed,
            Self::Unsuccessful => matches!(state, ItemState::Ended(_)) && !completed,
        }
    }
}

impl Runs {
    /// Returns the job, if it is one.
    #[must_use]
    pub const fn job(self) -> Option<JobId> {
        match self {
            Self::Job(job) => Some(job),
            Self::Workflow(_) => None,
        }
    }

    /// Returns the workflow, if it is one.
    #[must_use]
    pub const fn workflow(self) -> Option<WorkflowId> {
        match self {
            Self::Job(_) => None,
            Self::Workflow(workflow) => Some(workflow),
        }
    }
}

/// Most ends of a look; the next look sees the next ones.
pub const ENDS_MAX: u32 = 1_000;

/// Most bytes of results in the ends of a look, of one end at least.
pub const ENDS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The columns of a [`WorkflowRecord`], in this order, without its definition.
#[macro_export]
macro_rules! workflow_columns {
    () => {
        "id, revision, status, due, finished, name, tenant, parent, parent_step, parent_item, \
         parent_keeps, created, updated, progress"
    };
}

boxed_requests! {
    WriteWorkflow as WriteWorkflow -> WorkflowWritten(Result<WorkflowWritten, WorkflowRefusal>);
}
