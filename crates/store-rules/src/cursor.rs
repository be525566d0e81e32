//! Where a reader is in the event log: store order, not time.
//!
//! The log is written in lanes. A lane has one writer, which numbers its batches and commits
//! them one after the other. Lanes are numbered too, in the order in which they begin, and a
//! lane that is closed is never written again. So a cursor is a vector: the place in each
//! lane that is not read to its end, and the highest lane that was entered. Every lane up to
//! that one which is not named is closed and read; every later one is still to be read.
//! Servers come and go without making cursors longer.
//!
//! ```text
//! 12_3=40.1_12=7.0     lane 3 goes on at event 1 of batch 40, lane 12 at batch 7;
//!                      other lanes up to 12 are done, lanes from 13 on are new
//! ```
//!
//! Batches of different lanes are read in the order of time, as far as their lanes' own order
//! allows: clocks of writers differ a little, and no event is skipped for it.

mod newest;
mod rare;
mod time_position;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};
use std::fmt::Write as _;

use outlast_core::limits::EVENTS_BYTES_MAX;
use outlast_store::error::StoreError;
use outlast_store::event::{Event, EventPage, EventQuery};
pub use time_position::TimePosition;

use crate::codec;
pub use newest::Newest;
pub use rare::{rare_of, rare_wanted};

/// Batches and events looked at in one page at most, but for the rest of a batch: a rare filter must
/// not read the whole log.
const LOOKED_MAX: usize = 20_000;
/// Batches read at once, of all lanes together.
const BATCHES: usize = 1_000;
/// Bounds of how many of them are of one lane.
const OF_LANE_MIN: usize = 8;
const OF_LANE_MAX: usize = 500;

/// How far a restored store goes beyond the highest lane that it knows. Between the backup and
/// its end the lost store gave more lanes than that, and readers have been there: what is
/// written now must come after all of them. No store ever reaches that number.
pub const LANES_A_RESTORE: i64 = 1 << 32;

/// A restored store also goes beyond this many lanes for each second since 1970: a backup that is
/// restored twice must not give the same lanes twice. No store gives that many in a second.
pub const LANES_A_SECOND: i64 = 1 << 31;

/// The next event of a lane: event `i` of batch `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LanePosition {
    /// Number of the batch.
    pub n: i64,
    /// Number of the event in it.
    pub i: i64,
}

/// Where a reader is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    upto: i64,
    positions: BTreeMap<i64, LanePosition>,
}

impl Cursor {
    /// The cursor after everything: `upto` is the highest lane with batches, `open` are the
    /// lanes up to it that may be written again, each with the number of its last batch.
    #[must_use]
    pub fn end(upto: i64, open: impl IntoIterator<Item = (i64, Option<i64>)>) -> Self {
        let place = |last: Option<i64>| LanePosition { n: last.map_or(0, |n| n + 1), i: 0 };
        let open = open.into_iter().filter(|(lane, _)| *lane <= upto);
        Self { upto, positions: open.map(|(lane, last)| (lane, place(last))).collect() }
    }

    /// The cursor that reads on after a place: `lanes` are all that there are, each with the number of
    /// its first batch from [`TimePosition::first_time`] on.
    #[must_use]
    pub fn after(place: TimePosition, lanes: &[(i64, i64)]) -> Self {
        let mut cursor = Self::default();
        for (lane, first) in lanes.iter().copied() {
            let is_its = u128::from(lane.unsigned_abs()) == place.lane;
            let n = if is_its { first.max(place.n) } else { first };
            let i = if is_its && n == place.n { place.i } else { 0 };
            cursor.upto = cursor.upto.max(lane);
            cursor.positions.insert(lane, LanePosition { n, i });
        }
        cursor
    }

    /// Returns the highest lane that was entered.
    #[must_use]
    pub const fn upto(&self) -> i64 {
        self.upto
    }

    /// Returns the lanes that were entered and not read to their end.
    pub fn entered(&self) -> impl Iterator<Item = i64> {
        self.positions.keys().copied()
    }

    /// Returns the batch from which a lane is to be read.
    #[must_use]
    pub fn from(&self, lane: i64) -> i64 {
        self.position(lane).n
    }

    fn position(&self, lane: i64) -> LanePosition {
        self.positions.get(&lane).copied().unwrap_or_default()
    }

