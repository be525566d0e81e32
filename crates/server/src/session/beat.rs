//! Heartbeats: one batched message for all attempts, answered per attempt.

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerRefusal;
use outlast_proto::v1::{AttemptKey, BeatReply, BeatRequest, RefusalCode};
use outlast_store::command::Renew;
use outlast_store::reply::{RenewRefusal, Renewed};
use outlast_store::{Command, Reply, Store};
use tokio::sync::oneshot;
use tonic::Status;

use crate::engine::input::Input;
use crate::engine::{Engine, Unavailable};
use crate::session::{convert, reconcile};

/// Renews the worker's lease and answers what it must know.
pub(super) async fn answer<S: Store>(
    engine: &Engine<S>,
    request: BeatRequest,
) -> Result<BeatReply, Status> {
    let worker = convert::worker_id(&request.worker_id)
        .ok_or_else(|| Status::invalid_argument("worker id must have 16 bytes"))?;
    let workers = engine.board().workers();
    let lease = workers
        .iter()
        .find(|known| known.id == worker)
        .map_or_else(|| default_lease(engine), |known| known.lease);
    let interval = Span(lease.0 / u64::from(engine.settings().staleness_multiplier.max(1)));
    let renew = Renew { worker, lease, in_flight: request.in_flight };
    let reply = engine.submit(Command::Renew(renew)).await.map_err(unavailable)?;
    let Reply::Renewed(renewed) = reply else {
        return Err(Status::internal("the store gave a reply of another kind"));
    };
    engine.counters().beat(renewed.is_ok());
    match renewed {
        Ok(renewed) => {
            let standing = renewed.standing;
            let poll = Input::Polled { worker, age: Span(request.last_poll_age_ms) };
            engine.send(poll).await.map_err(unavailable)?;
            let (send_held, stop) = compare(engine, worker, &request, renewed).await?;
            Ok(BeatReply {
                renewed: true,
                heartbeat_interval_ms: interval.0,
                lease_ms: lease.0,
                send_held,
                stop,
                phase: convert::wire_phase(standing.phase).into(),
                ..BeatReply::default()
            })
        }
        Err(refusal) => Ok(refuse(refusal)),
    }
}

fn default_lease<S: Store>(engine: &Engine<S>) -> Span {
    engine.settings().lease_of(engine.settings().grant_interval(Span::ZERO))
}

fn unavailable(error: Unavailable) -> Status {
    Status::unavailable(error.reason)
}

fn refuse(refusal: RenewRefusal) -> BeatReply {
    let code = match refusal {
        // Not known here is not dead: the next attachment makes it known again.
        RenewRefusal::UnknownWorker => RefusalCode::Unspecified,
        RenewRefusal::Refused(
            WorkerRefusal::Lapsed | WorkerRefusal::Gone | WorkerRefusal::Draining,
        )
        | RenewRefusal::Refused(_) => RefusalCode::Lapsed,
    };
    BeatReply {
        renewed: false,
        refusal: code.into(),
        reason: refusal.to_string(),
        ..BeatReply::default()
    }
}

/// Compares digests; only when the full list was sent does anything follow from it, so a
/// report that is under way costs a list and nothing else.
///
/// What only the store has is not handed back here: a delivery may still be on its way,
/// and the start timeout takes back, in order, what never arrived.
async fn compare<S: Store>(
    engine: &Engine<S>,
    worker: WorkerId,
    request: &BeatRequest,
    renewed: Renewed,
) -> Result<(bool, Vec<AttemptKey>), Status> {
    if !request.held.is_empty() {
        let stored = engine.store().held_by(worker).await;
        let stored = stored.map_err(|error| Status::unavailable(error.to_string()))?;
        return Ok((false, reconcile::to_stop(&stored, &request.held)));
    }
    if renewed.held != request.in_flight {
        return Ok((request.in_flight > 0, Vec::new()));
    }
    let (reply, digest) = oneshot::channel();
    engine.send(Input::Digest { worker, reply }).await.map_err(unavailable)?;
    let differs = digest.await.ok().flatten().is_some_and(|digest| digest != request.held_digest);
    Ok((differs, Vec::new()))
}
