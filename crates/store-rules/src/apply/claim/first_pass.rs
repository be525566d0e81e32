//! The first look of a claim by limits: the first jobs of its classes, in order.
//!
//! ```text
//! first jobs of the classes ──────────────┐          enough open ones ─▶ done
//! those of lanes that may be open, or gave
//! some lately, if these were needed ──────┼▶ tried   all jobs seen    ─▶ done
//! lanes of fair classes, if it is these   │          otherwise        ─▶ walk through the lanes
//! classes' turn ──────────────────────────┘
//! ```
//!
//! Shares are fair among the lanes that are looked at, so a fair class takes part by its lanes. Only
//! its first job is read at first: what goes before the first jobs of all such classes needs no look
//! at their lanes. What comes after competes with them in one choice.
//!
//! Most claims find open lanes among a few more jobs than they want. A writer remembers the keys of
//! lanes, and which gates it found shut a moment ago: lanes behind these are tried last.

use std::collections::{HashMap, HashSet};

use outlast_core::limit::GateId;
use outlast_core::time::Timestamp;
use outlast_store::command::ClassId;

use super::fair::{ShareOrder, Shares};
use super::gates::ClaimContext;
use super::lane::{Lane, LaneJob, jobs_of_each};
use super::lane_cache::LaneCache;
use super::lane_scan::LaneScan;
use super::plan::{FirstJob, FirstPassPlan};
use super::selection::{BlockedBy, Remaining, Selection};

/// Lanes, and the jobs of these that are tried.
#[derive(Debug, Default)]
pub struct FirstPassPage {
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// The jobs, best first, but for those of the last lanes, which the store reads. It may read
    /// the others again.
    pub heads: Vec<LaneJob>,
    /// How many jobs of each lane are tried.
    pub most: Vec<usize>,
    /// How many lanes there are before those of which no job has been read.
    read_lanes: usize,
    /// The numbers of those that the first look has read.
    read: HashSet<i64>,
    /// The last place that is tried, if there are others behind it.
    upto: Option<(i64, i64)>,
}

impl FirstPassPage {
    /// Returns the lanes of which the store must read the first jobs, each with its place among the
    /// lanes, and how many jobs.
    pub fn unread(&self) -> impl Iterator<Item = (usize, &Lane, usize)> {
        let lanes = self.lanes.iter().zip(&self.most).enumerate().skip(self.read_lanes);
        lanes.map(|(nth, (lane, most))| (nth, lane, *most))
    }

    /// Returns how many of the first jobs of each lane the store must read: none of those of which
    /// jobs were read.
    pub(super) fn unread_most(&self) -> Vec<usize> {
        let unread = self.most.iter().enumerate();
        unread.map(|(nth, most)| if nth < self.read_lanes { 0 } else { *most }).collect()
    }

    /// Returns the order in which the jobs are tried.
    pub fn turns(&self, shares: &mut Shares, now: Timestamp) -> ShareOrder {
        let mut turns = shares.turns(&self.lanes, self.heads.clone(), now);
        if let Some(upto) = self.upto {
            turns.end_after(upto.0, upto.1);
        }
        turns
    }

    /// Returns the classes of those lanes that the store has read of which all its jobs were chosen.
    fn exhausted<'a>(&'a self, chosen: &Selection) -> impl Iterator<Item = ClassId> + use<'a> {
        let mut counts = vec![0_usize; self.lanes.len()];
        for head in &chosen.heads {
            if let Some(count) = counts.get_mut(head.lane) {
                *count += 1;
            }
        }
        let unread = self.unread();
        unread.filter_map(move |(nth, lane, most)| {
            (counts.get(nth).is_some_and(|count| *count >= most)).then_some(lane.class)
        })
    }
}

/// What a first look does next.
#[derive(Debug)]
pub enum NextStep {
    /// These jobs are tried.
    Try(FirstPassPage),
    /// The lanes of these classes are read, and [`FirstPass::join`] the look.
    Read(Vec<ClassId>),
    /// Nothing: the claim has what it wants, or all that was read was tried.
    End,
}

