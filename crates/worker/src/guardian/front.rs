//! The process that stays in front of a guardian which could not tell strangers from its own.
//!
//! ```text
//! process 1, or one with children of its own ──signals──▶ guardian ──▶ engine ──▶ …
//!       └─ gets every orphan of the container              └─ gets the orphans of its engine alone
//! ```
//!
//! A guardian kills what comes to it as an orphan, since a job may have killed its shim. Process 1 of
//! a container also gets what `docker exec` and `kubectl exec` leave behind, and a shell may have
//! started children before it became a worker. None of that is the guardian's to end. So such a
//! process only passes signals on, reaps, and ends as its guardian does.

use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    set_parent_process_death_signal, setsid, wait,
};

use super::{FAULT, orphans, wait_for};
use crate::process::sys::{self, Fork};

/// The signals that are messages to a guardian.
const PASSED_ON: [Signal; 5] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::TSTP, Signal::CONT];

/// Splits this process in two if it may get children that are not its guardian's. Call before
/// [`super::run`], and before any thread is started. Returns the exit code in the process that has
/// stayed in front, once the other has ended, and nothing in the process that becomes the guardian.
///
/// # Errors
/// When the process cannot be split.
pub fn stay_in_front() -> io::Result<Option<i32>> {
    if getpid() != Pid::INIT && orphans::children().is_empty() {
        return Ok(None);
    }
    sys::heed_children();
    let signals = sys::SignalFd::new(&[PASSED_ON.as_slice(), &[Signal::CHILD]].concat())?;
    let front = getpid();
    match sys::fork()? {
        Fork::Parent(guardian) => Ok(Some(pass_on(guardian, &signals))),
        Fork::Child => {
            drop(signals);
            // What a terminal sends comes through the process in front, once.
            setsid()?;
            // That process has one thread, so this fires when it ends and not before.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(front) {
                return Err(io::Error::other("the process in front has ended"));
            }
            Ok(None)
        }
    }
}

/// Passes signals on until the guardian has ended, and returns its exit code.
fn pass_on(guardian: Pid, signals: &sys::SignalFd) -> i32 {
    loop {
        if wait_for(signals, None, None).is_err() {
            let _ = kill_process(guardian, Signal::KILL);
            return FAULT;
        }
        while let Some(number) = signals.next() {
            if let Some(signal) = PASSED_ON.iter().find(|signal| signal.as_raw() == number) {
                // One that has ended is reaped below.
                let _ = kill_process(guardian, *signal);
            }
        }
        if let Some(code) = reap(guardian) {
            return code;
        }
    }
}

/// Reaps what has ended. Returns the exit code of the guardian if it is among that.
fn reap(guardian: Pid) -> Option<i32> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == guardian => {
                return Some(WaitStatus::exit_status(status).unwrap_or(FAULT));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return None,
            Err(_) => return Some(FAULT),
        }
    }
}
