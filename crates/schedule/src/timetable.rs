//! The instants at which a schedule fires.
//!
//! Fires are looked for stretch by stretch between the changes of the zone's clock
//! (`stretch.rs`). `@every` counts from its anchor and knows no clock.
//!
//! Every function is a pure answer about the timetable. What is due and what was missed is decided
//! in [`mod@crate::catch_up`].

mod note;
mod rhythm;
mod stretch;

#[cfg(test)]
mod tests;

use jiff::Timestamp as Instant;
use jiff::tz::Offset;
use outlast_core::time::Timestamp;

pub use self::note::Note;
use self::rhythm::Rhythm;
use self::stretch::{EARLIEST, LATEST, Stretch};
use crate::expression::{Calendar, DAY, Expression, Times};
use crate::zone::Zone;

/// How far ahead a fire is looked for, in seconds: after 400 years the calendar repeats. Only what
/// fires in gaps of the clock alone, and is no fixed time, has no fire within that.
const HORIZON: i64 = 146_097 * DAY;

/// When a schedule fires: an expression in a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable {
    /// The times.
    pub expression: Expression,
    /// The clock that they are read on. `@every` does not read one.
    pub zone: Zone,
    /// Where `@every` counts from: it fires at the anchor plus once, twice, … its length. Keep it
    /// with the schedule, so that a restart does not begin the count again.
    pub anchor: Timestamp,
}

/// A fire in the future, as people want to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcoming {
    /// The instant.
    pub time: Timestamp,
    /// What the clock of the zone shows then, with its offset, as RFC 3339 writes it:
    /// `2026-03-29T03:00:00+02:00`.
    pub local: String,
    /// What is special about it.
    pub note: Option<Note>,
}

impl Timetable {
    /// Returns the first fire strictly after `time`, if there is one within 400 years and before
    /// the year 9999 ends.
    #[must_use]
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        match self.expression.times() {
            Times::Every(length) => Rhythm::new(self.anchor, *length).next_after(time),
            Times::Calendar(calendar) => {
                let from = second_after(time);
                let horizon = from.saturating_add(HORIZON).min(LATEST);
                Stretch::around(&self.zone, from)
                    .onward(&self.zone, horizon)
                    .find_map(|stretch| stretch.first_fire(calendar, from, horizon))
                    .map(timestamp)
            }
        }
    }

    /// Returns the latest `most` fires in `first..=until`, in order.
    #[must_use]
    pub fn latest(&self, first: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        match self.expression.times() {
            Times::Every(length) => Rhythm::new(self.anchor, *length).latest(first, until, most),
            Times::Calendar(calendar) => self.latest_of(calendar, Range::of(first, until), most),
        }
    }

    /// Returns how many fires there are in `first..=until`.
    ///
    /// The number is exact and computed day by day, not fire by fire: a century takes milliseconds,
    /// whatever the rhythm.
    #[must_use]
    pub fn count(&self, first: Timestamp, until: Timestamp) -> u64 {
        match self.expression.times() {
            Times::Every(length) => Rhythm::new(self.anchor, *length).count(first, until),
            Times::Calendar(calendar) => {
                let range = Range::of(first, until);
                if range.from >= range.until {
                    return 0;
                }
                Stretch::around(&self.zone, range.from)
                    .onward(&self.zone, range.until)
                    .map(|stretch| stretch.count(calendar, range.from, range.until))
                    .sum()
            }
        }
    }

    /// Returns the next `count` fires strictly after `after`, or fewer if there are no more.
    #[must_use]
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Upcoming> {
        let mut found = Vec::new();
        let mut last = after;
        while found.len() < count
            && let Some(time) = self.next_after(last)
        {
            found.push(self.describe(time));
            last = time;
        }
        found
    }

    fn latest_of(&self, calendar: &Calendar, range: Range, most: usize) -> Vec<Timestamp> {
        let mut found = Vec::new();
        if range.from >= range.until || most == 0 {
            return found;
        }
        let last = Stretch::around(&self.zone, range.until - 1);
        let mut until = range.until;
        'all: for stretch in last.backward(&self.zone, range.from) {
            while let Some(fire) = stretch.last_fire(calendar, range.from, until) {
                found.push(timestamp(fire));
                if found.len() == most {
                    break 'all;
                }
                until = fire;
            }
            until = until.min(stretch.begin());
        }
        found.reverse();
        found
    }

    /// Says what the clock shows at a fire, and what is special about it.
    fn describe(&self, time: Timestamp) -> Upcoming {
        let stretch = Stretch::around(&self.zone, time.as_millis().div_euclid(1000));
        let note = match self.expression.times() {
            Times::Every(_) => None,
            Times::Calendar(calendar) => Note::of(&stretch, calendar, second_after(time) - 1),
        };
        Upcoming { time, local: local(time, stretch.offset), note }
    }
}

/// Whole seconds, the end not included.
#[derive(Clone, Copy)]
struct Range {
    from: i64,
    until: i64,
}

impl Range {
    fn of(first: Timestamp, until: Timestamp) -> Self {
        Self {
            from: second_after(Timestamp(first.0.saturating_sub(1))),
            until: second_after(until),
        }
    }
}

/// Returns the first whole second that is strictly later.
fn second_after(time: Timestamp) -> i64 {
    (time.as_millis().div_euclid(1000) + 1).clamp(EARLIEST, LATEST)
}

const fn timestamp(second: i64) -> Timestamp {
    Timestamp(second * 1000)
}

/// Returns what a clock with this offset shows, in RFC 3339.
fn local(time: Timestamp, offset: i64) -> String {
    let instant = Instant::from_millisecond(time.as_millis()).unwrap_or(Instant::MAX);
    let offset = i32::try_from(offset).ok().and_then(|it| Offset::from_seconds(it).ok());
    instant.display_with_offset(offset.unwrap_or(Offset::UTC)).to_string()
}
