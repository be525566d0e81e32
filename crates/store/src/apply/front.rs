//! The first look of a claim by limits: the first jobs of its classes, in order.
//!
//! ```text
//! first jobs of the classes ──────────────┐          enough open ones ─▶ done
//! those of lanes that gave some lately ───┴▶ tried   all jobs seen    ─▶ done
//!                                                    otherwise        ─▶ walk through the lanes
//! ```
//!
//! Most claims find open lanes among a few more jobs than they want. A writer remembers the keys of
//! lanes, and which gates it found shut a moment ago: lanes behind these are tried last.

use std::collections::{HashMap, HashSet, VecDeque};

use outlast_core::gate::Shut;
use outlast_core::limit::GateId;
use outlast_core::time::{Span, Timestamp};

use super::limit::{Chosen, GateChanges, Head, Lane, LaneGate, Left, Limits, Stop};
use crate::command::ClassId;

/// How many lanes are remembered.
const LANES_MAX: usize = 20_000;
/// For how long a gate that was full is taken to be so: other servers end attempts, too.
const SHUT_FOR: Span = Span(1_000);
/// How many lanes of a class that gave jobs are remembered.
const RECENT_MAX: usize = 64;
/// Of how many of these a claim reads the first jobs.
const RECENT_READ: usize = 16;
/// How many more jobs than it wants a claim tries at first: some lanes may be shut.
const SPARE: usize = 8;

/// Returns how many of the first jobs of a class a claim of `wanted` jobs reads.
#[must_use]
pub fn front_rows(wanted: usize) -> u32 {
    u32::try_from(wanted.saturating_mul(2).clamp(32, 1024)).unwrap_or(1024)
}

/// What a writer remembers of lanes and gates from batch to batch.
#[derive(Debug, Default)]
pub struct LaneCache {
    limits: Limits,
    lanes: HashMap<(ClassId, i64), Lane>,
    /// Gates that were shut, and until when they are taken to be.
    shut: HashMap<GateId, Timestamp>,
    recent: HashMap<ClassId, Recent>,
    /// Whether a batch has changed this that has not taken effect yet.
    is_uncertain: bool,
}

/// Lanes of a class that gave jobs, the latest first.
#[derive(Debug, Default)]
struct Recent {
    lanes: VecDeque<i64>,
    /// Whether the first jobs of the class were not enough.
    is_needed: bool,
}

impl LaneCache {
    /// A batch begins. If the last one did not take effect, what gates counted in it is not true.
    pub fn begin_batch(&mut self) {
        if std::mem::take(&mut self.is_uncertain) {
            self.shut.clear();
        }
    }

    /// The batch has taken effect; these gates count less than before.
    pub fn committed(&mut self, released: &[GateId]) {
        self.is_uncertain = false;
        for gate in released {
            self.shut.remove(gate);
        }
    }

    /// Forgets what other limits said.
    pub fn set_limits(&mut self, limits: &Limits) {
        if !self.limits.is_same(limits) {
            *self = Self { limits: limits.clone(), ..Self::default() };
        }
    }

    /// Returns the lanes whose keys must be read.
    #[must_use]
    pub fn unknown(&self, rows: &[FrontRow]) -> Vec<(ClassId, i64)> {
        let lanes = rows.iter().filter_map(|row| Some((row.class, row.lane?)));
        let unknown: HashSet<(ClassId, i64)> =
            lanes.filter(|lane| !self.lanes.contains_key(lane)).collect();
        unknown.into_iter().collect()
    }

