//! What a store lost when a standby took the place of its primary.

use outlast_store::command::{Adopt, NoteLoss};
use outlast_store::reply::{MoveRefusal, Moved};

use super::{Backend, carry_out};
use crate::apply::failover;

pub(super) async fn adopt<B: Backend>(
    backend: &mut B,
    adopt: &Adopt,
) -> Result<Result<Moved, MoveRefusal>, B::Error> {
    let worker = backend.worker(adopt.worker)?;
    let Some(loaded) = backend.find(adopt.job).await? else {
        return Ok(Err(MoveRefusal::NotFound));
    };
    match failover::adopt(&loaded, adopt, worker.as_ref(), &backend.context()) {
        Ok(decided) => carry_out(backend, &loaded, &decided).await.map(Ok),
        Err(refusal) => backend.confirm_refusal(&loaded, refusal).map(Err),
    }
}

pub(super) fn note_loss<B: Backend>(backend: &mut B, note: &NoteLoss) {
    let now = backend.context().now;
    backend.outbox().events.extend(failover::events(note, now));
}
