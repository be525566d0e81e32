//! When a failed job is tried again (OJS retry policy, section "Backoff").
//!
//! Intervals are whole milliseconds and the coefficient is in thousandths, so that the
//! same policy gives the same instant on every machine.

use crate::time::{Span, Timestamp};

/// How the wait grows from one failure to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Backoff {
    /// Always the initial interval.
    Constant,
    /// The initial interval times the number of failures.
    Linear,
    /// The initial interval times the coefficient to the power of failures less one.
    #[default]
    Exponential,
    /// The initial interval times the number of failures to the power of the coefficient.
    Polynomial,
}

/// What becomes of a job that used up its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnExhaustion {
    /// It is discarded.
    #[default]
    Discard,
    /// It is discarded and kept as a dead letter for an operator.
    DeadLetter,
}

/// A job's retry policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Charged attempts allowed in all, the first one included; at least 1.
    pub max_attempts: u32,
    /// Wait after the first failure.
    pub initial_interval: Span,
    /// Growth of the wait, in thousandths: 2000 doubles it, or squares the number of failures.
    pub coefficient_millis: u32,
    /// Longest wait, before jitter.
    pub max_interval: Span,
    /// Growth law.
    pub backoff: Backoff,
    /// Whether waits are spread between half and one and a half of their length.
    pub jitter: bool,
    /// Error types that end the job at once: exact, or a prefix ending in `.*`.
    pub non_retryable: Vec<String>,
    /// What becomes of the job when attempts are used up.
    pub on_exhaustion: OnExhaustion,
}

impl RetryPolicy {
    /// The standard's default: 3 attempts, 1 s, doubling, at most 5 minutes, jitter.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            max_attempts: 3,
            initial_interval: Span::from_secs(1),
            coefficient_millis: 2000,
            max_interval: Span::from_secs(300),
            backoff: Backoff::Exponential,
            jitter: true,
            non_retryable: Vec::new(),
            on_exhaustion: OnExhaustion::Discard,
        }
    }

    /// Returns whether an error of this type ends the job whatever attempts remain.
    #[must_use]
    pub fn forbids_retry_of(&self, error_type: &str) -> bool {
        self.non_retryable.iter().any(|pattern| match pattern.strip_suffix(".*") {
            Some(prefix) => error_type
                .strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
            None => pattern == error_type,
        })
    }
}

/// A fraction of one in thousandths, drawn at the edge: 0..=999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(u16);

impl Jitter {
    /// The draw that leaves a wait as it is.
    pub const NONE: Self = Self(500);

    /// Returns the draw `thousandths`, taken modulo 1000.
    #[must_use]
    pub const fn from_thousandths(thousandths: u16) -> Self {
        Self(thousandths.wrapping_rem(1000))
    }
}

/// Returns how long a job waits after its `failures`-th charged failure.
#[must_use]
pub fn wait(policy: &RetryPolicy, failures: u32, jitter: Jitter) -> Span {
    let initial = u128::from(policy.initial_interval.0);
    let cap = u128::from(policy.max_interval.0);
    let grown = match policy.backoff {
        Backoff::Constant => initial,
        Backoff::Linear => initial.saturating_mul(u128::from(failures.max(1))),
        Backoff::Exponential => {
            let factor = u128::from(policy.coefficient_millis);
            let mut wait = initial;
            for _ in 1..failures {
                wait = wait.saturating_mul(factor).saturating_div(1000);
                if wait >= cap {
                    break;
                }
            }
            wait
        }
        Backoff::Polynomial => {
            let factor = power(failures.max(1), policy.coefficient_millis);
            initial.saturating_mul(factor) >> FRACTION_BITS
        }
    };
    let capped = grown.min(cap);
    let spread = if policy.jitter {
        capped.saturating_mul(u128::from(jitter.0).saturating_add(500)).saturating_div(1000)
    } else {
        capped
    };
    Span(u64::try_from(spread).unwrap_or(u64::MAX))
}

/// Bits behind the point of a fixed-point number.
const FRACTION_BITS: u32 = 32;

/// Returns `base` to the power of `exponent` thousandths, in fixed point. What is too large for
/// that is larger than any wait.
fn power(base: u32, exponent: u32) -> u128 {
    const ONE: u128 = 1 << FRACTION_BITS;
    let base = u128::from(base);
    let mut result = ONE;
    for _ in 0..exponent.div_euclid(1000) {
        result = result.saturating_mul(base);
    }
    // What remains of the exponent as halves, quarters and so on: a root for each.
    let mut rest = exponent.rem_euclid(1000);
    let mut root = base.saturating_mul(ONE);
    for _ in 0..FRACTION_BITS {
        if rest == 0 || root <= ONE {
            break;
        }
        root = root.saturating_mul(ONE).isqrt();
        rest = rest.saturating_mul(2);
        if rest >= 1000 {
            rest = rest.saturating_sub(1000);
            result = (result >> (FRACTION_BITS / 2)).saturating_mul(root >> (FRACTION_BITS / 2));
        }
    }
    result
}

/// Returns when a job that just failed for the `failures`-th time is due again.
#[must_use]
pub fn next_attempt_at(
    policy: &RetryPolicy,
    failures: u32,
    jitter: Jitter,
    now: Timestamp,
) -> Timestamp {
    now.after(wait(policy, failures, jitter))
}

#[cfg(test)]
mod tests;