    /// Returns the text that readers are given.
    #[must_use]
    pub fn text(&self) -> String {
        if *self == Self::default() {
            return "-".to_owned();
        }
        let mut text = self.upto.to_string();
        for (lane, LanePosition { n, i }) in &self.positions {
            // Writing to a string does not fail.
            let _ = write!(text, "_{lane}={n}.{i}");
        }
        text
    }

    /// Reads such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::default());
        }
        let mut parts = text.split('_');
        let upto = number(parts.next()?)?;
        let place = |part: &str| {
            let (lane, place) = part.split_once('=')?;
            let (n, i) = place.split_once('.')?;
            let lane = number(lane).filter(|lane| *lane <= upto)?;
            Some((lane, LanePosition { n: number(n)?, i: number(i)? }))
        };
        Some(Self { upto, positions: parts.map(place).collect::<Option<_>>()? })
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number| *number >= 0)
}

/// A batch as it is logged.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its number in its lane.
    pub n: i64,
    /// Its time.
    pub at: i64,
    /// Its events, as text; `None` if the window had no room for it.
    pub body: Option<String>,
}

/// Where a batch is, and how long its events are: what is read of each first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The lane.
    pub lane: i64,
    /// Its number in its lane.
    pub n: i64,
    /// Its time.
    pub at: i64,
    /// The length of its events, in bytes.
    pub bytes: u64,
}

/// Returns which of these batches are read: in the order in which [`Reading::read`] takes them,
/// the first one and those after it that come to [`EVENTS_BYTES_MAX`] with it. The batches of each
/// lane must be together and in order.
#[must_use]
pub fn with_room(mut sizes: Vec<Size>) -> HashSet<(i64, i64)> {
    let mut last: Option<(i64, i64)> = None;
    for size in &mut sizes {
        // As a reader merges them: the time of a lane never falls.
        let before = last.filter(|(lane, _)| *lane == size.lane).map_or(i64::MIN, |(_, at)| at);
        size.at = size.at.max(before);
        last = Some((size.lane, size.at));
    }
    sizes.sort_by_key(|size| (size.at, size.lane, size.n));
    let most = u64::try_from(EVENTS_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = 0_u64;
    let mut room = HashSet::with_capacity(sizes.len());
    for size in sizes {
        bytes = bytes.saturating_add(size.bytes);
        if !room.is_empty() && bytes > most {
            break;
        }
        room.insert((size.lane, size.n));
    }
    room
}

/// The next batches of a lane.
#[derive(Debug)]
pub struct Window {
    /// The lane.
    pub lane: i64,
    /// Whether it may be written again. Looked up no later than the batches were.
    pub open: bool,
    /// Whether there may be more batches than these.
    pub more: bool,
    /// Batches from [`Cursor::from`] on, in the order of their numbers.
    pub batches: VecDeque<Logged>,
}

impl Window {
    /// Makes the window of a lane from what was found when `limit` batches were asked for.
    #[must_use]
    pub fn new(lane: i64, open: bool, batches: Vec<Logged>, limit: usize) -> Self {
        Self { lane, open, more: batches.len() >= limit, batches: batches.into() }
    }

    /// Whether its next batch was not read.
    fn has_no_room(&self) -> bool {
        self.batches.front().is_some_and(|batch| batch.body.is_none())
    }
}

/// Whether windows hold no more than they may.
fn is_bounded(windows: &[Window]) -> bool {
    let bodies = windows.iter().flat_map(|window| &window.batches);
    let lengths: Vec<usize> = bodies.filter_map(|it| Some(it.body.as_ref()?.len())).collect();
    lengths.len() <= 1 || lengths.iter().sum::<usize>() <= EVENTS_BYTES_MAX
}

/// Returns how many batches of each lane to read at once.
#[must_use]
pub fn window(lanes: usize) -> usize {
    (BATCHES / lanes.max(1)).clamp(OF_LANE_MIN, OF_LANE_MAX)
}

/// From when to when, for what may have happened at any time.
pub const EVER: Times = Times { from: i64::MIN, to: i64::MAX };

/// A range of times, in milliseconds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first.
    pub from: i64,
    /// The last.
    pub to: i64,
}

/// How much clocks may differ.
const SLACK_MS: i64 = 1000;

