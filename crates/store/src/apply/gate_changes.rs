//! What a batch does to the counts of gates: attempts that it starts and ends.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::limit::GateId;

use crate::limit::Miscount;

/// By how much a batch changes what gates count.
#[derive(Clone, Debug, Default)]
pub struct GateChanges {
    held: BTreeMap<GateId, i64>,
    /// Those that count an attempt less.
    released: BTreeSet<GateId>,
}

impl GateChanges {
    /// An attempt was claimed.
    pub fn charge(&mut self, gates: &[GateId]) {
        for gate in gates {
            *self.held.entry(*gate).or_default() += 1;
        }
    }

    /// An attempt that was charged to these has ended.
    pub fn release(&mut self, gates: &[GateId]) {
        for gate in gates {
            *self.held.entry(*gate).or_default() -= 1;
            self.released.insert(*gate);
        }
    }

    /// What was counted elsewhere is counted here from now on.
    pub fn taken_over(&mut self, gate: GateId, held: i64) {
        *self.held.entry(gate).or_default() += held;
    }

    /// A gate counted wrongly. If it counted too many, more may start now, as after an end.
    pub fn corrected(&mut self, of: &Miscount) {
        let by = of.held.saturating_sub(of.counted);
        self.taken_over(of.gate, by);
        if by < 0 {
            self.released.insert(of.gate);
        }
    }

    /// Returns the gates that counted an attempt which ended.
    #[must_use]
    pub const fn released(&self) -> &BTreeSet<GateId> {
        &self.released
    }

    /// Whether an attempt ended that gates counted.
    #[must_use]
    pub fn freed(&self) -> bool {
        !self.released.is_empty()
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes the changes, by gate.
    pub fn take(&mut self) -> Vec<(GateId, i64)> {
        let all = std::mem::take(&mut self.held);
        all.into_iter().filter(|(_, by)| *by != 0).collect()
    }

    /// Returns by how much the batch changes what a gate counts.
    #[must_use]
    pub fn of(&self, gate: GateId) -> i64 {
        self.held.get(&gate).copied().unwrap_or(0)
    }
}
