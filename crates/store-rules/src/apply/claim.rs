//! Taking jobs.
//!
//! - here: who may claim, and what a taken job becomes
//! - [`driver`]: the order of steps of a claim by limits; [`plan`], [`first_pass`], [`lane_scan`]: among
//!   which jobs it looks, [`scan_budget`]: how far
//! - [`lane`]: what limits tell apart; [`gates`], [`selection`]: which jobs these let start;
//!   [`gate_changes`]: what a batch changes of what they count
//! - [`lane_cache`]: what is remembered of lanes from batch to batch; [`fair`]: whose turn it is

pub mod driver;
pub mod fair;
pub mod first_pass;
pub mod gate_changes;
pub mod gates;
pub mod lane;
pub mod lane_cache;
pub mod lane_scan;
pub mod plan;
pub mod scan_budget;
pub mod selection;

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::evidence::Evidence;
use outlast_core::id::{Epoch, WorkerId};
use outlast_core::job::{Event as JobEvent, EventKind, Hold, Holder, Job, State, Transition};
use outlast_core::limit::GateId;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Standing;
use outlast_store::command::{Claim, Claimant, ClassId, Payload};
use outlast_store::record::StoredJob;
use outlast_store::reply::{ClaimRefusal, Claimed};
use outlast_store::tally::Before;

use super::Outbox;
use super::loaded::{ActiveAttempt, KnownWorker, Loaded, Location};
use super::step::{Counters, ReadyRow};
use crate::rules::{Context, Facts, events_of};

/// Decides whether a native worker may claim.
///
/// # Errors
/// Returns why it may not.
pub fn may_claim(found: Option<&KnownWorker>, session: u64) -> Result<(), ClaimRefusal> {
    let found = found.ok_or(ClaimRefusal::UnknownWorker)?;
    if found.session != session {
        return Err(ClaimRefusal::StaleSession { current: found.session });
    }
    if !found.standing.is_active() {
        return Err(ClaimRefusal::NotActive(found.standing));
    }
    Ok(())
}

/// Decides whether a plain worker may claim. One that never sent a heartbeat has no standing.
///
/// # Errors
/// Returns why it may not.
pub fn plain_may_claim(standing: Option<Standing>) -> Result<(), ClaimRefusal> {
    match standing {
        Some(standing) if !standing.is_active() => Err(ClaimRefusal::NotActive(standing)),
        Some(_) | None => Ok(()),
    }
}

/// A claimable job as it was read.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its number.
    pub seq: i64,
    /// The class it can be claimed in.
    pub class: ClassId,
    /// Its rank there.
    pub rank: i64,
    /// Since when it has been claimable.
    pub since: Timestamp,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its life.
    pub life: NonZeroU32,
    /// Budgets used up.
    pub spent: Spent,
    /// Whether it must run alone.
    pub isolated: bool,
    /// Its immutable part, with the payload.
    pub stored: Arc<StoredJob>,
    /// What an earlier attempt left.
    pub checkpoint: Option<Vec<u8>>,
    /// The gates that it passes.
    pub gates: Vec<GateId>,
}

impl Candidate {
    /// Returns the row that the candidate was read from.
    #[must_use]
    pub fn row(&self) -> ReadyRow {
        ReadyRow {
            class: self.class,
            rank: self.rank,
            lane: self.stored.keys.lane(),
            counters: Counters { epoch: self.epoch, life: self.life, spent: self.spent },
            since: self.since,
            scheduled_timeout: self.stored.scheduled_timeout,
            expires: self.stored.rules.expires_at,
        }
    }
}

/// A job that was taken, and the row of its attempt.
#[derive(Debug)]
pub struct Taken {
    /// What the claimant gets.
    pub claimed: Claimed,
    /// The row.
    pub active: ActiveRow,
    /// The job as it is from now on, without its payload.
    job: Job,
}

/// The row of a new attempt.
#[derive(Clone, Debug)]
pub struct ActiveRow {
    /// The job's number.
    pub seq: i64,
    /// Epoch and budgets.
    pub counters: Counters,
    /// Whether it must run alone.
    pub isolated: bool,
    /// The native worker that holds it.
    pub worker: Option<WorkerId>,
    /// The id that a plain holder gave itself.
    pub plain: Option<String>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When it started: at once, for plain holders.
    pub started: Option<Timestamp>,
    /// How long it is invisible to others, for plain holders.
    pub visibility: Option<Span>,
    /// Until when that is.
    pub visible_until: Option<Timestamp>,
    /// When its time limit ends, for plain holders: native workers watch theirs themselves.
    pub deadline: Option<Timestamp>,
    /// The gates that count it.
    pub gates: Vec<GateId>,
}

