//! A workflow as answers show it. Results are passed on as the text they came as.

use std::collections::BTreeMap;
use std::fmt;

use outlast_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::time::{text, text_if};

/// A workflow and its steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkflowView {
    /// Its id.
    pub id: Uuid,
    /// What it is called, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The workflow of a pack that it is, unless its steps were in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_ref: Option<String>,
    /// Whether it runs, or how it ended.
    pub status: Status,
    /// How it will end, while its last jobs are being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// In which form it was given.
    pub form: Form,
    /// Its parameters, defaults included; a list has none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Labels of its jobs; a list has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Keys of its jobs; a list has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
    /// The step that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The fire that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleFire>,
    /// How often it was retried.
    pub retries: u32,
    /// Its result, once it has ended; a list has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it was stored.
    #[serde(with = "text")]
    pub created: Timestamp,
    /// When it last changed.
    #[serde(with = "text")]
    pub updated: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_if")]
    pub finished: Option<Timestamp>,
    /// When its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_if")]
    pub deadline: Option<Timestamp>,
    /// Its steps, as they were written. A list has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
    /// Its steps as text for a terminal, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawing: Option<String>,
}

/// One step of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the answer")]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub status: StepStatus,
    /// The steps it waits for.
    #[serde(default)]
    pub after: Vec<String>,
    /// The action it runs, if it does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The type of its jobs, if that is what it names.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// The workflow it starts, if it does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Whether it is a callback of a batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub callback: bool,
    /// Its items, once it has started.
    pub total: u32,
    /// Items that wait for their turn.
    pub held: u32,
    /// Items that are enqueued or run.
    pub running: u32,
    /// Items that succeeded.
    pub completed: u32,
    /// Items that ended without success.
    pub failed: u32,
    /// Its jobs.
    #[serde(default)]
    pub job_ids: Vec<Uuid>,
    /// The workflows that it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workflow_ids: Vec<Uuid>,
    /// Whether some of its jobs and workflows are not shown here, since the workflow has too many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub jobs_left_out: bool,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Whether it has a result that is too long to be shown here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_left_out: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_if")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_if")]
    pub finished: Option<Timestamp>,
}

/// The step that started a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The workflow it belongs to.
    pub workflow: Uuid,
    /// Its name.
    pub step: String,
    /// Which of its items, from 0.
    pub item: u32,
}

/// The fire of a schedule that started a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleFire {
    /// The schedule.
    pub name: String,
    /// When it was to fire.
    #[serde(with = "text")]
    pub fire_time: Timestamp,
}

/// A page of workflows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkflowList {
    /// The workflows, without their steps.
    #[serde(rename = "data")]
    pub workflows: Vec<WorkflowView>,
    /// Where the next page is.
    pub pagination: Pagination,
}

/// Where a page of a list is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pagination {
    /// Most workflows on it.
    pub limit: u32,
    /// Where the next page begins, if there is one.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

#[derive(Serialize)]
struct Answer<'a> {
    data: &'a WorkflowView,
}

/// Writes one workflow under `data`.
#[must_use]
pub fn document(workflow: &WorkflowView) -> Vec<u8> {
    written(&Answer { data: workflow })
}

impl WorkflowList {
    /// Writes the page.
    #[must_use]
    pub fn document(&self) -> Vec<u8> {
        written(self)
    }
}

/// All keys are texts and nothing else can fail in memory.
fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {$(
            $(#[$of])*
            #[serde(rename = $word)]
            $variant,
        )*}

        impl $name {
            /// Every one.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Returns the word in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {$(Self::$variant => $word,)*}
            }

            /// Returns what is called `word`, if anything is.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Whether a workflow runs, or how it ended.
    Status {
        /// Something of it runs, or is to run.
        Running = "running",
        /// Every step succeeded or was not to run.
        Completed = "completed",
        /// A step failed, and that counts.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It took longer than its time limit.
        Timeout = "timeout",
    }
}

words! {
    /// How a workflow will end whose last jobs are being stopped.
    Ending {
        /// It was cancelled.
        Cancelled = "cancelled",
        /// Its time is over.
        Timeout = "timeout",
    }
}

words! {
    /// In which form a workflow was given.
    Form {
        /// Ours.
        Steps = "steps",
        /// The standard's steps with `depends_on`.
        Dag = "dag",
        /// The standard's jobs one after another.
        Chain = "chain",
        /// The standard's jobs beside each other.
        Group = "group",
        /// A group with callbacks.
        Batch = "batch",
    }
}

words! {
    /// Where a step is.
    StepStatus {
        /// A step before it has not ended.
        Waiting = "waiting",
        /// Some of its items have not ended.
        Running = "running",
        /// All of its items succeeded.
        Completed = "completed",
        /// An item failed, or an expression had no value.
        Failed = "failed",
        /// An item took too long.
        Timeout = "timeout",
        /// An item was given up after losses.
        Abandoned = "abandoned",
        /// An item was cancelled, or the workflow before the step started.
        Cancelled = "cancelled",
        /// It was not to run.
        Skipped = "skipped",
    }
}

impl Status {
    /// Says whether nothing more happens by itself.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        !matches!(self, Self::Running)
    }
}

impl StepStatus {
    /// Says whether it ended without success, and not by being skipped.
    #[must_use]
    pub const fn is_unsuccessful(self) -> bool {
        matches!(self, Self::Failed | Self::Timeout | Self::Abandoned | Self::Cancelled)
    }
}
