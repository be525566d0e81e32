//! Operations as a store keeps them: one change of all jobs that a filter selects.
//!
//! A step changes some jobs, and notes in the same transaction how far the operation has come and what
//! became of each. So a server that ends between two steps has neither left out nor counted a job twice,
//! and of two servers that take the same step one is refused. What selects the jobs is a text that the
//! server reads and writes.

use std::collections::BTreeMap;

use outlast_core::operation::{OperationId, OperationKind, OperationStatus, Skip};
use outlast_core::time::Timestamp;
use uuid::Uuid;

use crate::command::order::JobOrder;
use crate::command::report::Moved;
use crate::request::boxed_requests;

/// Begins an operation, takes a step of it, or ends it.
#[derive(Clone, Debug)]
pub struct WriteOperation {
    /// Which one.
    pub id: OperationId,
    /// How it must stand for this; else nothing happens.
    pub expected: ExpectedOperation,
    /// What it is, if this begins it.
    pub new: Option<NewOperation>,
    /// What changes of it.
    pub to: OperationChange,
    /// Orders to jobs. Those that are refused count as skipped.
    pub orders: Vec<JobOrder>,
    /// Who does it, for the event log: of the begin, and of the end.
    pub by: String,
}

/// How an operation must stand before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedOperation {
    /// It is not there.
    Absent,
    /// It is there, at this revision.
    Revision(u64),
    /// It runs, however far it has come.
    Running,
}

/// What never changes of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOperation {
    /// What is done with each job.
    pub kind: OperationKind,
    /// Which jobs, in words, for people.
    pub about: String,
    /// JSON object: which jobs, for the server.
    pub definition: String,
    /// Who began it, and from where.
    pub by: String,
}

/// What changes of an operation. What is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationChange {
    /// How it stands from now on.
    pub status: OperationStatus,
    /// Up to where jobs were looked at: the cursor of a page that begins behind them.
    pub reached: Option<String>,
    /// The server process that goes on with it.
    pub runner: Option<Uuid>,
    /// What there is to say about its end.
    pub note: Option<String>,
    /// How many more jobs matched, those of the orders included.
    pub matched: u64,
    /// How many of them stay as they are without an order, by reason.
    pub skipped: Skips,
}

/// How many jobs stayed as they were, by reason.
pub type Skips = BTreeMap<Skip, u64>;

impl OperationChange {
    /// Returns a change of the status alone.
    #[must_use]
    pub const fn to(status: OperationStatus) -> Self {
        Self {
            status,
            reached: None,
            runner: None,
            note: None,
            matched: 0,
            skipped: BTreeMap::new(),
        }
    }
}

/// An operation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// Id.
    pub id: OperationId,
    /// Rises with every step.
    pub revision: u64,
    /// What it is.
    pub new: NewOperation,
    /// How it stands.
    pub status: OperationStatus,
    /// Up to where jobs were looked at; `None` before the first step.
    pub reached: Option<String>,
    /// The server process that goes on with it.
    pub runner: Option<Uuid>,
    /// How many jobs matched, as far as was looked.
    pub matched: u64,
    /// How many of them were changed.
    pub changed: u64,
    /// How many stayed as they were.
    pub skipped: Skips,
    /// What there is to say about its end; may be empty.
    pub note: String,
    /// When it began.
    pub created: Timestamp,
    /// When its latest step was.
    pub updated: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

impl OperationRecord {
    /// Returns how many jobs stayed as they were.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped.values().sum()
    }

    /// Returns what became of the jobs, in words: `1180 cancelled, 24 skipped: 24 already running`.
    #[must_use]
    pub fn outcome(&self) -> String {
        let done = format!("{} {}", self.changed, self.new.kind.done());
        if self.skipped.is_empty() {
            return done;
        }
        let each = self.skipped.iter().map(|(skip, count)| format!("{count} {}", skip.as_str()));
        format!("{done}, {} skipped: {}", self.skipped(), each.collect::<Vec<_>>().join(", "))
    }
}

/// An operation was written.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationWritten {
    /// As it is from now on.
    pub record: OperationRecord,
    /// The jobs that moved.
    pub moved: Vec<Moved>,
}

/// Why an operation stays as it is, and so do its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationRefusal {
    /// It does not stand as was expected.
    #[error("operation was changed by someone else in the meantime")]
    Changed,
    /// There are [`outlast_core::limits::OPERATIONS_RUNNING_MAX`] running already.
    #[error("there are too many operations that run")]
    TooMany,
}

/// Which operations, the latest begun first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationQuery {
    /// Only those that run, or only those that have ended.
    pub running: Option<bool>,
    /// Only those that come after this one in the list: when it began, and its id.
    pub after: Option<(Timestamp, OperationId)>,
    /// How many at most.
    pub limit: u32,
}

/// The columns of an [`OperationRecord`], in this order.
#[macro_export]
macro_rules! operation_columns {
    () => {
        "id, revision, kind, about, definition, made_by, status, reached, runner, matched, changed,
         skipped, note, created, updated, ended"
    };
}

boxed_requests! {
    WriteOperation as WriteOperation -> OperationWritten(Result<OperationWritten, OperationRefusal>);
}
