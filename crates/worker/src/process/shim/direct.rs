//! Holding a tree without a namespace: in a cgroup, or by being its subreaper.
//!
//! ```text
//! outer (waits) ──fork──▶ inner (serves the engine) ──fork──▶ job ──▶ …
//! ```
//!
//! Both halves are subreapers, so that orphans come to one of them and can be reaped. A job has
//! the rights to kill or stop its shim here. A half that is killed leaves the tree to the other;
//! one that is stopped is killed by the other when the engine is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Pid, getpid, set_child_subreaper};

use super::channel::Channel;
use super::oom::OomWatch;
use super::supervise::{Processes, Signs, Watch, Watched};
use super::tree::Tree;
use super::{job, outer};
use crate::process::cgroup::Group;
use crate::process::handover;
use crate::process::protocol::{Report, ShimSpec, StartFailure};
use crate::process::sys::{self, Fork};

pub(super) fn run_in_cgroup(channel: Channel, spec: &ShimSpec, folder: PathBuf) -> i32 {
    match Group::create(folder) {
        Ok(group) => run(channel, spec, Some(group)),
        Err(error) => refuse(&channel, &StartFailure::cannot("make a cgroup", error)),
    }
}

pub(super) fn run_under_subreaper(channel: Channel, spec: &ShimSpec) -> i32 {
    run(channel, spec, None)
}

fn run(mut channel: Channel, spec: &ShimSpec, group: Option<Group>) -> i32 {
    let prepared = become_subreaper().and_then(|()| io::pipe());
    let forked = prepared.and_then(|lifeline| Ok((lifeline, sys::fork()?)));
    match forked {
        Ok(((lifeline, held), Fork::Child)) => {
            drop(held);
            inner_main(&mut channel, spec, group, lifeline.into())
        }
        Ok(((lifeline, held), Fork::Parent(inner))) => {
            drop(lifeline);
            handover::close_to_others();
            let _ = job::let_go_of_stdio();
            let tree = tree_of(group.as_ref(), None);
            outer::keep(&channel, inner, Some(&tree));
            drop(held);
            if let Some(group) = group {
                group.remove();
            }
            channel.report(&Report::Empty);
            0
        }
        Err(error) => {
            if let Some(group) = group {
                group.remove();
            }
            refuse(&channel, &StartFailure::cannot("hold a process tree", error))
        }
    }
}

fn inner_main(
    channel: &mut Channel,
    spec: &ShimSpec,
    group: Option<Group>,
    lifeline: OwnedFd,
) -> i32 {
    match supervise(channel, spec, group.as_ref(), lifeline) {
        Ok(Watched::MainEnded) => 0,
        Ok(Watched::Orphaned) => {
            if let Some(group) = group {
                group.remove();
            }
            channel.report(&Report::Empty);
            1
        }
        Err(failure) => {
            channel.report(&Report::SpawnFailed(failure));
            1
        }
    }
}

fn supervise(
    channel: &mut Channel,
    spec: &ShimSpec,
    group: Option<&Group>,
    lifeline: OwnedFd,
) -> Result<Watched, StartFailure> {
    become_subreaper().map_err(|error| StartFailure::cannot("become a subreaper", error))?;
    let signs = Signs::new(spec.deadline_boot_ms)
        .map_err(|error| StartFailure::cannot("watch for signals", error))?;
    let entrance = group
        .map(Group::entrance)
        .transpose()
        .map_err(|error| StartFailure::cannot("enter the cgroup", error))?;
    let oom = OomWatch::start(group.map(Group::folder));
    channel.report(&Report::Starting);
    let job = job::start(spec, entrance)?;
    channel.report(&Report::Started { pid: Some(job.as_raw_nonzero().get()) });
    let tree = tree_of(group, Some(job));
    let mut watch = Watch::new(channel, signs, Processes { tree, main: job }, oom, Some(lifeline));
    // Neither can fail but for want of kernel memory; the tree must end all the same.
    let watched = watch.until_main_ends().unwrap_or(Watched::MainEnded);
    let _ = watch.until_empty();
    Ok(watched)
}

fn tree_of(group: Option<&Group>, job: Option<Pid>) -> Tree {
    group.map_or(Tree::Descendants { job }, |group| Tree::Group(group.clone()))
}

fn become_subreaper() -> io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

fn refuse(channel: &Channel, failure: &StartFailure) -> i32 {
    channel.report(&Report::SpawnFailed(failure.clone()));
    channel.report(&Report::Empty);
    1
}
