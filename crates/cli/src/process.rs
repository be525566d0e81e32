//! Children of this program: its own roles, started as processes of their own.
//!
//! `dev`, `demo` and `bench` use it; the processes of a worker are the worker's own business. A child is
//! signalled through a pidfd, so a signal never reaches somebody who got its number later. Every
//! child has a process group of its own: a terminal's Ctrl-C reaches us alone, and we decide
//! the order. A child ends when we do, however that happens (see [`end_with`]).

mod lines;
mod tree;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::sync::watch;

pub(crate) use lines::Echo;
use lines::Lines;

use crate::exit::Failure;

/// How long the last lines of a child that ended may take; somebody else may hold its stderr.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug)]
pub(crate) struct Launch {
    /// What it is called in messages.
    pub(crate) name: String,
    /// Arguments of this program.
    pub(crate) args: Vec<OsString>,
    /// Where its log lines go.
    pub(crate) echo: Echo,
}

/// A running or ended child. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    pid: Pid,
    pidfd: OwnedFd,
    ended: watch::Receiver<Option<ExitStatus>>,
    lines: Lines,
}

impl Child {
    /// Starts a child. Must be called by the main thread: children end with their parent's
    /// thread, and the main one lives longest.
    pub(crate) fn start(launch: Launch) -> Result<Self, Failure> {
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
        let (tell, ended) = watch::channel(None);
        let pidfd = match pidfd {
            Ok(pidfd) => pidfd,
            Err(error) => {
                process.kill().and_then(|()| process.wait()).map_err(cannot)?;
                return Err(cannot(error.into()));
            }
        };
        std::thread::spawn(move || {
            // Nobody else waits for this child, so waiting can only succeed.
            let status = process.wait().unwrap_or_else(|_gone| ExitStatus::from_raw(0));
            tell.send_replace(Some(status));
        });
        Ok(Self { name, pid, pidfd, ended, lines })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a signal to the child itself; says nothing when it is gone already.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).unwrap_or_default();
    }

    /// Kills the child and its own children at one stroke, so that none of them can tell the
    /// server what happened to another.
    pub(crate) fn kill_with_children(&self) {
        for pid in tree::children(self.pid) {
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
        self.signal(Signal::KILL);
    }

    /// Kills its children and leaves it alone: of a worker, the engine but not the guardian.
    pub(crate) fn kill_children(&self) {
        for pid in tree::children(self.pid) {
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
    }

    /// Resident memory in KiB: its own, and that of its children.
    pub(crate) fn resident_kib(&self) -> (u64, u64) {
        let children = tree::children(self.pid);
        (tree::resident_kib(self.pid), children.into_iter().map(tree::resident_kib).sum())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        status.unwrap_or_default()
    }

    /// Waits until it has ended, but not longer than `limit`.
    pub(crate) async fn ended_within(&self, limit: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(limit, self.ended()).await.ok()
    }

    /// The address a server announces, as `http://ADDR`; `None` if it ended instead, and then its
    /// last words have been passed on.
    pub(crate) async fn address(&self, limit: Duration) -> Option<String> {
        let mut address = self.lines.address();
        let announced = tokio::time::timeout(limit, address.wait_for(Option::is_some));
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

    /// The last lines it logged.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.lines.last()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill_with_children();
        }
    }
}

/// Lets this process be told to stop when the process that started it ends.
pub(crate) fn end_with(parent: i32) -> Result<(), Failure> {
    let cannot =
        |reason: String| Failure::failed(format!("cannot watch process {parent}: {reason}"));
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| cannot(error.to_string()))?;
    // It may have ended before the line above.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if actual == parent { Ok(()) } else { Err(cannot("it is not there any more".to_owned())) }
}

/// How a process ended, in words.
pub(crate) fn worded(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}
