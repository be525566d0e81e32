//! Workers: leases, and what happens to the jobs of a worker that is gone.

use std::borrow::Cow;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::WorkerId;
use outlast_core::job::{Event as JobEvent, EventKind, Hold, Outcome, Overlap, Transition};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::{
    Liveness, Phase, Standing, WorkerEvent, WorkerRefusal, decide,
};
use outlast_core::worker::order::{
    GivenOrder, HEIR_COMES_WITHIN, HEIR_TAKES_ORDERS, StandingOrder, WorkerOrder, first_phase,
};
use outlast_store::StoreError;
use outlast_store::command::{
    Attach, EndDetail, Lapse, LapseScope, Registration, ReportHealth, WorkerMove,
};
use outlast_store::event::{Event, EventName};
use outlast_store::reply::{RenewRefusal, WorkerMoveRefusal};

use super::loaded::{KnownWorker, Loaded};
use super::{Decided, Outbox};
use crate::rules::{Context, Leave, lost_error, worker_event, worker_event_name};

/// What was said of a worker before it registers.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// As it is stored, if it is.
    pub found: Option<&'a KnownWorker>,
    /// The identity that the same process had before, if it is known, and what it was ordered.
    pub previous: Option<(WorkerId, Option<GivenOrder>)>,
    /// The order in force that holds for workers to come.
    pub order: Option<&'a StandingOrder>,
}

/// Decides how a worker stands after it has registered. A registration is safe to repeat.
///
/// # Errors
/// Returns why it may not register.
pub fn register(
    before: Before<'_>,
    registration: &Registration,
    now: Timestamp,
    outbox: &mut Outbox,
) -> Result<KnownWorker, WorkerRefusal> {
    let lease_until = now.after(registration.lease);
    let given = before.previous.and_then(|(_, given)| given);
    let phase = first_phase(given, before.order);
    let known = match before.found {
        None => KnownWorker {
            standing: Standing { phase, ..Standing::NEW },
            session: 0,
            attachment: 0,
            renewal: 1,
            lease_until,
            plain: registration.plain_id.is_some(),
            unhealthy: false,
            given,
            previous: before.previous.map(|(id, _)| id),
            followed_by: None,
            ended_by: None,
            updated: now,
        },
        Some(found) => KnownWorker {
            standing: decide(found.standing, WorkerEvent::Beat)?,
            renewal: found.renewal + 1,
            lease_until,
            plain: registration.plain_id.is_some(),
            updated: now,
            ..*found
        },
    };
    let id = registration.id;
    let by = format!("worker {id}");
    let name = EventName::WorkerRegistered;
    outbox.events.push(worker_event(id, name, now, &by, registration.name.as_str()));
    if before.found.is_none() {
        outbox.events.extend(first_phase_event(id, known.standing.phase, before.order, now));
    }
    Ok(known)
}

/// Returns the event of a worker that does not take work from its beginning, with the reason.
#[must_use]
pub fn first_phase_event(
    worker: WorkerId,
    phase: Phase,
    order: Option<&StandingOrder>,
    now: Timestamp,
) -> Option<Event> {
    let kind = match phase {
        Phase::Running => return None,
        Phase::Quiet => EventName::WorkerQuiet,
        Phase::Draining => EventName::WorkerDraining,
    };
    let (by, words) = match order.filter(|_| phase == Phase::Quiet) {
        Some(order) => (
            order.set_by.clone(),
            format!("{} ordered for workers with {}", order.order.as_str(), order.selector),
        ),
        None => (format!("worker {worker}"), "ordered before it registered again".to_owned()),
    };
    Some(worker_event(worker, kind, now, &by, words))
}

/// Renews a lease: one row, whatever the worker runs.
///
/// # Errors
/// Returns why it is not renewed.
pub fn renew(
    found: Option<&KnownWorker>,
    lease: Span,
    now: Timestamp,
) -> Result<KnownWorker, RenewRefusal> {
    beat(found, WorkerEvent::Beat, lease, now)
}

