//! Which lanes of a class a claim looks at, and in what order: a skip scan of the index of lanes.
//!
//! ```text
//! lanes in which a slot has become free ───┐
//! lanes of the first jobs of the class ────┤ priority and age decide among these
//! lanes from some place on, page by page ──┴▶ looked at, each once
//! ```
//!
//! Each walk through a class begins where the last one has ended, so that each lane is looked at
//! within a few claims, however many there are.

use std::collections::{BTreeMap, HashSet, VecDeque};

use outlast_store::command::ClassId;

use super::lane::Lane;
use super::scan_budget::ScanBudget;
use super::selection::{BlockedBy, Remaining, Selection};

/// Lanes of a class that a store reads next: after `after`, up to `upto`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRange {
    /// The class.
    pub class: ClassId,
    /// The lane before the first.
    pub after: i64,
    /// The last one that may belong to it.
    pub upto: i64,
}

/// The way of a claim through the lanes of its classes.
#[derive(Debug)]
pub struct ScanCursor {
    pages: [u32; 4],
    page: usize,
    /// What is left of each class, from where to where; nothing if all was looked at.
    left: BTreeMap<ClassId, VecDeque<(i64, i64)>>,
    seen: HashSet<(ClassId, i64)>,
    /// Up to where the lanes were tried that were read, of classes of which there are more.
    tried: BTreeMap<ClassId, i64>,
}

impl ScanCursor {
    /// Begins in each class behind a lane, and goes on from the first one after the last.
    #[must_use]
    pub fn new(starts: impl IntoIterator<Item = (ClassId, i64)>, reach: ScanBudget) -> Self {
        let all = |start| VecDeque::from([(start, i64::MAX), (0, start)]);
        let left = starts.into_iter().map(|(class, start)| (class, all(start))).collect();
        let (seen, tried) = (HashSet::new(), BTreeMap::new());
        Self { pages: reach.pages, page: 0, left, seen, tried }
    }

    /// Returns from where the next walk goes on in each class through which this one has not come:
    /// behind the lanes that were tried. Those that were only read come first then.
    pub fn places(&self) -> impl Iterator<Item = (ClassId, i64)> {
        self.tried.iter().map(|(class, place)| (*class, *place))
    }

    /// All lanes were tried that were read, but for those that come `later`.
    fn all_tried(&mut self, later: &[Lane]) {
        for (class, left) in &self.left {
            if later.iter().any(|lane| lane.class == *class) {
                continue;
            }
            match left.front() {
                Some((place, _)) => drop(self.tried.insert(*class, *place)),
                None => drop(self.tried.remove(class)),
            }
        }
    }

    /// Returns how many lanes of each range are read for the next page; `None` after the last.
    #[must_use]
    pub fn page(&self) -> Option<u32> {
        self.pages.get(self.page).copied()
    }

    /// Returns what to read for the next page, which is complete with one reading, also where it goes
    /// on from the first lane.
    #[must_use]
    pub fn next(&self) -> Vec<LaneRange> {
        let mut next = Vec::new();
        for (class, left) in &self.left {
            let range = |(after, upto): &(i64, i64)| LaneRange {
                class: *class,
                after: *after,
                upto: *upto,
            };
            next.extend(left.iter().map(range));
        }
        next
    }

    /// Leaves the other classes out: their queues are paused, or another walk looks at them.
    pub fn retain(&mut self, is_in: impl Fn(ClassId) -> bool) {
        self.left.retain(|class, _| is_in(*class));
        self.tried.retain(|class, _| is_in(*class));
    }

    /// Takes a lane that is looked at in any case; returns whether it was not looked at yet.
    pub fn look_at(&mut self, class: ClassId, lane: i64) -> bool {
        self.seen.insert((class, lane))
    }

    /// Takes what was read of the ranges, in order, and returns those lanes of it that belong to
    /// the page and were not looked at yet.
    pub fn take(&mut self, ranges: &[LaneRange], read: &[Vec<i64>]) -> Vec<(ClassId, i64)> {
        let max = usize::try_from(self.page().unwrap_or(0)).unwrap_or(0);
        let mut lanes = Vec::new();
        for (class, left) in &mut self.left {
            let of_class = ranges.iter().zip(read).filter(|(of, _)| of.class == *class);
            let mut taken = 0;
            for (_, numbers) in of_class {
                let part = numbers.get(..numbers.len().min(max - taken)).unwrap_or_default();
                taken += part.len();
                lanes.extend(part.iter().map(|lane| (*class, *lane)));
                if part.len() == numbers.len() && numbers.len() < max {
                    left.pop_front();
                    continue;
                }
                if let (Some(last), Some((after, _))) = (part.last(), left.front_mut()) {
                    *after = *last;
                }
                break;
            }
        }
        self.page += 1;
        lanes.retain(|lane| self.seen.insert(*lane));
        lanes
    }

