//! The guardian: the small main process of a worker. It owns the signals, is the engine's
//! parent and the last one to leave.
//!
//! ```text
//! terminal, init system ──signals──▶ guardian ──one byte each, by socket──▶ engine
//!                                       │    ◀──the worker's identity─────────┘
//!                                       └─ reaps and kills every orphan of its engine
//! ```
//!
//! The engine runs in a session of its own, so a terminal's keys reach only the guardian, and
//! is never stopped or ended by a signal meant for the worker. When it ends, whatever it left
//! is waited for or killed before the guardian exits. If the engine ended without a goodbye, and
//! nothing of it is left, the guardian has its death reported (`death`). When the guardian ends,
//! the socket closes, and that tells the engine.
//!
//! A job under `cgroup` or `subreaper` may kill its shim, both halves. What it leaves then comes to
//! the guardian as an orphan, and is killed. A guardian that could get other orphans too, such as
//! process 1 of a container, has a process in front of it (`front`).
//!
//! It does no network, waits for nothing but signals and its children, and never stops itself:
//! SIGTSTP is a message too. No other thread of its process may take a signal.

mod death;
mod engine;
mod front;
mod link;
mod orphans;

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};
use std::time::Duration;

use outlast_sdk::{EvidenceCode, LEASE_OVER_EXIT_CODE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

pub use self::death::report_to;
pub use self::front::stay_in_front;
pub use self::link::{GuardianEvent, GuardianLink, IdentityWriter};

use self::death::Death;
use self::engine::EngineLink;
use self::orphans::Orphans;

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
/// How often orphans are looked for while the engine runs: nothing announces one.
const LOOK_FOR_ORPHANS: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How often what is left is looked at.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What the guardian starts.
#[derive(Debug)]
pub struct GuardianOptions {
    /// The program to execute as the engine.
    pub program: OwnProgram,
    /// Its arguments: the hidden subcommand and all settings.
    pub engine_args: Vec<OsString>,
    /// The arguments of what reports the engine's death: a hidden subcommand that calls
    /// [`report_to`], and the same settings.
    pub reporter_args: Vec<OsString>,
}

/// Runs a worker's main process and returns its exit code: 0 after a clean drain, 1 on a
/// fault, 2 on wrong usage, 5 when the server does not let it in. Must be called by the main
/// thread, after [`stay_in_front`]; in every other thread all signals must be blocked.
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

fn start(options: &GuardianOptions) -> io::Result<Guardian<'_>> {
    sys::heed_children();
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
    let (link, engines_end) = EngineLink::new()?;
    let mut command = Command::new(options.program.path());
    command.args(&options.engine_args).stdin(engines_end);
    sys::start_in_own_session(&mut command);
    let engine = command.spawn()?;
    let engine_pid = pid_of(&engine)?;
    let orphans = Orphans::default();
    Ok(Guardian { options, signals, link, engine_pid, orphans, terminations: 0 })
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("a child process has no process id"))
}

struct Guardian<'a> {
    options: &'a GuardianOptions,
    signals: sys::SignalFd,
    link: EngineLink,
    engine_pid: Pid,
    orphans: Orphans,
    terminations: u32,
}

