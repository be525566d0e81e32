//! What a batch does to the counts of gates: attempts that it starts and ends.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::limit::GateId;
use outlast_store::command::ClassId;
use outlast_store::limit::Miscount;

/// By how much a batch changes what gates count.
#[derive(Clone, Debug, Default)]
pub struct GateChanges {
    /// What is not written yet.
    held: BTreeMap<GateId, i64>,
    /// How many attempts more are in flight than before the batch.
    more: BTreeMap<GateId, i64>,
    /// Those that count an attempt less.
    released: BTreeSet<GateId>,
    /// The lanes of the jobs of which these attempts were, with the gates that counted these.
    left: BTreeMap<(ClassId, i64), BTreeSet<GateId>>,
}

/// Where slots are free that a batch has not given to others.
#[derive(Clone, Debug, Default)]
pub struct FreedSlots {
    /// The gates that count fewer attempts than before.
    pub gates: Vec<GateId>,
    /// The lanes of the jobs that have left these.
    pub lanes: Vec<(ClassId, i64)>,
}

impl GateChanges {
    /// An attempt was claimed.
    pub fn charge(&mut self, gates: &[GateId]) {
        gates.iter().for_each(|gate| self.change(*gate, 1));
    }

    /// An attempt that was charged to these has ended; it was of a job of this lane of a class.
    pub fn release(&mut self, gates: &[GateId], class: ClassId, lane: i64) {
        for gate in gates {
            self.change(*gate, -1);
            self.released.insert(*gate);
        }
        if !gates.is_empty() {
            self.left.entry((class, lane)).or_default().extend(gates);
        }
    }

    fn change(&mut self, gate: GateId, by: i64) {
        *self.held.entry(gate).or_default() += by;
        *self.more.entry(gate).or_default() += by;
    }

    /// What was counted elsewhere is counted here from now on.
    pub fn taken_over(&mut self, gate: GateId, held: i64) {
        *self.held.entry(gate).or_default() += held;
    }

    /// A gate counted wrongly. If it counted too many, more may start now, as after an end.
    pub fn corrected(&mut self, of: &Miscount) {
        let by = of.held.saturating_sub(of.counted);
        self.change(of.gate, by);
        if by < 0 {
            self.released.insert(of.gate);
        }
    }

    /// Returns where slots are free by now.
    #[must_use]
    pub fn freed_slots(&self) -> FreedSlots {
        let lanes = self.left.keys().copied().filter(|(class, lane)| self.is_left(*class, *lane));
        FreedSlots { gates: self.freed_gates().collect(), lanes: lanes.collect() }
    }

    /// Returns the gates that count fewer attempts than before the batch.
    pub fn freed_gates(&self) -> impl Iterator<Item = GateId> {
        self.released.iter().copied().filter(|gate| self.has_freed(*gate))
    }

    /// Whether a gate counts fewer attempts than before the batch, written or not.
    pub(super) fn has_freed(&self, gate: GateId) -> bool {
        self.more.get(&gate).is_some_and(|more| *more < 0)
    }

    /// Returns the lanes of a class in which a job has left such a gate.
    pub fn freed_lanes(&self, class: ClassId) -> impl Iterator<Item = i64> {
        let of_class = self.left.range((class, i64::MIN)..=(class, i64::MAX));
        of_class
            .filter(|((class, lane), _)| self.is_left(*class, *lane))
            .map(|((_, lane), _)| *lane)
    }

    fn is_left(&self, class: ClassId, lane: i64) -> bool {
        let gates = self.left.get(&(class, lane)).into_iter().flatten();
        // Lane 0 is that of jobs without keys, for which no walk looks.
        lane != 0 && gates.into_iter().any(|gate| self.has_freed(*gate))
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

    /// Takes the changes that are not written yet, by gate.
    pub fn take(&mut self) -> Vec<(GateId, i64)> {
        let all = std::mem::take(&mut self.held);
        all.into_iter().filter(|(_, by)| *by != 0).collect()
    }

    /// Returns by how much the batch changes what a gate counts, beyond what it has written.
    #[must_use]
    pub fn of(&self, gate: GateId) -> i64 {
        self.held.get(&gate).copied().unwrap_or(0)
    }
}
