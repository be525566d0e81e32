//! The end of the process, for work that must not outlive its lease and cannot be stopped.
//!
//! Rust has no way to end a thread, and a handler may block the very runtime that would tell
//! it to stop. So the deadline of attempts that forbid overlap is kept a second time, on the
//! heartbeat's thread: an attempt that is still there shortly before the lease can pass takes
//! the process with it. What else the process held is lost, and comes back as a loss.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::time::Span;

use crate::clock::{Stopwatch, boot_now, duration};
use crate::shared::Shared;

/// How often it looks: a part of the least margin that any lease leaves.
const LOOK: Span = Span::from_millis(10);

/// Watches for as long as the heartbeat's thread lives.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        while !shared.runs_forbidden() {
            shared.forbidden_began.notified().await;
        }
        tokio::time::sleep(duration(LOOK)).await;
        if shared.last_instant().is_some_and(|last| last <= boot_now()) {
            end_the_process(
                "the lease was not renewed, and an attempt that forbids overlap runs on",
            );
        }
    }
}

/// Exit code of a process that ended itself because an attempt that forbids overlap could not
/// be stopped before its lease was over. To a supervisor it says: start me again.
pub const LEASE_OVER_EXIT_CODE: i32 = 75;

/// How long a last message and exit handlers of others may take; then the process is aborted.
const LAST_WORDS: Duration = Duration::from_millis(25);

/// Ends the process at once. No goodbye: that would hand the attempt on while it still runs.
#[expect(clippy::exit, reason = "nothing less ends a thread")]
pub(crate) fn end_the_process(why: &str) -> ! {
    // Whatever may block from here on, a full pipe or somebody's exit handler, is cut short.
    let spare = std::thread::Builder::new().stack_size(64 * 1024).spawn(|| {
        let watch = Stopwatch::start();
        while let Some(left) = LAST_WORDS.checked_sub(watch.elapsed()) {
            std::thread::park_timeout(left);
        }
        std::process::abort();
    });
    if spare.is_err() {
        std::process::abort();
    }
    tracing::error!(why, "ending the process: it cannot end the attempt alone");
    std::process::exit(LEASE_OVER_EXIT_CODE);
}
