//! Orders to all workers that are chosen, and to those that start later.

use outlast_core::worker::liveness::Phase;
use outlast_core::worker::order::{self, OrderChange, OrderRefusal, StandingOrder, WorkerOrder};
use outlast_store::command::{OrderWorkers, WorkerMove};
use outlast_store::reply::WorkersOrdered;

use super::{Backend, StandingChange, WorkerChange};
use crate::apply::worker;
use crate::rules::standing_order_event;

/// The order stands and reaches those who live in one transaction: a worker that registers
/// meanwhile comes before it or after it.
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
    let (mut reached, mut kept) = (Vec::new(), Vec::new());
    for (id, labels) in b.living().await? {
        if !given.selector.matches_labels(&labels) {
            continue;
        }
        let found = b.worker(id)?;
        let other = (given.order == WorkerOrder::Resume).then(|| order::in_force(&stand, &labels));
        if let Some(other) = other.flatten() {
            if found.is_some_and(|found| found.standing.phase == Phase::Quiet) {
                kept.push((id, other.selector.clone()));
            }
            continue;
        }
        let step = WorkerMove::ordered(id, given.order, &given.by);
        let now = b.context().now;
        // One that drains goes on draining. None of these events takes a job from a worker.
        let Ok(moved) = worker::move_worker(found.as_ref(), &step, now, b.outbox()) else {
            continue;
        };
        if moved.changed {
            b.write_worker(id, WorkerChange::Moved(moved.standing, &step.evidence))?;
        }
        reached.push(id);
    }
    Ok(Ok(WorkersOrdered { change, reached, kept }))
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
