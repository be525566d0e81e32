//! Holding a tree without a namespace: in a cgroup, or by being its subreaper.
//!
//! Both make the shim a subreaper, so that orphans come to it and can be reaped. A cgroup
//! also holds when the shim is killed; the engine then ends the group itself.

use std::path::PathBuf;

use rustix::process::{getpid, set_child_subreaper};

use super::channel::Channel;
use super::job;
use super::oom::OomWatch;
use super::supervise::{Signs, Watch};
use super::tree::Tree;
use crate::process::cgroup::Group;
use crate::process::protocol::{Report, ShimSpec};

pub(super) fn run_in_cgroup(mut channel: Channel, spec: ShimSpec, folder: PathBuf) -> i32 {
    let group = match Group::create(folder) {
        Ok(group) => group,
        Err(error) => return refuse(&channel, format!("cannot make a cgroup: {error}")),
    };
    let code = run(&mut channel, &spec, Some(&group));
    group.remove();
    channel.report(&Report::Empty);
    code
}

pub(super) fn run_under_subreaper(mut channel: Channel, spec: ShimSpec) -> i32 {
    let code = run(&mut channel, &spec, None);
    channel.report(&Report::Empty);
    code
}

fn run(channel: &mut Channel, spec: &ShimSpec, group: Option<&Group>) -> i32 {
    match supervise(channel, spec, group) {
        Ok(()) => 0,
        Err(reason) => {
            channel.report(&Report::SpawnFailed { reason });
            1
        }
    }
}

fn supervise(channel: &mut Channel, spec: &ShimSpec, group: Option<&Group>) -> Result<(), String> {
    set_child_subreaper(Some(getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    let signs = Signs::new(spec.deadline_boot_ms)
        .map_err(|error| format!("cannot watch for signals: {error}"))?;
    let entrance = group
        .map(Group::entrance)
        .transpose()
        .map_err(|error| format!("cannot enter the cgroup: {error}"))?;
    let oom = OomWatch::start(group.map(Group::folder));
    let job = job::start(spec, entrance)?;
    channel.report(&Report::Started { pid: Some(job.as_raw_nonzero().get()) });
    let tree = match group {
        Some(group) => Tree::Group(group.clone()),
        None => Tree::Descendants { job: Some(job) },
    };
    let mut watch = Watch::new(channel, signs, (tree, job), oom, None);
    // Neither can fail but for want of kernel memory; the tree must end all the same.
    let _ = watch.until_main_ends();
    let _ = watch.until_empty();
    Ok(())
}

fn refuse(channel: &Channel, reason: String) -> i32 {
    channel.report(&Report::SpawnFailed { reason });
    channel.report(&Report::Empty);
    1
}
