//! Reading from the store what signals may have said that this server missed: which queues are
//! paused, what its workers were ordered, and which of their attempts were cancelled.
//!
//! Signals are missed when a server begins to listen, when its connection breaks, and when another
//! one says that some were lost. That may happen again and again, to a server with thousands of
//! sessions. So one read is under way at a time, and asks about many workers at once.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::worker::order::WorkerOrder;
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
}

impl EventLoop {
    /// Reads from the store what missed signals may have said, in a task beside the loop.
    pub(super) fn read_missed(&mut self) {
        if !self.peers.missed.wanted || self.peers.missed.reading {
            return;
        }
        self.peers.missed = Missed { wanted: false, reading: true };
        let (store, inputs) = (Arc::clone(self.writer.store()), self.inputs.clone());
        let attached: Vec<WorkerId> = self.sessions.workers().collect();
        tokio::spawn(async move {
            let mut pause = RETRY_PAUSE_MIN;
            // Signals are not repeated, so this is retried until it succeeds.
            let signals = loop {
                match missed_signals(store.as_ref(), &attached).await {
                    Ok(signals) => break signals,
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
                drop(inputs.send(Input::Heard(Heard::Signals(signals))).await);
                drop(inputs.send(Input::MissedRead).await);
            }
        });
    }
}

async fn missed_signals(
    store: &dyn Store,
    attached: &[WorkerId],
) -> Result<Vec<Signal>, StoreError> {
    let mut signals = Vec::new();
    for queue in store.pauses().await? {
        signals.push(Signal::Queue { queue: queue.name, paused: queue.paused });
    }
    for workers in attached.chunks(WORKERS_MAX) {
        for worker in store.workers_named(workers.to_vec()).await? {
            let order = WorkerOrder::from(worker.standing.phase);
            let by = "store".to_owned();
            signals.push(Signal::Phase { worker: worker.id.0, order: order.as_str().into(), by });
        }
        for attempt in store.cancelled_of(workers.to_vec()).await? {
            signals.push(Signal::cancelled(attempt.worker, attempt.job, attempt.epoch));
        }
    }
    Ok(signals)
}
