//! From Hello to Welcome.

use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Phase, WorkerEvent};
use outlast_core::worker::order::{GivenOrder, WorkerOrder, in_force, standing_that_counts};
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::{
    self, Hello, Order, Orders, RefusalCode, Refused, ServerMessage, SetPhase, Welcome, order,
};
use outlast_store::StoreError;
use outlast_store::command::{Attach, WorkerMove};
use outlast_store::record::InFlightJob;
use outlast_store::reply::RenewRefusal;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::clock::boot_time;
use crate::engine::input::Input;
use crate::engine::output::OutputSender;
use crate::engine::profile::Profile;
use crate::engine::sessions::{AttachedAs, AttemptProgress, InFlightAttempt, Session, Validated};
use crate::engine::{Engine, Unavailable};
use crate::session::convert::refused;
use crate::session::{convert, reconcile};

/// What the worker is sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The welcome, or the refusal.
    pub(super) opening: mpsc::UnboundedSender<ServerMessage>,
    /// The engine's output, which follows the opening.
    pub(super) outputs: OutputSender,
}

/// A worker that has attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) worker: WorkerId,
    pub(super) session: u64,
}

impl From<Unavailable> for Refused {
    fn from(error: Unavailable) -> Self {
        refused(RefusalCode::Unavailable, error.reason)
    }
}

/// Registers the worker, attaches its session, and hands it to the event loop.
pub(super) async fn attach(
    engine: &Engine,
    hello: Hello,
    outgoing: &Outgoing,
    closer: DropGuard,
) -> Result<Identity, Refused> {
    let invalid = |reason: String| refused(RefusalCode::Invalid, reason);
    check_version(&hello.version, engine.settings().version)
        .map_err(|reason| refused(RefusalCode::Version, reason))?;
    let worker = convert::worker_id(&hello.worker_id)
        .ok_or_else(|| invalid("worker id must have 16 bytes".into()))?;
    let profile = engine.shared().fleet.intern(convert::profile(&hello).map_err(invalid)?);
    let interval = engine.settings().grant_interval(Span(hello.heartbeat_interval_ms));
    let lease = engine.settings().lease_of(interval);

    check_heard(engine, worker, lease)?;
    check_generation(engine, &hello)?;
    if !hello.resumed {
        let registration = convert::registration(worker, &hello, &profile, lease);
        register(engine, registration).await?;
        tracing::info!("worker {} (ID: {worker}) registered", hello.name);
    }
    let attach = Attach { worker, attachment: hello.attachment, lease };
    let mut is_known = hello.resumed;
    let attached = match engine.submit(attach).await? {
        Ok(attached) => attached,
        Err(RenewRefusal::UnknownWorker) => {
            // The store was reset or restored: the worker registers again.
            is_known = false;
            let registration = convert::registration(worker, &hello, &profile, lease);
            register(engine, registration).await?;
            engine.submit(attach).await?.map_err(lapsed)?
        }
        Err(refusal @ RenewRefusal::Abandoned { .. }) => {
            return Err(refused(RefusalCode::Superseded, refusal.to_string()));
        }
        Err(refusal) => return Err(lapsed(refusal)),
    };
    if hello.resumed && !engine.shared().fleet.has(worker, &profile) {
        // It offers something else than before, and every server must know.
        register(engine, convert::registration(worker, &hello, &profile, lease)).await?;
    }
    engine.shared().leases.watch().attached(worker);
    engine.shared().leases.grant(worker, lease);

    // If the worker has opened another stream, this hello no longer says what it holds.
    if outgoing.opening.is_closed() {
        return Err(refused(RefusalCode::Superseded, "the stream was left while it attached"));
    }
    let in_flight = engine.store().in_flight_of(worker).await.map_err(unavailable)?;
    let stop = reconcile::reconcile(engine, worker, &in_flight, &hello.held).await?;
    let says = said_phase(&hello, is_known, attached.given);
    let phase = reconcile_phase(engine, worker, attached.standing.phase, &says).await?;
    let ordered = order_in_force(engine, &profile, attached.given, phase).await;

    let of = AttachedAs { worker, number: attached.session, name: &hello.name };
    let mut session = Session::new(of, Arc::clone(&profile), outgoing.outputs.clone(), closer);
    session.set_running(phase == Phase::Running);
    let validated = validated(engine, &in_flight).await.map_err(unavailable)?;
    hold(&mut session, &in_flight, &hello, validated);
    engine.shared().leases.watch().welcomed(worker, boot_time());
    let send = |body| {
        let message = ServerMessage { session: attached.session, body: Some(body) };
        // The reader of a closed stream notices, and detaches the session.
        drop(outgoing.opening.send(message));
    };
    send(Body::Welcome(Welcome {
        heartbeat_interval_ms: interval.0,
        lease_ms: lease.0,
        stop,
        server_version: engine.settings().version.into(),
        server_id: engine.server_id().as_bytes().to_vec().into(),
        store_generation: engine.store().facts().generation,
        answers_output: true,
    }));
    // It may be in that phase for a reason of its own, which will pass.
    if convert::wire_phase(phase) != hello.phase() || ordered.is_some() {
        send(set_phase(phase, ordered));
    }
    let identity = Identity { worker, session: attached.session };
    engine.send(Input::Attached(Box::new(session))).await?;
    Ok(identity)
}

