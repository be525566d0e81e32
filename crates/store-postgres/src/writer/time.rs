//! The store's time as one server knows it, shared by its writers. It never falls, so what one
//! writer stores after the other has later times.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::time::{Span, Timestamp};
use tokio::time::Instant;

/// Longest that this host's clock stands in for PostgreSQL's after an answer with its time.
const TOLD_MAX: Duration = Duration::from_secs(1);

/// If PostgreSQL's time is this far behind what was acted at, its clock was set back. A smaller
/// difference is waited for.
const BEHIND_MAX: Span = Span::from_secs(1);

/// The store's time.
#[derive(Debug)]
pub(crate) struct Time {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// The latest time that was acted at, and when that was by our own clock.
    latest: Option<(Timestamp, Instant)>,
    /// What PostgreSQL told, and when that came.
    latest_reply: Option<(Timestamp, Instant)>,
}

impl Time {
    pub(crate) const fn new() -> Self {
        Self { known: Mutex::new(Known { latest: None, latest_reply: None }) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the time that PostgreSQL answered.
    pub(crate) fn note(&self, time: Timestamp, at: Instant) {
        self.known().latest_reply = Some((time, at));
    }

    /// Returns the store's time by our clock, if PostgreSQL told it lately. It loses at most
    /// the way of an answer.
    pub(crate) fn recent(&self) -> Option<Timestamp> {
        let (time, at) = self.known().latest_reply?;
        let since = at.elapsed();
        let since = u64::try_from(since.as_millis()).ok().filter(|_| since < TOLD_MAX)?;
        Some(time.after(Span(since)))
    }

    /// Returns `now`, or what the latest time that was acted at has become since, if that is
    /// later: the time of a PostgreSQL whose clock was set back goes on by our own clock.
    pub(crate) fn at_least(&self, now: Timestamp) -> Timestamp {
        self.at_least_by(now, Instant::now())
    }

    fn at_least_by(&self, now: Timestamp, own: Instant) -> Timestamp {
        let mut known = self.known();
        let (time, at) = match known.latest {
            Some((latest, at)) if latest.since(now) > BEHIND_MAX => {
                // Kept to the millisecond, so that none is lost from call to call.
                let since = own.saturating_duration_since(at).as_millis();
                let since = u64::try_from(since).unwrap_or(0);
                (latest.after(Span(since)), at + Duration::from_millis(since))
            }
            Some((latest, _)) => (latest.max(now), own),
            None => (now, own),
        };
        known.latest = Some((time, at));
        time
    }

    /// Returns the latest time that was acted at.
    pub(crate) fn latest(&self) -> Timestamp {
        self.known().latest.map_or(Timestamp(i64::MIN), |(latest, _)| latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing fell due once for as long as a clock had been wrong.
    #[test]
    fn time_goes_on_when_a_clock_that_was_ahead_is_set_back() {
        const HOUR: i64 = 3_600_000;
        let (time, began) = (Time::new(), Instant::now());
        // What PostgreSQL says, what is said after how long, what it is taken for.
        for (latest_reply, own, expected) in [
            (0, 0, 0),
            (HOUR, 1_000, HOUR),
            (2_000, 2_000, HOUR + 1_000),
            (2_700, 2_700, HOUR + 1_700),
            (12_000, 12_000, HOUR + 11_000),
            // It is ahead once more, and a little behind.
            (2 * HOUR, 13_000, 2 * HOUR),
            (2 * HOUR - 400, 13_100, 2 * HOUR),
            (2 * HOUR - 300, 13_200, 2 * HOUR),
            (2 * HOUR + 5, 13_505, 2 * HOUR + 5),
        ] {
            let found =
                time.at_least_by(Timestamp(latest_reply), began + Duration::from_millis(own));
            assert_eq!(found, Timestamp(expected), "{latest_reply} after {own} ms");
            assert_eq!(time.latest(), found);
        }
    }
}
