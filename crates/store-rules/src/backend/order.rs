//! Orders of operators and producers.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_store::command::{ForgetDeadLetter, JobOrder, QueueOrder};
use outlast_store::reply::{MoveRefusal, Moved, NotFound, Reply};

use super::{Backend, carry_out};
use crate::apply::loaded::Loaded;
use crate::apply::order;
use crate::rules::{purged_event, queue_event};

pub(super) async fn order<B: Backend>(
    backend: &mut B,
    order: &JobOrder,
) -> Result<Result<Moved, MoveRefusal>, B::Error> {
    let moved = order_seen(backend, order).await?;
    Ok(moved.map_err(|Refused { refusal, .. }| refusal))
}

/// An order that was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// Why.
    pub(super) refusal: MoveRefusal,
    /// The job's state, if there is such a job.
    pub(super) present: Option<State>,
}

/// Carries out an order, or says how the job stands.
pub(super) async fn order_seen<B: Backend>(
    backend: &mut B,
    order: &JobOrder,
) -> Result<Result<Moved, Refused>, B::Error> {
    let Some(loaded) = find(backend, order.job, order.tenant.as_deref()).await? else {
        return Ok(Err(Refused { refusal: MoveRefusal::NotFound, present: None }));
    };
    match order::order(&loaded, order, &backend.context()) {
        Ok(decided) => carry_out(backend, &loaded, &decided).await.map(Ok),
        Err(refusal) => Ok(Err(Refused { refusal, present: Some(loaded.job.state) })),
    }
}

async fn find<B: Backend>(
    backend: &mut B,
    job: JobId,
    tenant: Option<&str>,
) -> Result<Option<Loaded>, B::Error> {
    Ok(backend.find(job).await?.filter(|loaded| order::may_see(tenant, loaded)))
}

pub(super) async fn forget_dead_letter<B: Backend>(
    backend: &mut B,
    order: &ForgetDeadLetter,
) -> Result<Result<(), NotFound>, B::Error> {
    let Some(loaded) = find(backend, order.job, order.tenant.as_deref()).await? else {
        return Ok(Err(NotFound));
    };
    if order.life.is_some_and(|life| life != loaded.job.life) {
        return Ok(Err(NotFound));
    }
    let Some(reason) = backend.take_dead_letter(loaded.seq).await? else {
        return Ok(Err(NotFound));
    };
    let now = backend.context().now;
    let outbox = backend.outbox();
    outbox.tally.letter_gone(loaded.stored.class, reason);
    outbox.events.push(purged_event(&loaded.stored, now, &order.by));
    Ok(Ok(()))
}

pub(super) fn queue<B: Backend>(backend: &mut B, order: &QueueOrder) -> Result<Reply, B::Error> {
    backend.write_pause(order)?;
    let event = queue_event(&order.queue, order.paused, backend.context().now, &order.by);
    backend.outbox().events.push(event);
    Ok(Reply::Done)
}
