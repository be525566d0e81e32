//! Heartbeats have their own batches, beside the event loop: a heartbeat waits for no other write.
//!
//! A heartbeat is a renewal. A plain worker's heartbeat may also register the worker, change its
//! state, and extend the visibility of its jobs. The jobs come last, in a batch of their own, so
//! that no renewal waits for them.

use std::collections::HashSet;
use std::sync::Arc;

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_store::{Command, Reply, StoreError};
use rand::seq::SliceRandom as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock::{boot_time, millis};
use crate::engine::batch_writer::{BatchWriter, Committed, Failed, Storage, is_command_fault};
use crate::engine::error::Unavailable;
use crate::engine::shared_state::SharedState;
use crate::engine::store_health::Lane;
use crate::engine::trouble_log::log_trouble;
use crate::metrics::Metrics;

/// Most renewals in one batch.
const BATCH_MAX: usize = 2_000;
/// Batches of renewals begin this far apart, so that many workers cost few commits.
const APART: Span = Span(500);
/// A short lease allows less: this part of it. What must not overlap ends a second before a
/// native worker's lease does, and the first heartbeat after a freeze is to be answered by then.
const APART_OF_LEASE: u64 = 60;
/// A worker that attaches waits for it.
const APART_OF_ATTACHES: Span = Span(100);
/// Most commands that are found to wait for a locked row, or to take too long, in one go: those that
/// were not tried wait for the next batch.
const HELD_UP_MAX: usize = 8;
/// How many commands may wait before senders wait for room.
pub(super) const WAITING_MAX: usize = 16 * 1024;

/// Answers a part of a heartbeat.
type ReplySender = oneshot::Sender<Result<Reply, Unavailable>>;

/// A part of a heartbeat, and where its reply goes.
pub(super) type Beat = (Command, ReplySender);

