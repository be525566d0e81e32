//! The driver of a claim by limits: one order of steps for every store.
//!
//! ```text
//! first pass   first jobs of the classes, and of lanes that gave some lately ─▶ choose, take
//!              lanes of fair classes, if it is these classes' turn           ─▶ choose, take
//! second pass  lanes of the classes of which the first jobs were not enough,
//!              page by page, while the claim is short                        ─▶ choose, take
//! ```
//!
//! A [`LaneSource`] finds jobs, locks gates and takes jobs. It decides nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use outlast_core::keys::Keys;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey};

use super::fair::Shares;
use super::first_pass::{FirstPass, FirstPassPage, NextStep};
use super::gate_changes::GateChanges;
use super::gates::{ClaimContext, Gates};
use super::lane::{Lane, LaneJob, jobs_of_each};
use super::lane_cache::{FoundBy, LaneCache};
use super::lane_scan::{LaneRange, LaneScan, ScanCursor};
use super::plan::{FirstJob, FirstPassPlan};
use super::selection::{Remaining, Selection};
use crate::apply::limit::Limits;

/// What a store does for a claim by limits.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait LaneSource {
    /// What ends the batch.
    type Error: From<StoreError>;
    /// A job that was taken.
    type Job;

    /// Whether nothing else writes while a batch is open: what was read stays as it is, and no gate
    /// need be locked.
    const HAS_ONE_WRITER: bool;

    /// Returns what the claim works with.
    fn memory(&mut self) -> Memory<'_>;

    /// Returns how many more jobs a claim takes that wants `max` and has `taken`: none if these are
    /// as long as one claim may be.
    fn still_wanted(&self, max: usize, taken: usize) -> usize;

    /// Returns the limits in force.
    async fn limits(&mut self) -> Result<Limits, Self::Error>;

    /// Makes sure that classes are known.
    async fn learn(&mut self, classes: &[ClassId]) -> Result<(), Self::Error>;

    /// Returns a class that is known.
    fn class(&self, class: ClassId) -> Option<Arc<ClassKey>>;

    /// Reads the jobs that a first pass looks at, but for those of paused queues; `None` while the
    /// limits are being changed.
    async fn first_jobs(
        &mut self,
        plan: &FirstPassPlan,
    ) -> Result<Option<Vec<FirstJob>>, Self::Error>;

    /// Reads the keys of the first job of each lane. A lane without jobs is left out.
    async fn keys_of(&mut self, lanes: &[(ClassId, i64)]) -> Result<Vec<FoundLane>, Self::Error>;

    /// Reads with which lanes a walk begins; `None` while the limits are being changed.
    async fn first_lanes(
        &mut self,
        search: &LaneSearch<'_>,
    ) -> Result<Option<FoundLanes>, Self::Error>;

    /// Reads at most `most` lanes of each range, in order.
    async fn next_lanes(
        &mut self,
        ranges: &[LaneRange],
        most: u32,
    ) -> Result<Vec<Vec<FoundLane>>, Self::Error>;

    /// Locks and reads the gates of lanes that are not locked yet. Then reads the first jobs of each
    /// lane, at most so many as `most` says. Returns them with the time.
    async fn heads(
        &mut self,
        lanes: &[Lane],
        most: &[usize],
    ) -> Result<(Vec<LaneJob>, Timestamp), Self::Error>;

    /// Takes the chosen jobs, and others in their place where that makes no difference.
    async fn take(
        &mut self,
        lanes: &[Lane],
        chosen: &[LaneJob],
    ) -> Result<TakeResult<Self::Job>, Self::Error>;

    /// Writes what starts have used of the rates of these lanes' gates.
    fn keep_starts(&mut self, lanes: &[&Lane]) -> Result<(), Self::Error>;
}

/// What a claim works with: the memory of a writer, and the batch under way.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Lanes and gates, as far as they are remembered.
    pub lane_cache: &'a mut LaneCache,
    /// What shares of queues have had.
    pub shares: &'a mut Shares,
    /// The gates that the batch has locked and read.
    pub gates: &'a mut Gates,
    /// What the batch has changed so far.
    pub changes: &'a GateChanges,
    /// What the claim has taken so far, if that is not yet among the changes.
    pub charged: Option<&'a mut GateChanges>,
    /// The time of the batch.
    pub now: Timestamp,
    /// A number that differs from batch to batch.
    pub chance: i64,
}

