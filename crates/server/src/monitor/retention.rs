//! Deletes what need not be kept any longer.

use outlast_core::time::{Span, Timestamp};
use outlast_store::command::Prune;
use outlast_store::{Command, Reply, Store};

use crate::engine::{Engine, millis};

/// How many rows of each sort one prune deletes, so that it never holds up work for long.
const PRUNE_MAX: u32 = 500;
/// Time between two looks when nothing is left to delete.
const INTERVAL: Span = Span::from_secs(30);

/// Runs until dropped.
pub(super) async fn run<S: Store>(engine: Engine<S>) {
    let settings = engine.settings().clone();
    let shortest = settings.retention_finished.min(settings.retention_workers);
    let idle = INTERVAL.min(shortest).max(Span(100));
    let mut wait = idle;
    loop {
        tokio::time::sleep(millis(wait)).await;
        let Some(now) = engine.board().store_time() else { continue };
        let before =
            |kept: Span| Timestamp(now.0.saturating_sub(i64::try_from(kept.0).unwrap_or(i64::MAX)));
        let command = Command::Prune(Prune {
            finished_before: before(settings.retention_finished),
            workers_before: before(settings.retention_workers),
            limit: PRUNE_MAX,
        });
        wait = match engine.submit(command).await {
            Ok(Reply::Pruned(pruned)) => {
                if pruned.jobs + pruned.workers > 0 {
                    let (jobs, workers) = (pruned.jobs, pruned.workers);
                    tracing::debug!(jobs, workers, "deleted what need not be kept");
                }
                if pruned.more { Span(50) } else { idle }
            }
            Ok(_) => idle,
            Err(error) => {
                tracing::warn!(%error, "prune failed");
                idle
            }
        };
    }
}
