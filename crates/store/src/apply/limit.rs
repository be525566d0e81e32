//! What limits let start: which lanes of the claimable jobs are open, and which jobs are taken.
//!
//! A lane is what limits tell apart: the jobs of a class that have the same keys. All jobs of a
//! lane pass the same gates, so a lane whose gate is shut is left out as a whole.

mod asked;

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::gate::{Gate, Rate, Shut, admit};
use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, LIMITS_MAX, Limit, LimitName, Scope, Subject};
use outlast_core::queue::{Fair, QueueSettings};
use outlast_core::time::Timestamp;

use super::fair::{Share, Turns};
use super::gate_changes::GateChanges;
use crate::command::{AskedByQueues, ClassId, ClassKey};
use crate::limit::{LimitChange, LimitRecord, LimitRefusal, RemoveLimit, SetLimit};
use crate::queue::QueueRecord;
use crate::reply::Blocked;

/// About how many heads of lanes one claim reads.
const HEADS_MAX: usize = 8_192;
/// How many heads of each lane it reads at least.
const HEADS_MIN: usize = 16;

/// Returns how many heads of each lane a claim of `wanted` jobs reads: all that it could take,
/// unless there are many lanes.
#[must_use]
pub fn heads_of_each(lanes: usize, wanted: usize) -> usize {
    let share = HEADS_MAX.checked_div(lanes).unwrap_or(HEADS_MAX);
    wanted.min(share.max(HEADS_MIN))
}

/// Decides whether a limit may be set, and what that changes; `count` is how many limits there are.
///
/// # Errors
/// Returns why it stays as it is.
pub fn set(
    found: Option<&LimitRecord>,
    count: usize,
    order: &SetLimit,
) -> Result<LimitChange, LimitRefusal> {
    match found {
        Some(found) if found.configured && !order.configured => Err(LimitRefusal::Configured),
        Some(found) if found.limit == order.limit && found.configured == order.configured => {
            Ok(LimitChange::Unchanged)
        }
        Some(_) => Ok(LimitChange::Replaced),
        None if count >= LIMITS_MAX => Err(LimitRefusal::TooMany),
        None => Ok(LimitChange::Created),
    }
}

/// Decides whether a limit may be removed.
///
/// # Errors
/// Returns why it stays as it is.
pub fn remove(
    found: Option<&LimitRecord>,
    order: &RemoveLimit,
) -> Result<LimitChange, LimitRefusal> {
    match found {
        Some(found) if found.configured && !order.configured => Err(LimitRefusal::Configured),
        Some(found) if order.configured && !found.configured => Ok(LimitChange::Unchanged),
        Some(_) => Ok(LimitChange::Removed),
        None => Ok(LimitChange::NotFound),
    }
}

/// The limits and the settings of queues in force: what a writer keeps in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    all: Arc<[Limit]>,
    queues: Arc<BTreeMap<String, QueueSettings>>,
    asked: AskedByQueues,
}

impl FromIterator<Limit> for Limits {
    fn from_iter<T: IntoIterator<Item = Limit>>(limits: T) -> Self {
        Self { all: limits.into_iter().collect(), ..Self::default() }
    }
}

impl Limits {
    /// Returns what was read together from the store.
    #[must_use]
    pub fn of(limits: Vec<LimitRecord>, queues: Vec<QueueRecord>) -> Self {
        let queues: BTreeMap<String, QueueSettings> =
            queues.into_iter().map(|record| (record.queue, record.settings)).collect();
        Self {
            all: limits.into_iter().map(|record| record.limit).collect(),
            asked: asked::by(&queues),
            queues: Arc::new(queues),
        }
    }

