//! Gives up workers that this server has itself watched being silent (I8).

use std::sync::Arc;

use outlast_core::id::WorkerId;
use outlast_core::lease::{Patience, Verdict};
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::liveness::Liveness;
use outlast_store::command::{Lapse, LapseScope};
use outlast_store::record::WorkerRecord;
use outlast_store::reply::{WorkerMoveRefusal, WorkerMoved};
use outlast_store::{Command, Reply, Store};

use crate::clock::boot_time;
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
    let workers = match engine.store().workers().await {
        Ok(workers) => workers,
        Err(error) => {
            tracing::error!("Failed to query active workers for heartbeat check: {error}");
            engine.board().contact(false);
            return Span::from_secs(1);
        }
    };
    engine.board().set_workers(workers);
    if engine.board().is_store_down() {
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
        if lapse(engine, worker, *scope, mass).await && was_live {
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

async fn lapse<S: Store>(
    engine: &Engine<S>,
    worker: &WorkerRecord,
    scope: LapseScope,
    mass: bool,
) -> bool {
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
    let command = Command::Lapse(Lapse {
        worker: worker.id,
        renewal: worker.renewal,
        scope,
        mass,
        by: "lease monitor".into(),
        evidence,
    });
    match engine.submit(command).await {
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
