//! Gives up workers that this server has itself watched being silent (I8).

use std::sync::Arc;

use outlast_core::id::WorkerId;
use outlast_core::lease::{Patience, Verdict};
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::liveness::Liveness;
use outlast_store::command::{Lapse, LapseScope, Renew, Sweep};
use outlast_store::record::WorkerRecord;
use outlast_store::reply::{WorkerMoveRefusal, WorkerMoved};
use outlast_store::{Command, Reply, Store};

use crate::clock::boot_time;
use crate::engine::contact::Lane;
use crate::engine::input::Input;
use crate::engine::{Engine, millis};

/// More lapses than this in one look, and more than half of all workers, is a mass loss:
/// the jobs are not suspected.
const MASS_MIN: usize = 3;

/// Runs until dropped.
pub(super) async fn run<S: Store>(engine: Engine<S>) {
    let settings = engine.settings();
    let interval = settings.check_interval;
    let threshold = settings.lease_of(settings.heartbeat_interval);
    tracing::info!("Starting worker heartbeat monitor...");
    tracing::info!(
        "Worker heartbeat monitor started (check interval: {}s, staleness threshold: {}s)",
        seconds(interval),
        seconds(threshold)
    );
    loop {
        let changed = engine.board().lease_changed.notified();
        let wait = look(&engine).await.min(interval);
        // Woken by a dropped connection, or by the next end of a lease.
        drop(tokio::time::timeout(millis(wait.max(Span(5))), changed).await);
    }
}

fn seconds(span: Span) -> f64 {
    std::time::Duration::from_millis(span.0).as_secs_f64()
}

/// Looks at every worker once; returns how long nobody can lapse.
async fn look<S: Store>(engine: &Engine<S>) -> Span {
    let workers = match engine.store().live_workers().await {
        Ok(workers) => workers,
        Err(error) => {
            tracing::error!("Failed to query active workers for heartbeat check: {error}");
            // Nobody was watched meanwhile.
            engine.board().unproven();
            prove_contact(engine).await;
            return Span::from_secs(1);
        }
    };
    engine.board().set_workers(workers);
    prove_contact(engine).await;
    if engine.board().contact.is_down() {
        return engine.settings().check_interval;
    }
    let workers = engine.board().workers();
    let now = boot_time();
    let (given_up, next) = judge(engine, &workers, now);
    let live = workers.iter().filter(|worker| worker.standing.holds_lease()).count();
    let lapsing = given_up.iter().filter(|(worker, _)| worker.standing.holds_lease()).count();
    let mass = lapsing > MASS_MIN && lapsing * 2 > live;
    let mut deactivated = 0_usize;
    for (worker, scope) in &given_up {
        let was_live = worker.standing.holds_lease();
        let lapse = lapse_of(engine, worker, *scope, mass);
        if give_up(engine, worker, lapse, now).await && was_live {
            deactivated += 1;
        }
    }
    if deactivated > 0 {
        engine.counters().lapsed(deactivated);
        tracing::info!("Deactivated {deactivated} worker(s) with stale heartbeats");
    }
    // What was refused, or failed, is not tried again at once.
    if given_up.is_empty() { next.since(boot_time()) } else { engine.settings().check_interval }
}

/// Writes where beats are written, if nothing of our own was for a while: silence says
/// something only while the store takes beats, here and wherever the silent one is attached.
async fn prove_contact<S: Store>(engine: &Engine<S>) {
    let (board, settings) = (engine.board(), engine.settings());
    let workers = board.workers();
    let live = || workers.iter().filter(|worker| worker.standing.holds_lease());
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
    // Somebody may hold the very row of the one that is silent.
    let silent = live().min_by_key(|worker| worker.last_heartbeat).filter(|worker| {
        let age = board.store_time().map(|now| now.since(worker.last_heartbeat));
        age.is_some_and(|age| age.0 > worker.lease.0 / 2)
    });
    let lapse = Lapse {
        worker: silent.map_or(WorkerId(uuid::Uuid::nil()), |worker| worker.id),
        // No worker has this number: it goes the way of a lapse, and is refused.
        renewal: 0,
        scope: LapseScope::Everything,
        mass: false,
        by: "lease monitor".into(),
        evidence: String::new(),
    };
    let nobody = Renew { worker: WorkerId(uuid::Uuid::nil()), lease, in_flight: 0 };
    let tried = (engine.beat(Command::Lapse(lapse)), engine.beat(Command::Renew(nobody)));
    drop(tokio::join!(tried.0, tried.1));
}

