use askama::Template;
use outlast_core::time::Timestamp;

use crate::Frame;
use crate::atoms::{Count, Status};

/// A list of jobs.
#[derive(Debug, Template)]
#[template(path = "jobs.html")]
pub struct JobsPage {
    /// What stands around it.
    pub frame: Frame,
    /// How many jobs of each state there are.
    pub counts: Vec<StateCount>,
    /// Which jobs are listed.
    pub filter: Filter,
    /// What can be done with all of them.
    pub bulk: Vec<BulkLink>,
    /// The jobs.
    pub rows: Vec<JobRow>,
    /// The query of the next page.
    pub next: Option<String>,
    /// What the list leaves out, or why it is empty.
    pub note: Option<String>,
}

/// A link to the page that asks before all jobs that match are changed.
#[derive(Clone, Debug)]
pub struct BulkLink {
    /// What is done: `cancel` or `retry`.
    pub kind: &'static str,
    /// The query of that page.
    pub query: String,
}

impl BulkLink {
    /// What the link says.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self.kind {
            "cancel" => "Cancel all that match",
            _ => "Retry all that match",
        }
    }
}

/// How many jobs have a state.
#[derive(Clone, Debug)]
pub struct StateCount {
    /// The state.
    pub state: &'static str,
    /// The query that lists them.
    pub query: String,
    /// How many.
    pub count: u64,
}

/// Which jobs are listed, as the reader wrote it.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Statuses, by commas.
    pub status: String,
    /// Queue.
    pub queue: String,
    /// Type or action.
    pub action_ref: String,
    /// Worker, by id or name.
    pub worker: String,
    /// A key with its value.
    pub key: String,
    /// Words of the error.
    pub error_contains: String,
    /// How the id begins.
    pub id: String,
    /// The schedule they are of.
    pub schedule: String,
    /// The workflow they are of.
    pub workflow: String,
    /// The earliest time at which they were made.
    pub created_after: String,
    /// The latest.
    pub created_before: String,
}

impl Filter {
    /// Whether every job is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { status, queue, action_ref, worker, key, error_contains, .. } = self;
        let Self { id, schedule, workflow, created_after, created_before, .. } = self;
        let words = [status, queue, action_ref, worker, key, error_contains];
        let others = [id, schedule, workflow, created_after, created_before];
        words.into_iter().chain(others).all(String::is_empty)
    }
}

/// A job of a list.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// Its id.
    pub id: String,
    /// Its type or action.
    pub job_type: String,
    /// Its queue.
    pub queue: String,
    /// Its status.
    pub status: &'static str,
    /// Deliveries so far.
    pub attempt: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Who holds it, or held it last.
    pub worker: Option<String>,
    /// Why it waits, or why it failed.
    pub why: String,
}

impl JobRow {
    /// The end of its id: the part that differs from job to job.
    #[must_use]
    pub fn key(&self) -> &str {
        self.id.rsplit('-').next().unwrap_or(&self.id)
    }
}
