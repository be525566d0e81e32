//! What a writer remembers of lanes and gates from batch to batch.
//!
//! ```text
//! an attempt ends ─┬▶ its own lane ───────────────────────────┐
//!                  └▶ its gates ─▶ lanes that waited for these ┴▶ freed: tried before all others
//! a walk ends ─▶ the place from which the next one goes on
//! ```
//!
//! All of it only says where to look: what gates count is read from the store. So nothing here has to
//! be true, and all of it is bounded: what was learned first goes first.

mod aging;

use std::collections::{HashMap, HashSet, VecDeque};

use outlast_core::limit::GateId;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{ClassId, ClassKey};

use self::aging::Aging;
use super::gate_changes::FreedSlots;
use super::gates::ClaimContext;
use super::lane::{Lane, LaneGate, jobs_of_each};
use super::lane_scan::ScanCursor;
use super::plan::{FirstJob, FirstPassPlan};
use super::scan_budget::ScanBudget;
use super::selection::{BlockedBy, Selection};
use crate::apply::limit::Limits;

/// How many lanes are remembered, and of how many gates what waits for them.
const LANES_MAX: usize = 20_000;
/// How many lanes of each gate are remembered that wait for it.
const BEHIND_MAX: usize = 8;
/// For how long a gate that was full is taken to be so: other servers end attempts, too.
const SHUT_FOR: Span = Span(1_000);
/// How many lanes of a class that gave jobs are remembered.
const RECENT_MAX: usize = 64;
/// Of how many of these a claim reads the first jobs.
const RECENT_READ: usize = 16;
/// How many jobs of each it reads beyond twice its share.
const SPARE: usize = 8;
/// How many lanes of a class in which a slot has become free are remembered.
const FREED_MAX: usize = 256;
/// Of so many claims, one walks through the lanes of a class of which the first jobs are not enough.
const WALKS: i64 = 8;
/// How many of the first jobs of a class a claim reads at most if it also reads those of certain lanes.
const FRONT_WITH_RECENT: usize = 128;

/// What a writer remembers of lanes and gates.
#[derive(Debug, Default)]
pub struct LaneCache {
    reach: ScanBudget,
    limits: Limits,
    lanes: Aging<(ClassId, i64), Lane>,
    /// Gates that were shut, and until when they are taken to be.
    shut: HashMap<GateId, Timestamp>,
    recent: HashMap<ClassId, Recent>,
    /// Lanes that had jobs behind a gate, the latest last.
    behind: Aging<GateId, Vec<(ClassId, i64)>>,
    /// Lanes of each class in which a slot has become free since they were tried, the latest first.
    freed: Aging<ClassId, VecDeque<i64>>,
    /// Those of them that the batch has tried.
    tried: HashSet<(ClassId, i64)>,
    /// Where the last walk through a class has ended.
    walked: Aging<ClassId, i64>,
    /// Whether a batch has changed this that has not taken effect yet.
    is_uncertain: bool,
}

/// Lanes of a class that gave jobs, the latest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) lanes: VecDeque<i64>,
    /// Whether the first jobs of the class were not enough.
    pub(super) is_needed: bool,
}

/// How a claim found the lanes that it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By the first look.
    First,
    /// By walking through the lanes, because the first look was not enough.
    ScanCursor,
}

impl LaneCache {
    /// Remembers nothing yet, for claims that look this far.
    #[must_use]
    pub fn new(reach: ScanBudget) -> Self {
        Self { reach, ..Self::default() }
    }

    /// Returns how far claims look.
    #[must_use]
    pub const fn reach(&self) -> ScanBudget {
        self.reach
    }

    /// A batch begins. If the last one did not take effect, what gates counted in it is not true, and
    /// the number of a class that it made may become another one's.
    pub fn begin_batch(&mut self) {
        self.tried.clear();
        if std::mem::take(&mut self.is_uncertain) {
            self.lanes.clear();
            self.shut.clear();
            self.recent.clear();
        }
        if self.recent.len() > LANES_MAX {
            self.recent.clear();
        }
        if self.shut.len() > LANES_MAX {
            self.shut.clear();
        }
        self.lanes.age(LANES_MAX);
        self.behind.age(LANES_MAX);
        self.freed.age(LANES_MAX);
        self.walked.age(LANES_MAX);
    }

