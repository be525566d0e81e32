//! The crate's only reader of clocks.

use outlast_core::time::BootTime;
use rustix::time::{ClockId, clock_gettime};

/// Returns this machine's CLOCK_BOOTTIME, which runs on through suspend and never jumps.
#[must_use]
pub fn boot_time() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
    BootTime(seconds.saturating_mul(1000).saturating_add(millis))
}
