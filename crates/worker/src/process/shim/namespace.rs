//! Holding a tree in a PID namespace, the strongest containment there is.
//!
//! ```text
//! outer (waits) ──fork──▶ inner: pid 1 of the namespace ──fork──▶ job ──▶ …
//! ```
//!
//! The inner process serves the engine. When it ends, for whatever reason, the kernel kills
//! everything in the namespace and lets the outer's wait return only after that: the wait
//! is the proof that the tree is empty. The inner dies with the outer: by the lifeline pipe
//! between them and by the parent-death signal, which is sound here because the outer has
//! one thread.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Access, CWD, Mode, OFlags, access, mkdirat, open, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_change, mount_remount, move_mount, open_tree,
};
use rustix::process::{Pid, Signal, getegid, geteuid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use super::channel::Channel;
use super::groups::{self, Half, LimitGroups};
use super::job;
use super::meter::Meter;
use super::outer;
use super::supervise::{Processes, Signs, Watch};
use super::tree::Tree;
use crate::process::cgroup::{self, Group};
use crate::process::handover;
use crate::process::protocol::{Report, ShimSpec, StartFailure};
use crate::process::sys::{self, Fork};

/// Runs the outer process and, in the other half of a fork, the inner one.
pub(super) fn run(channel: Channel, spec: &ShimSpec) -> i32 {
    let limits = match LimitGroups::create(&spec.limits) {
        Ok(limits) => limits,
        Err(failure) => return channel.refuse(failure),
    };
    match run_halves(channel, spec, &limits) {
        Half::Outer(code) => {
            limits.remove();
            code
        }
        Half::Inner(code) => code,
    }
}

fn run_halves(mut channel: Channel, spec: &ShimSpec, limits: &LimitGroups) -> Half {
    let prepared = enter_namespace().and_then(|()| io::pipe());
    let forked = prepared.and_then(|lifeline| Ok((lifeline, sys::fork()?)));
    let ((lifeline, held), inner) = match forked {
        Ok((lifeline, Fork::Parent(inner))) => (lifeline, inner),
        Ok(((lifeline, held), Fork::Child)) => {
            drop(held);
            return Half::Inner(inner_main(&mut channel, spec, lifeline.into(), limits));
        }
        Err(error) => {
            let failure = StartFailure::cannot("make a pid namespace", error);
            return Half::Outer(channel.refuse(failure));
        }
    };
    drop(lifeline);
    handover::close_to_others();
    let _ = job::let_go_of_stdio();
    outer::keep(&channel, inner, None);
    drop(held);
    channel.report(&Report::Empty);
    Half::Outer(0)
}

/// Makes the next child the first of a namespace, through a user namespace if need be.
fn enter_namespace() -> io::Result<()> {
    if sys::unshare(UnshareFlags::NEWPID).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    // We stay who we are, so that files look and are owned as outside. A kernel wants
    // setgroups given up before an unprivileged group map.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

fn inner_main(
    channel: &mut Channel,
    spec: &ShimSpec,
    lifeline: OwnedFd,
    limits: &LimitGroups,
) -> i32 {
    match supervise(channel, spec, lifeline, limits.as_slice()) {
        Ok(()) => 0,
        Err(failure) => {
            channel.report(&Report::SpawnFailed(failure));
            1
        }
    }
}

fn supervise(
    channel: &mut Channel,
    spec: &ShimSpec,
    lifeline: OwnedFd,
    limits: &[Group],
) -> Result<(), StartFailure> {
    // A parent that died before this line is noticed by the lifeline.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| StartFailure::cannot("ask for the parent's death signal", error))?;
    let outside = OutsideView::open();
    if let Some(init) = outside.own_pid {
        channel.report(&Report::Holding { init });
    }
    let entrances = groups::entrances(limits)?;
    arrange_mounts(spec)?;
    let signs = Signs::new(spec.deadline_boot_ms)
        .map_err(|error| StartFailure::cannot("watch for signals", error))?;
    let meter = Meter::start(&spec.limits, limits);
    channel.report(&Report::Starting);
    let job = job::start(spec, entrances)?;
    channel.report(&Report::Started { pid: outside.first_child() });
    let mut watch = Watch::new(
        channel,
        signs,
        Processes { tree: Tree::Namespace, main: job },
        meter,
        Some(lifeline),
    );
    // However this returns, our exit ends whatever is left.
    let _ = watch.until_main_ends();
    Ok(())
}

/// The proc of the world outside, kept open because the job gets one of its own: it tells
/// which numbers our processes have there.
struct OutsideView {
    proc: Option<OwnedFd>,
    own_pid: Option<i32>,
}

impl OutsideView {
    fn open() -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = fs::read_link("/proc/self").ok();
        Self {
            proc: open(c"/proc", flags, Mode::empty()).ok(),
            own_pid: own.and_then(|pid| pid.to_str()?.parse().ok()),
        }
    }

    fn first_child(&self) -> Option<i32> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let proc = self.proc.as_ref()?;
        let children = openat(proc, c"thread-self/children", flags, Mode::empty()).ok()?;
        let text = io::read_to_string(fs::File::from(children)).ok()?;
        let pid = text.split_ascii_whitespace().next()?.parse().ok()?;
        Pid::from_raw(pid).map(|pid| pid.as_raw_nonzero().get())
    }
}