/// Renews the lease of a worker that attaches, under a new session.
///
/// # Errors
/// Returns why it may not attach.
pub fn attach(
    found: Option<&KnownWorker>,
    attach: &Attach,
    now: Timestamp,
    outbox: &mut Outbox,
) -> Result<KnownWorker, RenewRefusal> {
    if let Some(found) = found
        && attach.attachment < found.attachment
        && decide(found.standing, WorkerEvent::Attach).is_ok()
    {
        let current = found.attachment;
        return Err(RenewRefusal::Abandoned { said: attach.attachment, current });
    }
    let known = beat(found, WorkerEvent::Attach, attach.lease, now)?;
    let by = format!("worker {}", attach.worker);
    outbox.events.push(worker_event(attach.worker, EventName::WorkerAttached, now, &by, ""));
    Ok(KnownWorker { session: known.session + 1, attachment: attach.attachment, ..known })
}

fn beat(
    found: Option<&KnownWorker>,
    event: WorkerEvent,
    lease: Span,
    now: Timestamp,
) -> Result<KnownWorker, RenewRefusal> {
    let found = found.ok_or(RenewRefusal::UnknownWorker)?;
    Ok(KnownWorker {
        standing: decide(found.standing, event)?,
        renewal: found.renewal + 1,
        lease_until: now.after(lease),
        ..*found
    })
}

/// Decides whether a worker's word about its health is kept; one that has ended has none.
#[must_use]
pub fn health(
    found: Option<&KnownWorker>,
    said: &ReportHealth,
    now: Timestamp,
    outbox: &mut Outbox,
) -> bool {
    let Some(found) = found.filter(|found| found.standing.holds_lease()) else { return false };
    let by = format!("worker {}", said.worker);
    let event = match (&said.unhealthy, found.unhealthy) {
        (Some(reason), false) => Some((EventName::WorkerUnhealthy, reason.as_str())),
        (None, true) => Some((EventName::WorkerHealthy, "")),
        (Some(_), true) | (None, false) => None,
    };
    outbox.events.extend(event.map(|(name, why)| worker_event(said.worker, name, now, &by, why)));
    true
}

/// What an order or a signal makes of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// How it stands afterwards.
    pub standing: Standing,
    /// Whether that is written.
    pub changed: bool,
    /// The order that is written down, for the worker that may follow.
    pub given: Option<GivenOrder>,
    /// What becomes of the jobs it holds, if they are taken from it.
    pub release: Option<Release<'a>>,
}

/// Decides what an order or a signal does to a worker.
///
/// # Errors
/// Returns why it stays as it is.
pub fn move_worker<'a>(
    found: Option<&KnownWorker>,
    step: &'a WorkerMove,
    now: Timestamp,
    outbox: &mut Outbox,
) -> Result<Moved<'a>, WorkerMoveRefusal> {
    let found = found.ok_or(WorkerMoveRefusal::UnknownWorker)?;
    if step.session.is_some_and(|session| session != found.session) {
        return Err(WorkerMoveRefusal::StaleSession { current: found.session });
    }
    let given = step.ordered.map(|order| GivenOrder { order, at: now });
    if let Some(given) = given {
        if let Some(heir) = found.followed_by {
            return Err(WorkerMoveRefusal::Followed(heir));
        }
        if takes_orders_for_heir(found, now) {
            return order_to_heir(found, given, step, outbox);
        }
    }
    let standing = match decide(found.standing, step.event)? {
        // Its word was sent before the order reached it.
        _ if lifts_an_order(found, step) => found.standing,
        standing => standing,
    };
    let changed = standing != found.standing;
    if changed && let Some(name) = worker_event_name(step.event) {
        let event = worker_event(step.worker, name, now, &step.by, &step.evidence);
        outbox.events.push(event);
    }
    let release = Release {
        scope: LapseScope::Everything,
        // A worker that said goodbye was not killed: no job is suspected.
        mass: step.event == WorkerEvent::Goodbye,
        by: &step.by,
        evidence: &step.evidence,
        leave: Leave::Goodbye,
    };
    Ok(Moved { standing, changed, given, release: (!standing.holds_lease()).then_some(release) })
}

