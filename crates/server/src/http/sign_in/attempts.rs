//! How often wrong tokens may be tried. Guesses cost the server nothing, and keep no other client out.
//!
//! ```text
//! an address:  ten wrong ones at once, then one every six seconds
//! all of them: a hundred at once, then ten every six seconds; above that, an address that has
//!              tried a wrong one waits for six seconds, and one that has not is heard all the same
//! ```
//!
//! A right token counts nowhere. A try while an address waits is not looked at, and does not make it
//! wait longer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use outlast_core::time::{BootTime, Span};

/// After how long an address has one more try.
const AGAIN: Span = Span::from_secs(6);
/// How long an address that has used up its tries waits until it has all ten again.
const ALL_OF_ONE: Span = Span(AGAIN.0 * 10);
/// The same of all addresses together.
const AGAIN_OF_ALL: Span = Span(600);
const ALL_OF_ALL: Span = Span(AGAIN_OF_ALL.0 * 100);
/// How many addresses are remembered.
const ADDRESSES_MAX: usize = 10_000;
/// Time between two log lines about wrong tokens.
const LOG_INTERVAL: Span = Span::from_secs(10);

/// Wrong tokens of late.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<Wrong>);

#[derive(Debug, Default)]
struct Wrong {
    /// When each address has all of its tries again.
    addresses: HashMap<IpAddr, BootTime>,
    /// When all of them together have.
    all: BootTime,
    logged: Option<BootTime>,
    /// How many wrong tokens were not logged.
    not_logged: u64,
}

/// What came of a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tried<T, E> {
    /// The token is right.
    Right(T),
    /// It is not.
    Wrong(E),
    /// It was not looked at; the next one is after this time.
    TooMany(Span),
}

/// Wrong tokens that are due in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    /// How many came since the last line, with this one.
    pub(super) count: u64,
}

impl Attempts {
    /// Tries a token, unless its address has to wait. Whether it is right is found out while nothing
    /// else is tried, so that tries at the same moment are counted too.
    pub(super) fn attempt<T, E>(
        &self,
        address: IpAddr,
        now: BootTime,
        look: impl FnOnce() -> Result<T, E>,
    ) -> (Tried<T, E>, Option<LogLine>) {
        let mut wrong = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = wrong.wait(address, now) {
            return (Tried::TooMany(wait), None);
        }
        match look() {
            Ok(right) => (Tried::Right(right), None),
            Err(error) => {
                wrong.note(address, now);
                (Tried::Wrong(error), wrong.line(now))
            }
        }
    }
}

impl Wrong {
    /// Returns how long an address has to wait.
    fn wait(&self, address: IpAddr, now: BootTime) -> Option<Span> {
        let owed = self.addresses.get(&address).map_or(Span::ZERO, |full| full.since(now));
        let is_crowded = self.all.since(now).0 + AGAIN_OF_ALL.0 > ALL_OF_ALL.0;
        let most = if is_crowded { Span::ZERO } else { Span(ALL_OF_ONE.0 - AGAIN.0) };
        (owed > most).then(|| Span(owed.0 - most.0))
    }

    fn note(&mut self, address: IpAddr, now: BootTime) {
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&address) {
            self.addresses.retain(|_, full| *full > now);
            // So many at once: they are heard again, rather than keep others out.
            if self.addresses.len() >= ADDRESSES_MAX {
                self.addresses.clear();
            }
        }
        let full = self.addresses.entry(address).or_insert(now);
        *full = (*full).max(now).after(AGAIN);
        self.all = self.all.max(now).after(AGAIN_OF_ALL);
    }

    fn line(&mut self, now: BootTime) -> Option<LogLine> {
        self.not_logged += 1;
        if self.logged.is_some_and(|at| now.since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(LogLine { count: std::mem::take(&mut self.not_logged) })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const START: BootTime = BootTime(1_000_000);

    fn host(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    fn wrong(attempts: &Attempts, n: u32, now: BootTime) -> Tried<(), ()> {
        attempts.attempt(host(n), now, || Err(())).0
    }

    fn right(attempts: &Attempts, n: u32, now: BootTime) -> Tried<(), ()> {
        attempts.attempt(host(n), now, || Ok(())).0
    }

    #[test]
    fn address_has_ten_tries_and_one_more_every_six_seconds() {
        let attempts = Attempts::default();
        for _ in 0..10 {
            assert_eq!(wrong(&attempts, 1, START), Tried::Wrong(()));
        }
        // Tries that are not looked at do not make it wait longer, and a right one waits too.
        for _ in 0..1_000 {
            assert_eq!(wrong(&attempts, 1, START), Tried::TooMany(AGAIN));
        }
        assert_eq!(right(&attempts, 1, START), Tried::TooMany(AGAIN));
        assert_eq!(right(&attempts, 2, START), Tried::Right(()));
        assert_eq!(right(&attempts, 1, START.after(AGAIN)), Tried::Right(()));
        assert_eq!(wrong(&attempts, 1, START.after(AGAIN)), Tried::Wrong(()));
        assert_eq!(right(&attempts, 1, START.after(AGAIN)), Tried::TooMany(AGAIN));
    }

    #[test]
    fn right_token_from_elsewhere_is_heard_however_many_guess() {
        let attempts = Attempts::default();
        for n in 0..30_000 {
            let _ = wrong(&attempts, n, START);
            assert_eq!(right(&attempts, 1_000_000, START), Tried::Right(()), "after {n}");
        }
        let remembered = attempts.0.lock().unwrap().addresses.len();
        assert!(remembered <= ADDRESSES_MAX, "{remembered}");
    }

    #[test]
    fn crowd_of_addresses_has_one_try_each() {
        let attempts = Attempts::default();
        for n in 0..100 {
            assert_eq!(wrong(&attempts, n, START), Tried::Wrong(()));
        }
        assert_eq!(wrong(&attempts, 5, START), Tried::TooMany(AGAIN));
        assert_eq!(wrong(&attempts, 500, START), Tried::Wrong(()));
        assert_eq!(wrong(&attempts, 500, START), Tried::TooMany(AGAIN));
        assert_eq!(wrong(&attempts, 5, START.after(ALL_OF_ALL)), Tried::Wrong(()));
        assert_eq!(wrong(&attempts, 5, START.after(ALL_OF_ALL)), Tried::Wrong(()));
    }

    #[test]
    fn flood_is_one_line_in_ten_seconds() {
        let attempts = Attempts::default();
        let line = |n, now| attempts.attempt(host(n), now, || Err::<(), _>(())).1;
        assert_eq!(line(0, START), Some(LogLine { count: 1 }));
        for n in 1..50 {
            assert_eq!(line(n, START), None);
        }
        assert_eq!(line(50, START.after(LOG_INTERVAL)), Some(LogLine { count: 50 }));
    }
}