/// The phase that a worker wants to be in.
struct SaidPhase {
    phase: v1::Phase,
    /// It follows an order that the store does not know.
    by_order: bool,
}

/// Returns the phase that a worker wants to be in. The store knows better whether it is still ordered to
/// be quiet, unless it knows nothing of the order: it was given before a backup that was restored.
fn said_phase(hello: &Hello, is_known: bool, given: Option<GivenOrder>) -> SaidPhase {
    let by_order = hello.phase() == v1::Phase::Quiet && hello.quiet_by_order;
    match (by_order, is_known || given.is_some()) {
        (true, true) => SaidPhase { phase: v1::Phase::Running, by_order: false },
        (by_order, _) => SaidPhase { phase: hello.phase(), by_order },
    }
}

/// An order that a worker follows, and that it may not have heard of.
struct OrderInForce {
    by: String,
    order: WorkerOrder,
}

/// Orders the worker to be in a phase, because of an order if there is one.
fn set_phase(phase: Phase, ordered: Option<OrderInForce>) -> Body {
    let standing = ordered.is_some();
    let (phase, by) = match ordered {
        Some(OrderInForce { by, order }) => (convert::phase_of(order), by),
        None => (convert::wire_phase(phase), "server".to_owned()),
    };
    let set = SetPhase { phase: phase.into(), by, standing };
    Body::Orders(Orders { orders: vec![Order { what: Some(order::What::Phase(set)) }] })
}

/// Returns the order that holds for a worker: the latest to it, or the one that stands for all with its
/// labels. Without an answer of the store, the worker is as quiet.
async fn order_in_force(
    engine: &Engine,
    profile: &Profile,
    given: Option<GivenOrder>,
    phase: Phase,
) -> Option<OrderInForce> {
    let stands = match phase {
        Phase::Quiet => engine.store().standing_orders().await.ok(),
        Phase::Running | Phase::Draining => None,
    };
    let stands = stands.unwrap_or_default();
    let stands = in_force(&stands, &profile.labels);
    match standing_that_counts(given, stands) {
        // One that starts under an order to drain stays up and takes nothing.
        Some(stands) => Some(OrderInForce { by: stands.giver(), order: WorkerOrder::Quiet }),
        None => {
            given.map(|given| OrderInForce { by: "an operator".to_owned(), order: given.order })
        }
    }
}

/// Returns with which files of their packs jobs were validated of which no start is stored: a later
/// report says whether they run with the same. With a start, that was stored too.
async fn validated(
    engine: &Engine,
    stored: &[InFlightJob],
) -> Result<HashMap<JobId, Box<Validated>>, StoreError> {
    let mut all = HashMap::new();
    for attempt in stored.iter().filter(|attempt| !attempt.started) {
        let record = engine.store().job(attempt.job).await?;
        let validated = record.and_then(|record| Validated::of(&record.job));
        all.extend(validated.map(|validated| (attempt.job, validated)));
    }
    Ok(all)
}

