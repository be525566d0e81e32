//! What may start beside what, and how much work to fetch ahead. Pure arithmetic.

use std::time::Duration;

use outlast_core::limits::PREFETCH_WORK_MAX;

/// Most jobs fetched ahead, however short they are.
const PREFETCH_MAX: u32 = 1024;

/// What is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Attempts running.
    pub(crate) running: u32,
    /// Those among them that must be alone.
    pub(crate) isolated: u32,
    /// Those among them whose job forbids overlap.
    pub(crate) forbidden: u32,
}

/// A worker's slots, and how long they are usually busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    concurrency: u32,
    /// Moving average of how long attempts run; `None` before the first ended.
    usual: Option<Duration>,
}

impl Slots {
    pub(crate) const fn new(concurrency: u32) -> Self {
        Self { concurrency, usual: None }
    }

    pub(crate) const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// Says whether another attempt may start now.
    pub(crate) const fn admits(&self, busy: Busy, isolated: bool) -> bool {
        busy.running == 0 || (!isolated && busy.isolated == 0 && busy.running < self.concurrency)
    }

    /// Takes note of how long an attempt ran, or runs already.
    pub(crate) fn observe(&mut self, ran: Duration) {
        self.usual = Some(match self.usual {
            // One long run at once, many short ones slowly: fetching too much holds work up,
            // fetching too little costs a round trip.
            Some(usual) if ran < usual => (usual * 7 + ran) / 8,
            Some(usual) => (usual + ran) / 2,
            None => ran,
        });
    }

    /// How many jobs to hold beyond the slots: what they usually get done in 20 ms. Rounded
    /// down to a power of two, so that it rarely changes.
    pub(crate) fn prefetch(&self) -> u32 {
        let window = Duration::from_millis(PREFETCH_WORK_MAX.as_millis());
        let Some(usual) = self.usual.filter(|usual| *usual <= window) else { return 0 };
        let usual = usual.max(Duration::from_micros(1)).as_micros();
        let fits = window.as_micros() * u128::from(self.concurrency) / usual;
        let fits = u32::try_from(fits).unwrap_or(PREFETCH_MAX).min(PREFETCH_MAX);
        if fits == 0 { 0 } else { 1 << fits.ilog2() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Busy, Slots};

    fn slots_after(concurrency: u32, runs: &[u64]) -> Slots {
        let mut slots = Slots::new(concurrency);
        for ran in runs {
            slots.observe(Duration::from_micros(*ran));
        }
        slots
    }

    #[test]
    fn prefetch_is_what_the_slots_get_done_in_twenty_milliseconds() {
        for (concurrency, run_micros, expected) in [
            (10, 5, 1024),
            (1, 5, 1024),
            (10, 1_000, 128),
            (1, 1_000, 16),
            (10, 10_000, 16),
            (1, 20_000, 1),
            (10, 20_001, 0),
            (10, 5_000_000, 0),
        ] {
            let prefetch = slots_after(concurrency, &[run_micros; 20]).prefetch();
            assert_eq!(prefetch, expected, "{concurrency} slots, runs of {run_micros} µs");
        }
    }

    #[test]
    fn nothing_is_fetched_ahead_before_anything_is_known() {
        assert_eq!(slots_after(10, &[]).prefetch(), 0);
    }

    #[test]
    fn one_long_run_ends_prefetch_at_once() {
        let mut slots = slots_after(10, &[100; 50]);
        assert!(slots.prefetch() > 0);
        slots.observe(Duration::from_millis(50));
        assert_eq!(slots.prefetch(), 0);
    }

    #[test]
    fn an_isolated_attempt_starts_alone_and_nothing_starts_beside_it() {
        let slots = Slots::new(4);
        let busy = |running, isolated| Busy { running, isolated, forbidden: 0 };
        assert!(slots.admits(busy(0, 0), true));
        assert!(!slots.admits(busy(1, 0), true));
        assert!(!slots.admits(busy(1, 1), false));
        assert!(slots.admits(busy(3, 0), false));
        assert!(!slots.admits(busy(4, 0), false));
    }
}