/// Gives the namespace mounts of its own: a /proc that shows its own processes, nothing where
/// secrets of the worker are, and of the folder of attempts only this one's. Some container
/// hosts refuse; the job then sees the outer numbers and files, which no containment depends on.
/// Secrets of the worker are another matter: no job runs that could read them.
fn arrange_mounts(spec: &ShimSpec) -> Result<(), StartFailure> {
    if let Err(error) = make_mounts_private() {
        return match spec.hidden.first() {
            Some(path) => Err(cannot_hide(path, error)),
            None => Ok(()),
        };
    }
    for path in &spec.hidden {
        match hide(path) {
            // What the job cannot read, or is not there, needs no cover.
            Err(_) if is_out_of_reach(path) => {}
            hidden => hidden.map_err(|error| cannot_hide(path, error))?,
        }
    }
    if let Some(folder) = &spec.private_folder {
        let _ = leave_alone_in_view(folder);
    }
    cgroup::mounts().iter().for_each(|mount| close_to_writers(mount));
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = mount("proc", "/proc", "proc", flags, None);
    Ok(())
}

fn make_mounts_private() -> Result<(), Errno> {
    sys::unshare(UnshareFlags::NEWNS)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    // What the host mounts later shows up here as well; what is mounted here stays here.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
}

/// Covers a file, or a folder with all that is there later.
fn hide(path: &Path) -> Result<(), Errno> {
    if !path.is_dir() {
        return mount_bind("/dev/null", path);
    }
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", path, "tmpfs", flags, Some(c"mode=0555,size=4k,nr_inodes=2"))
}

/// A job could leave its groups, raise their limits, or kill what is in others otherwise: groups that
/// the worker has made belong to its user.
fn close_to_writers(path: &Path) {
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Where the host refuses, the limits hold all who do not write there.
    let _ = mount_remount(path, flags, c"");
}

fn is_out_of_reach(path: &Path) -> bool {
    matches!(access(path, Access::READ_OK), Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS))
}

fn cannot_hide(path: &Path, error: Errno) -> StartFailure {
    StartFailure::cannot(format_args!("hide {} from jobs", path.display()), error)
}

/// Covers the folder that `folder` is in, so that it seems to be the only one there.
fn leave_alone_in_view(folder: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, folder, clone)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", parent, "tmpfs", flags, Some(c"mode=0700,size=64k,nr_inodes=16"))?;
    let cover = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    mkdirat(&cover, name, Mode::RWXU)?;
    let moved = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tree, c"", &cover, name, moved)?;
    Ok(())
}
