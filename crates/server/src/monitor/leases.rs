//! Declares workers dead that this server has itself watched being silent (I8).

use std::collections::HashMap;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::WorkerId;
use outlast_core::lease::{Expiry, FLOOD_WINDOW, Patience, StoredLease, is_flood};
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_core::worker::liveness::Liveness;
use outlast_core::worker::mass_loss::{FleetCounts, MassLoss};
use outlast_store::command::{Lapse, LapseScope, Renew, Sweep};
use outlast_store::record::WorkerBrief;
use outlast_store::reply::{WorkerMoveRefusal, WorkerMoved};
use rand::seq::IteratorRandom as _;

use crate::clock::{boot_time, millis};
use crate::engine::Engine;
use crate::engine::fleet::Member;
use crate::engine::input::Input;
use crate::engine::store_health::Lane;
use crate::engine::trouble_log::log_trouble;
use crate::settings::Settings;

/// How much later than expected a heartbeat may be and still count as fresh.
const FRESH_SPARE: Span = Span::from_millis(500);

/// How long a server waits at most for the one that a worker is attached to.
const HEAD_START_MAX: Span = Span::from_millis(500);

/// How many silent workers are probed for rows that another session has locked.
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
    let mut mass_loss = MassLoss::default();
    loop {
        let changed = engine.shared().leases.changed();
        let wait = look(&engine, &mut mass_loss).await.min(interval);
        // Woken early by a dropped connection.
        drop(tokio::time::timeout(millis(wait.max(Span(5))), changed).await);
    }
}

