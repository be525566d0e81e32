//! Where sweeps by time begin: a little before the time of the last one that came to the end.
//!
//! Entries of jobs that were due before are walked over like any others. Most of what is due later
//! has a later time. A row that is stored with a time long past lowers the floor; a sweep of all
//! times, at a bounded rate, finds those of other servers, and those that were locked. While that is
//! quick, every sweep is one of all times.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::time::Timestamp;
use outlast_store_rules::apply::sweep::Due;
use tokio::time::Instant;

use super::{FULL_MIN, FULL_SHARE};

/// How long before a sweep's time the next one begins: a transaction may store what is due at the
/// time at which it began.
const SLACK_MS: i64 = 5_000;
/// Longest that a sweep of all times takes which may be made each time.
const QUICK: Duration = Duration::from_millis(20);

/// Where the sweeps of one process begin.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The time before which all is done, by what is due, in milliseconds.
    done: [i64; 4],
    /// When sweeps of all times are made, by what is due.
    sweeps: [Pace; 4],
    /// When all times are read for what is due next.
    reads: Pace,
    /// How often a floor was lowered.
    lowered: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { done: [i64::MIN; 4], sweeps: Default::default(), reads: Pace::default(), lowered: 0 }
    }
}

/// At which rate something costly is done.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When it may be done again; `None` if it is not costly.
    next: Option<Instant>,
}

impl Pace {
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.next.is_none_or(|at| at <= now)
    }

    pub(super) fn took(&mut self, began: Instant, now: Instant) {
        self.ended(began, now, now.saturating_duration_since(began) >= QUICK);
    }

    /// As [`Self::took`], if something else than time tells whether it is costly.
    pub(super) fn ended(&mut self, began: Instant, now: Instant, is_costly: bool) {
        let took = now.saturating_duration_since(began);
        self.next = is_costly.then(|| now + FULL_MIN.max(took * FULL_SHARE));
    }
}

/// From which time on a sweep or a read looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin<const N: usize> {
    /// The times, in milliseconds; the lowest number for all times.
    pub(crate) from: [i64; N],
    at: Instant,
    is_full: bool,
    lowered: u64,
}

/// What a sweep has found, before that is committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swept {
    due: Due,
    lowered: u64,
    upto: Option<Timestamp>,
    /// When it began and ended, if it was one of all times.
    full: Option<(Instant, Instant)>,
}

const fn place(due: Due) -> usize {
    match due {
        Due::Timer => 0,
        Due::Expiry => 1,
        Due::Visibility => 2,
        Due::Deadline => 3,
    }
}

impl Sweeps {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where a sweep of what is due begins.
    pub(crate) fn begin(&self, due: Due, now: Instant) -> Begin<1> {
        let state = self.state();
        let is_full = state.sweeps[place(due)].is_free(now);
        let from = if is_full { i64::MIN } else { state.done[place(due)] };
        Begin { from: [from], at: now, is_full, lowered: state.lowered }
    }

    /// Notes that a sweep has ended, and up to which time it found all that was due, if it did.
    #[must_use = "the floor is raised once what was found is committed"]
    pub(crate) fn end(
        &self,
        due: Due,
        begin: Begin<1>,
        upto: Option<Timestamp>,
        now: Instant,
    ) -> Swept {
        let full = begin.is_full.then_some((begin.at, now));
        Swept { due, lowered: begin.lowered, upto, full }
    }

    /// Raises the floor after a sweep of which everything is committed, unless it was lowered since. Only
    /// then has a sweep of all times been made.
    pub(crate) fn raise(&self, Swept { due, lowered, upto, full }: &Swept) {
        let mut state = self.state();
        if let Some((began, ended)) = full {
            state.sweeps[place(*due)].took(*began, *ended);
        }
        if let Some(upto) = upto.filter(|_| *lowered == state.lowered) {
            let done = &mut state.done[place(*due)];
            *done = (*done).max(upto.0.saturating_sub(SLACK_MS));
        }
    }