/// Returns within which time the events of a job are looked for that was stored at `from`, and has
/// no events after `to`, if that is known. A page that follows another has its own beginning.
#[must_use]
pub fn life_of(query: &EventQuery, from: i64, to: Option<i64>) -> Times {
    let from = if query.after.is_none() { from.saturating_sub(SLACK_MS) } else { EVER.from };
    Times { from, to: to.map_or(EVER.to, |at| at.saturating_add(SLACK_MS)) }
}

/// A page under way. A store reads windows of the lanes that [`Reading::cursor`] leaves, until
/// [`Reading::read`] says that the page is done.
#[derive(Debug)]
pub struct Reading<'q> {
    query: &'q EventQuery,
    limit: usize,
    cursor: Cursor,
    events: Vec<(String, Event)>,
    /// How many batches and events were looked at.
    looked: usize,
}

impl<'q> Reading<'q> {
    /// Begins where the query says.
    ///
    /// # Errors
    /// Returns that its cursor is none.
    pub fn of(query: &'q EventQuery) -> Result<Self, StoreError> {
        let cursor = match &query.after {
            None => Cursor::default(),
            Some(text) => Cursor::parse(text)
                .ok_or_else(|| StoreError::Rejected(format!("`{text}` is not an event cursor")))?,
        };
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        Ok(Self { query, limit, cursor, events: Vec::new(), looked: 0 })
    }

    /// Returns where the page is.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Returns the page.
    #[must_use]
    pub fn page(self) -> EventPage {
        let is_complete = self.events.len() < self.limit && self.looked < LOOKED_MAX;
        EventPage { events: self.events, next: self.cursor.text(), is_complete }
    }

    /// Returns the page of a log that was read as far as it matters: unless the page is full, it
    /// is read to `end`.
    #[must_use]
    pub fn page_until(self, end: Option<String>) -> EventPage {
        let page = self.page();
        match end {
            Some(next) if page.is_complete => EventPage { next, ..page },
            _ => page,
        }
    }

    /// Takes in the windows of all lanes that are to be read; returns whether the page is done.
    ///
    /// # Errors
    /// Returns that a batch cannot be read.
    pub fn read(&mut self, mut windows: Vec<Window>) -> Result<bool, StoreError> {
        // The time of a lane never falls: what was committed later is read later.
        debug_assert!(is_bounded(&windows), "a window holds too many bytes");
        let mut heads: BinaryHeap<Reverse<(i64, i64, usize)>> = BinaryHeap::new();
        for (at, window) in windows.iter().enumerate() {
            match window.batches.front() {
                Some(batch) => heads.push(Reverse((batch.at, window.lane, at))),
                None if !window.open => drop(self.cursor.positions.remove(&window.lane)),
                None => {}
            }
        }
        while let Some(Reverse((time, lane, at))) = heads.pop() {
            if self.events.len() >= self.limit || self.looked >= LOOKED_MAX {
                return Ok(true);
            }
            if windows.get(at).is_some_and(Window::has_no_room) {
                return Ok(false);
            }
            self.enter(lane, &windows);
            let Some(window) = windows.get_mut(at) else { continue };
            let Some(batch) = window.batches.pop_front() else { continue };
            if !self.batch(lane, &batch)? {
                return Ok(true);
            }
            match window.batches.front() {
                Some(next) => heads.push(Reverse((next.at.max(time), lane, at))),
                // What follows may be earlier than what other lanes have.
                None if window.more => return Ok(false),
                None if !window.open => drop(self.cursor.positions.remove(&lane)),
                None => {}
            }
        }
        Ok(true)
    }

    /// Notes that a lane is read: those before it that were not entered yet are now named.
    fn enter(&mut self, lane: i64, windows: &[Window]) {
        if lane <= self.cursor.upto {
            return;
        }
        for window in windows {
            let between = window.lane > self.cursor.upto && window.lane <= lane;
            if between && (window.open || !window.batches.is_empty()) {
                self.cursor.positions.insert(window.lane, LanePosition::default());
            }
        }
        self.cursor.upto = lane;
    }

