//! The guardian: the small main process of a worker. It owns the signals, is the engine's
//! parent and the last one to leave.
//!
//! ```text
//! terminal, init system ──signals──▶ guardian ──one byte each, by socket──▶ engine
//!                                       │    ◀──identity, whether it drains──┘
//!                                       └─ reaps and kills every orphan of its engine
//! ```
//!
//! The engine runs in a session of its own, so a terminal's keys reach only the guardian, and
//! is never stopped or ended by a signal meant for the worker. When it ends, whatever it left
//! is waited for or killed. If the engine ended without a goodbye, and nothing of it is left, the
//! guardian has its death reported (`death`), and starts another engine after a pause (`restarts`).
//! The new engine has an identity of its own, and names those before it to the server, which knows what
//! they were ordered. When the guardian ends, the socket closes, and that tells the engine.
//!
//! It starts no engine after a clean end, wrong usage or a refused token, nor when the worker is
//! about to end anyway, by a signal or by an order of the server.
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
mod restarts;

use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::process::{Child, Command};
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::time::BootTime;
use outlast_sdk::{EvidenceCode, LEASE_OVER_EXIT_CODE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

pub use self::death::report_to;
pub use self::front::stay_in_front;
pub use self::link::{Announcer, GuardianEvent, GuardianLink};

use self::death::{Death, Reporter};
use self::engine::EngineLink;
use self::orphans::Orphans;
use self::restarts::{After, Asked, ByServer, ENDS_MAX, EngineEnd, Restarts, WINDOW};

use crate::clock::boot_now;
use crate::process::{OwnProgram, cgroup, descendants, sys};

/// Exit code of a worker that has ended as it was asked to.
const CLEAN: i32 = 0;
/// Exit code of a worker whose engine failed. 0, 2 and 5 are the engine's own to give.
const FAULT: i32 = 1;
/// Exit code for wrong usage, passed on from the engine.
const USAGE: i32 = 2;
/// Exit code when the server does not let the worker in, passed on from the engine.
const NOT_ALLOWED: i32 = 5;

/// Names an engine before this one, once for each: what those were ordered still holds.
pub const FOLLOWS: &str = "--follows";
/// Most identities that an engine gets to know.
const FOLLOWED_MAX: usize = 8;

/// How long the shims of a dead engine have to end their trees before they are killed.
const SHIMS_MAX: Duration = Duration::from_millis(500);
/// How long anything may take to be gone after that; D state has no bound of its own.
const GONE_MAX: Duration = Duration::from_secs(5);
/// How long an engine may take to end after its grace period, or after a second termination: 5 s to kill
/// processes, 3 s to report their ends, and 2 s of slack. An engine that takes longer hangs.
const OBEYS_MAX: Duration = Duration::from_secs(10);
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
    /// How long its engine may take for a drain after a termination, before it ends what is left.
    pub shutdown_timeout: Duration,
}

/// Runs a worker's main process and returns its exit code: 0 after a clean drain, 1 on a fault or
/// after five ends of its engine within a minute, 2 on wrong usage, 5 when the server does not let it
/// in. Must be called by the main thread, after [`stay_in_front`]; in every other thread all signals
/// must be blocked.
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
    cgroup::delegated::arrange();
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
    let engine = start_engine(options, &[])?;
    Ok(Guardian {
        followed: Vec::new(),
        options,
        signals,
        engine,
        reporters: Vec::new(),
        orphans: Orphans::default(),
        restarts: Restarts::default(),
        asked: Asked::default(),
        last_termination: None,
    })
}

/// Starts an engine that follows those of these identities, oldest first.
fn start_engine(options: &GuardianOptions, followed: &[WorkerId]) -> io::Result<Engine> {
    let (link, engines_end) = EngineLink::new()?;
    let mut command = Command::new(options.program.path());
    command.args(&options.engine_args).stdin(engines_end);
    command.args(followed.iter().map(|worker| format!("{FOLLOWS}={worker}")));
    sys::start_in_own_session(&mut command);
    let pid = pid_of(&command.spawn()?)?;
    Ok(Engine { link, pid })
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
    engine: Engine,
    /// The latest identities of all engines. The server may not have got to know the last one.
    followed: Vec<WorkerId>,
    /// What reports the deaths of the engines before.
    reporters: Vec<Reporter>,
    orphans: Orphans,
    restarts: Restarts,
    asked: Asked,
    /// When the worker was asked to end last, unless its engine has been killed for it.
    last_termination: Option<BootTime>,
}

/// The engine, or the last one while there is none.
struct Engine {
    link: EngineLink,
    pid: Pid,
}

