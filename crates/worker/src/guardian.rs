//! The guardian: the small main process of a worker. It owns the signals, is the engine's
//! parent and the last one to leave.
//!
//! ```text
//! terminal, init system ──signals──▶ guardian ──one byte each, by pipe──▶ engine
//!                                       └─ reaps every orphan; works as PID 1
//! ```
//!
//! The engine runs in a session of its own, so a terminal's keys reach only the guardian, and
//! is never stopped or ended by a signal meant for the worker. When it ends, whatever it left
//! is waited for or killed before the guardian exits. When the guardian ends, the pipe
//! closes, and that tells the engine.
//!
//! It must have one thread, do no network, and never stop itself: SIGTSTP is a message too.

mod link;

use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

pub use self::link::{GuardianEvent, GuardianLink};

use crate::clock::boot_now;
use crate::process::{OwnProgram, descendants, sys};

/// Exit code of a worker whose engine failed. 0, 2 and 5 are the engine's own to give.
const FAULT: i32 = 1;
/// Exit code for wrong usage, passed on from the engine.
const USAGE: i32 = 2;
/// Exit code when the server does not let the worker in, passed on from the engine.
const NOT_ALLOWED: i32 = 5;

/// How long the shims of a dead engine have to end their trees before they are killed.
const SHIMS_MAX: Duration = Duration::from_millis(500);
/// How long anything may take to be gone after that; D state has no bound of its own.
const GONE_MAX: Duration = Duration::from_secs(5);
/// How often what is left is looked at.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What the guardian starts.
#[derive(Debug)]
pub struct GuardianOptions {
    /// The program to execute as the engine.
    pub program: OwnProgram,
    /// Its arguments: the hidden subcommand and all settings.
    pub engine_args: Vec<OsString>,
}

/// Runs a worker's main process and returns its exit code: 0 after a clean drain, 1 on a
/// fault, 2 on wrong usage, 5 when the server does not let it in. Must be called while the
/// process has one thread.
#[must_use]
pub fn run(options: &GuardianOptions) -> i32 {
    match start(options) {
        Ok(mut guardian) => guardian.watch(),
        Err(error) => {
            tracing::error!(%error, "cannot start the worker's engine");
            FAULT
        }
    }
}

fn start(options: &GuardianOptions) -> io::Result<Guardian> {
    set_child_subreaper(Some(getpid()))?;
    // Before the engine exists, so that no signal and no end of it can be missed.
    let signals = sys::SignalFd::new(&[
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::TSTP,
        Signal::CONT,
        Signal::CHILD,
    ])?;
    let (reading, link) = io::pipe()?;
    // A frozen engine must not freeze us when a pipe's worth of signals has come.
    rustix::io::ioctl_fionbio(&link, true)?;
    let mut command = Command::new(options.program.path());
    command.args(&options.engine_args).stdin(reading);
    sys::start_in_own_session(&mut command);
    let engine = command.spawn()?;
    let engine_pid = pid_of(&engine)?;
    Ok(Guardian { signals, link, engine_pid, terminations: 0 })
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the engine has no process id"))
}

struct Guardian {
    signals: sys::SignalFd,
    link: PipeWriter,
    engine_pid: Pid,
    terminations: u32,
}

impl Guardian {
    fn watch(&mut self) -> i32 {
        loop {
            if let Err(error) = wait_readable(&self.signals, None) {
                tracing::error!(%error, "guardian cannot wait for signals");
                return self.abandon();
            }
            while let Some(number) = self.signals.next() {
                if self.on_signal(number) == Next::ExitAtOnce {
                    return self.abandon();
                }
            }
            if let Some(code) = self.reap() {
                return clear_up(&self.signals, code);
            }
        }
    }

    fn on_signal(&mut self, number: i32) -> Next {
        if number == Signal::TERM.as_raw() || number == Signal::INT.as_raw() {
            self.terminations += 1;
            if self.terminations >= 3 {
                return Next::ExitAtOnce;
            }
            self.tell(GuardianEvent::Terminate);
        } else if number == Signal::TSTP.as_raw() {
            self.tell(GuardianEvent::Quiet);
        } else if number == Signal::CONT.as_raw() {
            self.tell(GuardianEvent::Resume);
        } else if number == Signal::HUP.as_raw() {
            // A worker does not end with its terminal.
            self.tell(GuardianEvent::ReadAgain);
        }
        Next::Continue
    }

    fn tell(&self, event: GuardianEvent) {
        let Some(byte) = event.as_byte() else { return };
        // An engine that closed the pipe is ending, and its end is noticed by itself.
        if let Err(error) = rustix::io::write(&self.link, &[byte]) {
            tracing::warn!(%error, ?event, "engine could not be told");
        }
    }

    /// Collects every ended child; the exit code to end with if the engine was among them.
    fn reap(&self) -> Option<i32> {
        let mut engine = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.engine_pid => engine = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return engine.map(exit_code),
            }
        }
    }

    /// Leaves at once: the third signal. The shims see their engine die and end their trees.
    fn abandon(&self) -> i32 {
        let _ = kill_process(self.engine_pid, Signal::KILL);
        FAULT
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    ExitAtOnce,
}

fn exit_code(status: WaitStatus) -> i32 {
    match status.exit_status() {
        Some(code @ (0 | FAULT | USAGE | NOT_ALLOWED)) => code,
        Some(code) => {
            tracing::error!(code, "engine ended with an unknown code");
            FAULT
        }
        None => {
            tracing::error!(signal = status.terminating_signal(), "engine was killed");
            FAULT
        }
    }
}

/// Waits until no child is left, killing what does not go by itself: proof that nothing of
/// the dead engine runs. Without that proof a clean end is none.
fn clear_up(signals: &sys::SignalFd, code: i32) -> i32 {
    let began = boot_now();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Err(_) => return code,
            Ok(None) => {}
        }
        let waited = Duration::from_millis(boot_now().since(began).as_millis());
        if waited >= GONE_MAX {
            tracing::error!("processes of the engine will not end");
            return FAULT;
        }
        if waited >= SHIMS_MAX {
            descendants::signal(getpid(), Signal::KILL);
        }
        if wait_readable(signals, Some(&LOOK_AGAIN)).is_err() {
            return FAULT;
        }
        while signals.next().is_some() {}
    }
}

fn wait_readable(signals: &sys::SignalFd, timeout: Option<&Timespec>) -> io::Result<()> {
    match poll(&mut [PollFd::new(signals, PollFlags::IN)], timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
