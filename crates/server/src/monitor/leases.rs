//! Gives up workers that this server has itself watched being silent (I8).

use std::collections::HashMap;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::WorkerId;
use outlast_core::lease::{Patience, Verdict};
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::liveness::Liveness;
use outlast_core::worker::together::{Look, Together};
use outlast_store::command::{Lapse, LapseScope, Renew, Sweep};
use outlast_store::record::WorkerBrief;
use outlast_store::reply::{WorkerMoveRefusal, WorkerMoved};
use outlast_store::{Command, Reply};
use rand::seq::IteratorRandom as _;

use crate::clock::boot_time;
use crate::engine::contact::Lane;
use crate::engine::fleet::Member;
use crate::engine::input::Input;
use crate::engine::{Engine, millis};
use crate::settings::Settings;

/// How much later than expected a beat may be and still be fresh.
const FRESH_SPARE: Span = Span::from_millis(500);

/// Of so many silent workers it is found out whether another session holds their rows.
const PROBES: usize = 3;

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    let settings = engine.settings();
    let interval = settings.check_interval;
    let threshold = settings.lease_of(settings.heartbeat_interval);
    tracing::info!("Starting worker heartbeat monitor...");
    tracing::info!(
        "Worker heartbeat monitor started (check interval: {}s, staleness threshold: {}s)",
        seconds(interval),
        seconds(threshold)
    );
    let mut together = Together::default();
    loop {
        let changed = engine.board().lease_changed.notified();
        let wait = look(&engine, &mut together).await.min(interval);
        // Woken by a dropped connection, or by the next end of a lease.
        drop(tokio::time::timeout(millis(wait.max(Span(5))), changed).await);
    }
}

fn seconds(span: Span) -> f64 {
    std::time::Duration::from_millis(span.0).as_secs_f64()
}

/// Looks at every worker once; returns how long nobody can lapse.
async fn look(engine: &Engine, together: &mut Together) -> Span {
    if let Err(error) = engine.read_fleet().await {
        tracing::error!("Failed to query active workers for heartbeat check: {error}");
        // Nobody was watched meanwhile.
        engine.board().unproven();
        prove_contact(engine).await;
        return Span::from_secs(1);
    }
    prove_contact(engine).await;
    if engine.board().contact.is_down() {
        return engine.settings().check_interval;
    }
    let members = engine.board().fleet.members();
    let now = boot_time();
    let Judged { mut given_up, mut next, look } = judge(engine, &members, now);
    let lease = engine.settings().lease_of(engine.settings().heartbeat_interval);
    let longest = members.values().map(|it| it.brief.lease).fold(lease, Span::max);
    if let Some(until) = together.hold(look, longest, now) {
        let before = given_up.len();
        given_up.retain(|one| one.connection_dropped);
        if given_up.len() < before {
            tracing::warn!(
                silent = look.silent,
                live = look.live,
                "most workers are silent and no connection dropped: none is given up for it yet"
            );
        }
        next = next.min(until);
    }
    let mass = together.is_mass(look, longest, now);
    let deactivated = give_up(engine, &given_up, mass, now).await;
    together.lapsed(deactivated, now);
    if deactivated > 0 {
        engine.counters().lapsed(deactivated);
        tracing::info!("Deactivated {deactivated} worker(s) with stale heartbeats");
    }
    // What was refused, or failed, is not tried again at once.
    if given_up.is_empty() { next.since(boot_time()) } else { engine.settings().check_interval }
}

