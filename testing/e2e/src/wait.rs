//! Waiting for events, always with a bound; and the times the scenes run with.

use std::thread;
use std::time::{Duration, Instant};

/// H: heartbeat interval.
pub const HEARTBEAT: Duration = Duration::from_millis(200);
/// L: lease of native workers.
pub const LEASE: Duration = Duration::from_secs(1);
/// S: granularity of the sweep.
pub const SWEEP: Duration = Duration::from_millis(100);
/// How long a dropped connection may take to come back.
pub const RECONNECT: Duration = Duration::from_millis(500);
/// Until a worker whose connections were closed together is given up.
pub const CLOSED: Duration = Duration::from_secs(1);
/// From SIGTERM to SIGKILL of an attempt's tree.
pub const KILL_AFTER: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(10);
/// What starting a few processes may take on a small, loaded machine.
const MACHINE: Duration = Duration::from_secs(20);

/// Turns a bound of the fault model into an upper bound for a wait on a loaded machine.
#[must_use]
pub fn within(formula: Duration) -> Duration {
    formula * 3 + MACHINE
}

/// Waits until `probe` finds something.
///
/// # Panics
///
/// When nothing is found in time; the message says what was awaited.
#[track_caller]
pub fn eventually<T>(what: &str, bound: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    match poll(bound, &mut probe) {
        Some(found) => found,
        None => panic!("waited {bound:?} in vain: {what}"),
    }
}

/// Waits until `probe` finds something or time is up.
pub fn poll<T>(bound: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if started.elapsed() >= bound {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Watches for a whole `period` that `probe` finds nothing wrong.
///
/// # Panics
///
/// As soon as `probe` returns what went wrong.
#[track_caller]
pub fn stays(what: &str, period: Duration, mut probe: impl FnMut() -> Option<String>) {
    if let Some(wrong) = poll(period, &mut probe) {
        panic!("{what}: {wrong}");
    }
}
