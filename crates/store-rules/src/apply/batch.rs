//! A batch in progress, as far as it is the same on every database, and what is left of it once
//! it has taken effect.

use outlast_core::time::Timestamp;
use outlast_core::workflow::WorkflowId;
use outlast_store::command::Batch;
use outlast_store::workflow::ItemEnd;

use super::Outbox;
use super::claim::fair::{Ended, Shares};
use super::claim::gate_changes::FreedSlots;
use super::claim::lane_cache::LaneCache;
use crate::prune::PruneCursors;
use crate::rules::Context;

/// A batch in progress.
#[derive(Debug)]
pub struct BatchState {
    /// What its decisions depend on beside the rows.
    pub context: Context,
    /// What it logs and counts.
    pub outbox: Outbox,
    /// How far its prunes have come. They are the writer's once it has taken effect.
    pub cursors: PruneCursors,
}

impl BatchState {
    /// Begins a batch.
    #[must_use]
    pub fn begin(batch: &Batch, now: Timestamp, cursors: PruneCursors) -> Self {
        let context = Context { budgets: batch.budgets, seed: batch.jitter_seed, command: 0, now };
        Self { context, outbox: Outbox::default(), cursors }
    }

    /// The batch has deleted everything, also what it was about to write.
    pub fn clear(&mut self) {
        let Outbox { events, tally, gates, ended, item_ends } = &mut self.outbox;
        events.clear();
        tally.clear();
        gates.clear();
        ended.clear();
        item_ends.clear();
        self.cursors = PruneCursors::default();
    }

    /// Takes what the writer keeps if the batch takes effect. Only then are the changes of gates
    /// written.
    #[must_use]
    pub fn take_effects(&mut self) -> Effects {
        let gates = &self.outbox.gates;
        Effects {
            at: self.context.now,
            cursors: self.cursors,
            freed: gates.freed(),
            slots: gates.freed_slots(),
            ended: std::mem::take(&mut self.outbox.ended),
            workflows: workflows_of(&self.outbox.item_ends),
        }
    }
}

/// What a batch changes of what its writer knows.
#[derive(Debug)]
pub struct Effects {
    /// When it took effect.
    pub at: Timestamp,
    /// How far its prunes came.
    pub cursors: PruneCursors,
    /// Whether jobs that wait for a limit may start.
    pub freed: bool,
    /// Workflows of which items ended.
    pub workflows: Vec<WorkflowId>,
    slots: FreedSlots,
    ended: Vec<Ended>,
}

/// Returns the workflows of ends, each once.
fn workflows_of(ends: &[ItemEnd]) -> Vec<WorkflowId> {
    let mut all: Vec<WorkflowId> = ends.iter().map(|end| end.of.workflow).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Effects {
    /// The batch has taken effect.
    pub fn committed(self, lane_cache: &mut LaneCache, shares: &mut Shares) {
        shares.committed(&self.ended, self.at);
        lane_cache.committed(self.slots);
    }
}