/// Seconds with as many decimals as it takes, three at most.
fn seconds(span: Span) -> String {
    let text = format!("{}.{:03}", span.as_secs(), span.as_millis() % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Checks every worker once; returns how long no worker can lapse.
async fn look(engine: &Engine, mass_loss: &mut MassLoss) -> Span {
    let asked = boot_time();
    if let Err(error) = engine.read_fleet().await {
        log_trouble!(
            error,
            engine.shared(),
            error,
            "Failed to query active workers for heartbeat check"
        );
        // No worker was watched meanwhile.
        engine.shared().contact_unproven();
        prove_contact(engine).await;
        return Span::from_secs(1);
    }
    engine.shared().trouble_log.went_well("Failed to query active workers for heartbeat check");
    prove_contact(engine).await;
    if engine.shared().store_health.is_down() {
        return engine.settings().check_interval;
    }
    let members = engine.shared().fleet.members();
    let now = boot_time();
    let lease = engine.settings().lease_of(engine.settings().heartbeat_interval);
    let longest = members.values().map(|it| it.brief.lease).fold(lease, Span::max);
    let window = mass_window(engine, longest);
    let Judged { mut dead, mut next, look } = judge(engine, &members, window, asked, now);
    if let Some(until) = mass_loss.hold(look, longest, now) {
        let before = dead.len();
        dead.retain(|one| one.connection != Connection::Stands);
        if dead.len() < before {
            tracing::warn!(
                silent = look.silent,
                live = look.live,
                "most workers are silent and no connection dropped; declaring none dead yet"
            );
        }
        next = next.min(until);
    }
    let mass = mass_loss.is_mass(look, window, now);
    let deactivated = declare_dead(engine, &dead, mass, now).await;
    mass_loss.lapsed(deactivated, now);
    if deactivated > 0 {
        engine.counters().lapsed(deactivated);
        tracing::info!("Deactivated {deactivated} worker(s) with stale heartbeats");
    }
    // A lapse that was refused or failed is not retried at once.
    if dead.is_empty() { next.since(boot_time()) } else { engine.settings().check_interval }
}

/// Writes to the heartbeat lane if this server has not for a while: silence proves something only
/// while the store takes heartbeats.
async fn prove_contact(engine: &Engine) {
    let (shared, settings) = (engine.shared(), engine.settings());
    let members = shared.fleet.members();
    let live = || members.values().map(|it| it.brief).filter(|it| it.standing.holds_lease());
    let lease = settings.lease_of(settings.heartbeat_interval);
    let lease = live().map(|worker| worker.lease).fold(lease, Span::min);
    let patience = patience(lease, settings.staleness_multiplier);
    shared.store_health.set_patience(patience);
    let (now, pause) = (boot_time(), settings.check_interval);
    if shared.store_health.is_down() && shared.store_health.idle(Lane::Work, now) >= pause {
        let sweep = Sweep { limit: 0, watched: Span::ZERO };
        // The writer records the result; so below.
        drop(engine.submit(sweep).await);
    }
    let idle = shared.store_health.idle(Lane::Beats, now);
    if idle < pause {
        return;
    }
    // This monitor itself was delayed, for example by a read: contact was not proven.
    if idle.0 > pause.0 + patience.0 {
        shared.contact_unproven();
    }
    let unknown = Renew { worker: WorkerId(uuid::Uuid::nil()), lease, in_flight: 0 };
    // Another session may have locked the rows of the silent workers. That excuses no others,
    // unless it seems to be all of them.
    let is_silent = |worker: &WorkerBrief| {
        let age = shared.store_time().map(|now| now.since(worker.last_heartbeat));
        age.is_some_and(|age| age.0 > worker.lease.0 / 2)
    };
    let silent: Vec<WorkerId> = live().filter(is_silent).map(|worker| worker.id).collect();
    let some: Vec<WorkerId> = silent.iter().copied().sample(&mut rand::rng(), PROBES);
    let probes = some.iter().map(|worker| engine.beat(probe(*worker)));
    let probes = futures_util::future::join_all(probes);
    let (found, _) = tokio::join!(probes, engine.beat(unknown));
    if silent.len() > found.len() && found.iter().all(Result::is_err) {
        shared.contact_unproven();
    }
}

/// Returns how far apart workers that died at the same moment may be given up. Their connections
/// drop at once, and then all have the same time to come back; or each falls silent with its own
/// last heartbeat. Workers that die one after another are no mass loss.
fn mass_window(engine: &Engine, longest_lease: Span) -> Span {
    let settings = engine.settings();
    let heartbeat = Span(longest_lease.0 / u64::from(settings.staleness_multiplier.max(1)));
    let spread = heartbeat.max(settings.reconnect_window);
    Span(spread.0.saturating_add(settings.check_interval.0))
}

/// Returns a lapse that needs the worker's row and is refused.
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

/// How long a write may take so that the heartbeat behind it and the next one still arrive within
/// the lease.
fn patience(lease: Span, multiplier: u32) -> Span {
    let multiplier = u64::from(multiplier.max(2));
    Span(lease.0 / multiplier * (multiplier - 1) / 2)
}

/// The result of one check.
struct Judged {
    dead: Vec<DeadWorker>,
    /// When the next worker may be declared dead.
    next: BootTime,
    look: FleetCounts,
}

/// What became of a worker's connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    /// None was seen to end.
    Stands,
    Dropped,
    /// Its system closed them all at once.
    Closed,
}

struct DeadWorker {
    member: Member,
    scope: LapseScope,
    connection: Connection,
    /// No server took heartbeats when its lease ended: no job is to blame for that.
    after_outage: bool,
}

fn judge(
    engine: &Engine,
    members: &HashMap<WorkerId, Member>,
    window: Span,
    asked: BootTime,
    now: BootTime,
) -> Judged {
    let next = now.after(Span::from_secs(60));
    let mut judged = Judged { dead: Vec::new(), next, look: FleetCounts::default() };
    let attached = engine.shared().fleet.session_count();
    let settings = engine.settings();
    let briefs = members.values().map(|it| &it.brief);
    let closed_window = engine
        .shared()
        .store_time()
        .map_or(settings.closed_window, |now| closed_window(settings, briefs, now));
    let mut leases = engine.shared().leases.watch();
    for member in members.values() {
        let (worker, lapsed_holding) = (member.brief, member.brief.lapsed_holding);
        let is_live = worker.standing.holds_lease();
        if !is_live && !lapsed_holding {
            leases.forget(worker.id);
            judged.look.lapsed_lately += usize::from(lapsed_within(window, engine, &worker));
            continue;
        }
        let (renewal, liveness) = (worker.renewal, worker.standing.liveness);
        leases.observe(worker.id, StoredLease { renewal, liveness, asked }, now);
        let connection_dropped =
            leases.is_dropped(worker.id) || worker.standing.liveness == Liveness::Suspect;
        let silent = leases.is_silent(worker.id, worker.lease, now);
        judged.look.live += usize::from(is_live);
        judged.look.ailing += usize::from(is_live && (silent || connection_dropped));
        judged.look.silent += usize::from(is_live && silent && !connection_dropped);
        let lease = if engine.shared().fleet.session(worker.id).is_some() {
            worker.lease
        } else {
            // The server that it is attached to comes first: it knows what the connection did.
            Span(worker.lease.0 + Span(worker.lease.0 / 16).min(HEAD_START_MAX).0)
        };
        let reconnect_window = engine.settings().reconnect_window;
        let patience = Patience { lease, reconnect_window, closed_window, attached };
        let scope = match leases.judge(worker.id, patience, now) {
            Expiry::WaitUntil(at) => {
                judged.next = judged.next.min(at);
                continue;
            }
            Expiry::WindowPassed if lapsed_holding => continue,
            Expiry::WindowPassed => LapseScope::OverlapAllowed,
            Expiry::LeasePassed => LapseScope::Everything,
        };
        let age = engine.shared().store_time().map(|now| now.since(worker.last_heartbeat));
        let after_outage =
            age.is_some_and(|age| leases.began_too_late(worker.id, worker.lease, age, now));
        let member = member.clone();
        let connection = match connection_dropped {
            true if leases.is_closed(worker.id, attached) => Connection::Closed,
            true => Connection::Dropped,
            false => Connection::Stands,
        };
        judged.dead.push(DeadWorker { member, scope, connection, after_outage });
    }
    judged
}

/// Returns after how long a worker is given up whose connections were closed together. A proxy in front
/// of several servers ends a few sessions at each: many in all are no end of workers.
fn closed_window<'a>(
    settings: &Settings,
    workers: impl Iterator<Item = &'a WorkerBrief>,
    now: Timestamp,
) -> Span {
    let lately = Span(settings.closed_window.0.saturating_add(FLOOD_WINDOW.0));
    let live: Vec<_> = workers.filter(|worker| worker.standing.holds_lease()).collect();
    let dropped = live.iter().filter(|worker| {
        worker.standing.liveness == Liveness::Suspect && now.since(worker.updated) <= lately
    });
    if is_flood(dropped.count(), live.len()) {
        settings.reconnect_window
    } else {
        settings.closed_window
    }
}

