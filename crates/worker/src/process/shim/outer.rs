//! The outer half of a shim. It starts nothing and obeys nothing: it is there for the case that
//! the inner half, which serves the engine and holds the job, is killed or stopped by its job. Where the
//! shim was there before its attempt, it also makes the groups of that.
//!
//! ```text
//! engine ──▶ outer (waits) ──fork──▶ inner (serves the engine) ──▶ job ──▶ …
//! ```
//!
//! When the inner half ended, whatever is left of the tree is the outer half's to end. When the
//! engine is gone and the inner half does not end by itself, it is killed.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::channel::Channel;
use super::groups::Desk;
use super::supervise::wait_on;
use super::tree::Tree;
use crate::clock::boot_now;
use crate::process::pace::Pace;
use crate::process::sys::SignalFd;

/// How long the inner half has to end its tree and itself when the engine is gone.
const INNER_MAX_MS: u64 = 300;

/// Waits until the inner half has ended, and nothing of `tree` is left. Without a tree the
/// kernel ends it with the inner half.
pub(super) fn keep(
    channel: &Channel,
    inner: Pid,
    tree: Option<&Tree>,
    mut desk: Option<&mut Desk>,
) {
    let mut outer = Supervisor { inner: Some(inner), engine_gone: false, pace: Pace::new() };
    // Without it, which only a host out of memory brings about, it looks from time to time.
    let children = SignalFd::new(&[Signal::CHILD]).ok();
    let mut gone_at = None;
    loop {
        let children_left = outer.reap();
        if outer.inner.is_none() {
            match tree {
                Some(tree) if !tree.is_empty(children_left) => tree.kill(),
                Some(_) | None => return,
            }
        }
        if outer.engine_gone {
            let gone_at = *gone_at.get_or_insert_with(boot_now);
            if boot_now().since(gone_at).as_millis() >= INNER_MAX_MS {
                outer.kill_inner();
                tree.into_iter().for_each(Tree::kill);
            }
        }
        outer.wait(channel, children.as_ref(), desk.as_deref_mut());
    }
}

struct Supervisor {
    inner: Option<Pid>,
    engine_gone: bool,
    pace: Pace,
}

impl Supervisor {
    /// Collects every ended child; says whether any is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => self.inner = self.inner.filter(|inner| *inner != pid),
                Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => {
                    self.inner = None;
                    return false;
                }
            }
        }
    }

    /// Works on a stopped or traced process too.
    fn kill_inner(&self) {
        if let Some(inner) = self.inner {
            let _ = kill_process(inner, Signal::KILL);
        }
    }

    fn wait(&mut self, channel: &Channel, children: Option<&SignalFd>, desk: Option<&mut Desk>) {
        let mut fds = Vec::new();
        if let Some(children) = children {
            fds.push(PollFd::new(children, PollFlags::IN));
        }
        let at = fds.len();
        if !self.engine_gone {
            // What the engine says is for the inner half; that it has stopped speaking is for both.
            fds.push(PollFd::new(channel, PollFlags::RDHUP));
        }
        let of_desk = fds.len();
        if let Some(socket) = desk.as_ref().and_then(|desk| desk.socket()) {
            fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        }
        let busy = self.engine_gone || self.inner.is_none() || children.is_none();
        let pause: Option<Timespec> = busy.then(|| self.pace.next());
        if wait_on(&mut fds, pause.as_ref()).is_err() {
            return;
        }
        let fired = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (engine_gone, is_asked) = (at < of_desk && fired(at), fired(of_desk));
        self.engine_gone |= engine_gone;
        if let Some(desk) = desk.filter(|_| is_asked) {
            desk.serve();
        }
        while children.is_some_and(|children| children.next().is_some()) {}
    }
}