impl Memory<'_> {
    fn terms(&self, now: Timestamp, is_prefetch: bool) -> ClaimContext<'_> {
        ClaimContext { changes: self.changes, taken: self.charged.as_deref(), now, is_prefetch }
    }
}

/// A lane that was read.
#[derive(Clone, Debug)]
pub struct FoundLane {
    /// Its class.
    pub class: ClassId,
    /// Its number.
    pub number: i64,
    /// The keys of its first job; `None` if the lane is remembered.
    pub keys: Option<Keys>,
}

/// With which lanes a walk may begin.
#[derive(Debug)]
pub struct LaneSearch<'a> {
    /// The classes. Those of paused queues are left out.
    pub classes: &'a [ClassId],
    /// Those whose jobs limits or shares tell apart by their keys.
    pub apart: &'a [ClassId],
    /// Lanes of these in which a slot has become free.
    pub freed: &'a [(ClassId, i64)],
    /// The first page of the walk.
    pub ranges: &'a [LaneRange],
    /// How many lanes of each range.
    pub page: u32,
    /// How many of the first jobs of each class are looked at for their lanes.
    pub jobs: u32,
    /// How many lanes of these.
    pub lanes: u32,
}

/// The lanes with which a walk begins.
#[derive(Debug, Default)]
pub struct FoundLanes {
    /// The classes whose queues are not paused.
    pub open: Vec<ClassId>,
    /// Of the lanes in which a slot has become free, those that have jobs.
    pub freed: Vec<FoundLane>,
    /// The lanes of the first jobs, in the order of these.
    pub first: Vec<FoundLane>,
    /// The lanes of each range.
    pub ranges: Vec<Vec<FoundLane>>,
}

/// A job that was taken.
#[derive(Debug)]
pub struct Taken<J> {
    /// The job.
    pub job: J,
    /// Its place: rank and number.
    pub place: (i64, i64),
    /// Which of the lanes it is of; `None` if it passes no gate and has no share.
    pub lane: Option<usize>,
}

/// What became of chosen jobs.
#[derive(Debug)]
pub struct TakeResult<J> {
    /// The jobs that were taken, best first.
    pub taken: Vec<Taken<J>>,
    /// The numbers of those that could not be taken.
    pub missed: Vec<i64>,
    /// Classes that have jobs all the same: others have locked them, or the claim avoids them.
    pub passed_over: Vec<ClassId>,
}

impl<J> Default for TakeResult<J> {
    fn default() -> Self {
        Self { taken: Vec::new(), missed: Vec::new(), passed_over: Vec::new() }
    }
}

/// What a claim by limits took.
#[derive(Debug)]
pub struct TakenByLimits<J> {
    /// The jobs, of each page of lanes best first, each with the lane whose gates it passed.
    pub jobs: Vec<(J, Option<Lane>)>,
    /// What is left in the classes if these are fewer than were asked for.
    pub left: Remaining,
}

/// A claim in progress.
struct ClaimInProgress<'a, S: LaneSource> {
    source: &'a mut S,
    max: usize,
    is_prefetch: bool,
    limits: Limits,
    done: TakenByLimits<S::Job>,
}

/// Takes at most `max` jobs of the classes, best first, as far as limits let them start.
///
/// # Errors
/// Returns what ends the batch.
pub async fn claim_by_limits<S: LaneSource>(
    source: &mut S,
    classes: &[ClassId],
    max: usize,
    is_prefetch: bool,
) -> Result<TakenByLimits<S::Job>, S::Error> {
    let limits = source.limits().await?;
    let done = TakenByLimits { jobs: Vec::new(), left: Remaining::default() };
    let mut claim = ClaimInProgress { source, max, is_prefetch, limits, done };
    claim.run(classes).await?;
    let ClaimInProgress { mut done, source, .. } = claim;
    if source.still_wanted(max, done.jobs.len()) == 0 {
        done.left = Remaining::default();
    }
    done.left.retry.sort_unstable();
    done.left.retry.dedup();
    Ok(done)
}

