//! A worker's stream: its hello, then its messages until the stream ends.

use std::sync::Arc;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Phase, RefusalCode, Refused, ServerMessage, WorkerMessage};
use outlast_store::command::WorkerMove;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::clock::boot_time;
use crate::connections::Peer;
use crate::engine::input::Input;
use crate::engine::output::{Output, OutputSender, SessionOutput};
use crate::engine::{Engine, Unavailable};
use crate::session::attach::{Identity, Outgoing, attach};
use crate::session::convert::{self, bounded, refused};
use crate::session::printed::Printed;

/// How a stream ended.
enum End {
    /// The worker said goodbye.
    Goodbye(Evidence),
    /// The connection was lost.
    Dropped(String),
    /// This server closed it: superseded, lapsed, or stopping.
    Closed,
}

/// Serves one stream from its first message to its end.
pub(super) async fn run(
    engine: Engine,
    mut messages: Streaming<WorkerMessage>,
    outgoing: Outgoing,
    peer: Option<Arc<Peer>>,
) {
    let hello = match messages.message().await {
        Ok(Some(WorkerMessage { body: Some(Said::Hello(hello)) })) => hello,
        Ok(_) => {
            let reason = "the first message must be Hello";
            return refuse(&outgoing, refused(RefusalCode::Invalid, reason));
        }
        Err(_closed) => return,
    };
    let name = hello.name.clone();
    let closed = CancellationToken::new();
    let closer = closed.clone().drop_guard();
    let identity = match attach(&engine, hello, &outgoing, closer).await {
        Ok(identity) => identity,
        Err(refusal) => {
            tracing::info!(worker = name, reason = refusal.reason, "worker session refused");
            return refuse(&outgoing, refusal);
        }
    };
    // The engine's output begins when the opening ends.
    let Outgoing { opening, outputs } = outgoing;
    drop(opening);
    let end = tokio::select! {
        end = listen(&engine, identity, &mut messages, &outputs) => end,
        () = closed.cancelled() => End::Closed,
    };
    if let End::Dropped(_) = end {
        let closed = peer.is_some_and(|peer| peer.is_closed());
        engine.shared().leases.watch().session_ended(identity.worker, closed, boot_time());
    }
    if let Err(error) = leave(&engine, identity, &name, end).await {
        tracing::warn!(worker = name, %error, "failed to store the end of a session");
    }
    // The stream ends only now: a worker that said goodbye waits for that.
    drop(outputs);
}

fn refuse(outgoing: &Outgoing, refusal: Refused) {
    let message = ServerMessage { session: 0, body: Some(Body::Refused(refusal)) };
    // A worker that has gone needs no refusal.
    drop(outgoing.opening.send(message));
}

async fn listen(
    engine: &Engine,
    identity: Identity,
    messages: &mut Streaming<WorkerMessage>,
    outputs: &OutputSender,
) -> End {
    let mut printed = Printed::default();
    loop {
        let heard = tokio::select! {
            heard = messages.message(), if printed.has_room() => heard,
            stored = printed.stored() => match stored {
                Ok(messages) => {
                    let output = Output::Stored(messages);
                    // The reader of a closed stream notices.
                    drop(outputs.send(SessionOutput { session: identity.session, output }));
                    continue;
                }
                // The worker has kept it, and sends it again on its next session.
                Err(error) => {
                    tracing::warn!(worker = %identity.worker, %error, "failed to store output");
                    return End::Closed;
                }
            },
        };
        let said = match heard {
            Ok(Some(WorkerMessage { body: Some(said) })) => said,
            Ok(Some(WorkerMessage { body: None })) => continue,
            Ok(None) => return End::Dropped("stream ended without goodbye".into()),
            Err(status) => return End::Dropped(format!("connection lost: {}", status.message())),
        };
        engine.shared().leases.watch().heard(identity.worker);
        if let Said::Goodbye(goodbye) = said {
            let code = EvidenceCode::parse(&goodbye.evidence_code);
            return End::Goodbye(Evidence { code, text: bounded(goodbye.why) });
        }
        if let Err(error) = receive(engine, identity, &mut printed, said).await {
            return End::Dropped(error.reason);
        }
    }
}

