//! Which failures are logged while the store is away. Many things fail then, again and again, and
//! each would say the same: a kind of failure is logged at once, and then less and less often until
//! it goes well.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use outlast_core::time::{BootTime, Span};

/// Time between two lines about the same kind of failure: at first, and at most.
const PAUSE_MIN: Span = Span::from_secs(10);
const PAUSE_MAX: Span = Span::from_secs(160);

/// The kinds of failures that go on, and when each is logged next.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    kinds: Mutex<HashMap<&'static str, Failing>>,
}

#[derive(Debug)]
struct Failing {
    next: BootTime,
    pause: Span,
    unlogged: u64,
}

impl TroubleLog {
    /// Records a failure. If it is to be logged, returns how many of its kind were not logged since
    /// the last one that was.
    pub(crate) fn failed(&self, kind: &'static str, now: BootTime) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(failing) = kinds.get_mut(kind) else {
            let next = now.after(PAUSE_MIN);
            kinds.insert(kind, Failing { next, pause: PAUSE_MIN, unlogged: 0 });
            return Some(0);
        };
        if now.since(failing.next) > PAUSE_MAX {
            // It is long ago.
            *failing = Failing { next: now.after(PAUSE_MIN), pause: PAUSE_MIN, unlogged: 0 };
            return Some(0);
        }
        if now < failing.next {
            failing.unlogged += 1;
            return None;
        }
        failing.pause = Span(failing.pause.0 * 2).min(PAUSE_MAX);
        failing.next = now.after(failing.pause);
        Some(std::mem::take(&mut failing.unlogged))
    }

    /// Records that it went well: its next failure is logged at once.
    pub(crate) fn went_well(&self, kind: &'static str) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).remove(kind);
    }
}

/// Logs a failure unless the same has just been logged: level, shared state, kind, error, message.
macro_rules! log_trouble {
    ($level:ident, $shared:expr, $error:expr, $message:literal) => {
        if let Some(unlogged) = $shared.trouble_log.failed($message, $crate::clock::boot_time()) {
            tracing::$level!(error = %$error, unlogged, $message);
        }
    };
}
pub(crate) use log_trouble;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_all_the_time_is_logged_less_and_less_often_until_it_goes_well() {
        let log = TroubleLog::default();
        let logged = |from: u64, to: u64| {
            let seconds = (from..to).map(|second| BootTime(second * 1_000));
            seconds.filter_map(|now| log.failed("reading", now)).collect::<Vec<_>>()
        };
        assert_eq!(logged(0, 120), [0, 9, 19, 39]);
        assert_eq!(log.failed("writing", BootTime(120_000)), Some(0), "another kind");
        log.went_well("reading");
        assert_eq!(logged(121, 125), [0]);
        assert_eq!(logged(500, 512), [0, 9]);
    }
}