impl<S: LaneSource> ClaimInProgress<'_, S> {
    fn wanted(&self) -> usize {
        self.source.still_wanted(self.max, self.done.jobs.len())
    }

    /// Returns those of the classes that there are.
    async fn known(
        &mut self,
        classes: &[ClassId],
    ) -> Result<Vec<(ClassId, Arc<ClassKey>)>, S::Error> {
        self.source.learn(classes).await?;
        Ok(classes.iter().filter_map(|id| Some((*id, self.source.class(*id)?))).collect())
    }

    async fn run(&mut self, classes: &[ClassId]) -> Result<(), S::Error> {
        let (beyond, way) = self.first_pass(classes).await?;
        if !beyond.is_empty() {
            match self.begin_walk(&beyond).await? {
                Some(way) => self.walk(way, FoundBy::ScanCursor).await?,
                // The limits are being changed.
                None => self.done.left.retry.extend(beyond),
            }
        }
        match way {
            Some(way) => self.walk(way, FoundBy::First).await,
            None => Ok(()),
        }
    }

    /// Takes jobs that are found at the front of the classes. Returns in which classes to look
    /// further, and the way through those that take part by their lanes; there is nothing left to
    /// look at if the claim is done.
    async fn first_pass(
        &mut self,
        classes: &[ClassId],
    ) -> Result<(Vec<ClassId>, Option<LaneScan>), S::Error> {
        let Some(mut front) = self.read_front(classes).await? else {
            // The limits are being changed.
            self.done.left.retry.extend(classes);
            return Ok((Vec::new(), None));
        };
        let mut way: Option<LaneScan> = None;
        loop {
            let wanted = self.wanted();
            let memory = self.source.memory();
            let terms = memory.terms(memory.now, self.is_prefetch);
            match front.next(memory.lane_cache, wanted, terms) {
                NextStep::Try(page) => self.try_page(&mut front, page).await?,
                NextStep::Read(by_lanes) => {
                    way = self.begin_walk(&by_lanes).await?;
                    match &mut way {
                        Some(way) => front.join(way.take_first()),
                        None => self.done.left.retry.extend(&by_lanes),
                    }
                }
                NextStep::End => break,
            }
        }
        if self.wanted() == 0 {
            front.satisfied(self.source.memory().lane_cache, classes, way.as_ref());
            return Ok((Vec::new(), None));
        }
        let (left, beyond) = front.end(self.is_prefetch, way.as_mut());
        self.done.left.append(left);
        Ok((beyond, way))
    }

    /// Reads the first jobs, and the keys of lanes that are not remembered.
    async fn read_front(&mut self, classes: &[ClassId]) -> Result<Option<FirstPass>, S::Error> {
        let known = self.known(classes).await?;
        let (limits, wanted) = (self.limits.clone(), self.wanted());
        let memory = self.source.memory();
        memory.lane_cache.set_limits(&limits);
        let terms = ClaimContext { taken: None, ..memory.terms(memory.now, self.is_prefetch) };
        let keys = known.iter().map(|(id, key)| (*id, &**key));
        let plan = memory.lane_cache.plan(keys, wanted, memory.chance, terms);
        let rows = match plan.first.is_empty() {
            true => Vec::new(),
            false => match self.source.first_jobs(&plan).await? {
                Some(rows) => rows,
                None => return Ok(None),
            },
        };
        let unknown = self.source.memory().lane_cache.unknown(&rows);
        if !unknown.is_empty() {
            for found in self.source.keys_of(&unknown).await? {
                self.lane(found)?;
            }
        }
        Ok(Some(FirstPass::new(plan, rows, self.source.memory().lane_cache)))
    }

    async fn try_page(
        &mut self,
        front: &mut FirstPass,
        mut page: FirstPassPage,
    ) -> Result<(), S::Error> {
        let wanted = self.wanted();
        let memory = self.source.memory();
        let mut now = memory.gates.at_least(memory.now);
        if !memory.gates.missing(&page.lanes).is_empty() || page.unread().next().is_some() {
            if S::HAS_ONE_WRITER {
                let (mut heads, at) = self.source.heads(&page.lanes, &page.unread_most()).await?;
                page.heads.append(&mut heads);
                now = at;
            } else {
                // Others may have taken some before the gates were locked.
                (page.heads, now) = self.source.heads(&page.lanes, &page.most).await?;
            }
        }
        let memory = self.source.memory();
        let turns = page.turns(memory.shares, now);
        let terms = memory.terms(now, self.is_prefetch);
        let mut chosen = memory.gates.choose(&page.lanes, turns, wanted, terms);
        let missed = self.take(&page.lanes, &mut chosen, now).await?;
        let memory = self.source.memory();
        memory.lane_cache.note(&page.lanes, &chosen, memory.now, FoundBy::First);
        front.tried(memory.lane_cache, page, &chosen, &missed);
        Ok(())
    }

    /// Takes jobs of lanes, page by page, while the claim is short.
    async fn walk(&mut self, mut way: LaneScan, by: FoundBy) -> Result<(), S::Error> {
        while self.wanted() > 0 {
            if way.has_lanes() {
                let chosen = self.try_lanes(&way.lanes, by).await?;
                way.tried(chosen);
            } else if way.walk.is_over() {
                self.done.left.append(way.left());
                break;
            } else {
                let (ranges, most) = (way.walk.next(), way.walk.page().unwrap_or(0));
                let found = self.source.next_lanes(&ranges, most).await?;
                way.lanes = self.page(&mut way.walk, &ranges, found)?;
            }
        }
        self.source.memory().lane_cache.walked(&way.walk);
        Ok(())
    }

    /// Takes jobs of lanes; returns what was chosen last, and what stops the lanes.
    async fn try_lanes(&mut self, lanes: &[Lane], by: FoundBy) -> Result<Selection, S::Error> {
        // Jobs that could not be taken.
        let mut skipped: HashSet<i64> = HashSet::new();
        loop {
            let wanted = self.wanted();
            let each = jobs_of_each(lanes.len(), wanted);
            let most = lanes.iter().map(|lane| lane.jobs_worth_reading(each));
            let most: Vec<usize> = most.map(|most| most.saturating_add(skipped.len())).collect();
            let (mut heads, now) = self.source.heads(lanes, &most).await?;
            heads.retain(|head| !skipped.contains(&head.seq));
            let memory = self.source.memory();
            let turns = memory.shares.turns(lanes, heads, now);
            let terms = memory.terms(now, self.is_prefetch);
            let mut chosen = memory.gates.choose(lanes, turns, wanted, terms);
            let is_over = chosen.heads.is_empty();
            let missed = self.take(lanes, &mut chosen, now).await?;
            let memory = self.source.memory();
            memory.lane_cache.note(lanes, &chosen, memory.now, by);
            if !S::HAS_ONE_WRITER {
                // Another look costs as much as another claim, which may find more.
                if each < wanted {
                    self.done.left.retry.extend(chosen.exhausted(lanes, each));
                }
                return Ok(chosen);
            }
            if is_over || self.wanted() == 0 {
                return Ok(chosen);
            }
            skipped.extend(missed);
        }
    }

    /// Takes the chosen jobs; returns the numbers of those that could not be taken.
    async fn take(
        &mut self,
        lanes: &[Lane],
        chosen: &mut Selection,
        now: Timestamp,
    ) -> Result<Vec<i64>, S::Error> {
        if chosen.heads.is_empty() {
            return Ok(Vec::new());
        }
        let TakeResult { taken, missed, passed_over } =
            self.source.take(lanes, &chosen.heads).await?;
        let mut memory = self.source.memory();
        let mut started: BTreeMap<usize, &Lane> = BTreeMap::new();
        for Taken { job, place, lane } in taken {
            let lane = lane.and_then(|nth| Some((nth, lanes.get(nth)?)));
            started.extend(lane);
            let lane = lane.map(|(_, lane)| lane);
            if let Some(lane) = lane {
                memory.gates.started(lane, now);
                if let Some(charged) = &mut memory.charged {
                    charged.charge(&lane.gate_ids());
                }
                memory.shares.claimed(lane, place.0, place.1, memory.now);
            }
            self.done.jobs.push((job, lane.cloned()));
        }
        let started: Vec<&Lane> = started.into_values().collect();
        self.source.keep_starts(&started)?;
        self.done.left.retry.extend(passed_over);
        if !missed.is_empty() {
            chosen.missed();
        }
        Ok(missed)
    }

    /// Returns the lanes that a walk through classes looks at first, and the way to others; `None`
    /// while the limits are being changed. Of a class that limits tell apart by keys, these are the
    /// lanes in which a slot has become free and those of its first jobs.
    async fn begin_walk(&mut self, classes: &[ClassId]) -> Result<Option<LaneScan>, S::Error> {
        let known: HashMap<ClassId, Arc<ClassKey>> =
            self.known(classes).await?.into_iter().collect();
        let is_apart =
            |class: &ClassId| known.get(class).is_some_and(|key| self.limits.need_lanes(key));
        let (apart, whole): (Vec<ClassId>, Vec<ClassId>) =
            classes.iter().partition(|it| is_apart(it));
        let (wanted, is_prefetch) = (self.wanted(), self.is_prefetch);
        let memory = self.source.memory();
        let (reach, terms) = (memory.lane_cache.reach(), memory.terms(memory.now, is_prefetch));
        let start =
            |class: &ClassId| (*class, memory.lane_cache.start_of_walk(*class, memory.chance));
        let mut walk = ScanCursor::new(apart.iter().map(start), reach);
        let freed = apart.iter().flat_map(|class| {
            let lanes = memory.lane_cache.freed(*class, wanted, terms);
            lanes.into_iter().map(|lane| (*class, lane))
        });
        let freed: Vec<(ClassId, i64)> = freed.collect();
        let ranges = walk.next();
        let search = LaneSearch {
            classes,
            apart: &apart,
            freed: &freed,
            ranges: &ranges,
            page: walk.page().unwrap_or(0),
            jobs: reach.walk_jobs,
            lanes: reach.front_lanes(wanted),
        };
        let Some(found) = self.source.first_lanes(&search).await? else { return Ok(None) };
        let is_open = |class: ClassId| found.open.contains(&class);
        let of_whole = whole.iter().filter(|class| is_open(**class));
        let of_whole =
            of_whole.filter_map(|class| Some(self.limits.whole(*class, known.get(class)?)));
        let mut lanes: Vec<Lane> = of_whole.collect();
        let mut empty: HashSet<(ClassId, i64)> = freed.into_iter().collect();
        for lane in found.freed.into_iter().chain(found.first) {
            let (class, number) = (lane.class, lane.number);
            if walk.look_at(class, number) {
                lanes.push(self.lane(lane)?);
            }
            empty.remove(&(class, number));
        }
        let memory = self.source.memory();
        empty.into_iter().for_each(|(class, lane)| memory.lane_cache.are_empty(class, [lane]));
        let mut later = self.page(&mut walk, &ranges, found.ranges)?;
        lanes.retain(|lane| is_open(lane.class));
        later.retain(|lane| is_open(lane.class));
        walk.retain(is_open);
        // Shares are fair among all that are looked at. Where a gate costs no lock, the best job of
        // all is taken.
        let first = later.extract_if(.., |lane| S::HAS_ONE_WRITER || lane.share.is_some());
        lanes.extend(first);
        Ok(Some(LaneScan::new(walk, lanes, later)))
    }

    /// Returns the lanes of the next page, of what was read of its ranges.
    fn page(
        &mut self,
        walk: &mut ScanCursor,
        ranges: &[LaneRange],
        found: Vec<Vec<FoundLane>>,
    ) -> Result<Vec<Lane>, S::Error> {
        let numbers = |found: &Vec<FoundLane>| found.iter().map(|lane| lane.number).collect();
        let read: Vec<Vec<i64>> = found.iter().map(numbers).collect();
        let next: HashSet<(ClassId, i64)> = walk.take(ranges, &read).into_iter().collect();
        let all = found.into_iter().flatten();
        all.filter(|lane| next.contains(&(lane.class, lane.number)))
            .map(|lane| self.lane(lane))
            .collect()
    }

    /// Returns a lane that was read, and remembers it.
    fn lane(&mut self, found: FoundLane) -> Result<Lane, S::Error> {
        let FoundLane { class, number, keys } = found;
        let Some(key) = self.source.class(class) else {
            return Err(StoreError::Corrupt(format!("no class {}", class.0)).into());
        };
        let cache = self.source.memory().lane_cache;
        let Some(keys) = keys else {
            let lane = cache.get(class, number).cloned();
            return lane.ok_or_else(|| {
                StoreError::Corrupt(format!("lane {number} of class {} has no keys", class.0))
                    .into()
            });
        };
        let lane = self.limits.lane(class, &key, number, keys);
        cache.learn(lane.clone());
        Ok(lane)
    }
}