/// Whether a worker was declared dead lately, by this server or another one.
fn lapsed_within(window: Span, engine: &Engine, worker: &WorkerBrief) -> bool {
    worker.standing.liveness == Liveness::Lapsed
        && engine.shared().store_time().is_some_and(|now| now.since(worker.updated) <= window)
}

fn lapse_of(engine: &Engine, dead: &DeadWorker, mass: bool, age: Span) -> Lapse {
    let DeadWorker { member, scope, connection, after_outage } = dead;
    let (worker, scope) = (&member.brief, *scope);
    let attached_here = engine.shared().fleet.session(worker.id).is_some();
    let mut evidence = match (scope, connection) {
        (LapseScope::OverlapAllowed, Connection::Closed) => {
            evidence_of_close(age, engine.settings())
        }
        _ => evidence_of(worker, scope, age, attached_here, engine.settings()),
    };
    if *after_outage {
        evidence.text.push_str("; no server took heartbeats when its lease ended");
    }
    Lapse {
        worker: worker.id,
        renewal: worker.renewal,
        scope,
        mass: mass || *after_outage,
        by: "lease monitor".into(),
        evidence,
    }
}

/// Returns why a worker is thought dead whose connections were closed together.
fn evidence_of_close(age: Span, settings: &Settings) -> Evidence {
    let text = format!(
        "its system closed all its connections at once, as when it is killed, and it did not come \
         back within {} s; last heartbeat {} s ago",
        seconds(settings.closed_window.min(settings.reconnect_window)),
        seconds(age)
    );
    Evidence::of(EvidenceCode::WorkerKilled, text)
}

