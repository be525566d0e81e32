//! Setting and removing limits, and correcting what their gates count.

use outlast_core::leadership::LeadershipRefusal;
use outlast_store::command::{Recount, RemoveLimit, SetLimit};
use outlast_store::event::EventName;
use outlast_store::limit::{LimitChange, LimitRefusal, Miscount};

use super::{Backend, FoundLimit, leadership};
use crate::apply::limit;
use crate::rules::{limit_event, recount_event};

type Changed = Result<LimitChange, LimitRefusal>;

pub(super) async fn set<B: Backend>(b: &mut B, order: &SetLimit) -> Result<Changed, B::Error> {
    let FoundLimit { record: found, count } = b.find_limit(&order.limit.name).await?;
    let changed = limit::set(found.as_ref(), count, order);
    if matches!(changed, Ok(LimitChange::Created | LimitChange::Replaced)) {
        b.write_limit(order)?;
        let (name, now) = (&order.limit.name, b.context().now);
        let event = limit_event(name, EventName::LimitSet, now, &order.by);
        b.outbox().events.push(event);
    }
    Ok(changed)
}

pub(super) async fn remove<B: Backend>(
    b: &mut B,
    order: &RemoveLimit,
) -> Result<Changed, B::Error> {
    let found = b.find_limit(&order.name).await?.record;
    let changed = limit::remove(found.as_ref(), order);
    if matches!(changed, Ok(LimitChange::Removed)) {
        b.delete_limit(&order.name)?;
        let now = b.context().now;
        let event = limit_event(&order.name, EventName::LimitRemoved, now, &order.by);
        b.outbox().events.push(event);
    }
    Ok(changed)
}

pub(super) async fn recount<B: Backend>(
    b: &mut B,
    order: &Recount,
) -> Result<Result<Vec<Miscount>, LeadershipRefusal>, B::Error> {
    if let Err(refusal) = leadership::check(b, &order.leadership).await? {
        return Ok(Err(refusal));
    }
    let wrong = b.recount(&order.gates).await?;
    let now = b.context().now;
    let outbox = b.outbox();
    for miscount in &wrong {
        outbox.gates.corrected(miscount);
        outbox.events.push(recount_event(miscount, now));
    }
    Ok(Ok(wrong))
}
