//! Making a group of version 2 that was handed to the worker ready to limit attempts.
//!
//! The kernel lets a group limit its children only if no process is in the group itself. So the
//! guardian moves into a child of its own before it starts anything:
//!
//! ```text
//! outlast.service (memory, cpu, pids for its children)
//!   ├─ outlast-worker        guardian, engine, shims
//!   └─ outlast-…             one for each attempt with limits
//! ```
//!
//! This is only done where the group is the worker's to arrange: systemd marks one that it delegates
//! (`Delegate=yes`), and a container with a cgroup namespace of its own has one as its root.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::process::{Pid, geteuid, getpid, getppid};

use super::{Group, own_folder, process_folder};

/// The group of the worker's own processes.
pub(crate) const LEAF: &str = "outlast-worker";

/// What attempts are limited by.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// Attributes by which systemd marks a group that it has delegated.
const MARKS: [&str; 2] = ["trusted.delegate", "user.delegate"];

/// Moves this process, and one in front of it, out of the way of limits. Without a group of its own
/// everything stays as it is. Call before any child is started.
pub(crate) fn arrange() {
    if let Err(error) = try_arrange() {
        tracing::debug!("cgroup v2 cannot limit attempts here: {error}");
    }
}

fn try_arrange() -> io::Result<()> {
    let own = process_folder()?;
    if own.ends_with(LEAF) || !is_ours(&own) || offered(&own).is_empty() {
        return Ok(());
    }
    let members = Group::at(own.clone()).members();
    let own_pid = getpid();
    if members
        .iter()
        .any(|pid| Pid::from_raw(*pid).is_none_or(|pid| pid != own_pid && Some(pid) != getppid()))
    {
        return Err(io::Error::other("other processes are in the group"));
    }
    let leaf = Group::at(own.join(LEAF));
    match fs::create_dir(leaf.folder()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let entrance = leaf.folder().join("cgroup.procs");
    for pid in members {
        fs::write(&entrance, pid.to_string())?;
    }
    for controller in offered(&own) {
        // One that is refused leaves the others.
        let _ = fs::write(own.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    // The engine must not wait for processors behind the jobs beside it.
    let _ = fs::write(leaf.folder().join("cpu.weight"), "10000");
    Ok(())
}

/// Whether the group was delegated, belongs to this user, or is the root of a namespace, which has a type unlike the root
/// of the host.
fn is_ours(own: &Path) -> bool {
    let is_marked = |name| {
        let mut value = [0_u8; 8];
        getxattr(own, name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    };
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_root = groups.lines().any(|line| line == "0::/") && own.join("cgroup.type").exists();
    // Before version 251 systemd marked it for root alone.
    let is_given = || {
        let user = geteuid();
        !user.is_root() && fs::metadata(own).is_ok_and(|about| about.uid() == user.as_raw())
    };
    MARKS.into_iter().any(is_marked) || is_root || is_given()
}

fn offered(own: &Path) -> Vec<&'static str> {
    CONTROLLERS.into_iter().filter(|name| names(own, "cgroup.controllers", name)).collect()
}

/// Whether children of the worker's group can be limited by a controller.
pub(crate) fn limits_by(controller: &str) -> bool {
    own_folder().is_ok_and(|own| names(&own, "cgroup.subtree_control", controller))
}

/// Whether a file of the group names a controller.
fn names(own: &Path, file: &str, controller: &str) -> bool {
    let names = fs::read_to_string(own.join(file)).unwrap_or_default();
    names.split_whitespace().any(|name| name == controller)
}
