//! Fires of `@every`: an anchor plus multiples of a length.

use outlast_core::time::{Span, Timestamp};

/// Fires at `anchor + k * length` for k of 1 and more. Times are in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Rhythm {
    anchor: i128,
    length: i128,
}

impl Rhythm {
    pub(super) fn new(anchor: Timestamp, length: Span) -> Self {
        Self { anchor: anchor.as_millis().into(), length: i128::from(length.as_millis()).max(1) }
    }

    /// Returns the first fire strictly after `time`.
    pub(super) fn next_after(self, time: Timestamp) -> Option<Timestamp> {
        self.fire(self.fires_until(time) + 1)
    }

    /// Returns the latest `most` fires in `first..=until`, in order.
    pub(super) fn latest(self, first: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        let (before, last) = (self.fires_before(first), self.fires_until(until));
        let most = i128::try_from(most).unwrap_or(i128::MAX);
        (before.max(last.saturating_sub(most)) + 1..=last).map_while(|it| self.fire(it)).collect()
    }

    /// Returns how many fires there are in `first..=until`.
    pub(super) fn count(self, first: Timestamp, until: Timestamp) -> u64 {
        let count = self.fires_until(until) - self.fires_before(first);
        u64::try_from(count).unwrap_or(0)
    }

    fn fires_until(self, time: Timestamp) -> i128 {
        (i128::from(time.as_millis()) - self.anchor).div_euclid(self.length).max(0)
    }

    fn fires_before(self, time: Timestamp) -> i128 {
        (i128::from(time.as_millis()) - 1 - self.anchor).div_euclid(self.length).max(0)
    }

    fn fire(self, number: i128) -> Option<Timestamp> {
        i64::try_from(self.anchor + number * self.length).ok().map(Timestamp)
    }
}
