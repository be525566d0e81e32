//! The gates that a batch has read: each counts the attempts that a limit lets run, and its rate is a
//! token bucket (GCRA).

use std::collections::BTreeMap;

use outlast_core::gate::{Gate, admit};
use outlast_core::limit::GateId;
use outlast_core::time::Timestamp;

use super::fair::ShareOrder;
use super::gate_changes::GateChanges;
use super::lane::{Lane, LaneGate, LaneJob};
use super::selection::{BlockedBy, Selection};

/// A gate as it was read, and what the batch has started through it.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// Attempts that it counts, as stored.
    in_flight: i64,
    /// What the starts so far use up, with those of the batch.
    used_until: i64,
    /// Whether some have started since that was stored.
    has_started: bool,
    row: GateRow,
}

/// What a batch found of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateRow {
    /// It is locked.
    Locked,
    /// It was only read: others may have claimed through it since.
    LookedAt,
    /// No job has passed it before, and none can but by this batch.
    Missing,
}

impl Read {
    /// A gate that counts nothing.
    const fn locked() -> Self {
        Self { in_flight: 0, used_until: 0, has_started: false, row: GateRow::Locked }
    }

    /// Returns the gate as it is once `more` have started.
    fn after(self, gate: &LaneGate, more: u32, now: Timestamp) -> Gate {
        let in_flight = u64::try_from(self.in_flight).unwrap_or(0);
        Gate { in_flight, ..gate.used(self.used_until) }.after(more, now)
    }
}

/// What a choice goes by.
#[derive(Clone, Copy, Debug)]
pub struct ClaimContext<'a> {
    /// What the batch has changed so far.
    pub changes: &'a GateChanges,
    /// What the claim has taken so far, if that is not yet among the changes.
    pub taken: Option<&'a GateChanges>,
    /// The time.
    pub now: Timestamp,
    /// Whether the jobs are for workers without a free slot.
    pub is_prefetch: bool,
}

/// The gates that a batch has locked and read.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    read: BTreeMap<GateId, Read>,
    /// The latest time at which it was asked what they let start.
    latest: Option<Timestamp>,
}

impl Gates {
    /// Returns the time for the next decision: `now`, unless an earlier one was made at a later
    /// time. What starts through a gate is in order.
    pub fn at_least(&mut self, now: Timestamp) -> Timestamp {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(now);
        now
    }