    /// Whether these are the very ones, and not read again since.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.all, &other.all) && Arc::ptr_eq(&self.queues, &other.queues)
    }

    /// Whether jobs of a class may be sent to workers before these have a free slot. A rate counts
    /// starts, and these would come later.
    #[must_use]
    pub fn may_prefetch(&self, class: &ClassKey) -> bool {
        let forbids = |limit: &Limit| {
            limit.rate.is_some() && limit.may_apply(&class.queue, &class.job_type, class.keyed)
        };
        !self.all.iter().any(forbids)
    }

    /// Whether the jobs of a queue share slots.
    #[must_use]
    pub fn is_fair(&self, queue: &str) -> bool {
        self.fair(queue).is_some()
    }

    /// Returns what is set for a queue.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&QueueSettings> {
        self.queues.get(name)
    }

    /// Whether a limit may apply to jobs of a class, or its queue shares slots.
    #[must_use]
    pub fn may_apply(&self, class: &ClassKey) -> bool {
        if self.fair(&class.queue).is_some() {
            return true;
        }
        let applies = |limit: &Limit| limit.may_apply(&class.queue, &class.job_type, class.keyed);
        self.all.iter().any(applies)
    }

    /// Returns how the jobs of a queue share slots, if they do.
    fn fair(&self, queue: &str) -> Option<&Fair> {
        self.queue(queue)?.fair.as_ref()
    }

    /// Returns the share that jobs with these keys belong to, if their queue has shares.
    #[must_use]
    pub fn share_of(&self, queue: &str, keys: &Keys) -> Option<Share> {
        let fair = self.fair(queue)?;
        let value = keys.get(&fair.key);
        let weight = fair.weight(value);
        Some(Share { queue: queue.to_owned(), value: value.map(ToOwned::to_owned), weight })
    }

    /// Returns how many limits there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is nothing that a claim must look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.queues.values().all(|queue| queue.fair.is_none())
    }

    /// Whether the depth of any queue is bounded.
    #[must_use]
    pub fn bound_depths(&self) -> bool {
        self.queues.values().any(|queue| queue.max_depth.is_some())
    }

    /// Whether there is nothing that a claim from this queue must look at.
    #[must_use]
    pub fn is_free(&self, queue: &str) -> bool {
        self.all.is_empty() && self.fair(queue).is_none()
    }

    /// Whether limits or shares tell the jobs of a class apart by their keys.
    #[must_use]
    pub fn need_lanes(&self, class: &ClassKey) -> bool {
        let per_key = || self.all.iter().any(|limit| matches!(limit.scope, Scope::Key(_)));
        class.keyed && (self.fair(&class.queue).is_some() || per_key())
    }

    /// Returns the lane of all jobs of a class that limits do not tell apart.
    #[must_use]
    pub fn whole(&self, class: ClassId, key: &ClassKey) -> Lane {
        let keys = Arc::<Keys>::default();
        let share = self.share_of(&key.queue, &keys);
        Lane { class, number: None, gates: self.gates_of(key, &keys), keys, share }
    }

    /// Returns the lane of the jobs of a class that have these keys.
    #[must_use]
    pub fn lane(&self, (class, key): (ClassId, &ClassKey), number: i64, keys: Keys) -> Lane {
        let (gates, share) = (self.gates_of(key, &keys), self.share_of(&key.queue, &keys));
        Lane { class, number: Some(number), gates, keys: Arc::new(keys), share }
    }

    /// Returns the gates that jobs of a class with these keys must pass.
    #[must_use]
    pub fn gates_of(&self, class: &ClassKey, keys: &Keys) -> Arc<[LaneGate]> {
        let subject = Subject { queue: &class.queue, job_type: &class.job_type, keys };
        let gates = self.all.iter().filter_map(|limit| limit.gate_of(subject));
        let mut gates: Vec<LaneGate> = gates
            .map(|gate| LaneGate {
                id: gate.id(),
                name: gate.limit.name.clone(),
                value: gate.value.map(ToOwned::to_owned),
                concurrency: gate.limit.concurrency,
                rate: gate.limit.rate,
            })
            .collect();
        gates.sort_by_key(|gate| gate.id);
        gates.into()
    }
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
    pub fn heads_worth_reading(&self, each: usize) -> usize {
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
pub struct Head {
    /// Which of the lanes it is in.
    pub lane: usize,
    /// Its rank.
    pub rank: i64,
    /// Its number.
    pub seq: i64,
}

/// Why no more jobs of a lane start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another server is claiming through one of its gates.
    Busy,
    /// A gate counts as many attempts as it lets run.
    Full,
    /// A rate lets the next one start at this time.
    Until(Timestamp),
    /// A rate is kept for jobs that start at once.
    Kept,
}

impl From<Shut> for Stop {
    fn from(shut: Shut) -> Self {
        match shut {
            Shut::Full => Self::Full,
            Shut::Until(at) => Self::Until(at),
        }
    }
}