/// Whether a worker would lift by itself what an operator has ordered.
fn lifts_an_order(found: &KnownWorker, step: &WorkerMove) -> bool {
    step.event == WorkerEvent::Resume
        && step.ordered.is_none()
        && found.given.is_some_and(|given| given.order == WorkerOrder::Quiet)
}

/// Whether a worker has ended, but not its process, or not for certain: the same process, or the next
/// engine of its guardian, may follow under another identity. It takes orders for that one.
#[must_use]
pub fn takes_orders_for_heir(found: &KnownWorker, now: Timestamp) -> bool {
    let of_late = now <= found.updated.after(HEIR_TAKES_ORDERS);
    match found.standing.liveness {
        Liveness::Live | Liveness::Suspect => false,
        Liveness::Lapsed => of_late || found.given.is_some(),
        Liveness::Gone => of_late && found.ended_by == Some(EvidenceCode::EngineKilled),
    }
}

/// Whether another identity of the same process is likely to follow soon: who waits for a worker waits
/// for that one.
#[must_use]
pub fn awaits_heir(found: &KnownWorker, now: Timestamp) -> bool {
    takes_orders_for_heir(found, now)
        && found.ended_by != Some(EvidenceCode::WorkerKilled)
        && now <= found.updated.after(HEIR_COMES_WITHIN)
}

/// Keeps an order to a worker whose process goes on, for the worker that follows it.
fn order_to_heir<'a>(
    found: &KnownWorker,
    given: GivenOrder,
    step: &WorkerMove,
    outbox: &mut Outbox,
) -> Result<Moved<'a>, WorkerMoveRefusal> {
    let before = found.given.map(|given| given.order);
    if before == Some(WorkerOrder::Drain) && given.order != WorkerOrder::Drain {
        return Err(WorkerRefusal::Draining.into());
    }
    // The same again is no news: when it was given first says whether the worker had ended by then.
    let given = (before != Some(given.order)).then_some(given);
    if let Some(given) = given
        && let Some(name) = worker_event_name(step.event)
    {
        let event = worker_event(step.worker, name, given.at, &step.by, &step.evidence);
        outbox.events.push(event);
    }
    Ok(Moved { standing: found.standing, changed: false, given, release: None })
}

/// Whether [`lapse`] must know how many attempts the worker holds.
#[must_use]
pub fn lapse_needs_count(found: Option<&KnownWorker>, lapse: &Lapse) -> bool {
    lapse.scope == LapseScope::Everything
        && found.is_some_and(|found| found.standing.liveness == Liveness::Lapsed)
}

/// Decides whether a worker's lease has ended. `in_flight` is how many attempts it holds, if
/// [`lapse_needs_count`] asks for it: the lapse of a worker that has lapsed is repeated while
/// it still holds any.
///
/// # Errors
/// Returns why the worker keeps what it holds.
pub fn lapse<'a>(
    found: Option<&KnownWorker>,
    lapse: &'a Lapse,
    in_flight: u32,
    now: Timestamp,
    outbox: &mut Outbox,
) -> Result<Moved<'a>, WorkerMoveRefusal> {
    let found = found.ok_or(WorkerMoveRefusal::UnknownWorker)?;
    if found.renewal != lapse.renewal {
        return Err(WorkerMoveRefusal::Renewed);
    }
    let again = lapse.scope == LapseScope::Everything && in_flight > 0;
    let standing = match found.standing.liveness {
        Liveness::Gone => return Err(WorkerRefusal::Gone.into()),
        Liveness::Lapsed if again => found.standing,
        Liveness::Lapsed => return Err(WorkerRefusal::Lapsed.into()),
        Liveness::Live | Liveness::Suspect => decide(found.standing, WorkerEvent::Lapse)?,
    };
    let due = match lapse.scope {
        LapseScope::OverlapAllowed => found.standing.liveness == Liveness::Suspect,
        LapseScope::Everything => now >= found.lease_until,
    };
    if !due {
        return Err(WorkerMoveRefusal::Renewed);
    }
    let changed = standing != found.standing;
    if changed {
        let name = EventName::WorkerLapsed;
        outbox.events.push(worker_event(lapse.worker, name, now, &lapse.by, &lapse.evidence));
    }
    let release = Release {
        scope: lapse.scope,
        mass: lapse.mass,
        by: &lapse.by,
        evidence: &lapse.evidence,
        leave: Leave::Silence,
    };
    Ok(Moved { standing, changed, given: None, release: Some(release) })
}

