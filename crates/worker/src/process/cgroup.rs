//! Just enough of cgroups: where this process is, and child groups of attempts.
//!
//! A hybrid layout mounts the unified hierarchy (version 2) beside the old ones (version 1), so
//! places are looked up and never assumed.
//!
//! - `delegated`: a group that was handed to the worker, made ready to limit attempts

pub(crate) mod delegated;

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, getpid, kill_process};

/// How the name of every attempt's group begins.
const PREFIX: &str = "outlast-";

/// Finds the worker's group in the unified hierarchy: its process is there, or in
/// [`delegated::LEAF`] below it.
pub(crate) fn own_folder() -> io::Result<PathBuf> {
    let folder = process_folder()?;
    Ok(match folder.parent() {
        Some(parent) if folder.ends_with(delegated::LEAF) => parent.to_owned(),
        _ => folder,
    })
}

/// Finds the group of this process itself.
pub(crate) fn process_folder() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let mount = mount_of(&mounts, "cgroup2", None)
        .ok_or_else(|| io::Error::other("no cgroup v2 hierarchy is mounted"))?;
    let path = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or_else(|| io::Error::other("this process is in no cgroup v2 group"))?;
    Ok(mount.join(path.trim_start_matches('/')))
}

/// Names the groups of one engine, before their number: `outlast-NAMESPACE-PID-START-`. A
/// process id alone comes round again, and means nothing in another PID namespace.
pub(crate) fn own_prefix() -> io::Result<String> {
    let own = Owner::of_process(getpid().as_raw_nonzero().get())?;
    Ok(format!("{PREFIX}{}-{}-{}-", own.namespace, own.pid, own.start))
}

/// Every group in `folder` whose name begins so.
pub(crate) fn named(folder: &Path, prefix: &str) -> Vec<Group> {
    let found = subfolders(folder).into_iter().filter(|folder| {
        let name = folder.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(prefix)
    });
    found.map(Group::at).collect()
}

/// Every folder in which attempts may have groups.
pub(crate) fn folders() -> Vec<PathBuf> {
    let old = ["memory", "cpu", "pids"].into_iter().filter_map(old_folder);
    own_folder().into_iter().chain(old).collect()
}

/// Every group beside ours whose engine is dead.
pub(crate) fn orphans() -> Vec<Group> {
    let mut found: Vec<Group> = folders().iter().flat_map(|folder| named(folder, PREFIX)).collect();
    found.retain(|group| {
        let name = group.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Owner::of_group(&name).is_some_and(|owner| owner.is_dead())
    });
    found
}

/// The engine that made a group.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    namespace: u64,
    pid: i32,
    start: u64,
}

impl Owner {
    fn of_process(pid: i32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may hold anything; the start is the 22nd field of all.
        let start = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok())
            .ok_or_else(|| io::Error::other("a process without a start"))?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        Ok(Self { namespace, pid, start })
    }

    fn of_group(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix(PREFIX)?.split('-');
        let namespace = numbers.next()?.parse().ok()?;
        let (pid, start) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        numbers.next().filter(|_| numbers.next().is_none())?;
        Some(Self { namespace, pid, start })
    }

    /// Whether it is known to be dead: of another namespace nothing is known from here.
    fn is_dead(&self) -> bool {
        match Self::of_process(self.pid) {
            Ok(living) => living.namespace == self.namespace && living != *self,
            Err(error) => {
                let here = fs::metadata("/proc/self/ns/pid").map(|about| about.ino());
                error.kind() == io::ErrorKind::NotFound
                    && here.is_ok_and(|here| here == self.namespace)
            }
        }
    }
}

/// Returns the files in which the memory controller may count OOM kills of our own group.
pub(crate) fn memory_counter_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    // Not of the group above it, which counts what happens to attempts with limits, too.
    if let Ok(folder) = process_folder() {
        files.push(folder.join("memory.events"));
    }
    files.extend(old_folder("memory").map(|folder| folder.join("memory.oom_control")));
    files
}

/// Finds this process's own group in the old hierarchy of a controller.
pub(crate) fn old_folder(controller: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mount = mount_of(&mounts, "cgroup", Some(controller))?;
    let path = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    Some(mount.join(path.trim_start_matches('/')))
}

/// Where cgroups are mounted, of either version.
pub(crate) fn mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_cgroups = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split(' ').next()?;
        let place = before.split(' ').nth(4)?;
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(place))
    });
    of_cgroups.collect()
}

/// Finds a mount point by file system type and, for the old hierarchies, controller.
fn mount_of(mountinfo: &str, kind: &str, controller: Option<&str>) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let options = (after.next()? == kind).then(|| after.nth(1))??;
        let wanted = controller.is_none_or(|name| options.split(',').any(|option| option == name));
        wanted.then(|| before.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// One attempt's group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes the group, empty.
    pub(crate) fn create(folder: PathBuf) -> io::Result<Self> {
        let group = Self { folder };
        match fs::create_dir(&group.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Left by an engine that was killed and had our number. Only an empty group
                // can be removed, so nothing living is taken over.
                group.remove();
                fs::create_dir(&group.folder)?;
            }
            other => other?,
        }
        Ok(group)
    }

    /// Names a group that a shim made.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens the file through which a process joins by writing `0`.
    pub(crate) fn entrance(&self) -> io::Result<OwnedFd> {
        let file = fs::File::options().write(true).open(self.folder.join("cgroup.procs"))?;
        Ok(OwnedFd::from(file))
    }

    /// Kills every process in the group and below, forks under way included. Absent before Linux
    /// 5.14, and in old hierarchies.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.set("cgroup.kill", "1")
    }

    /// Writes to a file of the group. One that the kernel does not know is refused, and not created.
    pub(crate) fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let mut file = fs::File::options().write(true).open(self.folder.join(file))?;
        file.write_all(value.as_bytes())
    }

    /// Kills them one by one, where there is no such file. Callers repeat until it is empty.
    pub(crate) fn kill_members(&self) {
        for pid in self.members().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Lists the processes in the group and the groups the job may have made below it.
    pub(crate) fn members(&self) -> Vec<i32> {
        let mut folders = vec![self.folder.clone()];
        let mut members = Vec::new();
        while let Some(folder) = folders.pop() {
            let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            members.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
            folders.extend(subfolders(&folder));
        }
        members
    }

    /// Says whether nothing lives in it. A group that is gone holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match fs::read_to_string(self.folder.join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            // An old group has no such file.
            Err(error) => error.kind() == io::ErrorKind::NotFound && self.members().is_empty(),
        }
    }

    /// Removes the empty group and what the job made below it, best effort.
    pub(crate) fn remove(&self) {
        fn remove_below(folder: &Path) {
            for child in subfolders(folder) {
                remove_below(&child);
            }
            // A group that is still busy stays, until an engine of that number needs the name.
            let _ = fs::remove_dir(folder);
        }
        remove_below(&self.folder);
    }
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests;