    /// Returns from which times on it is read what is due next: timers, expiries, visibilities and
    /// deadlines.
    pub(crate) fn begin_read(&self, now: Instant) -> Begin<4> {
        let state = self.state();
        let is_full = state.reads.is_free(now);
        let from = if is_full { [i64::MIN; 4] } else { state.done };
        Begin { from, at: now, is_full, lowered: state.lowered }
    }

    /// Notes that such a read has ended.
    pub(crate) fn end_read(&self, begin: Begin<4>, now: Instant) {
        if begin.is_full {
            self.state().reads.took(begin.at, now);
        }
    }

    /// Notes that a row is stored that was due at `time`, if that is long past by the transaction's
    /// clock; returns whether it is. It is said again once the transaction has ended, for sweeps that
    /// are under way.
    pub(crate) fn put(&self, due: Due, time: i64, now: Timestamp) -> bool {
        let is_long_past = time < now.0.saturating_sub(SLACK_MS);
        if is_long_past {
            self.lower(due, time);
        }
        is_long_past
    }

    /// Has sweeps begin at `time`, and those that have begun not raise the floor: they may have been
    /// too early.
    pub(crate) fn lower(&self, due: Due, time: i64) {
        let mut state = self.state();
        let done = &mut state.done[place(due)];
        *done = time.min(*done);
        state.lowered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMER: Due = Due::Timer;

    /// A sweep of all times that took long, so that the next begins at the floor.
    fn slow(sweeps: &Sweeps, time: i64, now: Instant) -> Instant {
        let begin = sweeps.begin(TIMER, now);
        assert_eq!(begin.from, [i64::MIN]);
        let end = now + QUICK * 2;
        sweeps.raise(&sweeps.end(TIMER, begin, Some(Timestamp(time)), end));
        end
    }

    #[test]
    fn a_sweep_begins_before_the_last_one_that_found_all_and_at_all_times_now_and_then() {
        let (sweeps, now) = (Sweeps::default(), Instant::now());
        let now = slow(&sweeps, 100_000, now);
        let begin = sweeps.begin(TIMER, now);
        assert_eq!(begin.from, [95_000]);
        sweeps.raise(&sweeps.end(TIMER, begin, None, now));
        assert_eq!(sweeps.begin(TIMER, now).from, [95_000]);
        assert_eq!(sweeps.begin(Due::Expiry, now).from, [i64::MIN]);
        assert_eq!(sweeps.begin(TIMER, now + FULL_MIN).from, [i64::MIN]);
    }

    #[test]
    fn a_quick_sweep_is_one_of_all_times() {
        let (sweeps, now) = (Sweeps::default(), Instant::now());
        let begin = sweeps.begin(TIMER, now);
        sweeps.raise(&sweeps.end(TIMER, begin, Some(Timestamp(100_000)), now));
        assert_eq!(sweeps.begin(TIMER, now).from, [i64::MIN]);
    }

    #[test]
    fn a_row_with_a_time_long_past_lowers_the_floor_also_while_a_sweep_is_under_way() {
        let (sweeps, now) = (Sweeps::default(), Instant::now());
        let now = slow(&sweeps, 100_000, now);
        let begin = sweeps.begin(TIMER, now);
        assert!(!sweeps.put(TIMER, 115_000, Timestamp(120_000)));
        assert!(sweeps.put(TIMER, 50_000, Timestamp(120_000)));
        sweeps.raise(&sweeps.end(TIMER, begin, Some(Timestamp(120_000)), now));
        assert_eq!(sweeps.begin(TIMER, now).from, [50_000]);
        // A sweep that began before the commit ends after it.
        let begin = sweeps.begin(TIMER, now);
        sweeps.lower(TIMER, 50_000);
        sweeps.raise(&sweeps.end(TIMER, begin, Some(Timestamp(130_000)), now));
        assert_eq!(sweeps.begin(TIMER, now).from, [50_000]);
    }
}
