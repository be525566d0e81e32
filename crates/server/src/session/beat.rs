//! Heartbeats: one batched message for all attempts, answered per attempt.

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerRefusal;
use outlast_proto::v1::{AttemptKey, BeatReply, BeatRequest, RefusalCode};
use outlast_store::command::{Renew, ReportHealth};
use outlast_store::reply::{RenewRefusal, Renewed};
use outlast_store::signal::Signal;
use tonic::Status;

use crate::clock::boot_time;
use crate::engine::input::Input;
use crate::engine::session_facts::NOT_POLLING_AFTER;
use crate::engine::{Engine, Unavailable};
use crate::session::{convert, reconcile};

/// Renews the worker's lease.
pub(super) async fn answer(engine: &Engine, request: BeatRequest) -> Result<BeatReply, Status> {
    let worker = convert::worker_id(&request.worker_id)
        .ok_or_else(|| Status::invalid_argument("worker id must have 16 bytes"))?;
    let lease = engine.shared().lease_of(worker).unwrap_or_else(|| default_lease(engine));
    // A worker whose engine is stalled cannot answer its welcome: that is another matter.
    let turns = request.last_poll_age_ms < lease.0;
    if turns && engine.shared().leases.watch().is_unheard(worker, lease, boot_time()) {
        engine.counters().beat(false);
        return Ok(unheard());
    }
    let interval = Span(lease.0 / u64::from(engine.settings().staleness_multiplier.max(1)));
    let renew = Renew { worker, lease, in_flight: request.in_flight };
    let renewed = engine.beat(renew).await.map_err(unavailable)?;
    engine.counters().beat(renewed.is_ok());
    match renewed {
        Ok(renewed) => {
            let standing = renewed.standing;
            polled(engine, worker, Span(request.last_poll_age_ms));
            health(engine, worker, &request.unhealthy, renewed.unhealthy);
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

fn default_lease(engine: &Engine) -> Span {
    engine.settings().lease_of(engine.settings().grant_interval(Span::ZERO))
}

/// The refusal of a worker that seems not to receive anything; if it does, its next session
/// recovers.
fn unheard() -> BeatReply {
    BeatReply {
        renewed: false,
        refusal: RefusalCode::Unavailable.into(),
        reason: "no session has stood for a whole lease".into(),
        ..BeatReply::default()
    }
}

pub(super) fn unavailable(error: Unavailable) -> Status {
    Status::unavailable(error.reason)
}

fn refuse(refusal: RenewRefusal) -> BeatReply {
    let code = match refusal {
        // An unknown worker is not dead: it registers when it attaches next.
        RenewRefusal::UnknownWorker => RefusalCode::Unspecified,
        RenewRefusal::Abandoned { .. } => RefusalCode::Superseded,
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

/// Notes how long ago a worker polled. The other servers are signalled while that is too long ago,
/// and once when it is not any more.
fn polled(engine: &Engine, worker: WorkerId, age: Span) {
    let fleet = &engine.shared().fleet;
    let changed = match fleet.session(worker) {
        Some(session) => {
            let changed = session.set_poll_age(age);
            if changed {
                engine.offer(Input::PollingChanged);
            }
            changed
        }
        None => fleet.polled(worker, age, boot_time()),
    };
    if changed || age >= NOT_POLLING_AFTER {
        engine.store().signal(vec![Signal::polled(worker, age)]);
    }
}

/// Stores what a worker says of its health, if that is news. `stored` is whether the store has it as
/// unhealthy. The beat does not wait for it; what fails is said again with the next one.
fn health(engine: &Engine, worker: WorkerId, reason: &str, stored: bool) {
    let is_news = engine.shared().unhealthy.note(worker, reason);
    if !is_news && stored != reason.is_empty() {
        return;
    }
    let unhealthy = (!reason.is_empty()).then(|| convert::bounded(reason.to_owned()));
    let (engine, said) = (engine.clone(), ReportHealth { worker, unhealthy });
    tokio::spawn(async move {
        if let Err(error) = engine.submit(said).await {
            tracing::debug!(%worker, %error, "health of a worker is not stored yet");
        }
    });
}

/// Compares digests. Attempts are stopped only when the worker sent the full list, so a report
/// under way costs only a list.
///
/// Attempts that only the store knows are not handed back here: a delivery may still be on its
/// way, and the start timeout takes back what never arrived.
async fn compare(
    engine: &Engine,
    worker: WorkerId,
    request: &BeatRequest,
    renewed: Renewed,
) -> Result<(bool, Vec<AttemptKey>), Status> {
    if !request.held.is_empty() {
        let stored = engine.store().in_flight_of(worker).await;
        let stored = stored.map_err(|error| Status::unavailable(error.to_string()))?;
        return Ok((false, reconcile::to_stop(&stored, &request.held)));
    }
    if renewed.in_flight != request.in_flight {
        return Ok((request.in_flight > 0, Vec::new()));
    }
    let session = engine.shared().fleet.session(worker);
    let differs = session.is_some_and(|session| session.digest() != request.held_digest);
    Ok((differs, Vec::new()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_core::time::Timestamp;
    use outlast_packs::PackSet;
    use outlast_proto::v1::Hello;
    use outlast_store::store::ManualClock;
    use outlast_store_testkit::model::ModelStore;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::session::attach::{Outgoing, attach};
    use crate::settings::Settings;

    /// The first beat once renewed for the default lease, whatever had been granted.
    #[tokio::test]
    async fn first_beat_renews_for_the_lease_that_was_granted() {
        let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let engine = Engine::start(Arc::new(store), settings);
        let worker_id = vec![7; 16];
        let hello = Hello {
            worker_id: worker_id.clone().into(),
            name: "w".into(),
            role: "sdk".into(),
            version: engine.settings().version.into(),
            concurrency: 1,
            heartbeat_interval_ms: 200,
            ..Hello::default()
        };
        let (opening, _opened) = mpsc::unbounded_channel();
        let (outputs, _produced) = mpsc::unbounded_channel();
        let outgoing = Outgoing { opening, outputs };
        attach(&engine, hello, &outgoing, CancellationToken::new().drop_guard()).await.unwrap();
        let request = BeatRequest { worker_id: worker_id.into(), ..BeatRequest::default() };
        let reply = answer(&engine, request).await.unwrap();
        assert_eq!((reply.heartbeat_interval_ms, reply.lease_ms), (200, 600));
    }
}