    /// Whether all lanes of a class were looked at.
    #[must_use]
    pub fn is_done_with(&self, class: ClassId) -> bool {
        self.left.get(&class).is_none_or(VecDeque::is_empty)
    }

    /// Whether there is nothing more to look at, or the last page was.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.page().is_none() || self.left.values().all(VecDeque::is_empty)
    }
}

/// A walk, and the lanes that it has come by.
#[derive(Debug)]
pub struct LaneScan {
    /// The walk.
    pub walk: ScanCursor,
    /// The lanes that are tried next.
    pub lanes: Vec<Lane>,
    /// Those after these.
    later: Vec<Lane>,
    looked: Vec<Lane>,
    stops: Vec<Option<BlockedBy>>,
}

impl LaneScan {
    /// Begins with these lanes, and others if they are not enough.
    #[must_use]
    pub fn new(walk: ScanCursor, lanes: Vec<Lane>, later: Vec<Lane>) -> Self {
        Self { walk, lanes, later, looked: Vec::new(), stops: Vec::new() }
    }

    /// Takes the lanes that a first look tries together with the first jobs of other classes.
    pub fn take_first(&mut self) -> Vec<Lane> {
        self.walk.all_tried(&self.later);
        std::mem::take(&mut self.lanes)
    }

    /// Whether there are lanes to try that have been read.
    pub fn has_lanes(&mut self) -> bool {
        if self.lanes.is_empty() {
            std::mem::swap(&mut self.lanes, &mut self.later);
        }
        !self.lanes.is_empty()
    }

    /// Goes on after a first look that has tried some lanes; it leaves out those of other classes.
    pub(super) fn go_on(
        &mut self,
        beyond: &[ClassId],
        looked: Vec<Lane>,
        stops: Vec<Option<BlockedBy>>,
    ) {
        self.walk.retain(|class| !beyond.contains(&class));
        self.later.retain(|lane| !beyond.contains(&lane.class));
        self.looked.extend(looked);
        self.stops.extend(stops);
    }

    /// The lanes were tried.
    pub fn tried(&mut self, chosen: Selection) {
        self.looked.append(&mut self.lanes);
        self.stops.extend(chosen.stops);
        self.walk.all_tried(&self.later);
    }

