//! What a store lost when a standby took the place of its primary.

use std::borrow::Cow;

use outlast_core::evidence::Evidence;
use outlast_core::id::Epoch;
use outlast_core::job::{Event as JobEvent, EventKind, Job, Refusal, State, Transition};
use outlast_core::time::Timestamp;
use outlast_store::command::{Adopt, EndDetail, Lost, LostFact, NoteLoss};
use outlast_store::event::{Event, EventName};
use outlast_store::reply::MoveRefusal;

use super::Decided;
use super::loaded::{KnownWorker, Loaded};
use crate::rules::Context;

/// Why an attempt is noted a second time.
pub const ADOPTED: &str = "the store lost that it began, and the server knew";

/// Decides whether a worker holds a job that the store believes to be claimable.
///
/// # Errors
/// Returns why it does not, or cannot.
pub fn adopt<'a>(
    loaded: &Loaded,
    adopt: &'a Adopt,
    worker: Option<&KnownWorker>,
    context: &Context,
) -> Result<Decided<'a>, MoveRefusal> {
    let current = loaded.job.epoch;
    if is_held(loaded, adopt) {
        return Ok(decided(
            adopt,
            EventKind::Start,
            context.decide(&loaded.job, JobEvent::Start, 0)?,
        ));
    }
    if adopt.epoch <= current {
        return Err(Refusal::Superseded { reported: adopt.epoch, current }.into());
    }
    if worker.is_none_or(|worker| !worker.standing.holds_lease()) {
        return Err(Refusal::NotHolder { current }.into());
    }
    let event = JobEvent::Claim { worker: Some(adopt.worker), starts: true };
    let claimed = context.decide(&as_claimable(&loaded.job), event, 0)?;
    let from = loaded.job.state;
    let claimed = Transition { from, next_epoch: adopt.epoch, ..claimed };
    Ok(decided(adopt, EventKind::Claim, claimed))
}

/// Returns a job that waits for a time or an activation as it was when it was claimed.
#[must_use]
pub fn as_claimable(job: &Job) -> Job {
    let waits = matches!(job.state, State::Scheduled | State::Retryable | State::Pending);
    Job { state: if waits { State::Available } else { job.state }, ..job.clone() }
}

/// Whether the worker holds this attempt, as far as the store knows.
fn is_held(loaded: &Loaded, adopt: &Adopt) -> bool {
    let holder = loaded.attempt().and_then(|attempt| attempt.worker);
    loaded.job.epoch == adopt.epoch && holder == Some(adopt.worker)
}

fn decided(adopt: &Adopt, kind: EventKind, transition: Transition) -> Decided<'_> {
    let evidence = Evidence::from(ADOPTED);
    let detail = Cow::Owned(EndDetail { evidence, ..EndDetail::default() });
    Decided {
        transition,
        kind,
        by: Cow::Borrowed(&adopt.by),
        detail,
        ended_by: "",
        gates: Vec::new(),
    }
}

/// Returns the events that say what was lost.
pub fn events<'a>(note: &'a NoteLoss, at: Timestamp) -> impl Iterator<Item = Event> + 'a {
    let event = move |kind, evidence: &str| Event::new(at, kind, &note.by, evidence);
    let summary = (!note.summary.is_empty()).then_some(note.summary.as_str());
    let summary = summary.map(move |words| event(EventName::StoreFailedOver, words));
    let each = note.lost.iter().map(move |Lost { job, what }| {
        let (kind, words, epoch, worker): (_, _, Option<Epoch>, _) = match *what {
            LostFact::Job => (
                EventName::StoreJobLost,
                "it was acknowledged and is not stored any more: enqueue it again",
                None,
                None,
            ),
            LostFact::Order => (
                EventName::StoreOrderLost,
                "it was cancelled, retried or moved by another order, and the store lost that: order \
                 it again",
                None,
                None,
            ),
            LostFact::Claim { epoch, worker } => (
                EventName::StoreClaimLost,
                "it was given out, and the store lost that: it may run a second time",
                Some(epoch),
                worker,
            ),
            LostFact::Result { epoch, worker } => (
                EventName::StoreResultLost,
                "an attempt has ended, and the store lost how: it counts as lost",
                Some(epoch),
                worker,
            ),
        };
        Event { job: Some(*job), epoch, worker, ..event(kind, words) }
    });
    summary.into_iter().chain(each)
}