impl Guardian<'_> {
    fn watch(&mut self) -> i32 {
        loop {
            if let Err(error) = wait_for(&self.signals, self.link.wanted(), Some(&LOOK_FOR_ORPHANS))
            {
                tracing::error!(%error, "guardian cannot poll for signals");
                return self.abandon();
            }
            while let Some(number) = self.signals.next() {
                if self.on_signal(number) == Next::ExitAtOnce {
                    return self.abandon();
                }
            }
            self.link.send_waiting();
            self.link.receive();
            if let Reaped::Engine(status) = self.reap() {
                return self.engine_ended(status);
            }
            self.orphans.kill(self.engine_pid);
        }
    }

    fn on_signal(&mut self, number: i32) -> Next {
        if number == Signal::TERM.as_raw() || number == Signal::INT.as_raw() {
            self.terminations += 1;
            if self.terminations >= 3 {
                return Next::ExitAtOnce;
            }
            self.link.send(GuardianEvent::Terminate);
        } else if number == Signal::TSTP.as_raw() {
            self.link.send(GuardianEvent::Quiet);
        } else if number == Signal::CONT.as_raw() {
            self.link.send(GuardianEvent::Resume);
        } else if number == Signal::HUP.as_raw() {
            // A worker does not end with its terminal.
            self.link.send(GuardianEvent::ReloadPacks);
        }
        Next::Continue
    }

    /// Collects every ended child; says how the engine ended if it was among them, or is not there
    /// any more.
    fn reap(&self) -> Reaped {
        let mut reaped = Reaped::Others;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.engine_pid => {
                    reaped = Reaped::Engine(Some(status));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return reaped,
                // There is no child left.
                Err(_) => {
                    return match reaped {
                        Reaped::Engine(_) => reaped,
                        Reaped::Others => Reaped::Engine(None),
                    };
                }
            }
        }
    }

    /// Clears up after the engine and returns the exit code. An end without a goodbye is reported
    /// once it is certain that nothing of the engine runs, and never without that.
    fn engine_ended(&mut self, status: Option<WaitStatus>) -> i32 {
        // What it announced just before its end.
        self.link.receive();
        let code = exit_code(status);
        if !clear_up(&self.signals) {
            return FAULT;
        }
        if let (Some((code, why)), Some(worker)) = (early_end(status), self.link.worker()) {
            let (program, args) = (&self.options.program, &self.options.reporter_args);
            death::report(&Death { worker, code, why }, program, args, &self.signals);
        }
        code
    }

    /// Leaves at once: the third signal. The shims see their engine die and end their trees.
    fn abandon(&self) -> i32 {
        let _ = kill_process(self.engine_pid, Signal::KILL);
        FAULT
    }
}

/// What was found among the children that ended.
#[derive(Clone, Copy)]
enum Reaped {
    /// Not the engine.
    Others,
    /// The engine, with how it ended if that is known.
    Engine(Option<WaitStatus>),
}

#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    ExitAtOnce,
}

fn exit_code(status: Option<WaitStatus>) -> i32 {
    let Some(status) = status else {
        tracing::error!("engine ended, and it is not known how");
        return FAULT;
    };
    match status.exit_status() {
        Some(code @ (0 | FAULT | USAGE | NOT_ALLOWED)) => code,
        Some(code) => {
            tracing::error!(code, "engine exited with an unexpected code");
            FAULT
        }
        None => {
            tracing::error!(signal = status.terminating_signal(), "engine was killed");
            FAULT
        }
    }
}

/// How an engine ended that did not drain. If it said goodbye, it has withdrawn its identity.
fn early_end(status: Option<WaitStatus>) -> Option<(EvidenceCode, String)> {
    let killed = EvidenceCode::EngineKilled;
    let ended = status.map(|status| (status.terminating_signal(), status.exit_status()));
    let (code, how) = match ended.unwrap_or_default() {
        (Some(signal), _) => (killed, format!("was killed by signal {signal}")),
        // It ended itself, and the lease is over any moment.
        (None, Some(0 | USAGE | LEASE_OVER_EXIT_CODE)) => return None,
        (None, None) => (killed, "ended, and it is not known how".to_owned()),
        (None, Some(FAULT)) => (killed, "exited with a fault of its own".to_owned()),
        (None, Some(NOT_ALLOWED)) => {
            let how = "exited because the server did not let it in for a whole lease";
            (EvidenceCode::Lease, how.to_owned())
        }
        (None, Some(code)) => (killed, format!("crashed with exit code {code}")),
    };
    Some((code, format!("the worker's engine {how}, and its guardian saw all its processes end")))
}

/// Waits until no child is left, killing what does not go by itself. True is proof that nothing
/// of the dead engine runs; without it a clean end is none.
fn clear_up(signals: &sys::SignalFd) -> bool {
    let began = boot_now();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Err(_) => return true,
            Ok(None) => {}
        }
        let waited = Duration::from_millis(boot_now().since(began).as_millis());
        if waited >= GONE_MAX {
            tracing::error!("processes of the engine are still running");
            return false;
        }
        if waited >= SHIMS_MAX {
            descendants::signal(getpid(), Signal::KILL);
        }
        if wait_for(signals, None, Some(&LOOK_AGAIN)).is_err() {
            return false;
        }
        while signals.next().is_some() {}
    }
}

/// Waits until a signal has come, or what is wanted of the link is possible.
fn wait_for(
    signals: &sys::SignalFd,
    link: Option<PollFd<'_>>,
    timeout: Option<&Timespec>,
) -> io::Result<()> {
    let signals = PollFd::new(signals, PollFlags::IN);
    let mut watched = [signals.clone(), link.unwrap_or(signals)];
    match poll(&mut watched, timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
