//! Lanes: what limits and shares tell apart. The jobs of a class that have the same keys are a lane.
//! All of them pass the same gates, so a lane whose gate is shut is left out as a whole.

use std::sync::Arc;

use outlast_core::gate::{Gate, Rate};
use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, LimitName};
use outlast_store::command::ClassId;

/// About how many heads of lanes one claim reads.
const HEADS_MAX: usize = 8_192;
/// How many heads of each lane it reads at least.
const HEADS_MIN: usize = 16;

/// Returns how many heads of each lane a claim of `wanted` jobs reads: all that it could take,
/// unless there are many lanes.
#[must_use]
pub fn jobs_of_each(lanes: usize, wanted: usize) -> usize {
    let share = HEADS_MAX.checked_div(lanes).unwrap_or(HEADS_MAX);
    wanted.min(share.max(HEADS_MIN))
}

/// A gate that the jobs of a lane must pass.
#[derive(Clone, Debug)]
pub struct LaneGate {
    /// Its number.
    pub id: GateId,
    /// The name of its limit.
    pub name: LimitName,
    /// The value of the key, if it is a gate of a limit on a key.
    pub value: Option<String>,
    /// Most attempts at a time.
    pub concurrency: Option<u32>,
    /// Most starts in a period.
    pub rate: Option<Rate>,
}

impl LaneGate {
    /// Returns the gate as it is while nothing holds it, when starts have used its rate so far.
    #[must_use]
    pub const fn used(&self, used_until: i64) -> Gate {
        Gate { concurrency: self.concurrency, in_flight: 0, rate: self.rate, used_until }
    }
}

/// Claimable jobs that pass the same gates.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Their class.
    pub class: ClassId,
    /// The lane in it; `None` if no gate tells the jobs of the class apart.
    pub number: Option<i64>,
    /// The keys that its jobs have.
    pub keys: Arc<Keys>,
    /// The gates that they must pass, by number.
    pub gates: Arc<[LaneGate]>,
    /// The share that they belong to, if their queue has shares.
    pub share: Option<Share>,
}

impl Lane {
    /// Returns the numbers of its gates: what an attempt is charged to.
    #[must_use]
    pub fn gate_ids(&self) -> Vec<GateId> {
        self.gates.iter().map(|gate| gate.id).collect()
    }

    /// Returns how many of `each` heads are worth reading: one more than its gates ever let start
    /// at once, which shows that there are more.
    #[must_use]
    pub fn jobs_worth_reading(&self, each: usize) -> usize {
        let most = |gate: &LaneGate| {
            let burst = gate.rate.map(|rate| usize::try_from(rate.burst()).unwrap_or(usize::MAX));
            let most = gate.concurrency.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
            burst.into_iter().chain(most).min()
        };
        let most = self.gates.iter().filter_map(most).min();
        most.map_or(each, |most| each.min(most.saturating_add(1)))
    }
}

/// A claimable job that a claim may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneJob {
    /// Which of the lanes it is in.
    pub lane: usize,
    /// Its rank.
    pub rank: i64,
    /// Its number.
    pub seq: i64,
}

/// A share of a queue: the jobs of one value of its key, or those without the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The queue.
    pub queue: String,
    /// The value; `None` for jobs without the key.
    pub value: Option<String>,
    /// It gets so many times the time of a share with weight 1.
    pub weight: u32,
}
