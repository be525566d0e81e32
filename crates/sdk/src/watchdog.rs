//! The end of the process, for work that must not outlive its lease and cannot be stopped.
//!
//! Rust has no way to end a thread, and a handler may block the very runtime that would tell
//! it to stop. So the deadline of attempts that forbid overlap is kept a second time, on the
//! heartbeat's thread: an attempt that is still there shortly before the lease can pass takes
//! the process with it. What else the process held is lost, and comes back as a loss.

use std::sync::Arc;

use outlast_core::time::Span;

use crate::clock::{boot_now, duration};
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

/// Ends the process at once. No goodbye: that would hand the attempt on while it still runs.
pub(crate) fn end_the_process(why: &str) -> ! {
    tracing::error!(why, "ending the process: it cannot end the attempt alone");
    std::process::abort();
}