/// Writes where beats are written, if nothing of our own was for a while: silence says
/// something only while the store takes beats, here and wherever the silent one is attached.
async fn prove_contact(engine: &Engine) {
    let (board, settings) = (engine.board(), engine.settings());
    let members = board.fleet.members();
    let live = || members.values().map(|it| it.brief).filter(|it| it.standing.holds_lease());
    let lease = settings.lease_of(settings.heartbeat_interval);
    let lease = live().map(|worker| worker.lease).fold(lease, Span::min);
    let patience = patience(lease, settings.staleness_multiplier);
    board.contact.set_patience(patience);
    let (now, pause) = (boot_time(), settings.check_interval);
    if board.contact.is_down() && board.contact.idle(Lane::Work, now) >= pause {
        let sweep = Sweep { limit: 0, watched: Span::ZERO };
        // What came of it is noted where it is written; so below.
        drop(engine.submit(Command::Sweep(sweep)).await);
    }
    let idle = board.contact.idle(Lane::Beats, now);
    if idle < pause {
        return;
    }
    // This monitor itself was held up, by a read for instance: contact was not proven.
    if idle.0 > pause.0 + patience.0 {
        board.unproven();
    }
    let unknown = Renew { worker: WorkerId(uuid::Uuid::nil()), lease, in_flight: 0 };
    // Somebody may hold the very rows of those that are silent. Who that is changes nothing for
    // others, unless it seems to be all.
    let is_silent = |worker: &WorkerBrief| {
        let age = board.store_time().map(|now| now.since(worker.last_heartbeat));
        age.is_some_and(|age| age.0 > worker.lease.0 / 2)
    };
    let silent: Vec<WorkerId> = live().filter(is_silent).map(|worker| worker.id).collect();
    let some: Vec<WorkerId> = silent.iter().copied().sample(&mut rand::rng(), PROBES);
    let probes = some.iter().map(|worker| engine.beat(Command::Lapse(probe(*worker))));
    let probes = futures_util::future::join_all(probes);
    let (found, _) = tokio::join!(probes, engine.beat(Command::Renew(unknown)));
    if silent.len() > found.len() && found.iter().all(Result::is_err) {
        board.unproven();
    }
}

/// Returns what goes the way of a lapse and is refused.
fn probe(worker: WorkerId) -> Lapse {
    Lapse {
        worker,
        // No worker has this number.
        renewal: 0,
        scope: LapseScope::Everything,
        mass: false,
        by: "lease monitor".into(),
        evidence: Evidence::default(),
    }
}

/// How long a write may take so that the beat behind it, and the one that is sent next, still
/// come within the lease.
fn patience(lease: Span, multiplier: u32) -> Span {
    let multiplier = u64::from(multiplier.max(2));
    Span(lease.0 / multiplier * (multiplier - 1) / 2)
}

/// What one look finds.
struct Judged {
    given_up: Vec<GivenUp>,
    /// When the next may be given up.
    next: BootTime,
    look: Look,
}

struct GivenUp {
    member: Member,
    scope: LapseScope,
    connection_dropped: bool,
}

fn judge(engine: &Engine, members: &HashMap<WorkerId, Member>, now: BootTime) -> Judged {
    let next = now.after(Span::from_secs(60));
    let mut judged = Judged { given_up: Vec::new(), next, look: Look::default() };
    let mut leases = engine.board().leases();
    for member in members.values() {
        let (worker, lapsed_holding) = (member.brief, member.brief.lapsed_holding);
        let is_live = worker.standing.holds_lease();
        if !is_live && !lapsed_holding {
            leases.forget(worker.id);
            judged.look.lapsed_lately += usize::from(lapsed_lately(engine, &worker));
            continue;
        }
        leases.observe(worker.id, worker.renewal, worker.standing.liveness, now);
        let connection_dropped =
            leases.is_dropped(worker.id) || worker.standing.liveness == Liveness::Suspect;
        let silent = leases.is_silent(worker.id, worker.lease, now);
        judged.look.live += usize::from(is_live);
        judged.look.ailing += usize::from(is_live && (silent || connection_dropped));
        judged.look.silent += usize::from(is_live && silent && !connection_dropped);
        let patience =
            Patience { lease: worker.lease, reconnect_window: engine.settings().reconnect_window };
        let scope = match leases.judge(worker.id, patience, now) {
            Verdict::WaitUntil(at) => {
                judged.next = judged.next.min(at);
                continue;
            }
            Verdict::WindowPassed if lapsed_holding => continue,
            Verdict::WindowPassed => LapseScope::OverlapAllowed,
            Verdict::LeasePassed => LapseScope::Everything,
        };
        judged.given_up.push(GivenUp { member: member.clone(), scope, connection_dropped });
    }
    judged
}

/// Whether a worker was given up within its lease, here or by another server.
fn lapsed_lately(engine: &Engine, worker: &WorkerBrief) -> bool {
    worker.standing.liveness == Liveness::Lapsed
        && engine.board().store_time().is_some_and(|now| now.since(worker.updated) <= worker.lease)
}

