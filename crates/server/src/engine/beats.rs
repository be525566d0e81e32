//! Heartbeats have batches of their own, beside the loop: whatever some other write waits for,
//! a heartbeat does not wait for it.
//!
//! Here comes what a heartbeat is made of: a renewal; of plain workers also the first one, which
//! makes them known, a word about themselves, and the jobs that they go on with. Those jobs come
//! after everything else, in a batch of their own: no renewal waits for them.

use std::collections::HashSet;
use std::sync::Arc;

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_store::{Batch, BatchId, Command, Reply, Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock::{boot_time, precise};
use crate::engine::contact::Lane;
use crate::engine::input::ReplySender;
use crate::engine::turn::is_of_one;
use crate::engine::{Board, Unavailable, millis};
use crate::metrics::{Commit, Metrics};
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
pub(super) async fn run(
    store: Arc<dyn Store>,
    settings: Settings,
    (board, metrics): (Arc<Board>, Arc<Metrics>),
    mut beats: mpsc::Receiver<Beat>,
) {
    // Batches of one writer are numbered one after another: these are not the loop's.
    let mut lane = Beats {
        store,
        settings,
        server: Uuid::now_v7(),
        batches: 0,
        board,
        metrics,
        held: HashSet::new(),
    };
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
        let (held, free): (Vec<_>, Vec<_>) = workers.into_iter().partition(|(command, _)| {
            worker_of(command).is_some_and(|worker| lane.held.contains(&worker))
        });
        for part in [free, jobs, held] {
            lane.commit(part).await;
        }
    }
}

/// Returns whom a command is about.
const fn worker_of(command: &Command) -> Option<WorkerId> {
    match command {
        Command::Renew(renew) => Some(renew.worker),
        Command::Lapse(lapse) => Some(lapse.worker),
        Command::Attach(attach) => Some(attach.worker),
        Command::Worker(step) => Some(step.worker),
        _ => None,
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

struct Beats {
    store: Arc<dyn Store>,
    settings: Settings,
    server: Uuid,
    batches: u64,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    /// Workers whose rows were held by another session when last tried. They come last, each
    /// alone, so that they hold up nobody.
    held: HashSet<WorkerId>,
}

impl Beats {
    /// Stores parts of heartbeats; one that cannot be stored fails alone.
    async fn commit(&mut self, beats: Vec<Beat>) {
        let (known, rest): (Vec<_>, Vec<_>) = beats.into_iter().partition(|(command, _)| {
            worker_of(command).is_some_and(|worker| self.held.contains(&worker))
        });
        let alone = known.into_iter().map(|beat| vec![beat]);
        let mut parts: Vec<Vec<Beat>> = alone.chain([rest]).collect();
        let (mut held, began) = (0, boot_time());
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let commands: Vec<Command> = part.iter().map(|(command, _)| command.clone()).collect();
            let error = match self.apply(commands).await {
                Ok(replies) => {
                    self.answer(part, replies);
                    continue;
                }
                Err(error) => error,
            };
            if !is_of_one(&error) {
                // The other parts would fail as this one did, each after a long wait.
                part.extend(parts.drain(..).flatten());
            } else if part.len() > 1 && held < HELD_MAX {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
                continue;
            } else if held >= HELD_MAX {
                part.extend(parts.drain(..).flatten());
            }
            if matches!(error, StoreError::Held(_)) {
                self.excuse(&part);
            }
            held += 1;
            tracing::error!(%error, commands = part.len(), "heartbeats failed");
            refuse(part, &error);
        }
        // Those that came meanwhile had to wait.
        if held > 0 && boot_time().since(began) > self.board.contact.patience() {
            self.board.unproven();
        }
    }

    /// Answers what was stored.
    fn answer(&mut self, beats: Vec<Beat>, replies: Vec<Reply>) {
        for ((command, caller), reply) in beats.into_iter().zip(replies) {
            if !self.held.is_empty()
                && let Some(worker) = worker_of(&command)
            {
                self.held.remove(&worker);
            }
            // A caller that has gone needs no answer.
            drop(caller.send(Ok(reply)));
        }
    }

    /// Notes that nothing can be stored about some workers at the moment: they are silent
    /// through no fault of their own. What is known of others stays.
    fn excuse(&mut self, beats: &[Beat]) {
        if self.held.len() > BATCH_MAX {
            self.held.clear();
        }
        for (command, _) in beats {
            match worker_of(command) {
                Some(worker) => {
                    self.board.leases().unproven(worker);
                    self.held.insert(worker);
                }
                // Its row is not there yet.
                None if matches!(command, Command::Register(_)) => {}
                None => self.board.unproven(),
            }
        }
    }

    async fn apply(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
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
            self.metrics.committed(Commit::Beats, precise().saturating_sub(begun));
        }
        let reached = !matches!(
            result,
            Err(StoreError::Unavailable(_)
                | StoreError::Ambiguous(_)
                | StoreError::Full(_)
                | StoreError::Closed)
        );
        self.board.wrote(Lane::Beats, reached);
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

fn refuse(beats: Vec<Beat>, error: &StoreError) {
    let unavailable = Unavailable::new(error.to_string());
    for (_, caller) in beats {
        drop(caller.send(Err(unavailable.clone())));
    }
}

#[cfg(test)]
mod tests;
