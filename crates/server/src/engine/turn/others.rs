//! The other servers on the store: what they are told of this one's batches, and what is
//! done with what they tell. Hints only: every claim and every move asks the store.
//!
//! Whoever may have missed something looks into the store and tells itself.

use std::collections::HashSet;
use std::time::Duration;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::worker::liveness::Phase;
use outlast_store::command::ClassId;
use outlast_store::signal::{Heard, Signal};
use outlast_store::{Store, StoreError};

use super::Turn;
use crate::engine::WorkerOrder;
use crate::engine::input::Input;

/// Pause before what was missed is looked for again: at first, and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(200);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);

/// What the others are to be told after this turn.
#[derive(Debug, Default)]
pub(super) struct Others {
    ready: HashSet<ClassId>,
    signals: Vec<Signal>,
}

impl Others {
    pub(super) fn ready(&mut self, class: ClassId) {
        self.ready.insert(class);
    }

    pub(super) fn cancelled(&mut self, worker: WorkerId, job: JobId, epoch: Epoch) {
        self.signals.push(Signal::cancelled(worker, job, epoch));
    }

    pub(super) fn phase(&mut self, worker: WorkerId, order: WorkerOrder, by: String) {
        self.signals.push(Signal::Phase { worker: worker.0, order: word(order).into(), by });
    }

    pub(super) fn queue(&mut self, queue: String, paused: bool) {
        self.signals.push(Signal::Queue { queue, paused });
    }

    fn take(&mut self) -> Vec<Signal> {
        let mut all = std::mem::take(&mut self.signals);
        all.extend(self.ready.drain().map(Signal::ready));
        all
    }
}

const fn word(order: WorkerOrder) -> &'static str {
    match order {
        WorkerOrder::Quiet => "quiet",
        WorkerOrder::Resume => "resume",
        WorkerOrder::Drain => "drain",
    }
}

fn order_of(word: &str) -> Option<WorkerOrder> {
    [WorkerOrder::Quiet, WorkerOrder::Resume, WorkerOrder::Drain]
        .into_iter()
        .find(|order| self::word(*order) == word)
}

impl<S: Store> Turn<S> {
    pub(super) fn tell_others(&mut self) {
        let signals = self.others.take();
        if !signals.is_empty() {
            self.store.tell(signals);
        }
    }

    pub(super) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Signals(signals) => signals.into_iter().for_each(|signal| self.obey(signal)),
            Heard::Missed => {
                self.backlog_wanted = true;
                self.arrivals.wanted = true;
                self.look_for_missed();
            }
        }
    }

    fn obey(&mut self, signal: Signal) {
        match signal {
            Signal::Ready(class) => self.ready_elsewhere(ClassId(class)),
            Signal::Arrived => self.arrivals.wanted = true,
            Signal::Cancelled { worker, job, epoch } => {
                let (worker, job, epoch) = (WorkerId(worker), JobId(job), Epoch(epoch));
                let held = self.roster.sessions.get(&worker).and_then(|it| it.held.get(&job));
                if held.is_some_and(|held| held.epoch == epoch) {
                    self.stop_cancelled(worker, job, epoch);
                }
            }
            Signal::Phase { worker, order, by } => {
                let worker = WorkerId(worker);
                let running = self.roster.sessions.get(&worker).is_some_and(|it| it.running);
                // Attached here or to a third server, which has heard it too.
                match order_of(&order) {
                    Some(WorkerOrder::Resume) if running => {}
                    Some(order) => {
                        self.order(worker, order, &by);
                    }
                    None => {}
                }
            }
            Signal::Queue { queue, paused } => self.set_paused(&queue, paused),
            Signal::Missed => self.hear(Heard::Missed),
        }
    }

    /// How many there are is not told, and somebody else may be taking them.
    fn ready_elsewhere(&mut self, class: ClassId) {
        let Some(known) = self.roster.classes.get(&class) else {
            self.backlog_wanted = true;
            return;
        };
        if known.ready == 0 {
            self.roster.set_ready(class, 1);
        }
        if let Some(known) = self.roster.classes.get(&class) {
            self.board.wake_plain(&known.key.queue);
        }
    }

    /// Looks into the store for what the others may have told in vain.
    fn look_for_missed(&self) {
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        let attached: Vec<WorkerId> = self.roster.sessions.keys().copied().collect();
        tokio::spawn(async move {
            let mut pause = LOOK_PAUSE_MIN;
            // Nobody tells it a second time, so it is looked for until it is found.
            let signals = loop {
                match missed(&store, &attached).await {
                    Ok(signals) => break signals,
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        tracing::warn!(%error, "failed to look for what was missed; looking again");
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOOK_PAUSE_MAX);
                // A loop that has ended needs no hints.
                if inputs.upgrade().is_none() {
                    return;
                }
            };
            if let Some(inputs) = inputs.upgrade() {
                drop(inputs.send(Input::Heard(Heard::Signals(signals))).await);
            }
        });
    }
}

async fn missed<S: Store>(store: &S, attached: &[WorkerId]) -> Result<Vec<Signal>, StoreError> {
    let mut signals = Vec::new();
    for queue in store.pauses().await? {
        signals.push(Signal::Queue { queue: queue.name, paused: queue.paused });
    }
    for worker in store.live_workers().await?.iter().filter(|it| attached.contains(&it.id)) {
        let order = match worker.standing.phase {
            Phase::Running => WorkerOrder::Resume,
            Phase::Quiet => WorkerOrder::Quiet,
            Phase::Draining => WorkerOrder::Drain,
        };
        let by = "store".to_owned();
        signals.push(Signal::Phase { worker: worker.id.0, order: word(order).into(), by });
        for held in store.held_by(worker.id).await?.iter().filter(|held| held.cancelled) {
            signals.push(Signal::cancelled(worker.id, held.job, held.epoch));
        }
    }
    Ok(signals)
}
