//! Schedules as a store keeps them.
//!
//! A store knows of a schedule when it is due, and nothing else: what it is and how it stands are
//! texts that the server reads and writes. A change names the revision that was read, and is refused
//! if another one came first. So a schedule fires once for each of its times, whichever server fires
//! it: its jobs are stored by the same command that moves it on.

use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;

use crate::event::EventName;
use crate::job::{EnqueueRefusal, Enqueued, NewJob};
use crate::request::boxed_requests;
use crate::workflow::StartedWorkflow;

/// Makes, changes, fires or removes a schedule, unless another has changed it since it was read.
#[derive(Clone, Debug)]
pub struct WriteSchedule {
    /// Its name.
    pub name: ScheduleName,
    /// The revision that was read; `None` if there was no schedule of that name.
    pub expected: Option<u64>,
    /// What it is from now on; `None` removes it, and leaves its jobs.
    pub to: Option<ScheduleState>,
    /// The jobs of its fires. They are stored with the change, or nothing is. None takes a unique
    /// key.
    pub jobs: Vec<NewJob>,
    /// The workflows of its fires, likewise. One of which the id is taken stays as it is.
    pub workflows: Vec<StartedWorkflow>,
    /// What happened, for the event log.
    pub events: Vec<ScheduleEvent>,
    /// Who does it, for the event log.
    pub by: String,
}

/// What can change of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleState {
    /// Whether it comes from a server's configuration.
    pub configured: bool,
    /// When a server must look at it next; `None` while it is paused or has ended.
    pub due: Option<Timestamp>,
    /// JSON object: what it is, as someone set it.
    pub definition: String,
    /// JSON object: how it stands.
    pub progress: String,
    /// Who set it.
    pub set_by: String,
}

/// Something that happened to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleEvent {
    /// What.
    pub kind: EventName,
    /// The job of the fire, if it has one.
    pub job: Option<outlast_core::id::JobId>,
    /// The details in words, to follow the schedule's name; may be empty.
    pub words: String,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Its name.
    pub name: ScheduleName,
    /// Rises with every change and every fire.
    pub revision: u64,
    /// What can change of it.
    pub state: ScheduleState,
    /// When it was made.
    pub created: Timestamp,
    /// When it changed or fired last.
    pub updated: Timestamp,
}

/// A schedule was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleWritten {
    /// Its revision from now on; the last one of a schedule that was removed.
    pub revision: u64,
    /// The jobs that were stored.
    pub jobs: Vec<Enqueued>,
}

/// Why a schedule stays as it is, and its jobs were not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleRefusal {
    /// It was changed, fired, made or removed since it was read.
    #[error("schedule was changed by someone else in the meantime")]
    Changed,
    /// There are [`outlast_core::schedule::SCHEDULES_MAX`] already.
    #[error("there are too many schedules")]
    TooMany,
    /// The job at this position cannot be stored.
    #[error("{1}")]
    Job(usize, EnqueueRefusal),
}

/// Which schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleQuery {
    /// Only those after this name.
    pub after: Option<ScheduleName>,
    /// How many at most.
    pub limit: u32,
}

/// The field of what is given back beside a job that says which schedule stored it: an object that
/// begins with the schedule's `name`.
pub const FIELD: &str = "schedule";

/// Returns the text that is found in what is given back beside each job of a schedule, and beside no
/// other: quotation marks within a text are escaped.
#[must_use]
pub fn mark(name: &ScheduleName) -> String {
    format!(r#""{FIELD}":{{"name":"{name}""#)
}

/// The columns of a [`ScheduleRecord`], in this order.
#[macro_export]
macro_rules! schedule_columns {
    () => {
        "name, revision, configured, due, definition, progress, set_by, created, updated"
    };
}

boxed_requests! {
    WriteSchedule as WriteSchedule -> ScheduleWritten(Result<ScheduleWritten, ScheduleRefusal>);
}
