//! Which limits a claimable job waits for, in words.
//!
//! Everything is read from the store, so every server says the same.

use std::collections::{BTreeSet, HashMap};

use outlast_core::gate::{Shut, admit};
use outlast_core::limit::{GateId, GateOf, Limit, Subject};
use outlast_core::time::Timestamp;
use outlast_store::limit::{GateHolder, GateRecord, gate_state};
use outlast_store::{Store, StoreError};

/// Most holders of a gate that are counted.
const HOLDERS_MAX: u32 = 500;
/// Most gates whose holders are counted for one response.
const GATES_MAX: usize = 20;

/// The gates of some jobs, as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct GatesInForce {
    limits: Vec<Limit>,
    gates: HashMap<GateId, GateRecord>,
    /// Who holds the gates that are full; not of all if these are many.
    workers: HashMap<GateId, Workers>,
    now: Timestamp,
}

/// How many workers hold a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workers {
    count: usize,
    /// Whether there may be more.
    at_least: bool,
}

impl GatesInForce {
    /// Reads the gates that these jobs must pass.
    pub(crate) async fn read(
        store: &dyn Store,
        jobs: &[Subject<'_>],
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        if jobs.is_empty() {
            return Ok(Self::default());
        }
        let limits = store.limits().await?.into_iter().map(|record| record.limit).collect();
        let mut all = Self { limits, gates: HashMap::new(), workers: HashMap::new(), now };
        let ids: BTreeSet<GateId> = jobs
            .iter()
            .flat_map(|job| all.limits.iter().filter_map(|limit| limit.gate_of(*job)))
            .map(|gate| gate.id())
            .collect();
        if ids.is_empty() {
            return Ok(all);
        }
        let gates = store.gate_states(ids.into_iter().collect()).await?;
        all.gates = gates.into_iter().map(|gate| (gate.id, gate)).collect();
        let full: BTreeSet<GateId> = jobs
            .iter()
            .flat_map(|job| all.shut(*job))
            .filter(|(_, shut)| *shut == Shut::Full)
            .map(|(gate, _)| gate.id())
            .collect();
        for gate in full.into_iter().take(GATES_MAX) {
            let holders = store.gate_holders(gate, HOLDERS_MAX).await?;
            all.workers.insert(gate, workers(&holders));
        }
        Ok(all)
    }

    /// Returns which of its limits hold a job back.
    pub(crate) fn reason(&self, job: Subject<'_>) -> Option<String> {
        let words: Vec<String> =
            self.shut(job).map(|(gate, shut)| self.words(gate, shut)).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    fn shut<'a>(&'a self, job: Subject<'a>) -> impl Iterator<Item = (GateOf<'a>, Shut)> {
        self.limits.iter().filter_map(move |limit| {
            let gate = limit.gate_of(job)?;
            let state = gate_state(limit.concurrency, limit.rate, self.gates.get(&gate.id()));
            let (_, shut) = admit(&[state], 1, self.now).shut?;
            Some((gate, shut))
        })
    }

    fn words(&self, gate: GateOf<'_>, shut: Shut) -> String {
        match shut {
            Shut::Until(at) => {
                format!("rate {gate} opens in {} s", at.since(self.now).as_millis().div_ceil(1000))
            }
            Shut::Full => {
                let held = self.gates.get(&gate.id()).map_or(0, |found| found.in_flight);
                let most = gate.limit.concurrency.unwrap_or_default();
                let by =
                    self.workers.get(&gate.id()).map_or_else(String::new, |by| by_workers(*by));
                format!("limit {gate} is {held}/{most}{by}")
            }
        }
    }
}

fn workers(holders: &[GateHolder]) -> Workers {
    let distinct: BTreeSet<_> = holders.iter().map(|it| (it.worker, it.plain.as_deref())).collect();
    let at_least = u32::try_from(holders.len()).is_ok_and(|count| count >= HOLDERS_MAX);
    Workers { count: distinct.len(), at_least }
}

fn by_workers(Workers { count, at_least }: Workers) -> String {
    let least = if at_least { "at least " } else { "" };
    match count {
        // Nothing holds a limit of 0.
        0 => String::new(),
        1 => format!(" (held by {least}1 worker)"),
        _ => format!(" (held by {least}{count} workers)"),
    }
}

#[cfg(test)]
mod tests;
