//! How long to wait before trying the server again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(2);

/// Doubles from 50 ms to 2 s. Jitter keeps a fleet from returning all at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the next wait: between half and the whole of what is due. `jitter` is 0 to 1.
    pub(crate) fn next(&mut self, jitter: f64) -> Duration {
        let due = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LAST);
        self.failures = self.failures.saturating_add(1).min(16);
        due.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, FIRST, LAST};

    #[test]
    fn waits_double_from_the_first_to_the_last_and_begin_again_after_a_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(1.0)).collect();
        assert_eq!(waits[0], FIRST);
        assert_eq!(waits[1], FIRST * 2);
        assert_eq!(waits[7], LAST);
        backoff.reset();
        assert_eq!(backoff.next(0.0), FIRST / 2);
    }
}
