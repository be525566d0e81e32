//! Deletes old history. One server does it for all, in small batches of its own beside the event
//! loop's, and for at most half of the time. In a store with one writer, batches are smaller and
//! take at most a fifth of the time while there is other work.
//!
//! The history tables are maintained beside that, as a maintenance run may take minutes. So is the
//! audit of limits ([`super::audit`]): the same server does it.

use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{LeadershipFence, Prune, RETENTION};
use outlast_store::partitions::{Maintain, Maintained};
use outlast_store::{Batch, BatchId, Command, Reply, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::{boot_time, millis};
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;
use crate::monitor::audit::Audit;
use crate::monitor::backoff::Backoff;
use crate::monitor::dead_letters::DeadLetters;
use crate::monitor::leadership::{Candidate, NotLeading};

/// How many rows of each kind one prune deletes: at first, at least and at most. The number adapts
/// so that a prune takes about one slice of time and never delays other work for long.
const PRUNE_FIRST: u32 = 200;
const PRUNE_MIN: u32 = 50;
const PRUNE_MAX: u32 = 5_000;
/// How long one prune should take.
const SLICE: Span = Span(15);
/// The same in a store with one writer, where other batches wait for it.
const SLICE_OF_ONE_WRITER: Span = Span(5);
/// While other batches wait for prunes, the pause between two is this many times as long as one.
const REST: u64 = 4;
/// How many rows of history one maintenance run deletes one by one.
const MAINTAIN_MAX: u32 = 5_000;
/// Time between two looks when nothing is left to delete.
const INTERVAL: Span = Span::from_secs(30);
/// Longest time between two prunes when there is more; it is as long as the last one took.
const SOON: Span = Span(50);
/// How much longer the leader's lease is than two runs: a slow server keeps it.
const SLACK: Span = Span::from_secs(5);

/// How often prunes begin with the oldest jobs. In between they pass over what they have seen and
/// kept: dead letters may be many.
const ROUND: Span = Span::from_secs(60 * 60);

/// How many idle intervals pass between two maintenance runs.
const TEND_EVERY: u64 = 20;

/// Runs until `stop`, then resigns.
pub(super) async fn run(engine: Engine, stop: CancellationToken) {
    let settings = engine.settings();
    let shortest = settings.retention_finished.min(settings.retention_workers);
    let idle = INTERVAL.min(shortest).max(Span(100));
    let lease = Span(idle.0 * 2 + SLACK.0);
    let candidate = Candidate::new(engine.clone(), RETENTION, lease);
    let (leader, leadership) = watch::channel(None);
    let mut audit = Audit::new(engine.clone(), idle, leadership.clone());
    let mut letters = DeadLetters::new(engine.clone(), leadership.clone());
    let mut history = History { engine: engine.clone(), idle, leadership };
    let mut retention = Retention {
        engine,
        candidate,
        backoff: Backoff::new(SOON, idle),
        leader,
        idle,
        server: Uuid::now_v7(),
        batches: 0,
        limit: PRUNE_FIRST,
        pause: SOON,
        round_begun: None,
        commits: 0,
    };
    tokio::select! {
        () = retention.run() => {}
        () = history.run() => {}
        () = audit.run() => {}
        () = letters.run() => {}
        () = stop.cancelled() => {}
    }
    retention.candidate.resign().await;
}

struct Retention {
    engine: Engine,
    candidate: Candidate,
    /// Pauses while the store does not say who leads.
    backoff: Backoff,
    /// The leadership, while this server has it.
    leader: watch::Sender<Option<LeadershipFence>>,
    /// How long it waits when there is nothing to do.
    idle: Span,
    /// Who writes its batches, and how many it wrote.
    server: Uuid,
    batches: u64,
    /// How many rows the next prune deletes.
    limit: u32,
    /// How long it waits when there is more to do.
    pause: Span,
    /// When a prune last began with the oldest jobs.
    round_begun: Option<Timestamp>,
    /// How many batches the server had stored at the last prune.
    commits: u64,
}

/// Returns how long to wait after a prune if there is more to do.
fn pause_after(took: Span, others_wait: bool) -> Span {
    // Less than a millisecond may have passed, or nearly one more.
    if others_wait { Span((took.0 + 1) * REST) } else { took.clamp(Span(1), SOON) }
}

impl Retention {
    async fn run(&mut self) {
        let mut wait = self.idle;
        loop {
            tokio::time::sleep(millis(wait)).await;
            let Some(now) = self.engine.shared().store_time() else { continue };
            wait = match self.candidate.acquire().await {
                Ok(leadership) => {
                    self.leader.send_replace(Some(leadership.clone()));
                    if self.prune(leadership, now).await { self.pause } else { self.idle }
                }
                Err(why) => {
                    self.leader.send_replace(None);
                    match why {
                        // Perhaps for longer than the usual interval.
                        NotLeading::Elsewhere(sure) => self.idle.min(sure.max(SOON)),
                        NotLeading::Failed => {
                            wait = self.backoff.failed();
                            continue;
                        }
                    }
                }
            };
            self.backoff.reset();
        }
    }

    /// Deletes some old jobs and workers; returns whether there are more.
    async fn prune(&mut self, leadership: LeadershipFence, now: Timestamp) -> bool {
        let settings = self.engine.settings();
        let command = Command::Prune(Prune {
            leadership,
            finished_before: before(now, settings.retention_finished),
            workers_before: before(now, settings.retention_workers),
            limit: self.limit,
            from_start: self.round_begun.is_none_or(|begun| now.since(begun) >= ROUND),
        });
        if let Command::Prune(Prune { from_start: true, .. }) = command {
            self.round_begun = Some(now);
        }
        match self.apply(command).await {
            Ok(Some(Reply::Pruned(Ok(pruned)))) => {
                if pruned.jobs + pruned.workers + pruned.classes > 0 {
                    let (jobs, workers, classes) = (pruned.jobs, pruned.workers, pruned.classes);
                    tracing::debug!(jobs, workers, classes, "deleted old history");
                }
                pruned.more
            }
            Ok(Some(Reply::Pruned(Err(refusal)))) => {
                self.candidate.lost(refusal);
                false
            }
            Ok(_) => false,
            Err(error) => {
                log_trouble!(warn, self.engine.shared(), error, "prune failed");
                false
            }
        }
    }

    /// Applies one prune as a batch of its own, and adapts the size of the next one.
    async fn apply(&mut self, command: Command) -> Result<Option<Reply>, StoreError> {
        self.batches += 1;
        let batch = Batch {
            id: BatchId { server: self.server, n: self.batches },
            jitter_seed: 0,
            budgets: self.engine.settings().budgets,
            commands: vec![command],
        };
        let begun = boot_time();
        let applied = self.engine.store().apply(batch.into()).await;
        let took = boot_time().since(begun);
        let one_writer = self.engine.store().has_one_writer();
        let slice = if one_writer { SLICE_OF_ONE_WRITER } else { SLICE };
        self.limit = if took > slice { self.limit / 2 } else { self.limit.saturating_mul(2) };
        self.limit = self.limit.clamp(PRUNE_MIN, PRUNE_MAX);
        let before = self.commits;
        self.commits = *self.engine.shared().commits.borrow();
        self.pause = pause_after(took, one_writer && self.commits != before);
        Ok(applied?.replies.pop())
    }
}

/// Maintains the tables that keep history, while this server leads.
struct History {
    engine: Engine,
    idle: Span,
    leadership: watch::Receiver<Option<LeadershipFence>>,
}

impl History {
    async fn run(&mut self) {
        loop {
            let leadership = match self.leadership.wait_for(Option::is_some).await {
                Ok(leadership) => leadership.clone(),
                Err(_closed) => return,
            };
            let now = self.engine.shared().store_time();
            let wait = match leadership.zip(now) {
                Some((leadership, now)) => self.maintain(leadership, now).await,
                None => self.idle,
            };
            tokio::time::sleep(millis(wait)).await;
        }
    }

    /// Runs the maintenance once; returns how long to wait for the next run.
    async fn maintain(&self, leadership: LeadershipFence, now: Timestamp) -> Span {
        let finished_before = before(now, self.engine.settings().retention_finished);
        let order = Maintain { leadership, finished_before, limit: MAINTAIN_MAX };
        match self.engine.store().maintain(order).await {
            Ok(Ok(maintained)) => {
                if maintained != Maintained::default() {
                    let Maintained { made, dropped, deleted, put_off, .. } = maintained;
                    tracing::debug!(made, dropped, deleted, put_off, "maintained history tables");
                }
                if maintained.more {
                    return SOON;
                }
                if maintained.put_off > 0 {
                    return self.idle;
                }
            }
            // The next prune finds out who leads.
            Ok(Err(_refusal)) => return self.idle,
            Err(error) => {
                log_trouble!(
                    warn,
                    self.engine.shared(),
                    error,
                    "failed to maintain history tables"
                );
                // It is soon to be seen again whether the store has come back.
                return self.idle;
            }
        }
        Span(self.idle.0 * TEND_EVERY)
    }
}

fn before(now: Timestamp, kept: Span) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(kept.0).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prunes once took half of the time of the one writer that all work waits for.
    #[test]
    fn prunes_take_at_most_a_fifth_of_the_time_while_others_wait() {
        for took in [0, 1, 5, 40, 400] {
            assert!(pause_after(Span(took), true).0 >= 4 * took.max(1), "{took}");
        }
        assert_eq!(pause_after(Span(5), false), Span(5));
        assert_eq!(pause_after(Span(400), false), SOON);
    }
}
