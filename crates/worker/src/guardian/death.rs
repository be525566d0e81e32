//! Reporting the death of an engine, once nothing of it is left.
//!
//! ```text
//! guardian: no child left ──identity, evidence──▶ reporter (this program) ──▶ server
//! ```
//!
//! The guardian does no network, so a child process does it for a few seconds, while the next engine
//! starts. If the report does not get through, the worker's lease decides, as it would without any
//! report.

use std::ffi::OsString;
use std::io::{self, BufRead as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::time::BootTime;
use outlast_sdk::{EvidenceCode, Tls, WorkerDeath};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, wait};

use super::{pid_of, wait_for};
use crate::OwnProgram;
use crate::clock::boot_now;
use crate::process::sys;

/// How long the server is tried.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// How long the reporter may take beyond that before it is killed.
const EXIT_MAX: Duration = Duration::from_secs(2);

/// How long a report may take once the worker is to end.
const REPORT_IN_THE_WAY_MAX: Duration = Duration::from_secs(2);

/// How often the guardian looks whether it should stop waiting.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What the guardian knows of an engine's death.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) worker: WorkerId,
    pub(super) code: EvidenceCode,
    pub(super) why: String,
}

/// A child process that reports a death.
#[derive(Debug)]
pub(super) struct Reporter {
    death: Death,
    child: Child,
    pid: Pid,
    began: BootTime,
}

/// Has the death reported by a child process.
pub(super) fn report(death: Death, program: &OwnProgram, args: &[OsString]) -> Option<Reporter> {
    match start(&death, program, args).and_then(|child| Ok((pid_of(&child)?, child))) {
        Ok((pid, child)) => Some(Reporter { death, child, pid, began: boot_now() }),
        Err(error) => {
            tracing::warn!(%error, "cannot report the engine's death to the server");
            None
        }
    }
}

fn start(death: &Death, program: &OwnProgram, args: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new(program.path());
    command.args(args).stdin(Stdio::piped());
    sys::start_in_own_session(&mut command);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Short lines: they fit into the pipe, whether or not it is read.
        writeln!(stdin, "{}\n{}\n{}", death.worker, death.code.as_str(), death.why)?;
    }
    Ok(child)
}

impl Reporter {
    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has had its time.
    pub(super) fn is_late(&self) -> bool {
        self.has_run_for(REPORT_MAX + EXIT_MAX)
    }

    fn has_run_for(&self, limit: Duration) -> bool {
        Duration::from_millis(boot_now().since(self.began).as_millis()) >= limit
    }

    /// Ends it. Returns what it may not have reported.
    pub(super) fn stop(mut self) -> Death {
        // It may have exited by now.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.death
    }
}

/// Waits for the end of all as long as that may help. `terminations` came before this: a further one
/// ends the wait, and any one leaves them little time.
pub(super) fn await_all(mut reporters: Vec<Reporter>, signals: &sys::SignalFd, terminations: u32) {
    let mut limit = if terminations > 0 { REPORT_IN_THE_WAY_MAX } else { REPORT_MAX + EXIT_MAX };
    let mut asked = 0;
    while !reporters.is_empty() {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => {
                reporters.retain(|reporter| reporter.pid != pid);
                continue;
            }
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(None) => {}
        }
        for late in reporters.extract_if(.., |reporter| reporter.has_run_for(limit)) {
            late.stop();
        }
        if asked > 1 || wait_for(signals, None, Some(&LOOK_AGAIN)).is_err() {
            reporters.drain(..).for_each(|reporter| drop(reporter.stop()));
            return;
        }
        while let Some(number) = signals.next() {
            if number == Signal::TERM.as_raw() || number == Signal::INT.as_raw() {
                limit = limit.min(REPORT_IN_THE_WAY_MAX);
                asked += 1;
            }
        }
    }
}

/// Runs the reporter: reads from standard input what the guardian knows, and tells the server.
///
/// # Errors
/// Returns why the server could not be told.
pub async fn report_to(server: &str, token: Option<String>, tls: &Tls) -> Result<(), String> {
    let mut lines = io::stdin().lock().lines().map_while(Result::ok);
    let worker = lines.next().and_then(|line| line.parse().ok()).map(WorkerId);
    let worker = worker.ok_or("no guardian has said which worker died")?;
    let code = lines.next().and_then(|line| EvidenceCode::parse(&line));
    let code = code.unwrap_or(EvidenceCode::EngineKilled);
    let death = WorkerDeath { worker, code, why: lines.next().unwrap_or_default() };
    let reported = outlast_sdk::report_death(server, token, tls, &death, REPORT_MAX).await;
    reported.map_err(|error| error.to_string())?;
    tracing::info!("reported the death of worker {worker}: its jobs can run elsewhere");
    Ok(())
}
