//! Ending the process when work that must not outlive its lease cannot be stopped.
//!
//! Rust has no way to end a thread, and a handler may block the very runtime that would tell
//! it to stop. So the deadline of attempts that forbid overlap is kept a second time, on the
//! heartbeat's thread: an attempt that is still there shortly before the lease can pass takes
//! the process with it. What else the process held is lost with it.
//!
//! A process that was frozen past that instant could not keep it, and its attempts stood still
//! like itself. On waking they get a moment to end by themselves before the process does.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::time::{BootTime, Span};

use crate::clock::{Stopwatch, boot_now, duration};
use crate::outcome::Ends;
use crate::worker_state::{WorkerState, margin};

/// How often it looks: a part of the least margin that any lease leaves.
const LOOK: Span = Span::from_millis(10);

/// How long attempts have after a freeze: well below the second within which a thawed host must
/// have ended them.
const THAW: Span = Span::from_millis(500);

/// Watches for as long as the heartbeat's thread lives.
pub(crate) async fn watch(state: Arc<WorkerState>, ends: Ends) {
    if ends == Ends::ByItself {
        return pending().await;
    }
    let mut vigil = Vigil::default();
    loop {
        while !state.runs_forbidden() {
            state.forbidden_began.notified().await;
            vigil.looked = boot_now();
        }
        tokio::time::sleep(duration(LOOK)).await;
        let frozen_by = Span(margin(state.reported().terms.lease).0 / 2);
        if vigil.is_over(state.last_instant(), frozen_by, boot_now()) {
            end_the_process(
                "the lease was not renewed, and an attempt that forbids overlap runs on",
            );
        }
    }
}

/// What the watch remembers from one look to the next.
#[derive(Debug, Default)]
struct Vigil {
    looked: BootTime,
    /// The last instant that a freeze has passed over, and when the moment after it ends. One
    /// moment for each: the next freeze does not add another.
    spared: Option<(BootTime, BootTime)>,
}

impl Vigil {
    /// Says whether the process must end now. A look that comes `frozen_by` late or more was
    /// held up by a freeze.
    fn is_over(&mut self, last: Option<BootTime>, frozen_by: Span, now: BootTime) -> bool {
        let late = now.since(self.looked);
        self.looked = now;
        let Some(last) = last.filter(|last| *last <= now) else { return false };
        match self.spared {
            Some((spared, until)) if spared == last => until <= now,
            _ if late >= frozen_by => {
                self.spared = Some((last, now.after(THAW)));
                false
            }
            _ => true,
        }
    }
}

/// Exit code of a process that ended itself because an attempt that forbids overlap could not
/// be stopped before its lease was over. To a supervisor it says: start me again.
pub const LEASE_OVER_EXIT_CODE: i32 = 75;

/// How long a last message and exit handlers may take; then the process is aborted.
const FLUSH_MAX: Duration = Duration::from_millis(25);

/// Ends the process at once. No goodbye: that would hand the attempt on while it still runs.
#[expect(clippy::exit, reason = "nothing less ends a thread")]
pub(crate) fn end_the_process(why: &str) -> ! {
    // Whatever may block from here on, such as a full pipe or an exit handler, is cut short.
    let spare = std::thread::Builder::new().stack_size(64 * 1024).spawn(|| {
        let watch = Stopwatch::start();
        while let Some(left) = FLUSH_MAX.checked_sub(watch.elapsed()) {
            std::thread::park_timeout(left);
        }
        std::process::abort();
    });
    if spare.is_err() {
        std::process::abort();
    }
    tracing::error!(why, "ending the process: the attempt cannot be stopped any other way");
    std::process::exit(LEASE_OVER_EXIT_CODE);
}

#[cfg(test)]
mod tests {
    use outlast_core::time::{BootTime, Span};

    use super::{THAW, Vigil};

    #[test]
    fn a_freeze_past_the_last_instant_is_followed_by_one_moment_and_no_second_one() {
        let (last, late) = (Some(BootTime(1_000)), Span::from_millis(500));
        let mut vigil = Vigil { looked: BootTime(990), spared: None };
        assert!(!vigil.is_over(last, late, BootTime(9_000)), "it has only just woken");
        assert!(!vigil.is_over(last, late, BootTime(9_010)));
        assert!(vigil.is_over(last, late, BootTime(9_000 + THAW.0 + 600)));
    }

    #[test]
    fn without_a_freeze_the_last_instant_is_kept() {
        let (last, late) = (Some(BootTime(1_000)), Span::from_millis(500));
        let mut vigil = Vigil { looked: BootTime(990), spared: None };
        assert!(!vigil.is_over(None, late, BootTime(995)));
        assert!(!vigil.is_over(last, late, BootTime(999)));
        assert!(vigil.is_over(last, late, BootTime(1_009)));
    }
}
