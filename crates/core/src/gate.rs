//! Gates: how many jobs a limit allows to start, by concurrency and by rate.
//!
//! A limit that applies per value of a key has one gate for each value. A job passes all of
//! its gates or none. What an attempt holds is given back when the attempt ends, so a lost
//! worker's slot is free when its lease is over, and not before.
//!
//! A rate is strict: in no window of its period do more jobs start than it allows. A plain
//! bucket lets nearly twice as many start, because a full bucket and a whole period's refill
//! may fall into one window.

use crate::time::{Span, Timestamp};

/// At most this many starts in any window of the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    starts: u32,
    period: Span,
}

/// Longest period of a rate.
pub const PERIOD_MAX: Span = Span::from_secs(24 * 3600);
/// Most starts in a period.
pub const STARTS_MAX: u32 = 1_000_000_000;

impl Rate {
    /// Returns the rate, or `None` if `starts` or `period` is zero or above its maximum.
    #[must_use]
    pub const fn new(starts: u32, period: Span) -> Option<Self> {
        if starts == 0 || starts > STARTS_MAX || period.0 == 0 || period.0 > PERIOD_MAX.0 {
            return None;
        }
        Some(Self { starts, period })
    }

    /// Starts in a period.
    #[must_use]
    pub const fn starts(self) -> u32 {
        self.starts
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Span {
        self.period
    }

    /// Most that may start at the same moment.
    #[must_use]
    pub fn burst(self) -> u64 {
        // One is always allowed, or nothing ever starts.
        u64::from(self.starts.saturating_div(10).max(1))
    }

    /// Time between two starts once the burst is used up, in microseconds, rounded up.
    ///
    /// In a window of `n - b + 1` such intervals `b` jobs start at once and at most `n - b` after
    /// them.
    fn interval(self) -> i64 {
        let period = self.period.0.saturating_mul(1000);
        let intervals = u64::from(self.starts).saturating_sub(self.burst()).saturating_add(1);
        to_i64(period.div_ceil(intervals.max(1)).max(1))
    }

    /// How far ahead of the present starts can use the rate up, in microseconds. A gate that was
    /// used by another rate must not be used further ahead than this.
    #[must_use]
    pub fn used_ahead(self) -> i64 {
        self.interval().saturating_mul(to_i64(self.burst()))
    }

    /// How far ahead of the present it may be used up for one more to start, in microseconds.
    #[must_use]
    pub fn open_ahead(self) -> i64 {
        self.used_ahead().saturating_sub(self.interval())
    }
}

/// The state of a gate when jobs are about to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Most attempts at a time; `None` is no bound.
    pub concurrency: Option<u32>,
    /// Attempts in flight.
    pub in_flight: u64,
    /// Most starts in a period; `None` is no bound.
    pub rate: Option<Rate>,
    /// Until when the starts so far use up the rate ("theoretical arrival time" of the generic
    /// cell rate algorithm), in microseconds since the Unix epoch; 0 if none has started.
    pub used_until: i64,
}

/// Why a gate admits no more jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    /// The maximum number of attempts is in flight.
    Full,
    /// The rate admits the next one at this time.
    Until(Timestamp),
}

/// How many of the wanted jobs may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The number of jobs.
    pub take: u32,
    /// The index of the gate that stops the next one, and why; `None` if all may start.
    pub shut: Option<(usize, Shut)>,
}

/// Returns how many of `wanted` jobs may start now through all of `gates`.
///
/// A clock that was set back admits nothing that a rate has already admitted.
#[must_use]
pub fn admit(gates: &[Gate], wanted: u32, now: Timestamp) -> Admission {
    let mut admission = Admission { take: wanted, shut: None };
    for (place, gate) in gates.iter().enumerate() {
        let (open, shut) = gate.open(now);
        if open < admission.take {
            admission = Admission { take: open, shut: Some((place, shut)) };
        }
    }
    admission
}

impl Gate {
    /// Returns how many may start now, and what stops the one after them.
    fn open(&self, now: Timestamp) -> (u32, Shut) {
        let free = self.concurrency.map_or(u32::MAX, |most| {
            u32::try_from(u64::from(most).saturating_sub(self.in_flight)).unwrap_or(0)
        });
        let Some(rate) = self.rate else { return (free, Shut::Full) };
        let (interval, now) = (rate.interval(), micros(now));
        let from = self.used_until.max(now);
        // Whatever is used beyond now must fit into the burst.
        let ahead = rate.used_ahead();
        let room = now.saturating_add(ahead).saturating_sub(from).max(0);
        let starts = u32::try_from(room.checked_div(interval).unwrap_or(0)).unwrap_or(u32::MAX);
        if free <= starts {
            return (free, Shut::Full);
        }
        let next = to_i64(u64::from(starts).saturating_add(1));
        let opens = from.saturating_add(interval.saturating_mul(next)).saturating_sub(ahead);
        (starts, Shut::Until(Timestamp(ceil_millis(opens))))
    }

    /// Returns the gate after `started` more jobs have started.
    #[must_use]
    pub fn after(self, started: u32, now: Timestamp) -> Self {
        let used_until = match self.rate {
            Some(rate) if started > 0 => {
                let used = rate.interval().saturating_mul(i64::from(started));
                self.used_until.max(micros(now)).saturating_add(used)
            }
            Some(_) | None => self.used_until,
        };
        Self { in_flight: self.in_flight.saturating_add(u64::from(started)), used_until, ..self }
    }
}

const fn micros(at: Timestamp) -> i64 {
    at.0.saturating_mul(1000)
}

fn ceil_millis(micros: i64) -> i64 {
    micros.saturating_add(999).div_euclid(1000)
}

fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
