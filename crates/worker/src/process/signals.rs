//! The state of signals that a process inherits, put in order before it does anything else.
//!
//! ```text
//! exec ──start_clean──▶ stops are held ──handlers installed──deliver_stops──▶ as usual
//! ```
//!
//! Ignored and blocked signals survive exec. Where a parent ignores SIGCHLD, the kernel reaps this
//! process's children before it can learn how they ended. A SIGTERM that comes before there is a
//! handler would end the process in the middle, or be lost where it is the first of a PID namespace;
//! a blocked one waits, across exec as well.

use rustix::process::Signal;

use super::sys;

/// The signals that ask a process to stop or to reload.
const STOPS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// Undoes what the parent has set for signals, and holds SIGTERM, SIGINT and SIGHUP back until
/// [`deliver_stops`]. Call first in `main`.
pub fn start_clean() {
    sys::heed_children();
    sys::block_only(&STOPS);
}

/// Holds SIGTERM, SIGINT and SIGHUP back from here on, for the program that this thread executes.
pub fn hold_stops() {
    sys::block_only(&STOPS);
}

/// Lets SIGTERM, SIGINT and SIGHUP through to this thread, those that have come meanwhile too.
pub fn deliver_stops() {
    sys::block_only(&[]);
}

/// Blocks every signal that can be blocked in a process that nothing but its engine tells what to do,
/// and lets it wait for its children.
pub(crate) fn hold_all() {
    sys::heed_children();
    sys::block_all_signals();
}

/// Does `work` with every signal blocked in this thread: threads that it starts never get one.
pub fn out_of_reach<T>(work: impl FnOnce() -> T) -> T {
    sys::with_all_signals_blocked(work)
}
