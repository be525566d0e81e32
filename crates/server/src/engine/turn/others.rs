//! The other servers on the store: what they are told of this one's batches, and what is
//! done with what they tell. Hints only: every claim and every move asks the store.
//!
//! Whoever may have missed something looks into the store and tells itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::worker::liveness::Phase;
use outlast_store::command::{ClassId, Route};
use outlast_store::signal::{Heard, Signal};
use outlast_store::{Store, StoreError};

use super::Turn;
use crate::clock::boot_time;
use crate::engine::WorkerOrder;
use crate::engine::input::Input;

/// Pause before what was missed is looked for again: at first, and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(200);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);

/// What the others are to be told after this turn.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Jobs that became claimable here and were not placed yet, by class.
    ready: HashMap<ClassId, u64>,
    signals: Vec<Signal>,
}

impl Others {
    pub(super) fn ready(&mut self, class: ClassId) {
        *self.ready.entry(class).or_default() += 1;
    }

    pub(super) fn lost(&mut self, class: ClassId, count: u64) {
        self.signals.push(Signal::Lost(class.0, count));
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

impl Turn {
    /// Has those who wait elsewhere hear of what could not be placed here: plain clients that
    /// wait at this server, then the other servers.
    pub(super) fn tell_others(&mut self) {
        let mut planned = self.gather.planned();
        let mut signals = std::mem::take(&mut self.others.signals);
        for (id, new) in std::mem::take(&mut self.others.ready) {
            let Some(class) = self.roster.classes.get(&id) else {
                signals.push(Signal::ready(id, new));
                continue;
            };
            let taken = planned.get_mut(&id).map_or(0, std::mem::take);
            let mut over = class.ready.wanted().saturating_sub(taken).min(new);
            if over > 0 && class.key.route == Route::Plain {
                let (queue, tenant) = (&class.key.queue, class.key.tenant.as_deref());
                over = over.saturating_sub(self.board.fetchers.wake(queue, tenant, over));
            }
            if over > 0 {
                signals.push(Signal::ready(id, over));
            } else if taken > 0 {
                // What a claim that is planned does not get is told later.
                self.others.ready.insert(id, new);
            }
        }
        if !signals.is_empty() {
            self.store.tell(signals);
        }
    }

    pub(super) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Signals(signals) => signals.into_iter().for_each(|signal| self.obey(signal)),
            Heard::Missed => {
                self.backlog.wanted = true;
                self.store.tell(vec![Signal::WhoFetches]);
                self.board.arrivals_wanted.notify_one();
                self.look_for_missed();
            }
        }
    }

    fn obey(&mut self, signal: Signal) {
        match signal {
            Signal::Ready(class, count) => self.ready_elsewhere(ClassId(class), count),
            Signal::Fetched(queue, tenant) => {
                self.board.fetchers.elsewhere(queue, tenant, boot_time());
            }
            Signal::WhoFetches => self.store.tell(self.board.fetchers.all(boot_time())),
            Signal::Lost(class, count) => self.redispatch.lost(ClassId(class), count),
            Signal::Arrived => self.board.arrivals_wanted.notify_one(),
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

    /// Some other server may be taking them, too.
    fn ready_elsewhere(&mut self, class: ClassId, count: u64) {
        if !self.roster.add_ready(class, count, boot_time()) {
            self.backlog.wanted = true;
            return;
        }
        let Some(known) = self.roster.classes.get(&class) else { return };
        if known.key.route == Route::Plain {
            let (queue, tenant) = (&known.key.queue, known.key.tenant.as_deref());
            self.board.fetchers.wake(queue, tenant, count);
        }
    }

    /// Looks into the store for what the others may have told in vain.
    fn look_for_missed(&self) {
        let (store, inputs) = (Arc::clone(&self.store), self.inputs.clone());
        let attached: Vec<WorkerId> = self.roster.sessions.keys().copied().collect();
        tokio::spawn(async move {
            let mut pause = LOOK_PAUSE_MIN;
            // Nobody tells it a second time, so it is looked for until it is found.
            let signals = loop {
                match missed(store.as_ref(), &attached).await {
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

async fn missed(store: &dyn Store, attached: &[WorkerId]) -> Result<Vec<Signal>, StoreError> {
    let mut signals = Vec::new();
    for queue in store.pauses().await? {
        signals.push(Signal::Queue { queue: queue.name, paused: queue.paused });
    }
    for worker in store.workers_named(attached.to_vec()).await? {
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