    /// The batch has taken effect, and these slots are free.
    pub fn committed(&mut self, FreedSlots { gates, lanes }: FreedSlots) {
        self.is_uncertain = false;
        for (class, lane) in std::mem::take(&mut self.tried) {
            if let Some(freed) = self.freed.get_mut(&class) {
                freed.retain(|known| *known != lane);
            }
        }
        for gate in &gates {
            self.shut.remove(gate);
        }
        // What has left the slot comes first.
        let behind = gates.iter().flat_map(|gate| self.behind(*gate));
        let all: Vec<(ClassId, i64)> = lanes.into_iter().chain(behind).collect();
        for (class, lane) in all.into_iter().rev() {
            put_first(self.freed.entry(class), lane, FREED_MAX);
        }
    }

    /// Forgets what other limits said; lanes stay the same.
    pub fn set_limits(&mut self, limits: &Limits) {
        if !self.limits.is_same(limits) {
            self.limits = limits.clone();
            self.lanes.clear();
            self.shut.clear();
            self.recent.clear();
        }
    }

    /// Returns what the first look of a claim of `wanted` jobs reads. `chance` differs from batch to
    /// batch: now and then a class of which the first jobs are not enough takes part by its lanes, so
    /// that others do not hide these forever.
    #[must_use]
    pub fn plan<'a>(
        &self,
        classes: impl IntoIterator<Item = (ClassId, &'a ClassKey)>,
        wanted: usize,
        chance: i64,
        terms: ClaimContext<'_>,
    ) -> FirstPassPlan {
        let classes: Vec<(ClassId, &ClassKey)> = classes.into_iter().collect();
        let ScanBudget { first_times, first_jobs, .. } = self.reach;
        let first_jobs = wanted.saturating_mul(first_times).max(first_jobs);
        let first_jobs = jobs_of_each(classes.len(), first_jobs);
        let mut plan = FirstPassPlan::default();
        for (class, key) in &classes {
            let may_hide = chance % WALKS == 0 && self.needs_recent(*class);
            let is_fair = self.limits.is_fair(&key.queue);
            // Also in claims ahead of free slots: where all are such, a class would seem to be empty.
            if may_hide || is_fair {
                plan.by_lanes.push(*class);
            } else if self.limits.need_lanes(key) {
                let recent = self.recent(*class, wanted, terms);
                let most = if recent.is_empty() { usize::MAX } else { FRONT_WITH_RECENT };
                plan.first.insert(*class, first_jobs.min(most));
                plan.recent.extend(recent.into_iter().map(|(lane, most)| (*class, lane, most)));
            } else {
                let lane = self.limits.whole(*class, key);
                // Where there is no gate, no job is stopped.
                let most = if lane.gates.is_empty() { wanted } else { first_jobs };
                let most = jobs_of_each(classes.len(), most);
                plan.first.insert(*class, lane.jobs_worth_reading(most));
                plan.whole.insert(*class, lane);
            }
        }
        if !plan.first.is_empty() {
            plan.first.extend(plan.by_lanes.iter().map(|class| (*class, 1)));
        }
        plan
    }

    /// Returns the lanes whose keys must be read.
    #[must_use]
    pub fn unknown(&self, rows: &[FirstJob]) -> Vec<(ClassId, i64)> {
        let lanes = rows.iter().filter_map(|row| Some((row.class, row.lane?)));
        let unknown: HashSet<(ClassId, i64)> =
            lanes.filter(|lane| self.lanes.get(lane).is_none()).collect();
        unknown.into_iter().collect()
    }

    /// The keys of a lane were read.
    pub fn learn(&mut self, lane: Lane) {
        if let Some(number) = lane.number.filter(|_| !lane.keys.is_empty()) {
            self.is_uncertain = true;
            lane.gates.iter().for_each(|gate| self.waits_for(gate.id, lane.class, number));
            self.lanes.insert((lane.class, number), lane);
        }
    }