/// Gives a job to a claimant; `Err` gives the candidate back when the claim avoids it, or the rules do
/// not give it out.
pub fn take(
    candidate: Candidate,
    claim: &Claim,
    context: &Context,
    outbox: &mut Outbox,
) -> Result<Taken, Candidate> {
    let claimant = &claim.claimant;
    if claim.avoids(candidate.stored.id) {
        return Err(candidate);
    }
    let (worker, starts) = match claimant {
        Claimant::Native { worker, .. } => (Some(*worker), false),
        Claimant::Plain { .. } => (None, true),
    };
    let job = Job {
        state: State::Available,
        epoch: candidate.epoch,
        life: candidate.life,
        spent: candidate.spent,
        isolated: candidate.isolated,
        holder: None,
        rules: candidate.stored.rules.clone(),
    };
    let event = JobEvent::Claim { worker, starts };
    let Ok(transition) = context.decide(&job, event, 0) else { return Err(candidate) };
    let Hold::Take(holder) = transition.hold else { return Err(candidate) };
    outbox.gates.charge(&candidate.gates);
    let before = Before {
        class: candidate.class,
        state: State::Available,
        claimable_since: Some(candidate.since),
        started: false,
        letter: None,
    };
    outbox.tally.moved(&before, candidate.stored.class, &transition, context.now);
    log(&candidate.stored, claimant, &transition, context.now, outbox);
    let active = active(&candidate, claimant, holder, transition.next_epoch, context.now);
    let job =
        Job { state: State::Active, epoch: transition.next_epoch, holder: Some(holder), ..job };
    let claimed = Claimed {
        job: candidate.stored,
        epoch: transition.next_epoch,
        attempt: transition.attempt,
        isolated: candidate.isolated,
        claimed: context.now,
        visible_until: active.visible_until,
        checkpoint: candidate.checkpoint,
    };
    Ok(Taken { claimed, active, job })
}

impl Taken {
    /// Returns the job as a later load would find it, if a native worker holds it.
    #[must_use]
    pub fn loaded(&self) -> Option<Loaded> {
        let worker = self.active.worker?;
        let attempt = ActiveAttempt {
            worker: Some(worker),
            plain: None,
            claimed: self.active.claimed,
            started: self.active.started,
            visibility: None,
            cancelled: false,
            pack_digest: None,
            gates: self.active.gates.clone(),
        };
        let stored =
            StoredJob { payload: Payload::default(), ..StoredJob::clone(&self.claimed.job) };
        Some(Loaded {
            seq: self.active.seq,
            stored: Arc::new(stored),
            job: self.job.clone(),
            location: Location::Active(attempt),
            checkpoint: self.claimed.checkpoint.is_some(),
        })
    }
}

fn active(
    candidate: &Candidate,
    claimant: &Claimant,
    holder: Holder,
    epoch: Epoch,
    now: Timestamp,
) -> ActiveRow {
    let (plain, visibility) = match claimant {
        Claimant::Native { .. } => (None, None),
        Claimant::Plain { worker, visibility } => {
            (worker.clone(), Some(candidate.stored.visibility.unwrap_or(*visibility)))
        }
    };
    ActiveRow {
        seq: candidate.seq,
        counters: Counters { epoch, life: candidate.life, spent: candidate.spent },
        isolated: candidate.isolated,
        worker: holder.worker,
        plain,
        claimed: now,
        started: holder.started,
        visibility,
        visible_until: visibility.map(|span| now.after(span)),
        deadline: visibility.and(candidate.stored.timeout).map(|limit| now.after(limit)),
        gates: candidate.gates.clone(),
    }
}

fn log(
    stored: &StoredJob,
    claimant: &Claimant,
    transition: &Transition,
    now: Timestamp,
    outbox: &mut Outbox,
) {
    let (worker, by) = match claimant {
        Claimant::Native { worker, .. } => (Some(*worker), format!("worker {worker}")),
        Claimant::Plain { worker, .. } => (None, worker.clone().unwrap_or_default()),
    };
    let facts = Facts {
        job: stored,
        kind: EventKind::Claim,
        worker,
        has_started: false,
        began: None,
        at: now,
        by: &by,
        evidence: &Evidence::default(),
    };
    outbox.events.extend(events_of(&facts, transition));
}