/// How long a write may take so that the beat behind it, and the one that is sent next, still
/// come within the lease.
fn patience(lease: Span, multiplier: u32) -> Span {
    let multiplier = u64::from(multiplier.max(2));
    Span(lease.0 / multiplier * (multiplier - 1) / 2)
}

fn judge<S: Store>(
    engine: &Engine<S>,
    workers: &Arc<Vec<WorkerRecord>>,
    now: BootTime,
) -> (Vec<(WorkerRecord, LapseScope)>, BootTime) {
    let mut given_up = Vec::new();
    let mut next = now.after(Span::from_secs(60));
    let mut leases = engine.board().leases();
    for worker in workers.iter() {
        let lapsed_holding = worker.standing.liveness == Liveness::Lapsed && worker.in_flight > 0;
        if !worker.standing.holds_lease() && !lapsed_holding {
            leases.forget(worker.id);
            continue;
        }
        leases.observe(worker.id, worker.renewal, worker.standing.liveness, now);
        let patience =
            Patience { lease: worker.lease, reconnect_window: engine.settings().reconnect_window };
        match leases.judge(worker.id, patience, now) {
            Verdict::WaitUntil(at) => next = next.min(at),
            Verdict::WindowPassed if lapsed_holding => {}
            Verdict::WindowPassed => given_up.push((worker.clone(), LapseScope::OverlapAllowed)),
            Verdict::LeasePassed => given_up.push((worker.clone(), LapseScope::Everything)),
        }
    }
    (given_up, next)
}

fn lapse_of<S: Store>(
    engine: &Engine<S>,
    worker: &WorkerRecord,
    scope: LapseScope,
    mass: bool,
) -> Lapse {
    let age =
        engine.board().store_time().map_or(Span::ZERO, |now| now.since(worker.last_heartbeat));
    tracing::warn!(
        "Worker {} (ID: {}) heartbeat is stale ({}s old), marking as inactive",
        worker.name,
        worker.id,
        seconds(age)
    );
    let evidence = match scope {
        LapseScope::OverlapAllowed => format!(
            "connection dropped and not restored within {} s, last heartbeat {} s ago",
            seconds(engine.settings().reconnect_window),
            seconds(age)
        ),
        LapseScope::Everything => {
            format!("no heartbeat for {} s, lease is {} s", seconds(age), seconds(worker.lease))
        }
    };
    Lapse {
        worker: worker.id,
        renewal: worker.renewal,
        scope,
        mass,
        by: "lease monitor".into(),
        evidence,
    }
}

async fn give_up<S: Store>(
    engine: &Engine<S>,
    worker: &WorkerRecord,
    lapse: Lapse,
    judged: BootTime,
) -> bool {
    match engine.lapse(lapse, judged).await {
        Ok(Reply::WorkerMoved(Ok(moved))) => told(engine, worker.id, &moved).await,
        Ok(Reply::WorkerMoved(Err(WorkerMoveRefusal::Renewed))) => {
            tracing::debug!(worker = worker.name, "lease was renewed meanwhile");
            false
        }
        other => {
            tracing::error!(
                "Failed to deactivate worker {} (stale heartbeat): {other:?}",
                worker.name
            );
            false
        }
    }
}

async fn told<S: Store>(engine: &Engine<S>, worker: WorkerId, moved: &WorkerMoved) -> bool {
    for job in &moved.moved {
        tracing::warn!(job = %job.job, epoch = %job.epoch, to = %job.state, "lease lapsed");
    }
    // The loop gone means that the server stops: nobody is left to tell.
    drop(engine.send(Input::Given { worker }).await);
    true
}