    /// A job of a lane has other keys than are remembered: that the numbers are equal is chance.
    pub fn forget(&mut self, lane: &Lane) {
        if let Some(number) = lane.number {
            self.lanes.remove(&(lane.class, number));
        }
    }

    /// Returns a lane whose keys were read.
    #[must_use]
    pub fn get(&self, class: ClassId, number: i64) -> Option<&Lane> {
        self.lanes.get(&(class, number))
    }

    /// Notes what became of lanes: which gates are shut, and which lanes gave jobs.
    pub fn note(&mut self, lanes: &[Lane], chosen: &Selection, now: Timestamp, by: FoundBy) {
        self.is_uncertain = true;
        for (gate, stop) in &chosen.stopped {
            let until = match stop {
                BlockedBy::Full => now.after(SHUT_FOR),
                BlockedBy::Until(at) => (*at).min(now.after(SHUT_FOR)),
                BlockedBy::Busy | BlockedBy::Reserved => continue,
            };
            self.shut.insert(*gate, until);
        }
        // The first one is remembered as the latest.
        for head in chosen.heads.iter().rev() {
            let Some(Lane { class, number: Some(number), .. }) = lanes.get(head.lane) else {
                continue;
            };
            put_first(&mut self.recent.entry(*class).or_default().lanes, *number, RECENT_MAX);
        }
        if by == FoundBy::ScanCursor {
            // Also if all were shut: the next one that opens is found without a walk.
            for lane in lanes.iter().filter(|lane| lane.number.is_some()) {
                self.set_needed(lane.class, true);
            }
        }
        self.note_stops(lanes, chosen);
    }

    /// Notes which lanes wait for gates, and which have no jobs.
    fn note_stops(&mut self, lanes: &[Lane], chosen: &Selection) {
        let gave: HashSet<usize> = chosen.heads.iter().map(|head| head.lane).collect();
        for (nth, (lane, stop)) in lanes.iter().zip(&chosen.stops).enumerate() {
            let Some(number) = lane.number else { continue };
            let of = (lane.class, number);
            match stop {
                Some(BlockedBy::Full | BlockedBy::Until(_)) => {
                    self.tried.insert(of);
                    let gates = lane.gates.iter().map(|gate| gate.id);
                    let shut = gates.filter(|gate| chosen.stopped.iter().any(|it| it.0 == *gate));
                    shut.for_each(|gate| self.waits_for(gate, of.0, of.1));
                }
                None if chosen.is_all && !gave.contains(&nth) => self.is_empty(lane),
                // It is among those that gave jobs lately.
                None if gave.contains(&nth) => drop(self.tried.insert(of)),
                // The next claim may be luckier, or has a free slot.
                Some(BlockedBy::Busy | BlockedBy::Reserved) | None => {}
            }
        }
    }

    /// A lane has no jobs.
    fn is_empty(&mut self, lane: &Lane) {
        let Some(number) = lane.number else { return };
        self.tried.insert((lane.class, number));
        for gate in lane.gates.iter() {
            if let Some(behind) = self.behind.get_mut(&gate.id) {
                behind.retain(|known| *known != (lane.class, number));
            }
        }
    }

    /// Lanes that were read have no jobs.
    pub fn are_empty(&mut self, class: ClassId, lanes: impl IntoIterator<Item = i64>) {
        for number in lanes {
            if let Some(recent) = self.recent.get_mut(&class) {
                recent.lanes.retain(|known| *known != number);
            }
            self.tried.insert((class, number));
            if let Some(lane) = self.get(class, number).cloned() {
                self.is_empty(&lane);
            }
        }
    }

    /// A lane that has jobs has to pass a gate.
    fn waits_for(&mut self, gate: GateId, class: ClassId, number: i64) {
        let lane = (class, number);
        let behind = self.behind.entry(gate);
        if behind.last() != Some(&lane) {
            behind.retain(|known| *known != lane);
            if behind.len() >= BEHIND_MAX {
                behind.remove(0);
            }
            behind.push(lane);
        }
    }

    /// Returns the lanes that wait for a gate, as far as is remembered, the latest first.
    fn behind(&self, gate: GateId) -> impl Iterator<Item = (ClassId, i64)> {
        self.behind.get(&gate).into_iter().flatten().rev().copied()
    }

