//! Settings of queues.

use outlast_core::queue::QueueRefusal;
use outlast_store::command::SetQueue;
use outlast_store::queue::QueueChanged;

use super::Backend;
use crate::apply::queue;
use crate::rules::settings_event;

pub(super) async fn set<B: Backend>(
    b: &mut B,
    order: &SetQueue,
) -> Result<Result<QueueChanged, QueueRefusal>, B::Error> {
    let found = b.find_queue(&order.queue).await?;
    let now = b.context().now;
    match queue::set(found.as_ref(), order, now) {
        Ok(Some(record)) => {
            b.write_queue(&record, found.as_ref())?;
            b.outbox().events.push(settings_event(&record));
            Ok(Ok(QueueChanged::Changed))
        }
        Ok(None) => Ok(Ok(QueueChanged::Unchanged)),
        Err(refusal) => Ok(Err(refusal)),
    }
}
