//! Taking in what programs stored by SQL: when they tell, and for a while without being told
//! once they come thick and fast.
//!
//! PostgreSQL lets transactions that notify commit one after the other. So while many come,
//! the store is promised that this server looks by itself, and programs notify no more.

use outlast_core::time::{BootTime, Span};
use outlast_store::Command;
use outlast_store::arrival::{Planner, TakeIn, TakenIn};

use crate::clock::boot_time;
use crate::engine::gather::{Op, Sink};
use crate::engine::turn::{Ending, Turn};

/// How many one batch takes in at most.
const TAKE_IN_MAX: u32 = 500;
/// So many within this time are many.
const MANY: usize = 10;
const MANY_WITHIN: Span = Span(100);
/// How long this server then looks by itself, and for how much longer it does than it says:
/// its promise counts from when it is stored.
const WATCH: Span = Span::from_secs(1);
const WATCH_LONGER: Span = Span::from_secs(1);

#[derive(Debug)]
pub(super) struct Arrivals {
    /// Whether some may wait.
    pub(super) wanted: bool,
    planner: Planner,
    /// How many have come since when.
    recent: (usize, BootTime),
    many: bool,
}

impl Arrivals {
    pub(super) fn new(planner: Planner) -> Self {
        // Some may have come while no server ran.
        Self { wanted: true, planner, recent: (0, BootTime(0)), many: false }
    }

    fn count(&mut self, taken: usize) {
        if taken == 0 {
            return;
        }
        let now = boot_time();
        if now.since(self.recent.1) > MANY_WITHIN {
            self.recent = (0, now);
        }
        self.recent.0 += taken;
        self.many |= self.recent.0 >= MANY;
    }
}

impl Turn {
    pub(super) fn plan_take_in(&mut self) {
        if !std::mem::take(&mut self.arrivals.wanted) || !matches!(self.ending, Ending::Not) {
            return;
        }
        let watch = std::mem::take(&mut self.arrivals.many).then_some(WATCH);
        if let Some(watch) = watch {
            let until = boot_time().0.saturating_add(watch.0).saturating_add(WATCH_LONGER.0);
            self.board.watch_arrivals(BootTime(until));
        }
        let planner = self.arrivals.planner.clone();
        let order = TakeIn { only: None, limit: TAKE_IN_MAX, watch, planner };
        self.gather.push(Op { command: Command::TakeIn(order), sink: Sink::None });
    }

    pub(super) fn note_taken_in(&mut self, taken: &TakenIn) {
        for job in &taken.jobs {
            tracing::debug!(job = %job.id, state = %job.state, "taken in");
            self.note_enqueued(job);
        }
        for job in &taken.known {
            tracing::warn!(%job, "a program stored a job of an id that is known: dropped");
        }
        if let Some(due) = taken.due {
            self.board.due_at(due);
        }
        self.arrivals.count(taken.jobs.len());
        self.arrivals.wanted |= taken.more;
    }
}
