//! Setting and removing limits.

use super::Backend;
use crate::apply::limit;
use crate::command::{RemoveLimit, SetLimit};
use crate::event::EventName;
use crate::limit::{LimitChange, LimitRefusal};
use crate::rules::limit_event;

type Changed = Result<LimitChange, LimitRefusal>;

pub(super) async fn set<B: Backend>(b: &mut B, order: &SetLimit) -> Result<Changed, B::Error> {
    let (found, count) = b.find_limit(&order.limit.name).await?;
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
    let (found, _) = b.find_limit(&order.name).await?;
    let changed = limit::remove(found.as_ref(), order);
    if matches!(changed, Ok(LimitChange::Removed)) {
        b.delete_limit(&order.name)?;
        let now = b.context().now;
        let event = limit_event(&order.name, EventName::LimitRemoved, now, &order.by);
        b.outbox().events.push(event);
    }
    Ok(changed)
}
