//! What may happen to a workflow, and what a store does about it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::state::{Outcome, StepStatus, WorkflowStatus};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The workflow was stored. Once, at its beginning.
    Begun,
    /// Items of a step ended: jobs in their life, or workflows. The store reports each end once,
    /// also of items that it could not enqueue.
    ItemsEnded {
        /// The step.
        step: usize,
        /// The items, in any order.
        ends: Vec<ItemEnd>,
    },
    /// An item that had ended without success was enqueued again, outside of this workflow's rules:
    /// a dead letter was replayed.
    ItemReplayed {
        /// The step.
        step: usize,
        /// How the item had ended.
        outcome: Outcome,
    },
    /// A user cancelled it.
    CancelRequested,
    /// Its timeout is over.
    TimeoutReached,
    /// A user wants what failed to run again, and what follows it.
    RetryRequested,
}

/// The end of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemEnd {
    /// Which item, from zero.
    pub item: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// What its error says, if it has one.
    pub error: Option<String>,
}

/// What to do. Steps are named by their index.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Store all items of a step, with their inputs, as held: none may run yet. The index in the
    /// list is the item's.
    StoreItems {
        /// The step.
        step: usize,
        /// The parameters or arguments of each item.
        inputs: Vec<Value>,
    },
    /// Make every item of a step that ended without success a held one again, in a new life.
    HoldUnsuccessful {
        /// The step.
        step: usize,
    },
    /// Enqueue the first of the held items of a step, in order.
    EnqueueItems {
        /// The step.
        step: usize,
        /// How many.
        count: u32,
    },
    /// Start a workflow for each of the first of the held items of a step, in order.
    StartWorkflows {
        /// The step, whose target says which.
        step: usize,
        /// How many.
        count: u32,
    },
    /// Cancel the items of a step: those held at once, without a report; those enqueued, running or
    /// workflows as on request, each of which reports its end.
    CancelItems {
        /// The step.
        step: usize,
    },
    /// A step ended, for its event and its times.
    StepEnded {
        /// The step.
        step: usize,
        /// How.
        status: StepStatus,
    },
    /// The workflow ended. If a step of another started it, report it there.
    WorkflowEnded {
        /// How.
        status: WorkflowStatus,
    },
}

/// What an event led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advance {
    /// What to do, in order.
    pub effects: Vec<Effect>,
    /// The steps whose state changed.
    pub changed: BTreeSet<usize>,
}

/// Why an event cannot be. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The workflow has ended.
    #[error("workflow is already {0}")]
    AlreadyEnded(WorkflowStatus),
    /// The workflow has not ended, so there is nothing to go on from.
    #[error("workflow is still running")]
    StillRunning,
    /// The workflow is being cancelled.
    #[error("workflow is being ended")]
    Stopping,
    /// No step failed.
    #[error("no step failed, so there is nothing to retry")]
    NothingToRetry,
    /// There is no step with this index.
    #[error("there is no step {0}")]
    NoSuchStep(usize),
    /// Fewer items of the step run than were reported as ended.
    #[error("step {step} has only {running} items that can end")]
    NotRunning {
        /// The step.
        step: usize,
        /// Its items that run.
        running: u32,
    },
    /// No item of the step ended in this way.
    #[error("step {step} has no item that ended so")]
    NotEnded {
        /// The step.
        step: usize,
    },
}