    /// Returns those of the gates that are not locked yet, in order.
    #[must_use]
    pub fn missing<'a>(&self, lanes: &'a [Lane]) -> Vec<&'a LaneGate> {
        let gates = lanes.iter().flat_map(|lane| lane.gates.iter());
        let unread: BTreeMap<GateId, &LaneGate> = gates
            .filter(|gate| {
                !self.read.get(&gate.id).is_some_and(|read| read.row != GateRow::LookedAt)
            })
            .map(|gate| (gate.id, gate))
            .collect();
        unread.into_values().collect()
    }

    /// A gate was locked and read. One that was not read at all is busy.
    pub fn read(&mut self, gate: GateId, in_flight: i64, used_until: i64) {
        let read = Read { in_flight, used_until, ..Read::locked() };
        self.read.insert(gate, read);
    }

    /// No job has passed a gate before, and none can but by this batch.
    pub fn not_found(&mut self, gate: GateId) {
        self.read.insert(gate, Read { row: GateRow::Missing, ..Read::locked() });
    }

    /// Takes those gates of a lane that are to be made.
    pub fn unmade<'a>(&mut self, lane: &'a Lane) -> Vec<&'a LaneGate> {
        let unmade = lane.gates.iter().filter(|gate| {
            let missing = self.read.get_mut(&gate.id).filter(|read| read.row == GateRow::Missing);
            missing.map(|read| read.row = GateRow::Locked).is_some()
        });
        unmade.collect()
    }

    /// A gate was read without locking it, because it looked shut. If it is open after all, it is
    /// busy.
    pub fn look_at(&mut self, gate: GateId, in_flight: i64, used_until: i64) {
        let read = Read { in_flight, used_until, row: GateRow::LookedAt, ..Read::locked() };
        self.read.insert(gate, read);
    }

    /// Chooses at most `max` jobs in their turns that all their gates let start.
    #[must_use]
    pub fn choose(
        &self,
        lanes: &[Lane],
        mut turns: ShareOrder,
        max: usize,
        terms: ClaimContext<'_>,
    ) -> Selection {
        let mut chosen = Selection { stops: vec![None; lanes.len()], ..Selection::default() };
        let mut started: BTreeMap<GateId, u32> = BTreeMap::new();
        let mut take = |head: LaneJob, Selection { heads, stops, stopped, .. }: &mut Selection| {
            let (Some(lane), Some(stop)) = (lanes.get(head.lane), stops.get_mut(head.lane)) else {
                return false;
            };
            if stop.is_some() {
                return false;
            }
            let more = |gate: GateId| started.get(&gate).copied().unwrap_or(0);
            let by = self.stop(&lane.gates, more, terms);
            *stop = by.map(|(_, stop)| stop);
            stopped.extend(by);
            if stop.is_some() {
                return false;
            }
            for gate in lane.gates.iter() {
                *started.entry(gate.id).or_default() += 1;
            }
            heads.push(head);
            true
        };
        while chosen.heads.len() < max {
            if turns.try_next(|head| take(head, &mut chosen)).is_none() {
                chosen.is_all = true;
                break;
            }
        }
        chosen
    }

    /// Returns why a job must not start through gates through which `more` have just started, and
    /// by which of them.
    fn stop(
        &self,
        gates: &[LaneGate],
        more: impl Fn(GateId) -> u32,
        ClaimContext { changes, taken, now, is_prefetch }: ClaimContext<'_>,
    ) -> Option<(GateId, BlockedBy)> {
        let mut states = Vec::with_capacity(gates.len());
        let mut busy = None;
        for gate in gates {
            let Some(read) = self.read.get(&gate.id) else {
                return Some((gate.id, BlockedBy::Busy));
            };
            if read.row == GateRow::LookedAt {
                busy = Some((gate.id, BlockedBy::Busy));
            }
            let more = more(gate.id);
            // What the batch itself has taken and ended is not stored yet.
            let taken = taken.map_or(0, |taken| taken.of(gate.id));
            let stored = read.in_flight.saturating_add(changes.of(gate.id)).saturating_add(taken);
            let in_flight = u64::try_from(stored).unwrap_or(0).saturating_add(u64::from(more));
            states.push(Gate { in_flight, ..read.after(gate, more, now) });
        }
        if let Some((place, shut)) = admit(&states, 1, now).shut {
            return gates.get(place).map(|gate| (gate.id, shut.into()));
        }
        // It would be counted before it starts.
        let rated = gates.iter().find(|gate| is_prefetch && gate.rate.is_some());
        rated.map(|gate| (gate.id, BlockedBy::Reserved)).or(busy)
    }

    /// A job of a lane was taken.
    pub fn started(&mut self, lane: &Lane, now: Timestamp) {
        for gate in lane.gates.iter() {
            if let Some(read) = self.read.get_mut(&gate.id) {
                read.used_until = read.after(gate, 1, now).used_until;
                read.has_started = true;
            }
        }
    }

    /// Takes until when the starts use up the rates of a lane's gates: only of gates that have a
    /// rate and through which some have started since this was asked.
    pub fn take_used(&mut self, lane: &Lane) -> Vec<(GateId, i64)> {
        let rated = lane.gates.iter().filter(|gate| gate.rate.is_some());
        let used = rated.filter_map(|gate| {
            let read = self.read.get_mut(&gate.id).filter(|read| read.has_started)?;
            read.has_started = false;
            Some((gate.id, read.used_until))
        });
        used.collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
