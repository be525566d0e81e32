//! The one reader of CLOCK_BOOTTIME, which runs on through suspend and never jumps.
//!
//! Deadlines that must hold while the host sleeps use it. Timers inside the engine
//! are tokio's; nothing else in this crate reads a clock.

use outlast_core::time::BootTime;
use rustix::time::{ClockId, clock_gettime};

/// Returns the present instant on this machine's boot clock.
#[must_use]
pub fn boot_now() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    BootTime(seconds.saturating_mul(1000).saturating_add(millis))
}
