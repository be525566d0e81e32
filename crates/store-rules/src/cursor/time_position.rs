//! A place between two events in the order of their time.

use std::fmt;

use super::number;

/// Between two events, in the order of time; events of one millisecond are in the order of lanes,
/// batches and their place in the batch. What is later than the place has a greater one.
///
/// It is a cursor that is as short for a thousand lanes as for one, and reads in both directions. Unlike
/// [`super::Cursor`] it does not see what a slow writer commits later with an earlier time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimePosition {
    /// Time of the batch, in milliseconds since the Unix epoch.
    pub at: i64,
    /// Its lane; wide enough for whatever a store numbers its lanes by.
    pub lane: u128,
    /// Number of the batch in its lane.
    pub n: i64,
    /// Number of the event in the batch.
    pub i: i64,
}

/// What a place begins with, and no cursor.
const MARK: char = '@';

impl TimePosition {
    /// After everything.
    pub const END: Self = Self::at(i64::MAX);

    /// Before everything that happened at this time or later, and after everything else.
    #[must_use]
    pub const fn at(at: i64) -> Self {
        Self { at, lane: 0, n: 0, i: 0 }
    }

    /// Whether a text that readers are given is a place, and no [`super::Cursor`].
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(MARK)
    }

    /// Reads the text of a place.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(MARK)?.split('.');
        let (at, lane) = (number(parts.next()?)?, parts.next()?.parse().ok()?);
        let place = Self { at, lane, n: number(parts.next()?)?, i: number(parts.next()?)? };
        parts.next().is_none().then_some(place)
    }

    /// The time from which on the batches of a lane are after this place. Those of the place's own
    /// lane count by their number, too.
    #[must_use]
    pub const fn first_time(&self, lane: i64) -> i64 {
        let earlier = lane.unsigned_abs() as u128 >= self.lane;
        if earlier { self.at } else { self.at.saturating_add(1) }
    }
}

impl fmt::Display for TimePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, lane, n, i } = self;
        write!(f, "{MARK}{at}.{lane}.{n}.{i}")
    }
}