/// The jobs that the first look has read and not tried yet.
#[derive(Debug)]
pub struct FirstPass {
    rows: Vec<FirstJob>,
    whole: HashMap<ClassId, Lane>,
    /// Classes that have more jobs than were read.
    partial: HashSet<ClassId>,
    /// How many pages were tried.
    pages: u32,
    /// Whether lanes that are remembered as shut have their turn.
    at_shut: bool,
    /// Whether jobs were taken that are not among the first of their class.
    took_recent: bool,
    /// The last place that was read of classes that have more, and lanes.
    ends: HashMap<ClassId, (i64, i64)>,
    /// The last place of a job that was chosen.
    last: Option<(i64, i64)>,
    /// Classes that take part by their lanes.
    by_lanes: Vec<ClassId>,
    /// The first place of these, while their lanes are not known.
    until: Option<(i64, i64)>,
    /// The lanes of these that are to be tried.
    lanes: Vec<Lane>,
    /// Gates that stopped jobs of this claim.
    stopped: HashMap<GateId, BlockedBy>,
    looked: Vec<Lane>,
    stops: Vec<Option<BlockedBy>>,
}

impl FirstPass {
    /// Begins with what was read.
    #[must_use]
    pub fn new(plan: FirstPassPlan, mut rows: Vec<FirstJob>, cache: &mut LaneCache) -> Self {
        let FirstPassPlan { first, recent, whole, mut by_lanes } = plan;
        let mut until = (first.is_empty() && !by_lanes.is_empty()).then_some((i64::MIN, i64::MIN));
        if !first.is_empty() {
            let firsts: HashMap<ClassId, (i64, i64)> =
                rows.iter().map(|row| (row.class, (row.rank, row.seq))).collect();
            // A class without a first job has none.
            by_lanes.retain(|class| firsts.contains_key(class));
            until = by_lanes.iter().filter_map(|class| firsts.get(class).copied()).min();
            rows.retain(|row| !by_lanes.contains(&row.class));
        }
        let mut partial: HashSet<ClassId> = HashSet::new();
        let mut counts: HashMap<ClassId, usize> = HashMap::new();
        let mut ends: HashMap<ClassId, (i64, i64)> = HashMap::new();
        let mut gave: HashSet<(ClassId, Option<i64>)> = HashSet::new();
        for row in &rows {
            if row.is_recent {
                gave.insert((row.class, row.lane));
            } else {
                *counts.entry(row.class).or_default() += 1;
                let end = ends.entry(row.class).or_insert((row.rank, row.seq));
                *end = (row.rank, row.seq).max(*end);
            }
        }
        for (class, count) in counts {
            // A gate of the class shuts before all that are worth reading have started.
            let is_cut =
                whole.get(&class).is_none_or(|lane| lane.jobs_worth_reading(usize::MAX) > count);
            if is_cut && first.get(&class).is_some_and(|most| count >= *most) {
                partial.insert(class);
            }
        }
        ends.retain(|class, _| partial.contains(class) && !whole.contains_key(class));
        for (class, lane, _) in recent {
            if !gave.contains(&(class, Some(lane))) {
                cache.are_empty(class, [lane]);
            }
        }
        rows.sort_unstable_by_key(|row| (row.rank, row.seq, row.is_recent));
        rows.dedup_by_key(|row| row.seq);
        Self {
            rows,
            whole,
            partial,
            pages: 0,
            at_shut: false,
            took_recent: false,
            ends,
            last: None,
            by_lanes,
            until,
            lanes: Vec::new(),
            stopped: HashMap::new(),
            looked: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Returns what a claim of `wanted` more jobs does next.
    pub fn next(&mut self, cache: &LaneCache, wanted: usize, terms: ClaimContext<'_>) -> NextStep {
        if wanted == 0 {
            return NextStep::End;
        }
        if let Some(page) = self.next_page(cache, wanted, terms) {
            return NextStep::Try(page);
        }
        let by_lanes = self.take_by_lanes();
        if by_lanes.is_empty() { NextStep::End } else { NextStep::Read(by_lanes) }
    }

    /// Returns the classes of which the lanes take part from now on, once; none if all jobs that may
    /// be taken were read.
    fn take_by_lanes(&mut self) -> Vec<ClassId> {
        match self.until.take() {
            Some(_) => self.by_lanes.clone(),
            None => Vec::new(),
        }
    }

    /// The lanes of those classes were read.
    pub fn join(&mut self, lanes: Vec<Lane>) {
        self.lanes = lanes;
        self.pages = 0;
    }

    /// Returns the jobs that a claim of `wanted` more tries next; `None` if there are no others, or
    /// lanes must be read first. Each page is twice as long as the one before.
    fn next_page(
        &mut self,
        cache: &LaneCache,
        wanted: usize,
        terms: ClaimContext<'_>,
    ) -> Option<FirstPassPage> {
        let most =
            wanted.saturating_add(cache.reach().spare).saturating_mul(1 << self.pages.min(16));
        self.pages += 1;
        loop {
            let page = self.page(cache, most, terms);
            if !page.heads.is_empty() || !self.lanes.is_empty() {
                return Some(self.with_lanes(page, wanted));
            }
            if self.until.is_some() || std::mem::replace(&mut self.at_shut, true) {
                return None;
            }
        }
    }

    /// Adds the lanes that were read, of which jobs have the places up to the last one on the page.
    fn with_lanes(&mut self, mut page: FirstPassPage, wanted: usize) -> FirstPassPage {
        page.read_lanes = page.lanes.len();
        let each = jobs_of_each(self.lanes.len(), wanted);
        page.most.extend(self.lanes.iter().map(|lane| lane.jobs_worth_reading(each)));
        if page.upto.is_some() {
            page.lanes.extend_from_slice(&self.lanes);
        } else {
            page.lanes.append(&mut self.lanes);
        }
        page
    }

    fn page(&mut self, cache: &LaneCache, most: usize, terms: ClaimContext<'_>) -> FirstPassPage {
        let mut page = FirstPassPage::default();
        let mut places: HashMap<(ClassId, Option<i64>), Option<usize>> = HashMap::new();
        for row in &self.rows {
            if self.until.is_some_and(|until| (row.rank, row.seq) > until) {
                break;
            }
            if page.heads.len() >= most {
                page.upto = page.heads.last().map(|head| (head.rank, head.seq));
                break;
            }
            let place = *places.entry((row.class, row.lane)).or_insert_with(|| {
                let Some(lane) = lane_of(&self.whole, cache, row) else {
                    // It was read as another one's.
                    self.partial.insert(row.class);
                    return None;
                };
                // The walk will find it if it is open after all.
                let is_left = !self.at_shut || self.partial.contains(&row.class);
                if is_left && cache.is_shut(&lane.gates, terms) {
                    return None;
                }
                page.lanes.push(lane.clone());
                page.most.push(0);
                Some(page.lanes.len() - 1)
            });
            if let Some(lane) = place {
                page.heads.push(LaneJob { lane, rank: row.rank, seq: row.seq });
                page.most.get_mut(lane).into_iter().for_each(|most| *most += 1);
                page.read.insert(row.seq);
            }
        }
        page
    }

    /// A page was tried. Some of the chosen jobs may have been `missed`.
    pub fn tried(
        &mut self,
        cache: &LaneCache,
        page: FirstPassPage,
        chosen: &Selection,
        missed: &[i64],
    ) {
        let taken: HashSet<i64> = chosen.heads.iter().map(|head| head.seq).collect();
        let is_taken = |row: &&FirstJob| taken.contains(&row.seq);
        self.took_recent |= self.rows.iter().filter(is_taken).any(|row| row.is_recent);
        // A job that was not read has come before others of its lane, which are not found for that.
        let known: HashSet<i64> = self.rows.iter().map(|row| row.seq).collect();
        let new = page.heads.iter().filter(|head| !known.contains(&head.seq));
        let of_new = new.filter(|head| head.lane < page.read_lanes);
        let classes = of_new.filter_map(|head| Some(page.lanes.get(head.lane)?.class));
        self.partial.extend(classes);
        // Others have taken what the store did not find again.
        let found: HashSet<i64> = page.heads.iter().map(|head| head.seq).collect();
        let is_gone = |row: &FirstJob| page.read.contains(&row.seq) && !found.contains(&row.seq);
        self.rows.retain(|row| !taken.contains(&row.seq) && !is_gone(row));
        for head in chosen.heads.iter().filter(|head| missed.contains(&head.seq)) {
            // There may be others behind it that were not read.
            self.partial.extend(page.lanes.get(head.lane).map(|lane| lane.class));
        }
        if page.upto.is_none() {
            self.partial.extend(page.exhausted(chosen));
        }
        let places = chosen.heads.iter().map(|head| (head.rank, head.seq));
        self.last = places.chain(self.last).max();
        self.stopped.extend(chosen.stopped.iter().copied());
        self.looked.extend(page.lanes);
        self.stops.extend(chosen.stops.iter().copied());
        self.drop_stopped(cache);
    }

    /// Leaves out what is behind gates that have stopped jobs of this claim.
    fn drop_stopped(&mut self, cache: &LaneCache) {
        if self.stopped.is_empty() {
            return;
        }
        let Self { rows, whole, lanes, stopped, looked, stops, .. } = self;
        let mut is_stopped = |lane: &Lane| {
            let stop = lane.gates.iter().find_map(|gate| stopped.get(&gate.id));
            looked.extend(stop.map(|_| lane.clone()));
            stops.extend(stop.map(|stop| Some(*stop)));
            stop.is_some()
        };
        lanes.retain(|lane| !is_stopped(lane));
        let mut known: HashMap<(ClassId, Option<i64>), bool> = HashMap::new();
        rows.retain(|row| {
            let is_known = known.entry((row.class, row.lane));
            !*is_known.or_insert_with(|| lane_of(whole, cache, row).is_some_and(&mut is_stopped))
        });
    }

    /// The claim of these classes got all that it wants by the first look. The next one goes on from
    /// where `way` has come.
    pub fn satisfied(&self, cache: &mut LaneCache, classes: &[ClassId], way: Option<&LaneScan>) {
        for class in classes.iter().filter(|class| !self.by_lanes.contains(class)) {
            if self.ends.get(class).is_some_and(|end| self.last > Some(*end)) {
                // Others gave jobs of which the places come after all that was read of it.
                cache.set_needed(*class, true);
            } else if !self.took_recent {
                cache.set_needed(*class, false);
            }
        }
        if let Some(way) = way {
            cache.walked(&way.walk);
        }
    }

    /// Ends the look of a claim that is still short. Returns what is left, and in which classes to
    /// look further; `way` goes on through those that take part by their lanes.
    pub fn end(self, is_prefetch: bool, way: Option<&mut LaneScan>) -> (Remaining, Vec<ClassId>) {
        let rest = self.rest(is_prefetch);
        let further = rest.beyond.clone();
        if let Some(way) = way {
            way.go_on(&rest.beyond, rest.looked, rest.stops);
        }
        (rest.left, further)
    }

    /// No walk is worth it for workers without a free slot.
    fn rest(self, is_prefetch: bool) -> Rest {
        let Self { partial, by_lanes, looked, stops, .. } = self;
        let (mut whole, mut of_lanes) = ((vec![], vec![]), (vec![], vec![]));
        for (lane, stop) in looked.into_iter().zip(stops) {
            if partial.contains(&lane.class) {
                continue;
            }
            let of = if by_lanes.contains(&lane.class) { &mut of_lanes } else { &mut whole };
            of.0.push(lane);
            of.1.push(stop);
        }
        let mut left = Remaining::of(&whole.0, &whole.1, |_| false);
        let mut beyond: Vec<ClassId> = partial.into_iter().collect();
        if is_prefetch {
            left.reserved.append(&mut beyond);
        }
        Rest { left, beyond, looked: of_lanes.0, stops: of_lanes.1 }
    }
}

/// What a first look leaves that found too few jobs.
#[derive(Debug)]
struct Rest {
    /// What is left in classes of which all jobs were read.
    left: Remaining,
    /// Classes through which to walk.
    beyond: Vec<ClassId>,
    /// The lanes that were tried of the other classes that take part by these.
    looked: Vec<Lane>,
    /// What stopped each.
    stops: Vec<Option<BlockedBy>>,
}

fn lane_of<'a>(
    whole: &'a HashMap<ClassId, Lane>,
    cache: &'a LaneCache,
    row: &FirstJob,
) -> Option<&'a Lane> {
    match row.lane {
        Some(number) => cache.get(row.class, number),
        None => whole.get(&row.class),
    }
}

#[cfg(test)]
pub(super) mod tests;
