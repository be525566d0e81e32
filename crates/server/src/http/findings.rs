//! Reads the facts that the rules of `outlast_core::finding` are applied to: for the first page of the dashboard
//! and for `outlast doctor`.

use std::sync::Arc;

use outlast_core::finding::{
    Facts, Nowhere, OF_ONE_MAX, Recent, Trouble, TroubledWorker, WaitingQueue,
};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Liveness;
use outlast_store::record::WorkerRecord;

use super::App;
use super::error::ApiError;
use super::recent::Happenings;
use super::request::encoded;
use crate::engine::{Health, Untaken};
use crate::metrics::read as counter;
use crate::snapshot::Snapshot;

/// Over how many minutes failures are compared with what completed.
const FAILING_MINUTES: usize = 30;
/// From how many missing heartbeats on a worker is late: one in flight is not.
const LATE_BEATS: u64 = 2;

/// Returns what is wrong with the server's store, if it is not ready: in words, and as it says itself.
pub(super) fn store_trouble(health: &Health) -> Option<(String, String)> {
    if health.ready {
        return None;
    }
    let why = health.dead.clone().or_else(|| health.hung.clone());
    let why = why.unwrap_or_else(|| "its store does not take writes".to_owned());
    Some((format!("This server is not ready: {why}."), health.store.clone()))
}

/// Reads what findings follow from.
pub(super) async fn facts(app: &App) -> Result<(Facts, Arc<Snapshot>), ApiError> {
    let store = app.engine.store();
    let snapshot = app.snapshot().await?;
    let now = app.now().await?;
    let lag = store.workflow_counts().await?.oldest_end;
    let Happenings { lost, letters, skips, late_fires, recounts, refused_beats } =
        app.recent.look(store.as_ref(), now, rising(app), app.started).await?;
    let (failed, completed) = failures(app);
    let workers = store.live_workers().await?;
    let queues = snapshot.queues.iter().filter_map(|queue| {
        Some(WaitingQueue {
            name: (queue.name.clone(), encoded(&queue.name)),
            paused: queue.paused,
            available: queue.available,
            oldest: now.since(queue.oldest_available?),
        })
    });
    let facts = Facts {
        store: store_trouble(&app.engine.health()),
        waiting: snapshot.totals.available,
        workers: snapshot.workers,
        nowhere: nowhere(app, &snapshot),
        troubled: workers.iter().filter_map(|worker| troubled(app, worker, now)).collect(),
        queues: queues.collect(),
        workflow_lag: lag.map_or(Span::ZERO, |oldest| now.since(oldest)),
        lost,
        letters,
        skips,
        late_fires,
        recounts,
        refused_beats,
        failed,
        completed,
    };
    Ok((facts, snapshot))
}

fn as_number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The counters of which it matters that they rise.
fn rising(app: &App) -> [u64; 3] {
    let counters = app.engine.counters();
    [counter(&counters.fires_late), counter(&counters.recounts), counter(&counters.beats_refused)]
}

/// Counts the attempts that failed lately at this server, and those that completed.
fn failures(app: &App) -> (Recent, u64) {
    let hour = app.engine.counters().hour();
    let minutes = hour.minutes();
    let skipped = minutes.len().saturating_sub(FAILING_MINUTES);
    let over = Span::from_secs(60 * as_number(minutes.len() - skipped));
    let (mut failed, mut completed) = (0, 0);
    for minute in minutes.skip(skipped) {
        failed += minute.failed;
        completed += minute.completed;
    }
    (Recent { count: failed, last: None, is_whole: true, over }, completed)
}

/// Returns jobs that can run nowhere, with what the largest class of each group lacks.
fn nowhere(app: &App, snapshot: &Snapshot) -> Vec<Nowhere> {
    let groups = snapshot.waiting.groups.iter();
    let found = groups.filter_map(|group| {
        let untaken = app.engine.untaken(group.class.as_ref()?);
        // Since the snapshot, a worker may have come.
        let Some(Untaken::NoWorker { reason, lacks_action }) = untaken else { return None };
        Some(Nowhere {
            jobs: group.jobs,
            job_type: group.job_type.clone(),
            queue: group.queue.clone(),
            reason,
            lacks_action,
        })
    });
    found.take(OF_ONE_MAX).collect()
}

fn troubled(app: &App, worker: &WorkerRecord, now: Timestamp) -> Option<TroubledWorker> {
    let last_heard = now.since(worker.last_heartbeat);
    let interval = worker.lease.0 / u64::from(app.engine.settings().staleness_multiplier).max(1);
    let session = app.engine.shared().fleet.session(worker.id);
    let deaf = session.and_then(|session| session.not_polling_for());
    let trouble = if worker.standing.liveness == Liveness::Suspect {
        Trouble::Silent { last_heard, in_flight: worker.in_flight.into() }
    } else if let Some(unhealthy) = &worker.unhealthy {
        Trouble::Unhealthy { reason: unhealthy.reason.clone(), since: now.since(unhealthy.since) }
    } else if let Some(deaf) = deaf {
        Trouble::Deaf(deaf)
    } else if worker.standing.holds_lease() && last_heard.0 > interval.saturating_mul(LATE_BEATS) {
        Trouble::Late { last_heard, lease: worker.lease }
    } else {
        return None;
    };
    Some(TroubledWorker { id: worker.id.to_string(), name: worker.name.clone(), trouble })
}
