//! The only clock reader of this crate.
//!
//! Leases and deadlines use CLOCK_BOOTTIME, which runs on through suspend and never
//! jumps, so that a gap is seen. [`Stopwatch`] measures short runs finely. Timers are
//! tokio's.

use std::time::{Duration, Instant};

use outlast_core::time::{BootTime, Span};
use rustix::time::{ClockId, clock_gettime};

/// Returns the present instant on this machine's boot clock.
#[must_use]
pub fn boot_now() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
    BootTime(seconds.saturating_mul(1000).saturating_add(millis))
}

/// Waits until an instant on the boot clock; short of a suspend, which ends the wait late.
pub(crate) async fn sleep_until(due: BootTime) {
    tokio::time::sleep(duration(due.since(boot_now()))).await;
}

pub(crate) const fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

pub(crate) fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Measures how long something runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the crate's clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The instant so long after its start, if there is one.
    pub(crate) fn at(self, after: Duration) -> Option<Instant> {
        self.0.checked_add(after)
    }
}