/// Why and how far jobs are taken from a worker.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// Which of its jobs move.
    scope: LapseScope,
    /// Whether no job is suspected.
    mass: bool,
    /// Who does it.
    by: &'a str,
    /// On what evidence.
    evidence: &'a Evidence,
    /// Why what it holds as a plain worker is taken back.
    leave: Leave,
}

impl<'a> Release<'a> {
    /// Decides what happens to a job that the native worker holds, the `nth` of them; `alone`
    /// says whether it holds nothing else. `None` when the worker keeps the job.
    ///
    /// # Errors
    /// Returns what is wrong with the store, when the rules refuse to take a held job back.
    pub fn in_flight(
        &self,
        loaded: &Loaded,
        alone: bool,
        nth: usize,
        context: &Context,
    ) -> Result<Option<Decided<'a>>, StoreError> {
        let keeps = self.scope == LapseScope::OverlapAllowed
            && loaded.job.rules.overlap == Overlap::Forbidden;
        if keeps {
            return Ok(None);
        }
        let event = JobEvent::Lose { alone, mass: self.mass };
        let refused = |refusal| StoreError::Corrupt(format!("held job: {refusal}"));
        let transition = context.decide(&loaded.job, event, nth).map_err(refused)?;
        let lost = transition.hold == Hold::Drop(Outcome::Lost);
        let detail = EndDetail {
            error: lost.then(|| lost_error(self.evidence)),
            evidence: self.evidence.clone(),
            ..EndDetail::default()
        };
        Ok(Some(self.decided(transition, EventKind::Lose, detail)))
    }

    /// Decides what happens to a job of a plain worker that left, the `nth` of
    /// the command; `None` when nothing does.
    #[must_use]
    pub fn plain(&self, loaded: &Loaded, nth: usize, context: &Context) -> Option<Decided<'a>> {
        let event = self.leave.event();
        let transition = context.decide(&loaded.job, event, nth).ok()?;
        Some(self.decided(transition, event.kind(), self.leave.detail(self.evidence)))
    }

    fn decided(&self, transition: Transition, kind: EventKind, detail: EndDetail) -> Decided<'a> {
        Decided {
            transition,
            kind,
            by: Cow::Borrowed(self.by),
            detail: Cow::Owned(detail),
            ended_by: "",
            gates: Vec::new(),
        }
    }
}

/// Whether a worker may be deleted: it holds neither a lease nor a job.
#[must_use]
pub fn may_forget(found: &KnownWorker, in_flight: u32) -> bool {
    !found.standing.holds_lease() && in_flight == 0
}

/// The columns that a worker replaces when it registers again.
const REPLACED: [&str; 15] = [
    "name",
    "status",
    "state",
    "phase",
    "liveness",
    "concurrency",
    "queues",
    "runtimes",
    "labels",
    "lease_ms",
    "lease_until_ms",
    "last_heartbeat_ms",
    "updated_ms",
    "about",
    "plain_id",
];

/// Returns what `on conflict do update` sets when a worker registers again, without the number of
/// its renewal.
#[must_use]
pub fn replaced_columns() -> String {
    REPLACED.map(|name| format!("{name} = excluded.{name}")).join(", ")
}

/// Returns the status and state that the table `worker` shows.
#[must_use]
pub const fn standing_words(standing: Standing) -> (&'static str, &'static str) {
    (if standing.is_active() { "active" } else { "inactive" }, standing.state())
}