/// Returns why a worker is thought dead. When a process is killed, its system closes the
/// connections at once, while its heartbeats are still fresh. A frozen process keeps its
/// connections and falls silent first. Only the server that a worker is attached to sees its
/// connection; for any other worker, that server may be what died.
fn evidence_of(
    worker: &WorkerBrief,
    scope: LapseScope,
    age: Span,
    attached_here: bool,
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
            let code = if closed { EvidenceCode::WorkerKilled } else { EvidenceCode::Frozen };
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
        // A ping that was not answered may have closed the connection before the lease was over.
        (LapseScope::Everything, false, Liveness::Suspect) => {
            let text = format!("{silent}; its connection was closed after it had fallen silent");
            Evidence::of(EvidenceCode::Frozen, text)
        }
        (LapseScope::Everything, false, _) => Evidence::of(EvidenceCode::Lease, silent),
    }
}

/// Declares workers dead, all at once, so that they share a few commits. Returns how many of them
/// were live.
async fn declare_dead(engine: &Engine, dead: &[DeadWorker], mass: bool, judged: BootTime) -> usize {
    let now = engine.shared().store_time();
    let lapses = dead.iter().map(|dead| {
        let DeadWorker { member, scope, .. } = dead;
        let age = now.map_or(Span::ZERO, |now| now.since(member.brief.last_heartbeat));
        let lapse = lapse_of(engine, dead, mass, age);
        async move { (member, (*scope, age), engine.lapse(lapse, judged).await) }
    });
    let mut deactivated = 0;
    for (member, (scope, age), reply) in futures_util::future::join_all(lapses).await {
        let Member { brief: worker, name, .. } = member;
        match reply {
            Ok(Ok(moved)) => {
                tracing::warn!("{}", given_up(member, scope, age));
                report(engine, worker.id, &moved).await;
                deactivated += usize::from(worker.standing.holds_lease());
            }
            Ok(Err(WorkerMoveRefusal::Renewed)) => {
                tracing::debug!(worker = &**name, "lease was renewed in the meantime");
            }
            // Another server was first, or its guardian.
            Ok(Err(refusal)) => {
                tracing::debug!(worker = &**name, %refusal, "worker is already given up");
            }
            Err(error) => {
                tracing::error!("Failed to deactivate worker {name} (stale heartbeat): {error}");
            }
        }
    }
    deactivated
}

/// Says in the log what happened to a worker that was given up.
fn given_up(Member { brief: worker, name, .. }: &Member, scope: LapseScope, age: Span) -> String {
    let (id, age) = (worker.id, seconds(age));
    match (worker.standing.holds_lease(), scope) {
        (true, LapseScope::Everything) => {
            format!("Worker {name} (ID: {id}) heartbeat is stale ({age}s old), marking as inactive")
        }
        (true, LapseScope::OverlapAllowed) => format!(
            "Worker {name} (ID: {id}) did not reconnect in time (last heartbeat {age}s ago), \
             marking as inactive"
        ),
        (false, _) => format!(
            "Worker {name} (ID: {id}) is inactive and its lease is over (last heartbeat {age}s \
             ago), taking back its last jobs"
        ),
    }
}

async fn report(engine: &Engine, worker: WorkerId, moved: &WorkerMoved) {
    for job in &moved.moved {
        tracing::warn!(job = %job.job, epoch = %job.epoch, to = %job.state, "lease lapsed");
    }
    // If the loop has ended, the server is stopping.
    drop(engine.send(Input::WorkerLapsed { worker }).await);
}

#[cfg(test)]
mod tests;
