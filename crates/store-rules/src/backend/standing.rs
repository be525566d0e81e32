//! Orders to all workers that are chosen, and to those that start later.

use std::collections::BTreeMap;

use outlast_core::id::WorkerId;
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::{Phase, Standing};
use outlast_core::worker::order::{
    self, GivenOrder, HEIR_TAKES_ORDERS, OrderChange, OrderRefusal, StandingOrder, WorkerOrder,
};
use outlast_store::command::{OrderWorkers, WorkerMove, ordered_by};
use outlast_store::reply::WorkersOrdered;

use super::{Backend, StandingChange, WorkerChange};
use crate::apply::loaded::KnownWorker;
use crate::apply::worker;
use crate::rules::standing_order_event;

/// The order stands and reaches those who live in one transaction: a worker that registers
/// meanwhile comes before it or after it. Those that have died a short time ago are ordered, too, for
/// the ones that follow them.
pub(super) async fn order<B: Backend>(
    b: &mut B,
    given: &OrderWorkers,
) -> Result<Result<WorkersOrdered, OrderRefusal>, B::Error> {
    let before = b.standing_orders().await?;
    let change = match order::change(&before, &given.selector, given.order) {
        Ok(change) => change,
        Err(refusal) => return Ok(Err(refusal)),
    };
    write(b, given, change)?;
    let stand = b.standing_orders().await?;
    let now = b.context().now;
    let (mut reached, mut kept) = (Vec::new(), Vec::new());
    let (mut ordered, mut moved) = (Vec::new(), BTreeMap::<Standing, Vec<WorkerId>>::new());
    for (id, found, other) in chosen(b, given, &stand, now).await? {
        if let Some(other) = other {
            if found.standing.holds_lease() && found.standing.phase == Phase::Quiet {
                kept.push((id, other.selector.clone()));
            }
            continue;
        }
        // One that drains goes on draining. None of these events takes a job from a worker.
        let step = WorkerMove::ordered(id, given.order, &given.by);
        let Ok(after) = worker::move_worker(Some(&found), &step, now, b.outbox()) else { continue };
        if after.changed {
            moved.entry(after.standing).or_default().push(id);
        }
        if after.given.is_some() {
            ordered.push(id);
        }
        if found.standing.holds_lease() || worker::awaits_heir(&found, now) {
            reached.push(id);
        }
    }
    let evidence = ordered_by(&given.by);
    for (standing, workers) in &moved {
        b.write_workers(workers, WorkerChange::Moved(*standing, &evidence))?;
    }
    b.write_workers(&ordered, WorkerChange::Ordered(GivenOrder { order: given.order, at: now }))?;
    Ok(Ok(WorkersOrdered { change, reached, kept }))
}

/// The workers that an order is for, each with the order that keeps it from resuming, if this is to
/// resume.
async fn chosen<'s, B: Backend>(
    b: &mut B,
    given: &OrderWorkers,
    stand: &'s [StandingOrder],
    now: Timestamp,
) -> Result<Vec<(WorkerId, KnownWorker, Option<&'s StandingOrder>)>, B::Error> {
    let mut all = Vec::new();
    let since = Timestamp(now.0.saturating_sub_unsigned(HEIR_TAKES_ORDERS.0));
    for (id, labels) in b.living_or_changed(since).await? {
        if let Some(found) = b.worker(id)? {
            all.push((id, found, labels));
        }
    }
    // One that was followed may still be taken for alive.
    let is_for = |(_, found, labels): &(WorkerId, KnownWorker, _)| {
        found.followed_by.is_none()
            && (found.standing.holds_lease() || worker::takes_orders_for_heir(found, now))
            && given.selector.matches_labels(labels)
    };
    all.retain(is_for);
    let resumes = given.order == WorkerOrder::Resume;
    let other = |labels: &_| if resumes { order::in_force(stand, labels) } else { None };
    let with_other = all.into_iter().map(|(id, found, labels)| (id, found, other(&labels)));
    Ok(with_other.collect())
}

fn write<B: Backend>(b: &mut B, given: &OrderWorkers, change: OrderChange) -> Result<(), B::Error> {
    let now = b.context().now;
    match change {
        OrderChange::Nothing => return Ok(()),
        OrderChange::Stand => b.write_standing_order(StandingChange::Stands(&StandingOrder {
            selector: given.selector.clone(),
            order: given.order,
            set_by: given.by.clone(),
            set_at: now,
        }))?,
        OrderChange::LiftOne => {
            b.write_standing_order(StandingChange::Lifted(&given.selector))?;
        }
        OrderChange::LiftAll => b.write_standing_order(StandingChange::AllLifted)?,
    }
    let event = standing_order_event(given.order, &given.selector, now, &given.by);
    b.outbox().events.push(event);
    Ok(())
}
