//! What a holder reports about its attempt.

use std::borrow::Cow;

use outlast_core::job::{Event as JobEvent, EventKind, Hold, Refusal, Transition};
use outlast_core::time::Timestamp;
use outlast_store::command::{EndDetail, Fence, Finish, NoteSkew, Progress, Start};
use outlast_store::event::{Event, EventName};
use outlast_store::reply::{MoveRefusal, Moved};

use super::Decided;
use super::loaded::Loaded;
use crate::rules::{Context, check_fence, decide_finish, event_of, evidence_of};

/// Decides what a report of an attempt's start does.
///
/// # Errors
/// Returns why the report is refused.
pub fn start<'a>(
    loaded: &Loaded,
    start: &Start,
    context: &Context,
) -> Result<Decided<'a>, MoveRefusal> {
    Ok(Decided {
        transition: confirm(loaded, &start.fence, context)?,
        kind: EventKind::Start,
        by: Cow::Owned(loaded.holder_name()),
        detail: Cow::Owned(EndDetail {
            pack_digest: start.pack_digest.clone(),
            ..EndDetail::default()
        }),
        ended_by: "",
        gates: Vec::new(),
    })
}

/// Checks that an attempt still counts. Starting it again changes nothing, so that is what the
/// rules are asked.
fn confirm(loaded: &Loaded, fence: &Fence, context: &Context) -> Result<Transition, Refusal> {
    check_fence(&loaded.job, fence, loaded.plain_holder())?;
    context.decide(&loaded.job, JobEvent::Start, 0)
}

/// Returns the event that says with which files of its pack a job runs.
#[must_use]
pub fn skew(note: &NoteSkew, at: Timestamp) -> Event {
    Event {
        job: Some(note.job),
        worker: Some(note.worker),
        epoch: Some(note.epoch),
        job_type: Some(note.class.job_type.clone()),
        queue: Some(note.class.queue.clone()),
        ..Event::new(at, EventName::JobPackSkew, &note.by, note.words.as_str())
    }
}

/// Whether [`finish`] must know if the holder holds nothing else. Counting costs as much as the
/// worker holds, so it is done only then.
#[must_use]
pub fn needs_alone(finish: &Finish) -> bool {
    event_of(finish, true).kind() == EventKind::Lose
}

/// Decides what a report of an attempt's end does. `alone` says whether the holder holds nothing
/// else, if [`needs_alone`] asks for it.
///
/// # Errors
/// Returns why the report is refused.
pub fn finish<'a>(
    loaded: &mut Loaded,
    finish: &'a Finish,
    alone: bool,
    context: &Context,
) -> Result<Decided<'a>, MoveRefusal> {
    if let Some(holder) = &mut loaded.job.holder {
        holder.started = holder.started.or(finish.detail.started);
    }
    let transition = decide_finish(&loaded.job, finish, loaded.plain_holder(), alone, context)?;
    let evidence = evidence_of(finish);
    let detail = if evidence == finish.detail.evidence {
        Cow::Borrowed(&finish.detail)
    } else {
        Cow::Owned(EndDetail { evidence, ..finish.detail.clone() })
    };
    let kind = event_of(finish, alone).kind();
    Ok(Decided {
        transition,
        kind,
        by: Cow::Borrowed(&finish.by),
        detail,
        ended_by: "",
        gates: Vec::new(),
    })
}

/// Checks that an attempt that reports progress still counts.
///
/// # Errors
/// Returns why the report is refused.
pub fn progress(
    loaded: &Loaded,
    progress: &Progress,
    context: &Context,
) -> Result<Moved, MoveRefusal> {
    let transition = confirm(loaded, &progress.fence, context)?;
    Ok(unmoved(loaded, &transition, context.now))
}

/// Describes a job that stays where it is.
fn unmoved(loaded: &Loaded, transition: &Transition, now: Timestamp) -> Moved {
    Moved {
        job: loaded.stored.id,
        class: loaded.stored.class,
        from: transition.from,
        state: transition.from,
        epoch: transition.epoch,
        attempt: transition.attempt,
        max_attempts: loaded.stored.rules.retry.max_attempts,
        due: None,
        outcome: None,
        ran: None,
        holder: match transition.hold {
            Hold::Keep(holder) | Hold::Take(holder) => holder.worker,
            Hold::None | Hold::Drop(_) => None,
        },
        dead_letter: false,
        workflow: loaded.stored.rules.workflow.map(|it| it.workflow),
        at: now,
    }
}
