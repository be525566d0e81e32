//! The store's time as one server knows it, whichever of its writers was told: it never falls,
//! so what one writer stores after the other has later times.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::time::{Span, Timestamp};
use tokio::time::Instant;

/// Longest that the store's time is told by our own clock since PostgreSQL last told it.
const TOLD_MAX: Duration = Duration::from_secs(1);

/// The store's time.
#[derive(Debug)]
pub(crate) struct Time {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    latest: Timestamp,
    /// What PostgreSQL told, and when that came.
    told: Option<(Timestamp, Instant)>,
}

impl Time {
    pub(crate) const fn new() -> Self {
        Self { known: Mutex::new(Known { latest: Timestamp(i64::MIN), told: None }) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was told.
    pub(crate) fn tell(&self, time: Timestamp, at: Instant) {
        self.known().told = Some((time, at));
    }

    /// Returns the store's time by our clock, if PostgreSQL told it lately. It loses at most
    /// the way of an answer.
    pub(crate) fn told_lately(&self) -> Option<Timestamp> {
        let (time, at) = self.known().told?;
        let since = at.elapsed();
        let since = u64::try_from(since.as_millis()).ok().filter(|_| since < TOLD_MAX)?;
        Some(time.after(Span(since)))
    }

    /// Returns `now`, or the latest time that was acted at if that is later.
    pub(crate) fn at_least(&self, now: Timestamp) -> Timestamp {
        let mut known = self.known();
        known.latest = known.latest.max(now);
        known.latest
    }

    /// Returns the latest time that was acted at.
    pub(crate) fn latest(&self) -> Timestamp {
        self.known().latest
    }
}
