//! How fires of one instant are spread.
//!
//! A thousand schedules that say `0 0 * * *` are due at one instant. Each may ask for a delay. The
//! delay follows from the schedule and the instant alone, so every server, also one that takes over
//! in between, comes to the same.

#[cfg(test)]
mod tests;

use outlast_core::time::{Span, Timestamp};
use sha2::{Digest as _, Sha256};

/// Returns how much later than `fire_time` the schedule `name` fires: zero to `at_most`, in whole
/// milliseconds, and always the same.
#[must_use]
pub fn jitter(name: &str, fire_time: Timestamp, at_most: Span) -> Span {
    let digest = Sha256::new()
        .chain_update(fire_time.as_millis().to_be_bytes())
        .chain_update(name.as_bytes())
        .finalize();
    let drawn = digest.iter().take(8).fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
    let choices = u128::from(at_most.as_millis()) + 1;
    Span(u64::try_from(drawn % choices).unwrap_or(at_most.as_millis()))
}
