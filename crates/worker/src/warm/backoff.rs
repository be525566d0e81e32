//! How long no warm interpreter is started after one was of no use. Plain state with time as an
//! argument.

use outlast_core::time::{BootTime, Span};

/// The pause after the first failure in a row; twice as long after each that follows.
const FIRST_PAUSE: Span = Span::from_secs(1);

/// The longest pause. It follows at once if modules cannot be imported ahead: that will not pass
/// by itself, but may be put right.
const LAST_PAUSE: Span = Span::from_secs(600);

/// So many attempts in a row that were not served say that none will be: the host may not let it.
const MISSES_MAX: u32 = 5;

/// What went wrong since an attempt was served last.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// In a row.
    failures: u32,
    /// Attempts in a row that were not served although an interpreter was there.
    misses: u32,
    /// Before that none is started.
    not_before: BootTime,
}

impl Backoff {
    /// Whether none may be started now.
    pub(super) fn forbids(&self, now: BootTime) -> bool {
        now < self.not_before
    }

    /// An attempt was served.
    pub(super) fn reset(&mut self) {
        (self.failures, self.misses) = (0, 0);
    }

    /// One could not be started, hangs, or has ended by itself.
    pub(super) fn has_failed(&mut self, now: BootTime) {
        let pause = FIRST_PAUSE.as_millis() << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.after(Span::from_millis(pause.min(LAST_PAUSE.as_millis())));
    }

    /// What they import cannot be imported ahead.
    pub(super) fn is_unfit(&mut self, now: BootTime) {
        self.not_before = now.after(LAST_PAUSE);
    }

    /// An attempt was not served, for a reason that may be its own. True if none will be.
    pub(super) fn has_missed(&mut self, now: BootTime) -> bool {
        self.misses = self.misses.saturating_add(1);
        let is_useless = self.misses >= MISSES_MAX;
        if is_useless {
            self.misses = 0;
            self.is_unfit(now);
        }
        is_useless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime(0).after(Span::from_secs(seconds))
    }

    #[test]
    fn pauses_grow_with_each_failure_until_an_attempt_is_served() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            backoff.has_failed(at(now));
            let pause = (0..).find(|wait| !backoff.forbids(at(now + wait))).unwrap();
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        backoff.reset();
        backoff.has_failed(at(now));
        assert!(!backoff.forbids(at(now + 1)), "one has served since");
    }

    #[test]
    fn five_attempts_in_a_row_that_were_not_served_are_the_last_ones_for_long() {
        let mut backoff = Backoff::default();
        let missed: Vec<bool> = (0..4).map(|_| backoff.has_missed(at(0))).collect();
        assert_eq!(missed, [false; 4]);
        backoff.reset();
        let missed: Vec<bool> = (0..5).map(|_| backoff.has_missed(at(0))).collect();
        assert_eq!(missed, [false, false, false, false, true]);
        assert!(backoff.forbids(at(599)) && !backoff.forbids(at(600)));
    }
}
