//! A shim as a child of the engine, whether it was forked by the spawner or executed.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use tokio::time::{sleep, timeout};

use super::sys;

/// How often a child is looked at that takes long to end.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A child that was not reaped yet: its number means no other process.
#[derive(Debug)]
pub(crate) struct ShimProcess(Pid);

impl ShimProcess {
    /// The child with this number.
    pub(crate) fn of(pid: Pid) -> Self {
        Self(pid)
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.0
    }

    /// Kills it and all processes of its group, which it leads.
    pub(crate) fn kill_group(&self) {
        self.kill();
        let _ = kill_process_group(self.0, Signal::KILL);
    }

    /// Kills it.
    pub(crate) fn kill(&self) {
        let _ = kill_process(self.0, Signal::KILL);
    }

    /// Waits until it has ended, and no longer than `patience`: one that hangs in the kernel is reaped
    /// when it goes.
    pub(crate) async fn reap(self, patience: Duration) {
        if self.has_ended() {
            return;
        }
        if let Ok(end) = sys::watch_end(self.0) {
            let _ = timeout(patience, end.readable()).await;
        }
        if !self.has_ended() {
            tokio::spawn(async move {
                while !self.has_ended() {
                    sleep(LOOK_AGAIN).await;
                }
            });
        }
    }

    /// Whether it has ended. It is reaped then.
    fn has_ended(&self) -> bool {
        !matches!(waitpid(Some(self.0), WaitOptions::NOHANG), Ok(None) | Err(Errno::INTR))
    }
}
