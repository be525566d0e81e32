//! Deletes what need not be kept any longer. One server does it for all.

use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{DutyFence, Prune, RETENTION};
use outlast_store::{Command, Reply, Store};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, millis};
use crate::monitor::duty::Keeper;

/// How many rows of each sort one prune deletes, so that it never holds up work for long.
const PRUNE_MAX: u32 = 500;
/// Time between two looks when nothing is left to delete.
const INTERVAL: Span = Span::from_secs(30);
/// Time between two prunes when there is more.
const SOON: Span = Span(50);
/// How long the duty outlasts two looks: a server that is slow keeps it.
const SLACK: Span = Span::from_secs(5);

/// Runs until `stop`, then gives the duty back.
pub(super) async fn run<S: Store>(engine: Engine<S>, stop: CancellationToken) {
    let settings = engine.settings();
    let shortest = settings.retention_finished.min(settings.retention_workers);
    let idle = INTERVAL.min(shortest).max(Span(100));
    let lease = Span(idle.0 * 2 + SLACK.0);
    let mut keeper = Keeper::new(engine.clone(), RETENTION, lease);
    tokio::select! {
        () = prune_for_ever(&engine, &mut keeper, idle) => {}
        () = stop.cancelled() => {}
    }
    keeper.give_back().await;
}

async fn prune_for_ever<S: Store>(engine: &Engine<S>, keeper: &mut Keeper<S>, idle: Span) {
    let mut wait = idle;
    loop {
        tokio::time::sleep(millis(wait)).await;
        let Some(now) = engine.board().store_time() else { continue };
        wait = match keeper.hold().await {
            Ok(duty) => prune(engine, keeper, duty, now).await.unwrap_or(idle),
            // Another has it for longer than it takes to look again, or lets it go soon.
            Err(sure) => idle.min(sure.max(SOON)),
        };
    }
}

/// Returns when to go on, if not at the next look.
async fn prune<S: Store>(
    engine: &Engine<S>,
    keeper: &mut Keeper<S>,
    duty: DutyFence,
    now: Timestamp,
) -> Option<Span> {
    let settings = engine.settings();
    let before =
        |kept: Span| Timestamp(now.0.saturating_sub(i64::try_from(kept.0).unwrap_or(i64::MAX)));
    let command = Command::Prune(Prune {
        duty,
        finished_before: before(settings.retention_finished),
        workers_before: before(settings.retention_workers),
        limit: PRUNE_MAX,
    });
    match engine.submit(command).await {
        Ok(Reply::Pruned(Ok(pruned))) => {
            if pruned.jobs + pruned.workers > 0 {
                let (jobs, workers) = (pruned.jobs, pruned.workers);
                tracing::debug!(jobs, workers, "deleted what need not be kept");
            }
            pruned.more.then_some(SOON)
        }
        Ok(Reply::Pruned(Err(refusal))) => {
            keeper.lost(refusal);
            None
        }
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(%error, "prune failed");
            None
        }
    }
}
