//! The crate's only reader of clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::time::{BootTime, Span, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// Returns a time to measure short stretches with.
pub(crate) fn precise() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns this machine's wall clock, which can be set: for comparisons, never for decisions.
#[expect(clippy::disallowed_methods, reason = "this is the crate's reader of clocks")]
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns this machine's CLOCK_BOOTTIME, which runs on through suspend and never jumps.
#[must_use]
pub fn boot_time() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
    BootTime(seconds.saturating_mul(1000).saturating_add(millis))
}

pub(crate) const fn millis(span: Span) -> Duration {
    Duration::from_millis(span.0)
}