/// The jobs that a claim takes.
#[derive(Debug, Default)]
pub struct Chosen {
    /// The jobs, best first.
    pub heads: Vec<Head>,
    /// For each lane, why no more of it were taken, if a gate was the reason.
    pub stops: Vec<Option<Stop>>,
    /// The gates that were the reason.
    pub stopped: Vec<(GateId, Stop)>,
    /// Whether all jobs were tried that were read.
    pub is_all: bool,
}

/// What a claim leaves in its classes when it comes back short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Those that are worth another look soon.
    pub again: Vec<ClassId>,
    /// Those whose jobs wait for a limit.
    pub blocked: Vec<Blocked>,
    /// Those that have jobs for workers with free slots only.
    pub kept: Vec<ClassId>,
}

impl Left {
    /// Says what a claim that came back short may still find: in each lane it was stopped by this, or
    /// by nothing. Of some classes there are more lanes than were looked at (`has_more`).
    #[must_use]
    pub fn of(lanes: &[Lane], stops: &[Option<Stop>], has_more: impl Fn(ClassId) -> bool) -> Self {
        let mut classes: BTreeMap<ClassId, Vec<Stop>> = BTreeMap::new();
        for (lane, stop) in lanes.iter().zip(stops) {
            classes.entry(lane.class).or_default().extend(*stop);
        }
        let mut left = Self::default();
        for (class, stops) in classes {
            if stops.contains(&Stop::Kept) {
                left.kept.push(class);
            } else if stops.contains(&Stop::Busy) || has_more(class) {
                left.again.push(class);
            } else if !stops.is_empty() {
                let opens = stops.iter().filter_map(|stop| match stop {
                    Stop::Until(at) => Some(*at),
                    Stop::Busy | Stop::Full | Stop::Kept => None,
                });
                left.blocked.push(Blocked { class, until: opens.min() });
            }
        }
        left
    }

    /// Adds what the claim leaves in other classes.
    pub fn append(&mut self, mut other: Self) {
        self.again.append(&mut other.again);
        self.blocked.append(&mut other.blocked);
        self.kept.append(&mut other.kept);
    }
}

impl Chosen {
    /// Some of the jobs could not be taken after all, so gates may have room for others instead:
    /// nothing is known of what stops these.
    pub fn missed(&mut self) {
        self.stops.fill(None);
        self.stopped.clear();
        self.is_all = false;
    }

    /// Returns the classes of lanes of which all `each` heads that were read are chosen: there may be
    /// more of them.
    #[must_use]
    pub fn exhausted(&self, lanes: &[Lane], each: usize) -> Vec<ClassId> {
        let mut counts = vec![0_usize; lanes.len()];
        for head in &self.heads {
            if let Some(count) = counts.get_mut(head.lane) {
                *count += 1;
            }
        }
        let full = lanes.iter().zip(counts).filter(|(_, count)| *count >= each);
        full.map(|(lane, _)| lane.class).collect()
    }
}

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
        let present = Gate {
            concurrency: gate.concurrency,
            in_flight: u64::try_from(self.in_flight).unwrap_or(0),
            rate: gate.rate,
            used_until: self.used_until,
        };
        present.after(more, now)
    }
}

/// What a choice goes by.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
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
    pub fn choose(&self, lanes: &[Lane], mut turns: Turns, max: usize, terms: Terms<'_>) -> Chosen {
        let mut chosen = Chosen { stops: vec![None; lanes.len()], ..Chosen::default() };
        let mut started: BTreeMap<GateId, u32> = BTreeMap::new();
        let mut take = |head: Head, Chosen { heads, stops, stopped, .. }: &mut Chosen| {
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
        Terms { changes, taken, now, is_prefetch }: Terms<'_>,
    ) -> Option<(GateId, Stop)> {
        let mut states = Vec::with_capacity(gates.len());
        let mut busy = None;
        for gate in gates {
            let Some(read) = self.read.get(&gate.id) else { return Some((gate.id, Stop::Busy)) };
            if read.row == GateRow::LookedAt {
                busy = Some((gate.id, Stop::Busy));
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
        rated.map(|gate| (gate.id, Stop::Kept)).or(busy)
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
