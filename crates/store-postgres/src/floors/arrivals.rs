//! Where reads of arrivals begin: after those that were taken in.
//!
//! Programs may commit an arrival long after its number was drawn. So the floor only rises to what was
//! first a while ago, and all arrivals are read at a bounded rate: always, while that is quick.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::sweeps::Pace;

/// How long an arrival may take from its number to its commit before only a read of all finds it.
const LATE: Duration = Duration::from_secs(2);

/// Where the reads of one process begin.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Below which number there is nothing.
    floor: i64,
    /// The next floor, and since when it was known.
    next: Option<(i64, Instant)>,
    /// One more than the highest number that was read.
    read: i64,
    pace: Pace,
}

/// A read that was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// The number that it begins at.
    pub(crate) from: i64,
    at: Instant,
    is_full: bool,
}

impl Arrivals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, now: Instant) -> Begin {
        let state = self.state();
        let is_full = state.pace.is_free(now);
        Begin { from: if is_full { 0 } else { state.floor }, at: now, is_full }
    }

    /// Notes the first and the last number that were read, if there were any.
    pub(crate) fn end(&self, begin: Begin, found: Option<(i64, i64)>, now: Instant) {
        let mut state = self.state();
        if begin.is_full {
            state.pace.took(begin.at, now);
        }
        let first = found.map_or(state.read, |(first, _)| first);
        state.read = state.read.max(found.map_or(0, |(_, last)| last.saturating_add(1)));
        match state.next {
            Some((next, since)) if now >= since + LATE => {
                state.floor = next.min(first);
                state.next = Some((first, now));
            }
            Some((next, since)) => state.next = Some((next.min(first), since)),
            None => state.next = Some((first, now)),
        }
        state.floor = state.floor.min(first);
    }

    /// Forgets all: numbers begin again.
    pub(crate) fn forget(&self) {
        *self.state() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_begins_at_what_was_first_a_while_ago_and_at_the_start_now_and_then() {
        let (arrivals, mut now) = (Arrivals::default(), Instant::now());
        let slow = |found: Option<(i64, i64)>, now: &mut Instant| {
            let begin = arrivals.begin(*now);
            *now += Duration::from_millis(100);
            arrivals.end(begin, found, *now);
            begin.from
        };
        assert_eq!(slow(Some((1, 10)), &mut now), 0);
        assert_eq!(slow(Some((11, 20)), &mut now), 0);
        now += LATE;
        // All is read: the last read of all was long enough ago.
        assert_eq!(slow(None, &mut now), 0);
        now += LATE / 2;
        assert_eq!(slow(Some((21, 30)), &mut now), 1);
        now += LATE * 2;
        slow(None, &mut now);
        assert_eq!(slow(None, &mut now), 21);
        // A late one lowers it.
        now += LATE * 2;
        assert_eq!(slow(Some((5, 5)), &mut now), 0);
        assert_eq!(arrivals.begin(now).from, 5);
        arrivals.forget();
        assert_eq!(arrivals.begin(now).from, 0);
    }

    #[test]
    fn quick_reads_begin_at_the_start() {
        let (arrivals, now) = (Arrivals::default(), Instant::now());
        for step in 0..10 {
            let now = now + LATE * step;
            let begin = arrivals.begin(now);
            assert_eq!(begin.from, 0);
            arrivals.end(begin, Some((100, 200)), now);
        }
    }
}
