//! Orders of operators and producers.

use outlast_core::job::Event as JobEvent;

use super::{Backend, carry_out};
use crate::StoreError;
use crate::apply::loaded::Loaded;
use crate::apply::order;
use crate::command::{Command, JobOrder, QueueOrder};
use crate::reply::{MoveRefusal, Moved, Reply};
use crate::rules::{purged_event, queue_event};

/// Executes an order about a job; the command says which one.
pub(super) async fn order<B: Backend>(
    backend: &mut B,
    command: &Command,
    order: &JobOrder,
) -> Result<Result<Moved, MoveRefusal>, B::Error> {
    let event = match command {
        Command::Cancel(_) => JobEvent::Cancel,
        Command::Activate(_) => JobEvent::Activate,
        Command::RunNow(_) => JobEvent::Due,
        Command::Replay(_) => JobEvent::Replay,
        _ => return Err(StoreError::Rejected("no order about a job".into()).into()),
    };
    let Some(loaded) = find(backend, order).await? else { return Ok(Err(MoveRefusal::NotFound)) };
    match order::order(&loaded, order, event, &backend.context()) {
        Ok(decided) => carry_out(backend, &loaded, &decided).await.map(Ok),
        Err(refusal) => Ok(Err(refusal)),
    }
}

async fn find<B: Backend>(backend: &mut B, order: &JobOrder) -> Result<Option<Loaded>, B::Error> {
    Ok(backend.find(order.job).await?.filter(|loaded| order::may_see(order, loaded)))
}

pub(super) async fn forget_dead_letter<B: Backend>(
    backend: &mut B,
    order: &JobOrder,
) -> Result<Reply, B::Error> {
    let Some(loaded) = find(backend, order).await? else { return Ok(Reply::NotFound) };
    let Some(reason) = backend.take_dead_letter(loaded.seq).await? else {
        return Ok(Reply::NotFound);
    };
    let now = backend.context().now;
    let outbox = backend.outbox();
    outbox.tally.letter_gone(loaded.stored.class, reason);
    outbox.events.push(purged_event(&loaded.stored, now, &order.by));
    Ok(Reply::Done)
}

pub(super) fn queue<B: Backend>(backend: &mut B, order: &QueueOrder) -> Result<Reply, B::Error> {
    backend.write_pause(order)?;
    let event = queue_event(&order.queue, order.paused, backend.context().now, &order.by);
    backend.outbox().events.push(event);
    Ok(Reply::Done)
}
