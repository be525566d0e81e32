//! Stretches of time in which a clock runs evenly, and the fires within one.
//!
//! Between two changes a clock has one offset, so civil times and instants map one to one. All that
//! is special happens where a stretch begins:
//!
//! ```text
//! civil time   ... 01:59 | 03:00 ...     the clock skipped from `reached` to where it begins
//!              ... 02:59 | 02:00 ...     the clock repeats until `reached`
//! ```
//!
//! `reached` is the latest time that the clock had shown before. Fixed times fire as in ISC cron:
//! what is skipped fires once as the stretch begins, and what is repeated does not fire a second
//! time. Everything else follows the clock.

use std::iter;

use jiff::Timestamp as Instant;

use crate::expression::{Calendar, DAY};
use crate::zone::Zone;

/// First second that is looked at: a day of the year 1.
pub(super) const EARLIEST: i64 = -62_135_000_000;
/// Last second that is looked at: the end of the year 9999, less what a zone may add.
pub(super) const LATEST: i64 = 253_402_000_000;

/// Changes further apart than this cannot repeat each other's times: offsets differ by at most
/// 52 hours.
const SWAY: i64 = 3 * DAY;

/// How far back the change is looked for that began a stretch. Without one, a stretch begins there,
/// where nothing happens. Most zones have changed within it, or have not for years.
const LOOK_BACK: i64 = 400 * DAY;

/// A time between two changes of a clock. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first instant.
    from: i64,
    /// Whether the clock changed then.
    changed: bool,
    /// The instant at which the next one begins.
    until: i64,
    /// What is added to an instant to get civil time.
    pub(super) offset: i64,
    /// The civil time that was reached before; `None` if no change is near enough to matter.
    reached: Option<i64>,
    /// The civil time at which the next stretch begins.
    next_begins: i64,
}

impl Stretch {
    /// Returns the stretch that has this instant.
    pub(super) fn around(zone: &Zone, second: i64) -> Self {
        let second = second.clamp(EARLIEST, LATEST);
        let earliest = (second - LOOK_BACK).max(EARLIEST);
        // Jiff's `preceding` is not asked: where a zone's table ends, it also has changes that the
        // rule for the years after it would have had before.
        let mut changes = following(zone, (earliest - SWAY).max(EARLIEST)).peekable();
        let mut before = Vec::new();
        while let Some(change) = changes.next_if(|change| *change <= second) {
            before.push(change);
        }
        let changed_at = before.last().copied().filter(|change| *change >= earliest);
        let from = changed_at.unwrap_or(earliest);
        let reached = before
            .into_iter()
            .filter(|change| *change > from - SWAY)
            .map(|change| change + offset(zone, change - 1))
            .max();
        let until = changes.next().unwrap_or(LATEST);
        Self {
            from,
            changed: changed_at.is_some(),
            until,
            offset: offset(zone, second),
            reached,
            next_begins: until + offset(zone, until),
        }
    }

    /// Returns this stretch and those after it, until the end of time or `horizon`.
    pub(super) fn onward(self, zone: &Zone, horizon: i64) -> impl Iterator<Item = Self> {
        let end = horizon.min(LATEST);
        iter::successors(Some(self), move |last| {
            (last.until < end).then(|| Self::around(zone, last.until))
        })
    }

    /// Returns this stretch and those before it, back to the beginning of time or `horizon`. One
    /// may reach into the next: it ends with a change, and the next may begin without one.
    pub(super) fn backward(self, zone: &Zone, horizon: i64) -> impl Iterator<Item = Self> {
        let end = horizon.max(EARLIEST);
        iter::successors(Some(self), move |last| {
            (last.from > end).then(|| Self::around(zone, last.from - 1))
        })
    }

    /// Returns the earliest fire in `from..until` within this stretch.
    pub(super) fn first_fire(&self, calendar: &Calendar, from: i64, until: i64) -> Option<i64> {
        if from <= self.from && self.from < until && self.skipped(calendar).is_some() {
            return Some(self.from);
        }
        let (first, end) = self.civil(calendar, from, until)?;
        Some(calendar.first_in(first, end)? - self.offset)
    }

    /// Returns the latest fire in `from..until` within this stretch.
    pub(super) fn last_fire(&self, calendar: &Calendar, from: i64, until: i64) -> Option<i64> {
        let civil = self.civil(calendar, from, until);
        let found = civil.and_then(|(first, end)| calendar.last_in(first, end));
        let makes_up = || {
            let begins = from <= self.from && self.from < until;
            (begins && self.skipped(calendar).is_some()).then_some(self.from)
        };
        found.map(|found| found - self.offset).or_else(makes_up)
    }

    /// Returns how many fires there are in `from..until` within this stretch.
    pub(super) fn count(&self, calendar: &Calendar, from: i64, until: i64) -> u64 {
        let civil = self.civil(calendar, from, until);
        let regular = civil.map_or(0, |(first, end)| calendar.count_in(first, end));
        let begins = from <= self.from && self.from < until;
        let makes_up = begins && self.skipped(calendar).is_some();
        let begin = self.from + self.offset;
        // A time that is due as the stretch begins is one with what was skipped.
        let extra = makes_up && calendar.first_in(begin, begin + 1).is_none();
        regular + u64::from(extra)
    }

    /// Returns the first fixed time that the clock skipped as this stretch began.
    pub(super) fn skipped(&self, calendar: &Calendar) -> Option<i64> {
        let (reached, begin) = (self.reached?, self.from + self.offset);
        if self.changed && calendar.is_fixed() && reached < begin {
            calendar.first_in(reached, begin)
        } else {
            None
        }
    }

    /// Returns the first instant.
    pub(super) const fn begin(&self) -> i64 {
        self.from
    }

    /// Returns the instant at which the next stretch begins.
    #[cfg(test)]
    pub(super) const fn end(&self) -> i64 {
        self.until
    }

    /// Whether the clock shows this civil time of the stretch once more, after it.
    pub(super) const fn comes_again(&self, civil: i64) -> bool {
        self.until < LATEST && civil >= self.next_begins
    }

    /// Whether the clock showed this civil time before the stretch.
    pub(super) fn came_before(&self, civil: i64) -> bool {
        self.reached.is_some_and(|reached| civil < reached)
    }

    /// Returns the civil times that fire by themselves: the first, and the end.
    fn civil(&self, calendar: &Calendar, from: i64, until: i64) -> Option<(i64, i64)> {
        let first = from.max(self.from) + self.offset;
        let end = until.min(self.until) + self.offset;
        let first = match self.reached {
            Some(reached) if calendar.is_fixed() => first.max(reached),
            _ => first,
        };
        (first < end).then_some((first, end))
    }
}

fn offset(zone: &Zone, second: i64) -> i64 {
    i64::from(zone.rules().to_offset(instant(second)).seconds())
}

fn instant(second: i64) -> Instant {
    // The clamp of `around` keeps every second within what can be written.
    Instant::from_second(second).unwrap_or(Instant::UNIX_EPOCH)
}

/// Returns the changes of a clock after `second`.
fn following(zone: &Zone, second: i64) -> impl Iterator<Item = i64> {
    zone.rules()
        .following(instant(second))
        .map(|change| change.timestamp().as_second())
        .take_while(|change| *change < LATEST)
}