    /// Returns what a claim leaves that is short at its end.
    #[must_use]
    pub fn left(&self) -> Remaining {
        Remaining::of(&self.looked, &self.stops, |class| !self.walk.is_done_with(class))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const CLASS: ClassId = ClassId(7);

    /// Reads as a store does.
    fn read(lanes: &[i64], of: LaneRange, max: u32) -> Vec<i64> {
        let within = lanes.iter().copied().filter(|lane| *lane > of.after && *lane <= of.upto);
        within.take(usize::try_from(max).unwrap()).collect()
    }

    fn pages(lanes: &[i64], start: i64) -> (ScanCursor, Vec<Vec<i64>>) {
        let mut walk = ScanCursor::new([(CLASS, start)], ScanBudget::STANDARD);
        let mut pages = Vec::new();
        while let Some(max) = walk.page().filter(|_| !walk.is_over()) {
            let next = walk.next();
            let found: Vec<Vec<i64>> = next.iter().map(|of| read(lanes, *of, max)).collect();
            pages.push(walk.take(&next, &found).into_iter().map(|(_, lane)| lane).collect());
            walk.all_tried(&[]);
        }
        (walk, pages)
    }

    #[test]
    fn few_lanes_are_one_page_from_any_place_on() {
        let (walk, found) = pages(&[10, 20, 30], 15);
        assert_eq!(found, [[20, 30, 10]]);
        assert!(walk.is_done_with(CLASS));
        for start in [0, 30, 31, i64::MAX] {
            assert_eq!(pages(&[10, 20, 30], start).1, [[10, 20, 30]]);
        }
        assert_eq!(pages(&[], 5).1, [Vec::<i64>::new()]);
    }

    #[test]
    fn each_lane_is_looked_at_once_and_that_there_are_more_is_known() {
        for count in [31, 32, 33, 95, 96, 97, 200, 287] {
            let lanes: Vec<i64> = (1..=count).collect();
            for start in [0, 1, 16, count / 2, count, count + 1] {
                let (walk, found) = pages(&lanes, start);
                let mut all = found.concat();
                all.sort_unstable();
                assert_eq!(all, lanes, "{count} from {start}: {found:?}");
                assert!(walk.is_done_with(CLASS), "{count} from {start}");
            }
        }
        let lanes: Vec<i64> = (1..=2_000).collect();
        let (walk, found) = pages(&lanes, 1_900);
        assert!(!walk.is_done_with(CLASS) && walk.is_over());
        let all: HashSet<i64> = found.concat().into_iter().collect();
        assert_eq!(all.len(), found.concat().len());
        assert_eq!(all.len(), 32 + 64 + 96 + 96);
    }

    #[test]
    fn walks_that_go_on_where_the_last_one_ended_come_by_all_lanes() {
        let lanes: Vec<i64> = (1..=2_000).collect();
        let (mut start, mut all) = (1_234, HashSet::new());
        for _ in 0..7 {
            let (walk, found) = pages(&lanes, start);
            all.extend(found.concat());
            (_, start) = walk.places().next().unwrap();
        }
        assert_eq!(all.len(), 2_000, "288 each time");
        let (walk, _) = pages(&lanes[..200], start);
        assert_eq!(walk.places().next(), None);
    }

    /// Reads the next page of these lanes.
    fn next_page(walk: &mut ScanCursor, lanes: &[i64]) -> Vec<Lane> {
        let (next, max) = (walk.next(), walk.page().unwrap());
        let found: Vec<Vec<i64>> = next.iter().map(|of| read(lanes, *of, max)).collect();
        walk.take(&next, &found).into_iter().map(|(class, number)| lane(class, number)).collect()
    }

    fn lane(class: ClassId, number: i64) -> Lane {
        Lane { class, number: Some(number), gates: [].into(), keys: Arc::default(), share: None }
    }

    #[test]
    fn next_walk_begins_with_lanes_that_were_read_and_not_tried() {
        let lanes: Vec<i64> = (1..=200).collect();
        let other = ClassId(8);
        let mut walk = ScanCursor::new([(CLASS, 10), (other, 0)], ScanBudget::STANDARD);
        let first = vec![lane(CLASS, 1)];
        assert!(walk.look_at(CLASS, 1));
        let mut later = next_page(&mut walk, &lanes);
        let of_other: Vec<Lane> = later.extract_if(.., |lane| lane.class == other).collect();
        let mut way = LaneScan::new(walk, [first, of_other].concat(), later);
        assert!(way.has_lanes());
        way.tried(Selection::default());
        let places = |way: &LaneScan| way.walk.places().collect::<Vec<_>>();
        assert_eq!(places(&way), [(other, 32)], "the page of the first class was not tried");
        assert!(way.has_lanes());
        way.tried(Selection::default());
        assert_eq!(places(&way), [(CLASS, 42), (other, 32)]);
        way.lanes = next_page(&mut way.walk, &lanes);
        assert_eq!(places(&way), [(CLASS, 42), (other, 32)]);
        assert_eq!(way.take_first().len(), 128);
        assert_eq!(places(&way), [(CLASS, 106), (other, 96)]);
        way.go_on(&[CLASS], Vec::new(), Vec::new());
        assert_eq!(places(&way), [(other, 96)], "another walk looks at these");
    }

    #[test]
    fn lane_of_the_first_jobs_is_not_looked_at_again() {
        let mut walk = ScanCursor::new([(CLASS, 0)], ScanBudget::STANDARD);
        assert!(walk.look_at(CLASS, 2) && !walk.look_at(CLASS, 2));
        let next = walk.next();
        let found: Vec<Vec<i64>> = next.iter().map(|of| read(&[1, 2, 3], *of, 32)).collect();
        assert_eq!(walk.take(&next, &found), [(CLASS, 1), (CLASS, 3)]);
        assert!(walk.is_over());
    }
}
