//! Ending a tree whose shim cannot, and proving that it ended.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout_at};

use crate::process::cgroup::Group;
use crate::process::protocol::ContainedIn;
use crate::process::sys;

/// How often a cgroup without a shim is polled.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What the engine itself can do about a tree, past its shim.
pub(super) enum TreeHandle {
    /// The namespace's first process. It is waited for like any process, and its end is
    /// announced only after the kernel ended everything in the namespace.
    Namespace {
        init: Option<AsyncFd<OwnedFd>>,
    },
    Group(Group),
    /// Only the job's own group is known; a process may have left that.
    Session {
        job: Option<Pid>,
    },
}

impl TreeHandle {
    pub(super) fn new(contained_in: &ContainedIn) -> Self {
        match contained_in {
            ContainedIn::Pidns => Self::Namespace { init: None },
            ContainedIn::Cgroup { folder } => Self::Group(Group::at(folder.clone())),
            ContainedIn::Subreaper => Self::Session { job: None },
        }
    }

    /// Says whether the job can kill its shim, which outside a namespace runs as its own user.
    pub(super) fn is_in_reach(&self) -> bool {
        match self {
            Self::Namespace { .. } => false,
            Self::Group(_) | Self::Session { .. } => true,
        }
    }

    /// Learns the first process of the namespace.
    pub(super) fn learn_init(&mut self, pid: i32) {
        if let Self::Namespace { init } = self {
            // The shim has only just sent this number, and has not reaped it unless it died
            // within microseconds; a number does not come round again that fast.
            *init = Pid::from_raw(pid).and_then(|pid| sys::watch_end(pid).ok());
        }
    }

    /// Has it watched already.
    pub(super) fn watch_init(&mut self, watched: Option<AsyncFd<OwnedFd>>) {
        if let (Self::Namespace { init }, Some(watched)) = (self, watched) {
            *init = Some(watched);
        }
    }

    /// Learns the job's main process.
    pub(super) fn learn_job(&mut self, pid: Option<i32>) {
        if let Self::Session { job } = self {
            *job = pid.and_then(Pid::from_raw);
        }
    }

    /// Forgets the job's number, which may become another's.
    pub(super) fn main_ended(&mut self) {
        if let Self::Session { job } = self {
            *job = None;
        }
    }

    /// Sends SIGKILL to what can be reached.
    pub(super) fn kill(&self) {
        match self {
            Self::Namespace { init: Some(init) } => {
                let _ = pidfd_send_signal(init.get_ref(), Signal::KILL);
            }
            Self::Group(group) => {
                let _ = group.kill();
            }
            Self::Session { job: Some(job) } => {
                let _ = kill_process_group(*job, Signal::KILL);
            }
            Self::Namespace { init: None } | Self::Session { job: None } => {}
        }
    }

    /// Kills, then waits until the tree is seen to be empty; false without proof by then.
    pub(super) async fn prove_empty(&self, by: Instant) -> bool {
        self.kill();
        match self {
            Self::Namespace { init: Some(init) } => {
                timeout_at(by, init.readable()).await.is_ok_and(|ready| ready.is_ok())
            }
            Self::Group(group) => {
                let emptied = async {
                    while !group.is_empty() {
                        sleep(LOOK_AGAIN).await;
                    }
                };
                let proved = timeout_at(by, emptied).await.is_ok();
                group.remove();
                proved
            }
            Self::Namespace { init: None } | Self::Session { .. } => false,
        }
    }
}
