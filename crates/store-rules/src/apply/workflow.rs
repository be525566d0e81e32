//! Whether a workflow may be written, and what the end of a job is to the workflow that it is of.

use outlast_core::id::JobId;
use outlast_core::job::{DeadLetterReason, EventKind, Hold, Outcome, State, Transition};
use outlast_core::workflow::{ItemOutcome, WorkflowItem};
use outlast_store::command::WriteWorkflow;
use outlast_store::job::EnqueueRefusal;
use outlast_store::workflow::{
    ItemEnd, ItemHappened, ItemRecord, ItemState, Runs, StartedWorkflow, WorkflowRecord,
    WorkflowRefusal,
};
use serde::Deserialize;

use super::schedule::first_revision;
use crate::rules::Context;

/// Longest text of an error that is noted for a workflow, in bytes. The job has all of it.
pub const ERROR_BYTES_MAX: usize = 1024;

/// What a workflow becomes.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Its revision from now on.
    pub revision: u64,
    /// The row; `None` if it is not there.
    pub record: Option<WorkflowRecord>,
    /// Whether it is made now.
    pub is_new: bool,
}

/// Decides what a workflow becomes.
///
/// # Errors
/// Returns why it stays as it is.
pub fn write(
    found: Option<&WorkflowRecord>,
    write: &WriteWorkflow,
    context: &Context,
) -> Result<Written, WorkflowRefusal> {
    let now = context.now;
    if found.map(|found| found.revision) != write.expected {
        return Err(WorkflowRefusal::Changed);
    }
    let revision = found.map_or_else(|| first_revision(context), |found| found.revision + 1);
    let new = found.map(|found| &found.new).or(write.new.as_ref());
    let record = write.to.as_ref().zip(new).map(|(state, new)| WorkflowRecord {
        id: write.id,
        revision,
        new: new.clone(),
        state: state.clone(),
        created: found.map_or(now, |found| found.created),
        updated: now,
    });
    let is_new = found.is_none() && record.is_some();
    Ok(Written { revision, record, is_new })
}

/// Returns the row of a workflow that an item starts.
#[must_use]
pub fn started(started: &StartedWorkflow, context: &Context) -> WorkflowRecord {
    WorkflowRecord {
        id: started.id,
        revision: first_revision(context),
        new: started.new.clone(),
        state: started.state.clone(),
        created: context.now,
        updated: context.now,
    }
}

/// Returns how an item stands that a job or a workflow carries out from now on.
#[must_use]
pub const fn running(of: WorkflowItem, runs: Runs) -> ItemRecord {
    ItemRecord {
        step: of.step,
        item: of.item,
        state: ItemState::Running,
        runs: Some(runs),
        input: None,
        result: None,
    }
}

/// Returns the end of an item of which the job was not stored.
#[must_use]
pub fn refused(of: WorkflowItem, job: JobId, refusal: Option<&EnqueueRefusal>) -> ItemEnd {
    let outcome = match refusal {
        Some(EnqueueRefusal::QueueFull { .. }) => ItemOutcome::QueueFull,
        Some(EnqueueRefusal::Expired(_)) => ItemOutcome::Expired,
        _ => ItemOutcome::Duplicate,
    };
    ItemEnd {
        of,
        runs: Runs::Job(job),
        what: ItemHappened::Ended(outcome),
        error: refusal.map(ToString::to_string),
        result: None,
    }
}

/// A move of a job.
#[derive(Clone, Copy, Debug)]
pub struct JobMove<'a> {
    /// The job.
    pub job: JobId,
    /// The move.
    pub transition: &'a Transition,
    /// What happened.
    pub kind: EventKind,
    /// JSON: its result, if it has one.
    pub result: Option<&'a str>,
    /// JSON object: its error, if it has one.
    pub error: Option<&'a str>,
}

/// Returns what a move of a job is to the workflow that it is of: an end, a life after an end, or
/// nothing.
#[must_use]
pub fn end_of(of: WorkflowItem, moved: &JobMove<'_>) -> Option<ItemEnd> {
    let transition = moved.transition;
    let what = match (transition.from.is_terminal(), transition.to.is_terminal()) {
        (false, true) => ItemHappened::Ended(outcome(transition, moved.kind)),
        (true, false) => ItemHappened::Replayed,
        (false, false) | (true, true) => return None,
    };
    let completed = what == ItemHappened::Ended(ItemOutcome::Completed);
    let failed = !completed && what != ItemHappened::Replayed;
    Some(ItemEnd {
        of,
        runs: Runs::Job(moved.job),
        what,
        error: moved.error.filter(|_| failed).and_then(message),
        result: moved.result.filter(|_| completed && of.keeps_result).map(ToOwned::to_owned),
    })
}

fn outcome(transition: &Transition, kind: EventKind) -> ItemOutcome {
    match (transition.to, transition.dead_letter, transition.hold) {
        (State::Completed, _, _) => ItemOutcome::Completed,
        (State::Cancelled, _, _) => ItemOutcome::Cancelled,
        (_, Some(DeadLetterReason::PoisonSuspect | DeadLetterReason::AtMostOnce), _)
        | (_, _, Hold::Drop(Outcome::Lost)) => ItemOutcome::Abandoned,
        (_, _, Hold::Drop(Outcome::Timeout)) => ItemOutcome::TimedOut,
        _ if kind == EventKind::Expire => ItemOutcome::Expired,
        _ => ItemOutcome::Failed,
    }
}

#[derive(Deserialize)]
struct ErrorText {
    #[serde(default)]
    message: Option<String>,
    /// What a job says that no worker ran.
    #[serde(default)]
    error: Option<String>,
    /// Why none did.
    #[serde(default)]
    reason: Option<String>,
}

/// Returns what the error of a job says, at most [`ERROR_BYTES_MAX`] of it; `None` if it says nothing.
#[must_use]
pub fn message(error: &str) -> Option<String> {
    let text: ErrorText = serde_json::from_str(error).ok()?;
    let mut words = match (text.message.filter(|message| !message.is_empty()), text.error) {
        (Some(message), _) => message,
        (None, Some(error)) => match text.reason {
            Some(reason) => format!("{error}: {reason}"),
            None => error,
        },
        (None, None) => return None,
    };
    words.truncate(words.floor_char_boundary(ERROR_BYTES_MAX));
    Some(words)
}
