//! Heartbeats have batches of their own, beside the loop: whatever some other write waits for,
//! a heartbeat does not wait for it.
//!
//! Here comes what a heartbeat is made of: a renewal; of plain workers also the first one, which
//! makes them known, a word about themselves, and the jobs that they go on with. Those jobs come
//! after everything else, in a batch of their own: no renewal waits for them.

use std::sync::Arc;

use outlast_core::time::Span;
use outlast_store::{Batch, BatchId, Command, Reply, Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock::{boot_time, precise};
use crate::engine::contact::Lane;
use crate::engine::input::ReplySender;
use crate::engine::{Board, Unavailable, millis};
use crate::metrics::Metrics;
use crate::settings::Settings;

/// Most renewals in one batch.
const BATCH_MAX: usize = 2_000;
/// Batches of renewals begin this far apart, so that many workers cost few commits.
const APART: Span = Span(200);
/// A short lease allows less: this part of it.
const APART_OF_LEASE: u64 = 75;
/// Most commands that are found to be held in one go.
const HELD_MAX: usize = 8;
/// How many commands may wait before beats wait for a place.
pub(super) const WAITING_MAX: usize = 16 * 1024;

/// A part of a heartbeat, and who waits for it.
pub(super) type Beat = (Command, ReplySender);

/// Runs until every handle is gone.
pub(super) async fn run<S: Store>(
    store: S,
    settings: Settings,
    (board, metrics): (Arc<Board>, Arc<Metrics>),
    mut beats: mpsc::Receiver<Beat>,
) {
    // Batches of one writer are numbered one after another: these are not the loop's.
    let mut lane = Beats { store, settings, server: Uuid::now_v7(), batches: 0, board, metrics };
    lane.store.beats_come_from(lane.server);
    let mut gathered = Vec::new();
    let mut began: Option<Instant> = None;
    while beats.recv_many(&mut gathered, BATCH_MAX).await > 0 {
        // The first goes at once; of many, more come while they wait.
        if let Some(began) = began {
            tokio::time::sleep_until(began + millis(apart(&gathered))).await;
            let room = BATCH_MAX.saturating_sub(gathered.len());
            for _ in 0..room {
                let Ok(beat) = beats.try_recv() else { break };
                gathered.push(beat);
            }
        }
        began = Some(Instant::now());
        lane.metrics.batch(gathered.len());
        let (jobs, workers): (Vec<_>, Vec<_>) =
            gathered.drain(..).partition(|(command, _)| matches!(command, Command::Extend(_)));
        for part in [workers, jobs] {
            let (commands, callers) = part.into_iter().unzip();
            lane.commit(commands, callers).await;
        }
    }
}

/// Returns how far apart batches begin that renew these leases.
fn apart(beats: &[Beat]) -> Span {
    let leases = beats.iter().filter_map(|(command, _)| match command {
        Command::Renew(renew) => Some(Span(renew.lease.0 / APART_OF_LEASE)),
        _ => None,
    });
    leases.fold(APART, Span::min)
}

struct Beats<S> {
    store: S,
    settings: Settings,
    server: Uuid,
    batches: u64,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
}

impl<S: Store> Beats<S> {
    /// Stores parts of heartbeats; one that cannot be stored fails alone.
    async fn commit(&mut self, commands: Vec<Command>, callers: Vec<ReplySender>) {
        if commands.is_empty() {
            return;
        }
        let mut parts = vec![(commands, callers)];
        let mut held = 0;
        while let Some((mut commands, mut callers)) = parts.pop() {
            let spare = commands.clone();
            let error = match self.apply(std::mem::take(&mut commands), &callers).await {
                Ok(replies) => {
                    answer(callers, replies);
                    continue;
                }
                Err(error) => error,
            };
            let of_one = matches!(
                error,
                StoreError::Rejected(_) | StoreError::Corrupt(_) | StoreError::Held(_)
            );
            if of_one && callers.len() > 1 && held < HELD_MAX {
                commands = spare;
                let rest = commands.split_off(commands.len() / 2);
                let others = callers.split_off(callers.len() / 2);
                parts.extend([(rest, others), (commands, callers)]);
                continue;
            }
            held += 1;
            tracing::error!(%error, commands = callers.len(), "heartbeats failed");
            refuse(callers, &error);
        }
    }

    async fn apply(
        &mut self,
        commands: Vec<Command>,
        callers: &[ReplySender],
    ) -> Result<Vec<Reply>, StoreError> {
        debug_assert_eq!(commands.len(), callers.len());
        self.batches += 1;
        let batch = Batch {
            id: BatchId { server: self.server, n: self.batches },
            jitter_seed: rand::random(),
            budgets: self.settings.budgets,
            commands,
        };
        self.board.contact.begins(Lane::Beats, boot_time());
        let begun = precise();
        let result = self.store.apply(batch).await;
        if result.is_ok() {
            self.metrics.committed(Lane::Beats, precise().saturating_sub(begun));
        }
        let reached = !matches!(
            result,
            Err(StoreError::Unavailable(_)
                | StoreError::Ambiguous(_)
                | StoreError::Full(_)
                | StoreError::Closed)
        );
        self.board.wrote(Lane::Beats, reached);
        // The one whose row is held is silent through no fault of its own.
        if matches!(result, Err(StoreError::Held(_))) {
            self.board.unproven();
        }
        let applied = result?;
        self.board.set_clock(applied.at);
        let mut news = false;
        for reply in &applied.replies {
            news |= matches!(
                reply,
                Reply::Renewed(Ok(_)) | Reply::Registered(Ok(_)) | Reply::WorkerMoved(Ok(_))
            );
            if matches!(reply, Reply::Registered(Ok(_))) {
                self.metrics.worker_registered();
            }
        }
        if news {
            self.board.commits.send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(applied.replies)
    }
}

fn answer(callers: Vec<ReplySender>, replies: Vec<Reply>) {
    for (caller, reply) in callers.into_iter().zip(replies) {
        // A caller that has gone needs no answer.
        drop(caller.send(Ok(reply)));
    }
}

fn refuse(callers: Vec<ReplySender>, error: &StoreError) {
    let unavailable = Unavailable::new(error.to_string());
    for caller in callers {
        drop(caller.send(Err(unavailable.clone())));
    }
}