    /// Returns lanes of a class in which a slot has become free since they were tried, for a claim of
    /// `wanted` jobs: first what the batch itself has ended, then the latest.
    #[must_use]
    pub fn freed(&self, class: ClassId, wanted: usize, terms: ClaimContext<'_>) -> Vec<i64> {
        let behind = terms.changes.freed_gates().flat_map(|gate| self.behind(gate));
        let behind = behind.filter(|lane| lane.0 == class).map(|lane| lane.1);
        let before = self.freed.get(&class).into_iter().flatten().copied();
        let before = before.filter(|lane| !self.tried.contains(&(class, *lane)));
        let mut seen = HashSet::new();
        let all = terms.changes.freed_lanes(class).chain(behind).chain(before);
        let all = all.filter(|lane| seen.insert(*lane));
        let open = all.filter(|lane| {
            let known = self.get(class, *lane);
            known.is_none_or(|lane| !self.is_shut(&lane.gates, terms))
        });
        let most = usize::try_from(self.reach.front_lanes(wanted)).unwrap_or(usize::MAX);
        open.take(most).collect()
    }

    /// Returns lanes that may have jobs that start, if the first jobs of the class were not enough,
    /// and how many jobs of each are worth reading: those in which a slot has become free, and those
    /// that gave jobs lately.
    fn recent(&self, class: ClassId, wanted: usize, terms: ClaimContext<'_>) -> Vec<(i64, usize)> {
        let Some(recent) = self.recent.get(&class).filter(|recent| recent.is_needed) else {
            return Vec::new();
        };
        let freed = self.freed(class, wanted, terms);
        let known: HashSet<i64> = freed.iter().copied().collect();
        let open = recent.lanes.iter().filter(|number| {
            let lane = self.get(class, **number);
            lane.is_some_and(|lane| !self.is_shut(&lane.gates, terms)) && !known.contains(number)
        });
        let all: Vec<i64> = freed.iter().chain(open.take(RECENT_READ)).copied().collect();
        // Jobs of all these take turns, so that few of each start: all of them would be thousands.
        let share = wanted.saturating_mul(2).checked_div(all.len()).unwrap_or(wanted);
        let each = wanted.min(share.saturating_add(SPARE));
        let worth = |number: i64| {
            let lane = self.get(class, number);
            lane.map_or(each, |lane| lane.jobs_worth_reading(each))
        };
        all.into_iter().map(|number| (number, worth(number))).collect()
    }

    /// Returns the lane behind which a walk through a class begins: where the last one has ended, so
    /// that each lane is looked at in the end, however many there are.
    #[must_use]
    pub fn start_of_walk(&self, class: ClassId, chance: i64) -> i64 {
        self.walked.get(&class).copied().unwrap_or(chance)
    }

    /// A walk has ended, or the first look was enough that has come by its first lanes.
    pub fn walked(&mut self, walk: &ScanCursor) {
        for (class, place) in walk.places() {
            self.walked.insert(class, place);
        }
    }

    pub(super) fn needs_recent(&self, class: ClassId) -> bool {
        self.recent.get(&class).is_some_and(|recent| recent.is_needed)
    }

    /// Whether the first jobs of a class are not enough.
    pub(super) fn set_needed(&mut self, class: ClassId, is_needed: bool) {
        if is_needed {
            self.recent.entry(class).or_default().is_needed = true;
        } else if let Some(recent) = self.recent.get_mut(&class) {
            recent.is_needed = false;
        }
    }

    pub(super) fn is_shut(
        &self,
        gates: &[LaneGate],
        ClaimContext { changes, now, .. }: ClaimContext<'_>,
    ) -> bool {
        gates.iter().any(|gate| {
            self.shut.get(&gate.id).is_some_and(|until| *until > now) && !changes.has_freed(gate.id)
        })
    }
}

/// Puts a lane before the others, of which so many are remembered with it.
fn put_first(lanes: &mut VecDeque<i64>, lane: i64, most: usize) {
    if lanes.front() != Some(&lane) {
        lanes.retain(|known| *known != lane);
        lanes.push_front(lane);
        lanes.truncate(most);
    }
}

#[cfg(test)]
mod tests;