    /// The keys of a lane were read.
    pub fn learn(&mut self, lane: Lane) {
        if self.lanes.len() >= LANES_MAX {
            self.lanes.clear();
            self.recent.clear();
        }
        if let Some(number) = lane.number {
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

    /// Returns lanes that gave jobs lately, if the first jobs of the class were not enough.
    #[must_use]
    pub fn recent(&self, class: ClassId, seen: (&GateChanges, Timestamp)) -> Vec<i64> {
        let Some(recent) = self.recent.get(&class).filter(|recent| recent.is_needed) else {
            return Vec::new();
        };
        let is_open = |number: &&i64| {
            let lane = self.lanes.get(&(class, **number));
            lane.is_some_and(|lane| !self.is_shut(&lane.gates, seen))
        };
        recent.lanes.iter().filter(is_open).take(RECENT_READ).copied().collect()
    }

    /// Whether a claim found jobs only beyond the first ones of a class.
    #[must_use]
    pub fn is_beyond(&self, classes: &[ClassId]) -> bool {
        let recent = |class| self.recent.get(class).is_some_and(|recent| recent.is_needed);
        classes.iter().any(recent)
    }

    /// Notes what became of lanes: which gates are shut, and which lanes gave jobs, found by the walk
    /// or not.
    pub fn note(&mut self, lanes: &[Lane], chosen: &Chosen, now: Timestamp, by_walk: bool) {
        self.is_uncertain = true;
        for (gate, shut) in &chosen.shut {
            let until = match shut {
                Shut::Full => now.after(SHUT_FOR),
                Shut::Until(at) => (*at).min(now.after(SHUT_FOR)),
            };
            self.shut.insert(*gate, until);
        }
        if self.shut.len() > LANES_MAX {
            self.shut.clear();
        }
        for head in &chosen.heads {
            let Some(Lane { class, number: Some(number), .. }) = lanes.get(head.lane) else {
                continue;
            };
            let recent = self.recent.entry(*class).or_default();
            recent.is_needed |= by_walk;
            if recent.lanes.front() != Some(number) {
                recent.lanes.retain(|known| known != number);
                recent.lanes.push_front(*number);
                recent.lanes.truncate(RECENT_MAX);
            }
        }
    }

    fn is_shut(&self, gates: &[LaneGate], (changes, now): (&GateChanges, Timestamp)) -> bool {
        gates.iter().any(|gate| {
            self.shut.get(&gate.id).is_some_and(|until| *until > now) && changes.of(gate.id) >= 0
        })
    }
}

/// A claimable job that the first look may take.
#[derive(Clone, Copy, Debug)]
pub struct FrontRow {
    /// Its class.
    pub class: ClassId,
    /// Its lane; `None` if no limit tells the jobs of the class apart.
    pub lane: Option<i64>,
    /// Its rank.
    pub rank: i64,
    /// Its number.
    pub seq: i64,
    /// Whether it was read because its lane gave jobs lately.
    pub is_recent: bool,
}

/// Lanes, and the jobs of these that are tried.
#[derive(Debug, Default)]
pub struct Page {
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// The jobs, best first.
    pub heads: Vec<Head>,
}

/// The jobs that the first look has read and not tried yet.
#[derive(Debug)]
pub struct Front {
    rows: Vec<FrontRow>,
    /// Classes that have more jobs than were read.
    partial: HashSet<ClassId>,
    /// Whether lanes are tried that were shut a moment ago.
    tries_shut: bool,
    /// Whether jobs were taken that are not among the first of their class.
    took_recent: bool,
    looked: Vec<Lane>,
    stops: Vec<Option<Stop>>,
}

impl Front {
    /// Begins with what was read: jobs of lanes and whole classes, of those in `partial` not all.
    #[must_use]
    pub fn new(mut rows: Vec<FrontRow>, partial: HashSet<ClassId>) -> Self {
        rows.sort_unstable_by_key(|row| (row.rank, row.seq, row.is_recent));
        rows.dedup_by_key(|row| row.seq);
        Self {
            rows,
            partial,
            tries_shut: false,
            took_recent: false,
            looked: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Returns the jobs that a claim of `wanted` more tries next; `None` if there are no others.
    pub fn next(
        &mut self,
        cache: &LaneCache,
        whole: &HashMap<ClassId, Lane>,
        wanted: usize,
        seen: (&GateChanges, Timestamp),
    ) -> Option<Page> {
        loop {
            let page = self.page(cache, whole, wanted, seen);
            if !page.heads.is_empty() {
                return Some(page);
            }
            if std::mem::replace(&mut self.tries_shut, true) {
                return None;
            }
        }
    }

    fn page(
        &self,
        cache: &LaneCache,
        whole: &HashMap<ClassId, Lane>,
        wanted: usize,
        seen: (&GateChanges, Timestamp),
    ) -> Page {
        let mut page = Page::default();
        let mut places: HashMap<(ClassId, Option<i64>), Option<usize>> = HashMap::new();
        for row in &self.rows {
            if page.heads.len() >= wanted.saturating_add(SPARE) && !self.tries_shut {
                break;
            }
            let place = *places.entry((row.class, row.lane)).or_insert_with(|| {
                let lane = match row.lane {
                    Some(number) => cache.lanes.get(&(row.class, number)),
                    None => whole.get(&row.class),
                }?;
                // What is shut for sure is left to the walk if there is one.
                let tries_shut = self.tries_shut && !self.partial.contains(&row.class);
                if !tries_shut && cache.is_shut(&lane.gates, seen) {
                    return None;
                }
                page.lanes.push(lane.clone());
                Some(page.lanes.len() - 1)
            });
            if let Some(lane) = place {
                page.heads.push(Head { lane, rank: row.rank, seq: row.seq });
            }
        }
        page
    }

    /// A page was tried.
    pub fn tried(&mut self, page: Page, chosen: &Chosen) {
        let taken: HashSet<i64> = chosen.heads.iter().map(|head| head.seq).collect();
        let lanes = page.lanes.iter().zip(&chosen.stops);
        let stopped: HashSet<(ClassId, Option<i64>)> = lanes
            .filter(|(_, stop)| stop.is_some())
            .map(|(lane, _)| (lane.class, lane.number))
            .collect();
        let is_taken = |row: &&FrontRow| taken.contains(&row.seq);
        self.took_recent |= self.rows.iter().filter(is_taken).any(|row| row.is_recent);
        self.rows
            .retain(|row| !taken.contains(&row.seq) && !stopped.contains(&(row.class, row.lane)));
        self.looked.extend(page.lanes);
        self.stops.extend(chosen.stops.iter().copied());
    }

    /// There may be more jobs of classes than were read.
    pub fn has_more(&mut self, classes: impl IntoIterator<Item = ClassId>) {
        self.partial.extend(classes);
    }

    /// The first look was enough.
    pub fn was_enough(&self, cache: &mut LaneCache) {
        if !self.took_recent {
            for class in &self.partial {
                cache.recent.entry(*class).or_default().is_needed = false;
            }
        }
    }

    /// Returns the classes of which jobs are left that were not read.
    #[must_use]
    pub fn partial(&self) -> Vec<ClassId> {
        self.partial.iter().copied().collect()
    }

    /// As [`Chosen::left`], of the classes of which all jobs were read.
    #[must_use]
    pub fn left(self) -> Left {
        let Self { partial, looked, stops, .. } = self;
        let whole =
            looked.into_iter().zip(stops).filter(|(lane, _)| !partial.contains(&lane.class));
        let (lanes, stops): (Vec<Lane>, Vec<Option<Stop>>) = whole.unzip();
        Chosen { stops, ..Chosen::default() }.left(&lanes, |_| false)
    }
}

#[cfg(test)]
mod tests;