async fn receive(
    engine: &Engine,
    Identity { worker, session }: Identity,
    printed: &mut Printed,
    said: Said,
) -> Result<(), Unavailable> {
    match said {
        Said::Capacity(capacity) => {
            let (slots, prefetch) = (capacity.slots, capacity.prefetch);
            engine.send(Input::Capacity { worker, session, slots, prefetch }).await
        }
        Said::Reports(reports) => {
            let now = engine.shared().store_time().unwrap_or(Timestamp(0));
            let mut good = Vec::with_capacity(reports.reports.len());
            for report in reports.reports {
                match convert::report(worker, report, now) {
                    Ok(report) => good.push(report),
                    Err(reason) => tracing::warn!(%worker, reason, "report is invalid"),
                }
            }
            engine.send(Input::Reports { worker, session, reports: good }).await
        }
        Said::Logs(logs) => {
            let mut stored = Vec::with_capacity(logs.chunks.len());
            for command in logs.chunks.into_iter().filter_map(convert::log) {
                let (reply, kept) = oneshot::channel();
                engine.send(Input::Submit { command, reply }).await?;
                stored.push(kept);
            }
            printed.push(stored);
            Ok(())
        }
        Said::Phase(change) => {
            let event = match change.phase() {
                Phase::Running => WorkerEvent::Resume,
                Phase::Quiet => WorkerEvent::Quiet,
                Phase::Draining => WorkerEvent::Drain,
            };
            let why = bounded(change.why).into();
            move_worker(engine, Identity { worker, session }, event, why).await?;
            Ok(())
        }
        // A second hello is ignored; a goodbye was handled before.
        Said::Hello(_) | Said::Goodbye(_) => Ok(()),
    }
}

/// Stores a change of the worker's state; returns whether it took effect.
async fn move_worker(
    engine: &Engine,
    Identity { worker, session }: Identity,
    event: WorkerEvent,
    evidence: Evidence,
) -> Result<bool, Unavailable> {
    let by = format!("worker {worker}");
    let step = WorkerMove { worker, event, ordered: None, session: Some(session), by, evidence };
    let moved = if event == WorkerEvent::Drop {
        // Behind its heartbeats: one that came before the connection dropped must not take the
        // drop back.
        engine.beat(step).await?
    } else {
        engine.submit(step).await?
    };
    match moved {
        Ok(moved) => {
            let running = moved.standing.is_active();
            engine.send(Input::Running { worker, session, running }).await?;
            Ok(true)
        }
        Err(refusal) => {
            tracing::info!(%worker, ?event, %refusal, "refused a change of the worker's state");
            Ok(false)
        }
    }
}

async fn leave(
    engine: &Engine,
    identity: Identity,
    name: &str,
    end: End,
) -> Result<(), Unavailable> {
    let Identity { worker, session } = identity;
    engine.send(Input::Detached { worker, session }).await?;
    match end {
        End::Goodbye(why) => {
            tracing::info!("deregistering worker {name} (ID: {worker}): {why}");
            let evidence = Evidence { code: why.code, text: format!("goodbye: {why}") };
            move_worker(engine, identity, WorkerEvent::Goodbye, evidence).await?;
        }
        End::Dropped(why) => {
            tracing::warn!(worker = name, %worker, why, "worker's connection dropped");
            // Refused when a newer session is attached: then this drop proves nothing.
            if move_worker(engine, identity, WorkerEvent::Drop, why.into()).await? {
                engine.shared().leases.watch().dropped(worker, boot_time());
                engine.shared().leases.notify();
            }
        }
        // What the server did is no evidence against the worker.
        End::Closed => tracing::debug!(worker = name, "session closed by the server"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_core::id::WorkerId;
    use outlast_core::time::Span;
    use outlast_core::worker::liveness::Liveness;
    use outlast_packs::PackSet;
    use outlast_proto::v1::Hello;
    use outlast_store::command::Renew;
    use outlast_store::query::WorkerQuery;
    use outlast_store::store::ManualClock;
    use outlast_store_testkit::model::ModelStore;
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::*;
    use crate::settings::Settings;

    /// The worker was given up after its lease then, and not after the reconnect window.
    #[tokio::test]
    async fn a_heartbeat_that_came_before_a_drop_does_not_take_it_back() {
        let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let engine = Engine::start(Arc::new(store), settings);
        let worker = WorkerId(Uuid::from_u128(7));
        let hello = Hello {
            worker_id: worker.0.as_bytes().to_vec().into(),
            name: "w".into(),
            role: "sdk".into(),
            version: engine.settings().version.into(),
            concurrency: 1,
            heartbeat_interval_ms: 5_000,
            ..Hello::default()
        };
        let (opening, _opened) = mpsc::unbounded_channel();
        let (outputs, _produced) = mpsc::unbounded_channel();
        let outgoing = Outgoing { opening, outputs };
        let closer = CancellationToken::new().drop_guard();
        let identity = attach(&engine, hello, &outgoing, closer).await.unwrap();
        let lease = Span::from_secs(15);
        let beat = || engine.beat(Renew { worker, lease, in_flight: 0 });
        beat().await.unwrap().unwrap();
        // This one waits for the next batch of heartbeats, and the connection drops meanwhile.
        let dropped = leave(&engine, identity, "w", End::Dropped("reset".into()));
        let (renewed, left) = tokio::join!(beat(), dropped);
        assert!(matches!(renewed, Ok(Ok(_))), "{renewed:?}");
        left.unwrap();
        let found = engine.store().workers_page(WorkerQuery::all(9)).await.unwrap();
        assert_eq!(found.workers[0].standing.liveness, Liveness::Suspect);
    }
}
