//! What a store lost when a standby took the place of its primary.

use outlast_core::job::EventKind;
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
    let decided = failover::adopt(&loaded, adopt, worker.as_ref(), &backend.context());
    let mut decided = match decided {
        Ok(decided) => decided,
        Err(refusal) => return backend.confirm_refusal(&loaded, refusal).map(Err),
    };
    if decided.kind == EventKind::Claim {
        // It runs already, so that it counts, though a limit be full.
        let limits = backend.limits_in_force().await?;
        let gates = limits.gates_of(&loaded.stored.key, &loaded.stored.keys);
        backend.pass(&gates).await?;
        decided.gates = gates.iter().map(|gate| gate.id).collect();
    }
    carry_out(backend, &loaded, &decided).await.map(Ok)
}

pub(super) fn note_loss<B: Backend>(backend: &mut B, note: &NoteLoss) {
    let now = backend.context().now;
    backend.outbox().events.extend(failover::events(note, now));
}
