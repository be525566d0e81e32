//! Whether an operation may be written, and what it counts.

use outlast_core::job::{Refusal, State};
use outlast_core::limits::OPERATIONS_RUNNING_MAX;
use outlast_core::operation::{OperationStatus, Skip};
use outlast_store::command::WriteOperation;
use outlast_store::operation::{
    ExpectedOperation, NewOperation, OperationChange, OperationRecord, OperationRefusal,
};
use outlast_store::reply::MoveRefusal;

use super::schedule::first_revision;
use crate::rules::Context;

/// Decides what an operation becomes, before its orders are carried out; `running` is how many run, of
/// which only the begin of one asks.
///
/// # Errors
/// Returns why it stays as it is.
pub fn write(
    found: Option<&OperationRecord>,
    running: usize,
    write: &WriteOperation,
    context: &Context,
) -> Result<OperationRecord, OperationRefusal> {
    let record = match (found, write.expected, &write.new) {
        (None, ExpectedOperation::Absent, Some(_)) if running >= OPERATIONS_RUNNING_MAX => {
            return Err(OperationRefusal::TooMany);
        }
        (None, ExpectedOperation::Absent, Some(new)) => begun(write, new, context),
        (Some(found), ExpectedOperation::Revision(revision), _) if found.revision == revision => {
            found.clone()
        }
        (Some(found), ExpectedOperation::Running, _) => found.clone(),
        _ => return Err(OperationRefusal::Changed),
    };
    // One that has ended stays so.
    if record.status != OperationStatus::Running {
        return Err(OperationRefusal::Changed);
    }
    Ok(changed(record, &write.to, context))
}

fn begun(write: &WriteOperation, new: &NewOperation, context: &Context) -> OperationRecord {
    OperationRecord {
        id: write.id,
        revision: first_revision(context),
        new: new.clone(),
        status: OperationStatus::Running,
        reached: None,
        runner: None,
        matched: 0,
        changed: 0,
        skipped: Default::default(),
        note: String::new(),
        created: context.now,
        updated: context.now,
        ended: None,
    }
}

fn changed(
    mut record: OperationRecord,
    to: &OperationChange,
    context: &Context,
) -> OperationRecord {
    record.revision = record.revision.saturating_add(1);
    record.status = to.status;
    record.reached = to.reached.clone().or(record.reached);
    record.runner = to.runner.or(record.runner);
    record.note = to.note.clone().unwrap_or(record.note);
    record.matched = record.matched.saturating_add(to.matched);
    for (skip, count) in &to.skipped {
        *record.skipped.entry(*skip).or_default() += count;
    }
    record.updated = context.now;
    record.ended = (to.status != OperationStatus::Running).then_some(context.now);
    record
}

/// Returns why a job stays as it is whose order was refused; `expected` is the state that the order was
/// for, and `present` the one that it is in.
#[must_use]
pub fn skip(refusal: MoveRefusal, expected: Option<State>, present: Option<State>) -> Skip {
    match (refusal, present) {
        (MoveRefusal::NotFound, _) | (_, None) => Skip::Gone,
        (MoveRefusal::Refused(Refusal::Expired), _) => Skip::Expired,
        // It is in the same state again, after another attempt.
        (MoveRefusal::Moved, Some(state)) if expected == Some(state) => Skip::Changed,
        (MoveRefusal::Moved | MoveRefusal::Refused(_), Some(state)) => match state {
            State::Scheduled | State::Available | State::Pending | State::Retryable => {
                Skip::Waiting
            }
            State::Active => Skip::Running,
            State::Completed => Skip::Completed,
            State::Cancelled => Skip::Cancelled,
            State::Discarded => Skip::Failed,
        },
    }
}
