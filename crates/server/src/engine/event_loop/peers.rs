//! Signals to and from the other servers on the store. They are hints only: every claim and every
//! transition asks the store.
//!
//! A server that may have missed signals reads the store instead ([`missed`](super::missed)).

use std::collections::HashMap;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::Span;
use outlast_core::worker::order::WorkerOrder;
use outlast_store::command::ClassId;
use outlast_store::signal::{Heard, Signal};

use super::EventLoop;
use super::late_orders::LateOrders;
use super::missed::Missed;
use crate::clock::boot_time;

/// What the peers are signalled at the end of this turn, and what was not heard of theirs.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Jobs that became claimable here and have no claimant yet, by class.
    ready: HashMap<ClassId, u64>,
    signals: Vec<Signal>,
    /// What they said while they were not heard.
    pub(super) missed: Missed,
    /// Orders to workers that were not attached here.
    pub(super) late_orders: LateOrders,
}

impl Peers {
    pub(super) fn ready(&mut self, class: ClassId) {
        *self.ready.entry(class).or_default() += 1;
    }

    pub(super) fn lost(&mut self, class: ClassId, count: u64) {
        self.signals.push(Signal::Lost(class.0, count));
    }

    pub(super) fn cancelled(&mut self, worker: WorkerId, job: JobId, epoch: Epoch) {
        self.signals.push(Signal::cancelled(worker, job, epoch));
    }

    pub(super) fn order(&mut self, worker: WorkerId, order: WorkerOrder, by: String) {
        self.signals.push(Signal::Phase { worker: worker.0, order: order.as_str().into(), by });
    }

    /// A worker that did not poll has attached again.
    pub(super) fn polls_again(&mut self, worker: WorkerId) {
        self.signals.push(Signal::polled(worker, Span::ZERO));
    }

    /// Attempts ended that limits counted.
    pub(super) fn freed(&mut self) {
        self.signals.push(Signal::Freed);
    }

    pub(super) fn limits(&mut self) {
        self.signals.push(Signal::Limits);
    }

    pub(super) fn queue(&mut self, queue: String, paused: bool) {
        self.signals.push(Signal::Queue { queue, paused });
    }
}

impl EventLoop {
    /// Offers jobs that no session here takes to plain clients that wait at this server, then to
    /// the other servers.
    pub(super) fn signal_peers(&mut self) {
        let mut planned = self.batcher.planned();
        let mut signals = std::mem::take(&mut self.peers.signals);
        for (id, new) in std::mem::take(&mut self.peers.ready) {
            let Some(class) = self.planning.classes.get(id) else {
                signals.push(Signal::ready(id, new));
                continue;
            };
            let taken = planned.get_mut(&id).map_or(0, std::mem::take);
            let mut over = class.ready.wanted().saturating_sub(taken).min(new);
            if taken > 0 && over < new {
                // What the planned claim does not get is signalled later.
                self.peers.ready.insert(id, new - over);
            }
            if over > 0 && class.asked().is_for_plain_clients() {
                let (queue, tenant) = (&class.key.queue, class.key.tenant.as_deref());
                over = over.saturating_sub(self.shared.long_polls.wake(queue, tenant, over));
            }
            if over > 0 {
                signals.push(Signal::ready(id, over));
            }
        }
        if !signals.is_empty() {
            self.writer.store().signal(signals);
        }
    }

    pub(super) fn hear_peers(&mut self, heard: Heard) {
        match heard {
            Heard::Signals(signals) => {
                signals.into_iter().for_each(|signal| self.apply_signal(signal))
            }
            Heard::Missed => {
                self.planning.backlog.wanted = true;
                self.writer.store().signal(vec![Signal::WhoFetches]);
                self.shared.arrivals_wanted.notify_one();
                self.peers.missed.wanted = true;
            }
        }
    }

    fn apply_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Ready(class, count) => self.ready_elsewhere(ClassId(class), count),
            Signal::Fetched(queue, tenant) => {
                self.shared.long_polls.elsewhere(queue, tenant, boot_time());
            }
            Signal::WhoFetches => {
                self.writer.store().signal(self.shared.long_polls.all(boot_time()))
            }
            Signal::Lost(class, count) => self.planning.redispatch.lost(ClassId(class), count),
            Signal::Arrived => self.shared.arrivals_wanted.notify_one(),
            Signal::Cancelled { worker, job, epoch } => {
                let (worker, job, epoch) = (WorkerId(worker), JobId(job), Epoch(epoch));
                let attempt = self.sessions.get(worker).and_then(|it| it.in_flight.get(&job));
                if attempt.is_some_and(|attempt| attempt.epoch == epoch) {
                    self.stop_cancelled(worker, job, epoch);
                }
            }
            Signal::Phase { worker, order, by } => {
                let worker = WorkerId(worker);
                self.peers.missed.is_newer(worker);
                let running = self.sessions.get(worker).is_some_and(|it| it.running);
                // Attached here, or to a third server, which has the signal too.
                match WorkerOrder::parse(&order) {
                    Some(WorkerOrder::Resume) if running => {}
                    Some(order) if !self.order(worker, order, &by) => {
                        self.peers.late_orders.keep(worker, order, by, boot_time());
                    }
                    Some(_) | None => {}
                }
            }
            Signal::Queue { queue, paused } => self.set_paused(&queue, paused),
            Signal::Polled { worker, age } => {
                let (worker, age) = (WorkerId(worker), Span(age));
                // Its own server knows better.
                if self.shared.fleet.session(worker).is_none() {
                    self.shared.fleet.polled(worker, age, boot_time());
                }
            }
            Signal::Freed => self.slots_freed(),
            Signal::Limits => self.limits_changed(),
            Signal::Missed => self.hear_peers(Heard::Missed),
        }
    }

    /// Notes jobs of another server. Third servers may claim them, too.
    fn ready_elsewhere(&mut self, class: ClassId, count: u64) {
        if self.is_of_paused_queue(class) {
            return;
        }
        if !self.planning.classes.add_ready(class, count, boot_time()) {
            self.planning.backlog.wanted = true;
            return;
        }
        let Some(known) = self.planning.classes.get(class) else { return };
        if known.asked().is_for_plain_clients() {
            let (queue, tenant) = (&known.key.queue, known.key.tenant.as_deref());
            self.shared.long_polls.wake(queue, tenant, count);
        }
    }
}
