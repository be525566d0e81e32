//! How many interpreters are started ahead, and when. Plain state with time as an argument.
//!
//! ```text
//! attempt asks ──▶ one waits: it is used; the next is started when the attempt has begun
//!              └─▶ none does: the program is executed, and one is started beside it
//! ```
//!
//! As many wait as attempts have asked within the last second, and one at least: with one a second or
//! fewer, a single one is there in time. They are started one after the other.

use std::time::Duration;

use outlast_core::time::{BootTime, Span};

use super::backoff::Backoff;

/// Most that wait for attempts of one kind: each holds its modules in memory.
const WAITING_MAX: usize = 4;

/// The time in which attempts are counted: longer than an interpreter takes to start.
const COUNTED: Span = Span::from_secs(1);

/// What is known about attempts of one kind, and about interpreters for them.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// When the last attempts asked, the latest one last.
    asked: Vec<BootTime>,
    is_starting: bool,
    backoff: Backoff,
}

impl Pool {
    /// An attempt asks.
    pub(super) fn ask(&mut self, now: BootTime) {
        self.asked.push(now);
        let surplus = self.asked.len().saturating_sub(WAITING_MAX);
        self.asked.drain(..surplus);
    }

    /// Whether another one is to be started besides those that wait.
    pub(super) fn wants_another(&self, waiting: usize, now: BootTime) -> bool {
        let recent = self.asked.iter().filter(|at| now.since(**at) < COUNTED).count();
        !self.is_starting && !self.backoff.forbids(now) && waiting < recent.max(1)
    }

    /// How many are there or on their way.
    pub(super) fn count(&self, waiting: usize) -> usize {
        waiting.saturating_add(usize::from(self.is_starting))
    }

    /// One is started.
    pub(super) fn starts(&mut self) {
        self.is_starting = true;
    }

    /// It waits, or does not.
    pub(super) fn start_is_over(&mut self) {
        self.is_starting = false;
    }

    /// One could not be started, hangs, or has ended by itself.
    pub(super) fn has_failed(&mut self, now: BootTime) {
        self.backoff.has_failed(now);
    }

    /// What they import cannot be imported ahead.
    pub(super) fn is_unfit(&mut self, now: BootTime) {
        self.backoff.is_unfit(now);
    }

    /// An attempt was served.
    pub(super) fn has_served(&mut self) {
        self.backoff.reset();
    }

    /// An attempt was not served, for a reason that may be its own. True if none will be.
    pub(super) fn has_missed(&mut self, now: BootTime) -> bool {
        self.backoff.has_missed(now)
    }

    /// Whether no attempt has asked for so long that those that wait are to end.
    pub(super) fn is_idle(&self, idle: Duration, now: BootTime) -> bool {
        let unused = self
            .asked
            .last()
            .map_or(Duration::MAX, |last| Duration::from_millis(now.since(*last).as_millis()));
        unused >= idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime(ms)
    }

    fn asked(times: &[u64]) -> Pool {
        let mut pool = Pool::default();
        times.iter().for_each(|ms| pool.ask(at(*ms)));
        pool
    }

    #[test]
    fn one_waits_for_attempts_that_come_now_and_then() {
        let pool = asked(&[0, 5000, 10_000]);
        assert!(pool.wants_another(0, at(10_000)));
        assert!(!pool.wants_another(1, at(10_000)));
        assert!(pool.wants_another(0, at(90_000)), "also when it was long ago");
    }

    #[test]
    fn as_many_wait_as_have_asked_within_a_second_and_four_at_most() {
        let pool = asked(&[0, 1100, 1300, 2000]);
        assert!(pool.wants_another(2, at(2000)) && !pool.wants_another(3, at(2000)));
        assert!(!pool.wants_another(1, at(3000)), "not for those of before");
        let many: Vec<u64> = (0..100).collect();
        assert!(asked(&many).wants_another(3, at(100)));
        assert!(!asked(&many).wants_another(4, at(100)));
    }

    #[test]
    fn they_are_started_one_after_the_other_and_not_soon_after_a_failure() {
        let mut pool = asked(&[0, 1, 2]);
        pool.starts();
        assert!(!pool.wants_another(0, at(2)));
        assert_eq!((pool.count(0), pool.count(2)), (1, 3));
        pool.start_is_over();
        assert!(pool.wants_another(1, at(2)));
        pool.has_failed(at(2));
        assert!(!pool.wants_another(0, at(1001)) && pool.wants_another(0, at(1002)));
        pool.is_unfit(at(2000));
        assert!(!pool.wants_another(0, at(601_999)) && pool.wants_another(0, at(602_000)));
    }

    #[test]
    fn attempts_that_are_not_served_five_times_in_a_row_are_executed_for_long() {
        let mut pool = asked(&[0]);
        let missed: Vec<bool> = (0..4).map(|_| pool.has_missed(at(0))).collect();
        assert_eq!(missed, [false; 4]);
        pool.has_served();
        assert!(!pool.has_missed(at(0)), "one has served since");
        assert!((0..4).any(|_| pool.has_missed(at(0))));
        assert!(!pool.wants_another(0, at(1000)));
    }

    #[test]
    fn those_that_wait_end_when_no_attempt_has_asked_for_long() {
        let idle = Duration::from_secs(60);
        let pool = asked(&[0, 1000]);
        assert!(!pool.is_idle(idle, at(60_999)) && pool.is_idle(idle, at(61_000)));
        assert!(Pool::default().is_idle(idle, at(0)));
    }
}
