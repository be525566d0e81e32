//! Whether a dead engine is followed by another, and how soon.
//!
//! The first restart comes at once, as most deaths are single events. An engine that dies again and
//! again has a cause that a restart does not remove, so the guardian waits longer each time and then
//! gives up: the supervisor of the worker sees the exit code, and the log says the reason.

use std::time::Duration;

use outlast_core::time::{BootTime, Span};

/// How many ends within [`WINDOW`] are one too many.
pub(super) const ENDS_MAX: usize = 5;

/// For how long an end counts.
pub(super) const WINDOW: Span = Span::from_secs(60);

/// Pause before the first restart; each further one within [`WINDOW`] is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The ends of engines that count.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    ends: Vec<BootTime>,
}

impl Restarts {
    /// Notes an end. Returns the pause before the next start, or nothing to give up. `jitter`, from 0
    /// to 1, lengthens the pause by up to a half: workers that died of one cause do not all come
    /// back at once.
    pub(super) fn ended(&mut self, now: BootTime, jitter: f64) -> Option<Duration> {
        self.ends.retain(|end| now.since(*end) < WINDOW);
        self.ends.push(now);
        if self.ends.len() >= ENDS_MAX {
            return None;
        }
        let earlier = u32::try_from(self.ends.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let pause = FIRST_PAUSE * 4_u32.saturating_pow(earlier);
        Some(pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime(0).after(Span::from_millis(millis))
    }

    #[test]
    fn pauses_grow_and_the_fifth_end_within_a_minute_is_the_last() {
        let mut restarts = Restarts::default();
        let pauses: Vec<Option<u128>> = (0..5)
            .map(|nth| restarts.ended(at(nth * 14_900), 0.0).map(|pause| pause.as_millis()))
            .collect();
        assert_eq!(pauses, [Some(100), Some(400), Some(1600), Some(6400), None]);
    }

    #[test]
    fn ends_are_forgotten_after_a_minute() {
        let mut restarts = Restarts::default();
        for nth in 0..100 {
            let pause = restarts.ended(at(nth * 20_000), 0.0);
            assert!(pause.is_some_and(|pause| pause.as_millis() <= 1600), "{nth}: {pause:?}");
        }
        assert_eq!(restarts.ended(at(3_000_000), 0.0), Some(FIRST_PAUSE));
    }

    #[test]
    fn jitter_lengthens_a_pause_by_a_half_at_most() {
        let pause = |jitter| Restarts::default().ended(at(0), jitter).unwrap().as_millis();
        assert_eq!((pause(0.0), pause(0.5), pause(1.0), pause(7.0)), (100, 125, 150, 150));
    }
}