    /// Reads a batch; returns whether there was room for all of its events.
    fn batch(&mut self, lane: i64, batch: &Logged) -> Result<bool, StoreError> {
        let place = self.cursor.position(lane);
        if batch.n < place.n {
            return Ok(true);
        }
        let first = if batch.n == place.n { place.i } else { 0 };
        let events = codec::events_of_text(batch.body.as_deref().unwrap_or("[]"))?;
        self.looked += 1 + events.len();
        let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
        for (event, i) in events.into_iter().zip(0_i64..).filter(|(_, i)| *i >= first) {
            if self.events.len() >= self.limit {
                return Ok(false);
            }
            let last = i + 1 == count;
            let next = if last {
                LanePosition { n: batch.n + 1, i: 0 }
            } else {
                LanePosition { n: batch.n, i: i + 1 }
            };
            self.cursor.positions.insert(lane, next);
            if let Some(event) = event.filter(|event| self.query.matches(event)) {
                self.events.push((self.cursor.text(), event));
            }
        }
        self.cursor.positions.insert(lane, LanePosition { n: batch.n + 1, i: 0 });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_cursor_is_read_back_and_nothing_else_is() {
        let positions = [(3, LanePosition { n: 40, i: 1 }), (12, LanePosition { n: 7, i: 0 })];
        let cursor = Cursor { upto: 12, positions: positions.into() };
        assert_eq!(cursor.text(), "12_3=40.1_12=7.0");
        for cursor in [cursor, Cursor::default(), Cursor { upto: 5, positions: BTreeMap::new() }] {
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        }
        for text in ["", "x", "-1", "3_", "3_4=1.0", "3_3=1", "3_3=-1.0", "3_a=1.1", "3__3=1.1"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn five_hundred_lanes_that_are_read_leave_no_trace_in_the_cursor() {
        let query = EventQuery::all(10);
        let mut reading = Reading::of(&query).unwrap();
        let batch = |lane: i64| Logged { n: 9, at: lane, body: Some("[]".to_owned()) };
        let lane = |lane: i64| Window::new(lane, lane == 600, vec![batch(lane)], 8);
        assert!(reading.read((1..=600).map(lane).collect()).unwrap());
        let page = reading.page();
        assert_eq!((page.next.as_str(), page.is_complete), ("600_600=10.0", true));
    }

    #[test]
    fn first_batches_of_all_lanes_share_the_room_and_there_is_some_for_the_very_first() {
        let size = |lane, n, at, bytes| Size { lane, n, at, bytes };
        let whole = EVENTS_BYTES_MAX as u64;
        let room = |sizes: Vec<Size>| {
            let mut room: Vec<_> = with_room(sizes).into_iter().collect();
            room.sort_unstable();
            room
        };
        assert_eq!(room(vec![size(1, 1, 9, 5), size(2, 7, 3, 3 * whole)]), [(2, 7)]);
        let (half, more) = (whole / 2, whole / 2 + 1);
        assert_eq!(
            room(vec![size(1, 1, 1, half), size(1, 2, 5, more), size(2, 1, 2, half)]),
            [(1, 1), (2, 1)]
        );
        // A clock that was set back does not move a batch before the one it follows.
        assert_eq!(
            room(vec![size(1, 1, 6, half), size(1, 2, 1, half), size(2, 1, 5, more)]),
            [(2, 1)]
        );
    }

    #[test]
    fn page_stops_at_a_batch_that_was_not_read_and_goes_on_with_it() {
        let query = EventQuery::all(10);
        let mut reading = Reading::of(&query).unwrap();
        let batch = |n, body: Option<&str>| Logged { n, at: n, body: body.map(str::to_owned) };
        let window = |batches| vec![Window::new(1, false, batches, 500)];
        assert!(!reading.read(window(vec![batch(1, Some("[]")), batch(2, None)])).unwrap());
        assert_eq!(reading.cursor().from(1), 2);
        assert!(reading.read(window(vec![batch(2, Some("[]"))])).unwrap());
        assert_eq!(reading.page().next, "1");
    }

    /// Batches were counted once, and not what is in them: a page of a busy store took seconds.
    #[test]
    fn page_whose_filter_matches_nothing_ends_after_so_many_events() {
        let query =
            EventQuery { names: vec!["worker.registered".to_owned()], ..EventQuery::all(10) };
        let mut reading = Reading::of(&query).unwrap();
        let one = r#"{"t":1,"k":"job.completed","by":"","ev":""}"#;
        let body = format!("[{}]", [one; 999].join(","));
        let batches = (1..=40).map(|n| Logged { n, at: n, body: Some(body.clone()) }).collect();
        assert!(reading.read(vec![Window::new(1, true, batches, 40)]).unwrap());
        let page = reading.page();
        assert_eq!((page.next.as_str(), page.is_complete), ("1_1=21.0", false));
    }
}