/// Runs until every handle is gone.
pub(super) async fn run(storage: Storage, mut beats: mpsc::Receiver<Beat>) {
    // A writer numbers its batches by itself, so these are not the loop's.
    let server = Uuid::now_v7();
    storage.store.beats_come_from(server);
    let mut lane = Heartbeats {
        shared: Arc::clone(&storage.shared),
        metrics: Arc::clone(&storage.metrics),
        writer: BatchWriter::new(storage, Lane::Beats, server),
        held_up: HashSet::new(),
    };
    let mut gathered = Vec::new();
    let mut began: Option<Instant> = None;
    while !gathered.is_empty() || beats.recv_many(&mut gathered, BATCH_MAX).await > 0 {
        // The first goes at once, and so does a full batch; under load, more arrive while they wait.
        if let Some(began) = began.filter(|_| gathered.len() < BATCH_MAX) {
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
        let (held_up, free): (Vec<_>, Vec<_>) = workers.into_iter().partition(|(command, _)| {
            worker_of(command).is_some_and(|worker| lane.held_up.contains(&worker))
        });
        for part in [free, jobs] {
            let untried = lane.commit(part).await;
            // A caller that has gone has given up.
            gathered.extend(untried.into_iter().filter(|(_, caller)| !caller.is_closed()));
        }
        lane.commit_held_up(held_up).await;
    }
}

/// Returns the worker that a command is about.
const fn worker_of(command: &Command) -> Option<WorkerId> {
    match command {
        Command::Renew(renew) => Some(renew.worker),
        Command::Lapse(lapse) => Some(lapse.worker),
        Command::Attach(attach) => Some(attach.worker),
        Command::Worker(step) => Some(step.worker),
        _ => None,
    }
}

/// Returns how far apart batches begin that do this.
fn apart(beats: &[Beat]) -> Span {
    let most = beats.iter().filter_map(|(command, _)| match command {
        Command::Renew(renew) => Some(Span(renew.lease.0 / APART_OF_LEASE)),
        Command::Attach(_) => Some(APART_OF_ATTACHES),
        _ => None,
    });
    most.fold(APART, Span::min)
}

struct Heartbeats {
    writer: BatchWriter,
    shared: Arc<SharedState>,
    metrics: Arc<Metrics>,
    /// Workers whose rows another session had locked at the last try, or that took too long. They
    /// come last, each alone, so that they delay no others.
    held_up: HashSet<WorkerId>,
}

impl Heartbeats {
    /// Stores parts of heartbeats; one that cannot be stored fails alone. Returns those that were
    /// not tried, when many rows are locked.
    async fn commit(&mut self, beats: Vec<Beat>) -> Vec<Beat> {
        let (mut parts, mut untried) = (vec![beats], Vec::new());
        let (mut failed, began) = (0, boot_time());
        while let Some(part) = parts.pop() {
            if failed >= HELD_UP_MAX {
                untried.extend(part);
                continue;
            }
            if part.is_empty() {
                continue;
            }
            let Err((error, mut part)) = self.try_commit(part).await else { continue };
            if !is_command_fault(&error) {
                // The other parts would fail the same way, each after a long wait.
                part.extend(parts.drain(..).flatten());
            } else if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
                continue;
            }
            failed += 1;
            self.give_up(part, &error);
        }
        // They wait for others, and not for their workers.
        self.excuse(&untried);
        self.waited(failed, began);
        untried
    }

    /// Stores parts of heartbeats of workers that were held up at the last try: each alone, and not
    /// always the same ones first.
    async fn commit_held_up(&mut self, mut beats: Vec<Beat>) {
        beats.shuffle(&mut rand::rng());
        let (mut failed, began) = (0, boot_time());
        while let Some(beat) = beats.pop() {
            let Err((error, mut part)) = self.try_commit(vec![beat]).await else { continue };
            failed += 1;
            if failed >= HELD_UP_MAX || !is_command_fault(&error) {
                part.append(&mut beats);
            }
            self.give_up(part, &error);
        }
        self.waited(failed, began);
    }

    /// Refuses what could not be stored.
    fn give_up(&mut self, beats: Vec<Beat>, error: &StoreError) {
        if matches!(error, StoreError::Locked(_) | StoreError::Slow(_)) {
            self.excuse(&beats);
            self.remember_held_up(&beats, error);
        } else {
            log_trouble!(error, self.shared, error, "heartbeats failed");
        }
        refuse(beats, error);
    }

    /// Heartbeats that arrived while some failed had to wait.
    fn waited(&self, failed: usize, began: BootTime) {
        if failed > 0 && boot_time().since(began) > self.shared.store_health.patience() {
            self.shared.contact_unproven();
        }
    }

    /// Applies a part and answers it, or hands it back.
    async fn try_commit(&mut self, part: Vec<Beat>) -> Result<(), (StoreError, Vec<Beat>)> {
        let (commands, callers): (Vec<Command>, Vec<ReplySender>) = part.into_iter().unzip();
        // No attempt ends here.
        let Committed { replies, commands, .. } = match self.writer.apply(commands).await {
            Ok(committed) => committed,
            Err(Failed { error, commands }) => {
                return Err((error, commands.into_iter().zip(callers).collect()));
            }
        };
        if !self.held_up.is_empty() {
            for worker in commands.iter().filter_map(worker_of) {
                if self.held_up.remove(&worker) {
                    tracing::info!(%worker, "heartbeats of a worker are stored again");
                }
            }
        }
        self.shared.trouble_log.went_well("heartbeats failed");
        self.learn(&replies);
        for (reply, caller) in replies.into_iter().zip(callers) {
            // A caller that has gone needs no answer.
            drop(caller.send(Ok(reply)));
        }
        Ok(())
    }

    fn learn(&self, replies: &[Reply]) {
        let mut news = false;
        for reply in replies {
            news |= matches!(
                reply,
                Reply::Renewed(Ok(_)) | Reply::Registered(Ok(_)) | Reply::WorkerMoved(Ok(_))
            );
            if matches!(reply, Reply::Registered(Ok(_))) {
                self.metrics.worker_registered();
            }
        }
        if news {
            self.shared.commit_happened();
        }
    }

    /// Excuses workers about which nothing can be stored at the moment: their silence is not
    /// their fault. What is known of others stays.
    fn excuse(&self, beats: &[Beat]) {
        for (command, _) in beats {
            match worker_of(command) {
                Some(worker) => self.shared.leases.watch().unproven(worker),
                // A worker that registers has no row yet.
                None if matches!(command, Command::Register(_)) => {}
                None => self.shared.contact_unproven(),
            }
        }
    }

    /// Remembers whose rows are locked, or take too long. Logs it once for each: heartbeats come
    /// every few seconds, and a lock may be held for hours.
    fn remember_held_up(&mut self, beats: &[Beat], error: &StoreError) {
        if self.held_up.len() > BATCH_MAX {
            self.held_up.clear();
        }
        for (command, _) in beats {
            match worker_of(command) {
                Some(worker) if !self.held_up.insert(worker) => {}
                Some(worker) => {
                    tracing::warn!(%worker, %error, "heartbeats of a worker are not stored");
                }
                None => tracing::warn!(%error, "part of a heartbeat was not stored"),
            }
        }
    }
}

fn refuse(beats: Vec<Beat>, error: &StoreError) {
    let unavailable = Unavailable::new(error.to_string());
    for (_, caller) in beats {
        drop(caller.send(Err(unavailable.clone())));
    }
}

#[cfg(test)]
mod tests;