fn lapse_of(
    engine: &Engine,
    Member { brief: worker, name, .. }: &Member,
    scope: LapseScope,
    mass: bool,
) -> Lapse {
    let age =
        engine.board().store_time().map_or(Span::ZERO, |now| now.since(worker.last_heartbeat));
    tracing::warn!(
        "Worker {} (ID: {}) heartbeat is stale ({}s old), marking as inactive",
        name,
        worker.id,
        seconds(age)
    );
    let attached_here = engine.board().fleet.session(worker.id).is_some();
    let evidence = evidence_of(worker, scope, (age, attached_here), engine.settings());
    Lapse {
        worker: worker.id,
        renewal: worker.renewal,
        scope,
        mass,
        by: "lease monitor".into(),
        evidence,
    }
}

/// What a worker's silence says, as far as can be known from here. The system of a process that
/// is killed closes its connections at once, while its beats are still fresh; one that stands
/// still keeps them, and falls silent first. Only the server that a worker is attached to sees
/// its connection: of another's it is known that the worker is silent, and that server may be
/// what died.
fn evidence_of(
    worker: &WorkerBrief,
    scope: LapseScope,
    (age, attached_here): (Span, bool),
    settings: &Settings,
) -> Evidence {
    let multiplier = u64::from(settings.staleness_multiplier.max(1));
    let fresh = Span(worker.lease.0 / multiplier * 3 / 2 + FRESH_SPARE.0);
    let closed = match worker.standing.liveness {
        Liveness::Suspect => worker.updated.since(worker.last_heartbeat) <= fresh,
        // It lapsed when its window was over; what must not overlap waited for the lease.
        Liveness::Lapsed => worker.updated.since(worker.last_heartbeat) < worker.lease,
        Liveness::Live | Liveness::Gone => false,
    };
    let silent =
        format!("no heartbeat for {} s, lease is {} s", seconds(age), seconds(worker.lease));
    match (scope, closed, worker.standing.liveness) {
        (LapseScope::OverlapAllowed, _, _) => {
            let text = format!(
                "connection dropped and not restored within {} s, last heartbeat {} s ago",
                seconds(settings.reconnect_window),
                seconds(age)
            );
            let code = if closed { EvidenceCode::WorkerKilled } else { EvidenceCode::Lease };
            Evidence::of(code, text)
        }
        (LapseScope::Everything, true, _) => {
            let text = format!("{silent}; its connection was closed and did not come back");
            Evidence::of(EvidenceCode::WorkerKilled, text)
        }
        (LapseScope::Everything, false, Liveness::Live) if attached_here => {
            let text =
                format!("{silent}; its connection stands: frozen, or cut off without a sign");
            Evidence::of(EvidenceCode::Frozen, text)
        }
        (LapseScope::Everything, false, _) => Evidence::of(EvidenceCode::Lease, silent),
    }
}

/// Gives workers up, all at once: they share a few commits. Returns how many that were live
/// were given up.
async fn give_up(engine: &Engine, given_up: &[GivenUp], mass: bool, judged: BootTime) -> usize {
    let lapses = given_up.iter().map(|GivenUp { member, scope, .. }| {
        let lapse = lapse_of(engine, member, *scope, mass);
        async move { (member, engine.lapse(lapse, judged).await) }
    });
    let mut deactivated = 0;
    for (Member { brief: worker, name, .. }, reply) in futures_util::future::join_all(lapses).await
    {
        match reply {
            Ok(Reply::WorkerMoved(Ok(moved))) => {
                report(engine, worker.id, &moved).await;
                deactivated += usize::from(worker.standing.holds_lease());
            }
            Ok(Reply::WorkerMoved(Err(WorkerMoveRefusal::Renewed))) => {
                tracing::debug!(worker = &**name, "lease was renewed meanwhile");
            }
            other => {
                tracing::error!("Failed to deactivate worker {name} (stale heartbeat): {other:?}");
            }
        }
    }
    deactivated
}

async fn report(engine: &Engine, worker: WorkerId, moved: &WorkerMoved) {
    for job in &moved.moved {
        tracing::warn!(job = %job.job, epoch = %job.epoch, to = %job.state, "lease lapsed");
    }
    // A loop that has ended means that the server stops.
    drop(engine.send(Input::Given { worker }).await);
}

#[cfg(test)]
mod tests;
