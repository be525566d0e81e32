//! Deletes what need not be kept any longer. One server does it for all.

use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{DutyFence, Prune, RETENTION};
use outlast_store::tend::{Tend, Tended};
use outlast_store::{Command, Reply, Store};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, millis};
use crate::monitor::duty::Keeper;

/// How many rows of each sort one prune deletes, so that it never holds up work for long.
const PRUNE_MAX: u32 = 500;
/// How many rows of history one look deletes one by one.
const TEND_MAX: u32 = 5_000;
/// Time between two looks when nothing is left to delete.
const INTERVAL: Span = Span::from_secs(30);
/// Time between two prunes when there is more.
const SOON: Span = Span(50);
/// How long the duty outlasts two looks: a server that is slow keeps it.
const SLACK: Span = Span::from_secs(5);

/// Time between two looks at what history is kept in, in looks for what is old.
const TEND_EVERY: u64 = 20;

/// Runs until `stop`, then gives the duty back.
pub(super) async fn run<S: Store>(engine: Engine<S>, stop: CancellationToken) {
    let settings = engine.settings();
    let shortest = settings.retention_finished.min(settings.retention_workers);
    let idle = INTERVAL.min(shortest).max(Span(100));
    let lease = Span(idle.0 * 2 + SLACK.0);
    let keeper = Keeper::new(engine.clone(), RETENTION, lease);
    let mut retention = Retention { engine, keeper, idle, tend_at: Timestamp::default() };
    tokio::select! {
        () = retention.run() => {}
        () = stop.cancelled() => {}
    }
    retention.keeper.give_back().await;
}

struct Retention<S: Store> {
    engine: Engine<S>,
    keeper: Keeper<S>,
    /// How long it waits when there is nothing to do.
    idle: Span,
    /// When it looks after what history is kept in again.
    tend_at: Timestamp,
}

impl<S: Store> Retention<S> {
    async fn run(&mut self) {
        let mut wait = self.idle;
        loop {
            tokio::time::sleep(millis(wait)).await;
            let Some(now) = self.engine.board().store_time() else { continue };
            wait = match self.keeper.hold().await {
                Ok(duty) => {
                    let more = self.prune(duty.clone(), now).await;
                    let more = self.tend(duty, now).await || more;
                    if more { SOON } else { self.idle }
                }
                // Another has it for longer than it takes to look again, or lets it go soon.
                Err(sure) => self.idle.min(sure.max(SOON)),
            };
        }
    }

    fn before(now: Timestamp, kept: Span) -> Timestamp {
        Timestamp(now.0.saturating_sub(i64::try_from(kept.0).unwrap_or(i64::MAX)))
    }

    /// Deletes some of what is old; returns whether there is more.
    async fn prune(&mut self, duty: DutyFence, now: Timestamp) -> bool {
        let settings = self.engine.settings();
        let command = Command::Prune(Prune {
            duty,
            finished_before: Self::before(now, settings.retention_finished),
            workers_before: Self::before(now, settings.retention_workers),
            limit: PRUNE_MAX,
        });
        match self.engine.submit(command).await {
            Ok(Reply::Pruned(Ok(pruned))) => {
                if pruned.jobs + pruned.workers > 0 {
                    let (jobs, workers) = (pruned.jobs, pruned.workers);
                    tracing::debug!(jobs, workers, "deleted what need not be kept");
                }
                pruned.more
            }
            Ok(Reply::Pruned(Err(refusal))) => {
                self.keeper.lost(refusal);
                false
            }
            Ok(_) => false,
            Err(error) => {
                tracing::warn!(%error, "prune failed");
                false
            }
        }
    }

    /// Looks after what history is kept in, if it is time; returns whether there is more.
    async fn tend(&mut self, duty: DutyFence, now: Timestamp) -> bool {
        if now < self.tend_at {
            return false;
        }
        self.tend_at = now.after(Span(self.idle.0 * TEND_EVERY));
        let finished_before = Self::before(now, self.engine.settings().retention_finished);
        let tend = Tend { duty, finished_before, limit: TEND_MAX };
        match self.engine.store().tend(tend).await {
            Ok(Ok(tended)) => {
                if tended != Tended::default() {
                    let Tended { made, dropped, deleted, put_off, .. } = tended;
                    tracing::debug!(made, dropped, deleted, put_off, "looked after history");
                }
                if tended.more || tended.put_off > 0 {
                    self.tend_at = now;
                }
                tended.more
            }
            Ok(Err(refusal)) => {
                self.keeper.lost(refusal);
                false
            }
            Err(error) => {
                tracing::warn!(%error, "failed to look after history");
                false
            }
        }
    }
}
