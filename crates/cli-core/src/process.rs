//! Servers and workers as child processes of this program.
//!
//! `dev`, `demo` and `bench` start them; the processes of a worker are in the worker crate. A child
//! is signalled through a pidfd, so a signal never reaches a process that got its id later. Every
//! child has its own process group: a terminal's Ctrl-C reaches only this process, which decides
//! the order. A child ends when this process does, however that happens (see [`end_with`]).

mod lines;
mod tree;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::sync::watch;

pub use lines::Echo;
use lines::Lines;

use crate::exit::Failure;

/// Longest time from the start of a server to its announcement.
const SERVER_START_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the last lines of a child that has ended: another process may hold its stderr.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug)]
pub struct Launch {
    /// Its name in messages.
    pub name: String,
    /// Arguments of this program.
    pub args: Vec<OsString>,
    /// Where its log lines go.
    pub echo: Echo,
}

impl Launch {
    /// A child whose log lines go to a file in `folder`.
    #[must_use]
    pub fn with_log_in(folder: &Path, name: &str, args: Vec<OsString>) -> Self {
        let echo = Echo::File(folder.join(format!("{name}.log")));
        Self { name: name.to_owned(), args, echo }
    }
}

/// A running or ended child. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: Pid,
    pidfd: OwnedFd,
    ended: watch::Receiver<Option<ExitStatus>>,
    lines: Lines,
}

impl Child {
    /// Starts a child. Must be called by the main thread: children end with their parent's
    /// thread, and the main one lives longest.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(launch: Launch) -> Result<Self, Failure> {
        let name = launch.name;
        let cannot =
            |error: std::io::Error| Failure::failed(format!("cannot start {name}: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "dev, demo and bench start this program's own roles; attempts are the worker's"
        )]
        let mut command = Command::new(program);
        let parent = rustix::process::getpid().as_raw_nonzero().to_string();
        command.arg("--parent").arg(parent).args(launch.args).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(cannot)?;
        let pid = Pid::from_child(&process);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let lines = Lines::read(process.stderr.take(), &launch.echo);
        let (report, ended) = watch::channel(None);
        let pidfd = match pidfd {
            Ok(pidfd) => pidfd,
            Err(error) => {
                process.kill().and_then(|()| process.wait()).map_err(cannot)?;
                return Err(cannot(error.into()));
            }
        };
        std::thread::spawn(move || {
            // This thread alone waits for the child, so waiting can only succeed.
            let status = process.wait().unwrap_or_else(|_gone| ExitStatus::from_raw(0));
            report.send_replace(Some(status));
        });
        Ok(Self { name, pid, pidfd, ended, lines })
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a signal to the child itself; does nothing if it has ended.
    pub fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).unwrap_or_default();
    }

    /// Kills the child and its own children at once, so that none of them can report to the server
    /// what happened to another.
    pub fn kill_with_children(&self) {
        for pid in tree::children(self.pid) {
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
        self.signal(Signal::KILL);
    }

    /// Kills only its children: of a worker, the engine but not the guardian.
    pub fn kill_children(&self) {
        for pid in tree::children(self.pid) {
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
    }

    /// Resident memory in KiB: its own, and that of its children.
    #[must_use]
    pub fn resident_kib(&self) -> (u64, u64) {
        let children = tree::children(self.pid);
        (tree::resident_kib(self.pid), children.into_iter().map(tree::resident_kib).sum())
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        status.unwrap_or_default()
    }

    /// Waits until it has ended, but not longer than `limit`.
    pub async fn ended_within(&self, limit: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(limit, self.ended()).await.ok()
    }

    /// Asks it to stop and waits until it has.
    ///
    /// # Errors
    /// When it does not end within `limit`, or not with exit code 0.
    pub async fn stop(&self, limit: Duration) -> Result<(), Failure> {
        self.signal(Signal::TERM);
        match self.ended_within(limit).await {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let how = worded(status);
                Err(Failure::failed(format!("{} ended with {how} when asked to stop", self.name)))
            }
            None => Err(Failure::failed(format!("{} did not stop", self.name))),
        }
    }

    /// The address that a server announces, as `http://ADDR`. `None` if it does not in time, or
    /// has ended; in that case its last lines have been passed on.
    pub async fn address(&self) -> Option<String> {
        let mut address = self.lines.address();
        let announced = tokio::time::timeout(SERVER_START_MAX, address.wait_for(Option::is_some));
        tokio::select! {
            found = announced => match found {
                Ok(Ok(found)) => return found.clone(),
                Ok(Err(_no_more_lines)) => {}
                Err(_too_late) => return None,
            },
            _ = self.ended() => {}
        }
        // The end of the process and that of its lines are seen by two threads.
        let both = async { tokio::join!(self.ended(), self.lines.all_read()) };
        tokio::time::timeout(LAST_WORDS_MAX, both).await.ok();
        None
    }

    /// Adds its last log lines to a failure.
    #[must_use]
    pub fn explain(&self, mut failure: Failure) -> Failure {
        let lines = self.lines.last();
        if !lines.is_empty() {
            let said = format!("\nlast lines of {}:\n{}", self.name, lines.join("\n"));
            failure.message.push_str(&said);
        }
        failure
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill_with_children();
        }
    }
}

/// Makes this process end when the process that started it does.
///
/// # Errors
/// When `parent` is not, or no longer, the parent of this process.
pub fn end_with(parent: i32) -> Result<(), Failure> {
    let cannot =
        |reason: String| Failure::failed(format!("cannot watch process {parent}: {reason}"));
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| cannot(error.to_string()))?;
    // It may have ended before the line above.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if actual == parent { Ok(()) } else { Err(cannot("it has ended".to_owned())) }
}

/// How a process ended, in words.
#[must_use]
pub fn worded(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}