impl Guardian<'_> {
    /// Serves engine after engine; returns the exit code.
    fn watch(&mut self) -> i32 {
        loop {
            let Some(status) = self.await_end() else { return self.abandon() };
            if let Some(code) = self.replace_engine(status) {
                return self.leave(code);
            }
            if self.asked.quiet {
                self.engine.link.send(GuardianEvent::Quiet);
            }
        }
    }

    /// Starts another engine after the end of one; returns the exit code if none is to follow.
    fn replace_engine(&mut self, status: Option<WaitStatus>) -> Option<i32> {
        let mut after = self.engine_ended(status);
        loop {
            let pause = match after {
                After::Exit(code) => return Some(code),
                After::ExitDrained => {
                    tracing::warn!("engine ended while it drained by order: the worker ends");
                    return Some(CLEAN);
                }
                After::GiveUp => {
                    let within = WINDOW.as_secs();
                    tracing::error!(
                        "engine ended {ENDS_MAX} times within {within} s: giving up, since a \
                         restart does not help; the messages above say how each one ended"
                    );
                    return Some(FAULT);
                }
                After::Restart(pause) => pause,
            };
            tracing::warn!(?pause, "the worker's engine is started again");
            if !self.pause(pause) {
                return Some(CLEAN);
            }
            match start_engine(self.options, &self.followed) {
                Ok(engine) => {
                    self.engine = engine;
                    return None;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot start the worker's engine again");
                    let end = EngineEnd { code: FAULT, by_itself: false };
                    after = self.restarts.after(end, self.asked, boot_now(), random_share());
                }
            }
        }
    }

    /// Serves the engine until it has ended. Returns how, or nothing if the worker must leave at once.
    fn await_end(&mut self) -> Option<Option<WaitStatus>> {
        loop {
            let wanted = self.engine.link.wanted();
            if let Err(error) = wait_for(&self.signals, wanted, Some(&LOOK_FOR_ORPHANS)) {
                tracing::error!(%error, "guardian cannot poll for signals");
                return None;
            }
            self.take_signals();
            if self.asked.terminations >= 3 {
                return None;
            }
            self.engine.link.send_waiting();
            self.learn();
            if let Reaped::Engine(status) = self.reap() {
                return Some(status);
            }
            self.end_hung_engine();
            self.end_late_reporters();
            let reporters: Vec<Pid> = self.reporters.iter().map(Reporter::pid).collect();
            self.orphans.kill(self.engine.pid, &reporters);
        }
    }

    /// Notes the signals that came, and passes them on.
    fn take_signals(&mut self) {
        while let Some(number) = self.signals.next() {
            let event = if number == Signal::TERM.as_raw() || number == Signal::INT.as_raw() {
                self.asked.terminations += 1;
                self.last_termination = Some(boot_now());
                GuardianEvent::Terminate
            } else if number == Signal::TSTP.as_raw() {
                self.asked.quiet = true;
                GuardianEvent::Quiet
            } else if number == Signal::CONT.as_raw() {
                self.asked.quiet = false;
                GuardianEvent::Resume
            } else if number == Signal::HUP.as_raw() {
                // A worker does not end with its terminal.
                GuardianEvent::ReloadPacks
            } else {
                continue;
            };
            if self.asked.terminations < 3 {
                self.engine.link.send(event);
            }
        }
    }

    /// Kills an engine that does not end although the worker was asked to: its shims end their trees.
    fn end_hung_engine(&mut self) {
        let Some(asked) = self.last_termination else { return };
        let patience = match self.asked.terminations {
            0 | 1 => self.options.shutdown_timeout.saturating_add(OBEYS_MAX),
            _ => OBEYS_MAX,
        };
        let waited = elapsed(asked);
        if waited >= patience {
            self.last_termination = None;
            tracing::error!(?waited, "engine does not end: killing it");
            let _ = kill_process(self.engine.pid, Signal::KILL);
        }
    }

    /// Reads what the engine announced.
    fn learn(&mut self) {
        self.engine.link.receive();
        for worker in self.engine.link.take_identities() {
            // One that was announced again is the latest.
            self.followed.retain(|known| *known != worker);
            self.followed.push(worker);
        }
        let too_many = self.followed.len().saturating_sub(FOLLOWED_MAX);
        self.followed.drain(..too_many);
        if let Some(announced) = self.engine.link.announced() {
            if announced.drains {
                self.asked.by_server = ByServer::Drain;
            }
            self.asked.registered |= announced.worker.is_some();
        }
    }

    /// Collects every ended child; says how the engine ended if it was among them, or is not there
    /// any more.
    fn reap(&mut self) -> Reaped {
        let mut reaped = Reaped::Others;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.engine.pid => {
                    reaped = Reaped::Engine(Some(status));
                }
                Ok(Some((pid, _))) => self.reporters.retain(|reporter| reporter.pid() != pid),
                Err(Errno::INTR) => {}
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

    /// Clears up after the engine and decides what follows. An end without a goodbye is reported
    /// once it is certain that nothing of the engine runs, and never without that.
    fn engine_ended(&mut self, status: Option<WaitStatus>) -> After {
        // What it announced just before its end.
        self.learn();
        // A termination that comes from now on finds no engine.
        let asked = self.asked;
        let code = exit_code(status);
        let (program, args) = (&self.options.program, &self.options.reporter_args);
        // They would be in the way of the proof, and go on after it.
        let mut deaths: Vec<Death> = self.reporters.drain(..).map(Reporter::stop).collect();
        if !self.clear_up() {
            return After::Exit(FAULT);
        }
        let worker = self.engine.link.announced().and_then(|announced| announced.worker);
        if let (Some((code, why)), Some(worker)) = (early_end(status), worker) {
            deaths.push(Death { worker, code, why });
        }
        let started = deaths.into_iter().filter_map(|death| death::report(death, program, args));
        self.reporters = started.collect();
        let by_itself = status.is_some_and(|status| status.exit_status() == Some(code));
        let end = EngineEnd { code, by_itself };
        match self.restarts.after(end, asked, boot_now(), random_share()) {
            After::Restart(_) if self.asked.terminations > 0 => After::Exit(CLEAN),
            after => after,
        }
    }

    /// Waits until no child is left, killing what does not go by itself. True is proof that nothing
    /// of the dead engine runs; without it a clean end is none.
    fn clear_up(&mut self) -> bool {
        let began = boot_now();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => continue,
                Err(_) => return true,
                Ok(None) => {}
            }
            let waited = elapsed(began);
            if waited >= GONE_MAX || self.asked.terminations >= 3 {
                tracing::error!("processes of the engine are still running");
                return false;
            }
            if waited >= SHIMS_MAX {
                descendants::signal(getpid(), Signal::KILL);
            }
            if wait_for(&self.signals, None, Some(&LOOK_AGAIN)).is_err() {
                return false;
            }
            self.take_signals();
        }
    }

    /// Waits before the next start. False if the worker is to end instead.
    fn pause(&mut self, pause: Duration) -> bool {
        let began = boot_now();
        loop {
            let waited = elapsed(began);
            if self.asked.terminations > 0 {
                return false;
            }
            if waited >= pause {
                return true;
            }
            if wait_for(&self.signals, None, Some(&LOOK_AGAIN)).is_err() {
                return true;
            }
            self.take_signals();
            // Only the reporter can be among them.
            while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
                self.reporters.retain(|reporter| reporter.pid() != pid);
            }
        }
    }

    /// Kills reporters that take too long: the worker's lease decides.
    fn end_late_reporters(&mut self) {
        for late in self.reporters.extract_if(.., |reporter| reporter.is_late()) {
            late.stop();
        }
    }

    /// Ends with this code, after the last reports have had their time. A termination shortens that.
    fn leave(&mut self, code: i32) -> i32 {
        death::await_all(
            std::mem::take(&mut self.reporters),
            &self.signals,
            self.asked.terminations,
        );
        code
    }

    /// Leaves at once: the third signal. The shims see their engine die and end their trees.
    fn abandon(&self) -> i32 {
        let _ = kill_process(self.engine.pid, Signal::KILL);
        FAULT
    }
}

fn elapsed(since: BootTime) -> Duration {
    Duration::from_millis(boot_now().since(since).as_millis())
}

/// A number from 0 to 1, another one each time.
fn random_share() -> f64 {
    let drawn = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    f64::from(drawn) / f64::from(u32::MAX)
}

/// What was found among the children that ended.
#[derive(Clone, Copy)]
enum Reaped {
    /// Not the engine.
    Others,
    /// The engine, with how it ended if that is known.
    Engine(Option<WaitStatus>),
}

fn exit_code(status: Option<WaitStatus>) -> i32 {
    let Some(status) = status else {
        tracing::error!("engine ended, and it is not known how");
        return FAULT;
    };
    match status.exit_status() {
        Some(code @ (CLEAN | FAULT | USAGE | NOT_ALLOWED)) => code,
        Some(LEASE_OVER_EXIT_CODE) => {
            tracing::error!("engine ended itself: its lease was over");
            FAULT
        }
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
        (None, Some(CLEAN | USAGE | LEASE_OVER_EXIT_CODE)) => return None,
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
