//! Limits, and the gates that count attempts.

use std::collections::BTreeMap;

use outlast_core::gate::{Gate, admit};
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::limit::GateId;
use outlast_core::time::Timestamp;
use outlast_store::command::{Recount, RemoveLimit, SetLimit};
use outlast_store::event::EventName;
use outlast_store::limit::{
    GateHolder, GateQuery, GateRecord, LimitChange, LimitRecord, LimitRefusal, Miscount,
    gate_state, used_at_most,
};
use outlast_store_rules::apply::claim::lane::LaneGate;
use outlast_store_rules::apply::claim::selection::BlockedBy;
use outlast_store_rules::apply::limit::{self, Limits};
use outlast_store_rules::rules::{limit_event, recount_event};

use crate::model::tables::{GateRow, Tables};
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn set_limit(&mut self, order: &SetLimit) -> Result<LimitChange, LimitRefusal> {
        let limits = &mut self.tables.limits;
        let name = &order.limit.name;
        let change = limit::set(limits.get(name), limits.len(), order)?;
        if change == LimitChange::Unchanged {
            return Ok(change);
        }
        let (limit, configured, now) = (order.limit.clone(), order.configured, self.bench.now);
        let most = limit.rate.map(|rate| used_at_most(rate, now));
        let record = LimitRecord { limit, configured, set_by: order.by.clone(), set_at: now };
        limits.insert(name.clone(), record);
        if let Some(most) = most {
            for row in self.tables.gates.values_mut().filter(|row| row.limit == *name) {
                row.record.used_until = row.record.used_until.min(most);
            }
        }
        self.log_event(limit_event(name, EventName::LimitSet, now, &order.by));
        Ok(change)
    }

    pub(super) fn remove_limit(
        &mut self,
        order: &RemoveLimit,
    ) -> Result<LimitChange, LimitRefusal> {
        let change = limit::remove(self.tables.limits.get(&order.name), order)?;
        if change == LimitChange::Removed {
            self.tables.limits.remove(&order.name);
            let now = self.bench.now;
            self.log_event(limit_event(&order.name, EventName::LimitRemoved, now, &order.by));
        }
        Ok(change)
    }
}

impl Tx<'_> {
    pub(super) fn recount(&mut self, order: &Recount) -> Result<Vec<Miscount>, LeadershipRefusal> {
        self.check_leadership(&order.leadership)?;
        let wrong: Vec<Miscount> = self.tables.miscounts(order.gates.iter()).collect();
        for miscount in &wrong {
            if let Some(row) = self.tables.gates.get_mut(&miscount.gate) {
                row.record.in_flight = miscount.held.unsigned_abs();
            }
            self.freed |= miscount.held < miscount.counted;
            self.log_event(recount_event(miscount, self.bench.now));
        }
        Ok(wrong)
    }
}

impl Tables {
    /// Returns those of the gates that count wrongly.
    pub(super) fn miscounts<'a>(
        &'a self,
        gates: impl Iterator<Item = &'a GateId>,
    ) -> impl Iterator<Item = Miscount> {
        let mut held: BTreeMap<GateId, i64> = BTreeMap::new();
        for (_, row) in self.live_rows() {
            for gate in row.in_flight.iter().flat_map(|attempt| &attempt.gates) {
                *held.entry(*gate).or_default() += 1;
            }
        }
        let compared = gates.filter_map(move |gate| {
            let GateRow { limit, record } = self.gates.get(gate)?;
            Some(Miscount {
                gate: *gate,
                limit: Some(limit.clone()),
                value: record.value.clone(),
                counted: i64::try_from(record.in_flight).unwrap_or(i64::MAX),
                held: held.get(gate).copied().unwrap_or(0),
            })
        });
        compared.filter(|it| it.counted != it.held)
    }

    pub(super) fn limits_in_force(&self) -> Limits {
        Limits::of(
            self.limits.values().cloned().collect(),
            self.settings.values().cloned().collect(),
        )
    }

    /// Returns why a job that must pass these gates may not start.
    pub(super) fn stop(
        &self,
        gates: &[LaneGate],
        is_prefetch: bool,
        now: Timestamp,
    ) -> Option<BlockedBy> {
        let states: Vec<Gate> = gates.iter().map(|gate| self.state(gate)).collect();
        let shut = admit(&states, 1, now).shut.map(|(_, shut)| shut.into());
        let is_kept = is_prefetch && gates.iter().any(|gate| gate.rate.is_some());
        shut.or_else(|| is_kept.then_some(BlockedBy::Reserved))
    }

    fn state(&self, gate: &LaneGate) -> Gate {
        let found = self.gates.get(&gate.id).map(|row| &row.record);
        gate_state(gate.concurrency, gate.rate, found)
    }

    pub(super) fn charge(&mut self, gates: &[LaneGate], now: Timestamp) {
        for gate in gates {
            let Gate { in_flight, used_until, .. } = self.state(gate).after(1, now);
            let limit = gate.name.clone();
            let record =
                GateRecord { id: gate.id, value: gate.value.clone(), in_flight, used_until };
            self.gates.insert(gate.id, GateRow { limit, record });
        }
    }

    /// Returns whether there was anything to give back.
    pub(super) fn release(&mut self, gates: &[GateId]) -> bool {
        for gate in gates {
            if let Some(row) = self.gates.get_mut(gate) {
                row.record.in_flight = row.record.in_flight.saturating_sub(1);
            }
        }
        !gates.is_empty()
    }

    /// Forgets gates that count nothing, and of which the rate is not used any more; returns how
    /// many.
    pub(super) fn prune_gates(&mut self, limit: usize, now: Timestamp) -> usize {
        let is_unused = |row: &GateRow| {
            row.record.in_flight == 0 && row.record.used_until < now.0.saturating_mul(1000)
        };
        let unused = self.gates.iter().filter(|(_, row)| is_unused(row)).map(|(id, _)| *id);
        let unused: Vec<GateId> = unused.take(limit).collect();
        for gate in &unused {
            self.gates.remove(gate);
        }
        unused.len()
    }

    pub(super) fn gates_of(&self, query: &GateQuery) -> Vec<GateRecord> {
        let of_limit = self.gates.values().filter(|row| row.limit == query.name);
        let held = of_limit.filter(|row| row.record.in_flight > 0);
        let mut found: Vec<GateRecord> = held.map(|row| row.record.clone()).collect();
        found.sort_by(|a, b| (b.in_flight, &a.value).cmp(&(a.in_flight, &b.value)));
        found.truncate(usize::try_from(query.limit).unwrap_or(usize::MAX));
        found
    }

    pub(super) fn gate_holders(&self, gate: GateId, max: u32) -> Vec<GateHolder> {
        let live = self.live_rows().filter_map(|(_, row)| Some((row, row.in_flight.as_ref()?)));
        let held = live.filter(|(_, attempt)| attempt.gates.contains(&gate));
        let mut found: Vec<GateHolder> = held
            .map(|(row, attempt)| GateHolder {
                job: row.stored.id,
                worker: attempt.worker,
                plain: attempt.plain.clone(),
                claimed: attempt.claimed,
            })
            .collect();
        found.sort_by_key(|holder| (holder.claimed, holder.job));
        found.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        found
    }
}
