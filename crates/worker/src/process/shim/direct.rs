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
use super::groups::{self, Half, LimitGroups};
use super::meter::Meter;
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
        Err(error) => channel.refuse(StartFailure::cannot("make a cgroup", error)),
    }
}

pub(super) fn run_under_subreaper(channel: Channel, spec: &ShimSpec) -> i32 {
    run(channel, spec, None)
}

fn run(channel: Channel, spec: &ShimSpec, group: Option<Group>) -> i32 {
    let limits = match LimitGroups::create(&spec.limits) {
        Ok(limits) => limits,
        Err(failure) => {
            if let Some(group) = group {
                group.remove();
            }
            return channel.refuse(failure);
        }
    };
    let groups = group.iter().chain(limits.as_slice()).cloned().collect();
    match run_halves(channel, spec, &Held { group, groups }) {
        Half::Outer(code) => {
            limits.remove();
            code
        }
        Half::Inner(code) => code,
    }
}

/// What a tree is held in.
struct Held {
    /// The group that contains it.
    group: Option<Group>,
    /// That and those that limit it.
    groups: Vec<Group>,
}

fn run_halves(mut channel: Channel, spec: &ShimSpec, held_in: &Held) -> Half {
    let group = held_in.group.as_ref();
    let prepared = become_subreaper().and_then(|()| io::pipe());
    let forked = prepared.and_then(|lifeline| Ok((lifeline, sys::fork()?)));
    match forked {
        Ok(((lifeline, held), Fork::Child)) => {
            drop(held);
            Half::Inner(inner_main(&mut channel, spec, held_in, lifeline.into()))
        }
        Ok(((lifeline, held), Fork::Parent(inner))) => {
            drop(lifeline);
            handover::close_to_others();
            let _ = job::let_go_of_stdio();
            let tree = tree_of(group, None);
            outer::keep(&channel, inner, Some(&tree), None);
            drop(held);
            if let Some(group) = group {
                group.remove();
            }
            channel.report(&Report::Empty);
            Half::Outer(0)
        }
        Err(error) => {
            if let Some(group) = group {
                group.remove();
            }
            Half::Outer(channel.refuse(StartFailure::cannot("hold a process tree", error)))
        }
    }
}

fn inner_main(channel: &mut Channel, spec: &ShimSpec, held_in: &Held, lifeline: OwnedFd) -> i32 {
    match supervise(channel, spec, held_in, lifeline) {
        Ok(Watched::MainEnded) => 0,
        Ok(Watched::Orphaned) => {
            held_in.groups.iter().for_each(Group::remove);
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
    held_in: &Held,
    lifeline: OwnedFd,
) -> Result<Watched, StartFailure> {
    let group = held_in.group.as_ref();
    become_subreaper().map_err(|error| StartFailure::cannot("become a subreaper", error))?;
    let signs = Signs::new(spec.deadline_boot_ms)
        .map_err(|error| StartFailure::cannot("watch for signals", error))?;
    let entrances = groups::entrances(&held_in.groups)?;
    let meter = Meter::start(&spec.limits, &held_in.groups);
    channel.report(&Report::Starting);
    let job = job::start(spec, entrances)?;
    channel.report(&Report::Started { pid: Some(job.as_raw_nonzero().get()) });
    let tree = tree_of(group, Some(job));
    let mut watch =
        Watch::new(channel, signs, Processes { tree, main: job }, meter, Some(lifeline));
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
