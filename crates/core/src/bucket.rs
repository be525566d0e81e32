//! A token bucket: what may be done at a rate, with some at once.

use crate::time::{BootTime, Span};

/// How much may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens that come each second; at least one.
    pub per_second: u64,
    /// Most that gather.
    pub burst: u64,
}

/// Tokens that are left, in thousandths, at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: Rate,
    thousandths: u64,
    at: BootTime,
}

impl Bucket {
    /// Returns a full bucket.
    #[must_use]
    pub const fn full(rate: Rate, now: BootTime) -> Self {
        Self { rate, thousandths: rate.burst.saturating_mul(1000), at: now }
    }

    /// Returns how many tokens there are.
    pub fn tokens(&mut self, now: BootTime) -> u64 {
        // One per second is one thousandth per millisecond.
        let came = now.since(self.at).0.saturating_mul(self.rate.per_second);
        let most = self.rate.burst.saturating_mul(1000);
        self.thousandths = self.thousandths.saturating_add(came).min(most);
        self.at = now;
        self.thousandths.checked_div(1000).unwrap_or_default()
    }

    /// Takes tokens; what is taken beyond what there is was never there.
    pub fn take(&mut self, tokens: u64, now: BootTime) {
        let _refilled = self.tokens(now);
        self.thousandths = self.thousandths.saturating_sub(tokens.saturating_mul(1000));
    }

    /// Gives tokens back that were taken and not used.
    pub fn give_back(&mut self, tokens: u64) {
        let most = self.rate.burst.saturating_mul(1000);
        let back = tokens.saturating_mul(1000);
        self.thousandths = self.thousandths.saturating_add(back).min(most);
    }

    /// Returns how long it takes to refill this many tokens, if the bucket holds that many.
    #[must_use]
    pub fn wait(&self, tokens: u64) -> Span {
        let wanted = tokens.min(self.rate.burst).saturating_mul(1000);
        let lacking = wanted.saturating_sub(self.thousandths);
        Span(lacking.div_ceil(self.rate.per_second.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_in_a_time_than_the_burst_and_what_comes_in_it() {
        let rate = Rate { per_second: 2_000, burst: 500 };
        let mut bucket = Bucket::full(rate, BootTime(0));
        let (mut now, mut taken) = (BootTime(0), 0);
        while taken < 5_000 {
            let some = bucket.tokens(now).min(64);
            bucket.take(some, now);
            taken += some;
            now = now.after(Span(3));
        }
        let most = rate.burst + now.0 * rate.per_second / 1000;
        assert!(taken <= most && now.0 < 3_000, "{taken} of {most} in {} ms", now.0);
    }

    #[test]
    fn a_wait_is_as_long_as_tokens_take_to_come() {
        let mut bucket = Bucket::full(Rate { per_second: 100, burst: 10 }, BootTime(0));
        assert_eq!(bucket.wait(10), Span(0));
        bucket.take(10, BootTime(0));
        assert_eq!(
            (bucket.wait(1), bucket.wait(10), bucket.wait(99)),
            (Span(10), Span(100), Span(100))
        );
        assert_eq!(bucket.tokens(BootTime(55)), 5);
        assert_eq!(bucket.wait(6), Span(5));
    }
}