/// Records what both sides say that the worker holds.
fn hold(
    session: &mut Session,
    stored: &[InFlightJob],
    hello: &Hello,
    mut validated: HashMap<JobId, Box<Validated>>,
) {
    for attempt in stored.iter().filter(|attempt| {
        hello
            .held
            .iter()
            .filter_map(convert::attempt)
            .any(|own| own == (attempt.job, attempt.epoch))
    }) {
        let here = InFlightAttempt {
            epoch: attempt.epoch,
            delivered: boot_time(),
            progress: if attempt.started {
                AttemptProgress::Started
            } else {
                AttemptProgress::Delivered
            },
            isolated: attempt.isolated,
            validated: validated.remove(&attempt.job),
        };
        session.hold(attempt.job, here);
    }
}

/// Refuses a worker whose jobs come from the store before it was restored from a backup: the
/// restored store gives the same epochs to other workers. A store that lost its last commits keeps
/// its workers.
fn check_generation(engine: &Engine, hello: &Hello) -> Result<(), Refused> {
    let (theirs, ours) = (hello.store_generation, engine.store().facts().restored);
    if hello.resumed && theirs != 0 && theirs < ours {
        let reason = format!(
            "the store was restored from a backup: it is of generation {ours}, and what the \
             worker holds of {theirs}"
        );
        return Err(refused(RefusalCode::Lapsed, reason));
    }
    Ok(())
}

/// Refuses a worker that does not receive what it is sent: attaching would only prolong its
/// lease.
fn check_heard(engine: &Engine, worker: WorkerId, lease: Span) -> Result<(), Refused> {
    if engine.shared().leases.watch().is_unheard(worker, lease, boot_time()) {
        let reason = "welcomed for a whole lease and never heard from since";
        return Err(refused(RefusalCode::Lapsed, reason));
    }
    Ok(())
}

fn unavailable(error: StoreError) -> Unavailable {
    Unavailable::new(error.to_string())
}

async fn register(
    engine: &Engine,
    registration: outlast_store::command::Registration,
) -> Result<(), Refused> {
    engine.submit(registration).await?.map(|_standing| ()).map_err(lapsed)
}

fn lapsed(refusal: impl Display) -> Refused {
    refused(RefusalCode::Lapsed, refusal.to_string())
}

/// Reconciles the stored phase with the worker's: the further one wins. A drain ordered while the
/// worker was away reaches it, and a signal that the worker got meanwhile is stored.
async fn reconcile_phase(
    engine: &Engine,
    worker: WorkerId,
    stored: Phase,
    says: &SaidPhase,
) -> Result<Phase, Unavailable> {
    use outlast_proto::v1::Phase as Wire;
    let event = match (stored, says.phase) {
        (Phase::Running, Wire::Quiet) => WorkerEvent::Quiet,
        (Phase::Running | Phase::Quiet, Wire::Draining) => WorkerEvent::Drain,
        (Phase::Running, Wire::Running)
        | (Phase::Quiet, Wire::Running | Wire::Quiet)
        | (Phase::Draining, _) => return Ok(stored),
    };
    let step = WorkerMove {
        worker,
        event,
        ordered: says.by_order.then_some(WorkerOrder::Quiet),
        session: None,
        by: format!("worker {worker}"),
        evidence: "said so when it attached".into(),
    };
    Ok(engine.submit(step).await?.map_or(stored, |moved| moved.standing.phase))
}

/// Refuses a worker more than one minor version apart.
fn check_version(worker: &str, server: &str) -> Result<(), String> {
    let parse = |version: &str| -> Option<(u64, u64)> {
        let mut parts = version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    match (parse(worker), parse(server)) {
        (Some((major, minor)), Some((ours, our_minor)))
            if major == ours && minor.abs_diff(our_minor) <= 1 =>
        {
            Ok(())
        }
        _ => Err(format!(
            "worker is version {worker}, server is {server}: more than one minor version apart"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::check_version;

    #[test]
    fn versions_more_than_one_minor_apart_refuse_each_other() {
        for (worker, server, fits) in [
            ("0.1.0", "0.1.9", true),
            ("0.2.0", "0.1.0", true),
            ("0.3.0", "0.1.0", false),
            ("1.1.0", "0.1.0", false),
            ("", "0.1.0", false),
        ] {
            assert_eq!(check_version(worker, server).is_ok(), fits, "{worker} {server}");
        }
    }
}
