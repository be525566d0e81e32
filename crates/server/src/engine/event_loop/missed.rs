//! Reading from the store what signals may have said that this server missed: which queues are
//! paused, what its workers were ordered, and which of their attempts were cancelled.
//!
//! Signals are missed when a server begins to listen, when its connection breaks, and when another
//! one says that some were lost. That may happen again and again, to a server with thousands of
//! sessions. So one read is under way at a time, and asks about many workers at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::worker::order::{StandingOrder, WorkerOrder, in_force};
use outlast_store::signal::{Heard, Signal};
use outlast_store::{Store, StoreError};

use super::EventLoop;
use crate::engine::input::Input;

/// Pause before reading missed signals from the store again: at first, and at most.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(200);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Most workers that one query is about.
const WORKERS_MAX: usize = 1_000;

/// Whether the store is to be read: one read at a time.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// Signals were missed since the latest read began.
    pub(super) wanted: bool,
    pub(super) reading: bool,
    /// Workers that got an order, or reported a phase, after the read began: its rows may be older.
    newer: HashSet<WorkerId>,
}

impl Missed {
    /// Notes that what a read under way finds of a worker may be old.
    pub(super) fn is_newer(&mut self, worker: WorkerId) {
        if self.reading {
            self.newer.insert(worker);
        }
    }
}

/// In which phase the store has a worker.
#[derive(Clone, Debug)]
pub(crate) struct StoredPhase {
    worker: WorkerId,
    order: WorkerOrder,
    /// Who gave the order that stands, if one keeps the worker quiet.
    standing: Option<String>,
}

/// What a read found.
#[derive(Debug, Default)]
struct Found {
    signals: Vec<Signal>,
    phases: Vec<StoredPhase>,
}

impl EventLoop {
    /// Reads from the store what missed signals may have said, in a task beside the loop.
    pub(super) fn read_missed(&mut self) {
        if !self.peers.missed.wanted || self.peers.missed.reading {
            return;
        }
        self.peers.missed = Missed { reading: true, ..Missed::default() };
        let (store, inputs) = (Arc::clone(self.writer.store()), self.inputs.clone());
        let attached: Vec<WorkerId> = self.sessions.workers().collect();
        tokio::spawn(async move {
            let mut pause = RETRY_PAUSE_MIN;
            // Signals are not repeated, so this is retried until it succeeds.
            let found = loop {
                match missed(store.as_ref(), &attached).await {
                    Ok(found) => break found,
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "failed to read what missed signals may have said; retrying");
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
                // A loop that has ended needs no hints.
                if inputs.upgrade().is_none() {
                    return;
                }
            };
            if let Some(inputs) = inputs.upgrade() {
                drop(inputs.send(Input::Heard(Heard::Signals(found.signals))).await);
                drop(inputs.send(Input::MissedRead(found.phases)).await);
            }
        });
    }

    /// Tells the sessions here what they were ordered and have not heard. A worker may be quiet in the
    /// store by itself, for a signal or for its health: that is no order, and it ends by itself.
    pub(super) fn missed_read(&mut self, phases: Vec<StoredPhase>) {
        let newer = std::mem::take(&mut self.peers.missed.newer);
        self.peers.missed.reading = false;
        for StoredPhase { worker, order, standing } in phases {
            let Some(session) = self.sessions.get(worker).filter(|_| !newer.contains(&worker))
            else {
                continue;
            };
            let is_news = match order {
                WorkerOrder::Quiet => session.running || standing.is_some(),
                WorkerOrder::Resume => !session.running,
                WorkerOrder::Drain => true,
            };
            if is_news {
                let by = standing.unwrap_or_else(|| "store".to_owned());
                self.order(worker, order, &by);
            }
        }
    }
}

async fn missed(store: &dyn Store, attached: &[WorkerId]) -> Result<Found, StoreError> {
    let mut found = Found::default();
    for queue in store.pauses().await? {
        found.signals.push(Signal::Queue { queue: queue.name, paused: queue.paused });
    }
    let standing = store.standing_orders().await?;
    for workers in attached.chunks(WORKERS_MAX) {
        for worker in store.workers_named(workers.to_vec()).await? {
            let order = WorkerOrder::from(worker.standing.phase);
            let standing = in_force(&standing, &worker.labels).map(StandingOrder::giver);
            found.phases.push(StoredPhase { worker: worker.id, order, standing });
        }
        for attempt in store.cancelled_of(workers.to_vec()).await? {
            found.signals.push(Signal::cancelled(attempt.worker, attempt.job, attempt.epoch));
        }
    }
    Ok(found)
}
