//! The tree as a thing that can be signalled and seen to be empty, whatever holds it.

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use crate::process::cgroup::Group;
use crate::process::descendants;
use crate::process::sys;

pub(super) enum Tree {
    /// We are the first process of a PID namespace: the tree is everybody else in it.
    Namespace,
    /// The tree is a cgroup's members, and what has left it but still descends from us.
    Group(Group),
    /// We are a subreaper: the tree is whatever descends from us. A process can hide only by
    /// killing us first. `job` is its main process until that is reaped.
    Descendants { job: Option<Pid> },
}

impl Tree {
    /// Asks every process to end, and wakes stopped ones so that they can.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Ends every process there is at this moment; callers repeat until it is empty.
    pub(super) fn kill(&self) {
        if let Self::Group(group) = self {
            // Absent before Linux 5.14; then the members are signalled one by one below.
            let _ = group.kill();
        }
        self.signal(Signal::KILL);
    }

    /// Forgets the main process's number: once reaped it may become a stranger's.
    pub(super) fn main_process_reaped(&mut self) {
        if let Self::Descendants { job } = self {
            *job = None;
        }
    }

    /// Returns whether the tree is empty, given whether a child is left.
    pub(super) fn is_empty(&self, children_left: bool) -> bool {
        match self {
            Self::Group(group) => !children_left && group.is_empty(),
            Self::Namespace | Self::Descendants { .. } => !children_left,
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Self::Namespace => sys::kill_namespace(signal),
            Self::Group(group) => {
                for pid in group.members().into_iter().filter_map(Pid::from_raw) {
                    let _ = kill_process(pid, signal);
                }
                descendants::signal(getpid(), signal);
            }
            Self::Descendants { job } => {
                // The group first, in one call that no fork can dodge.
                if let Some(job) = job {
                    let _ = kill_process_group(*job, signal);
                }
                descendants::signal(getpid(), signal);
            }
        }
    }
}
