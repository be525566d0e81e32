//! What of the host's files a process sees that is not the worker's own.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, Mode, OFlags, access, mkdirat, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_change, mount_remount, move_mount, open_tree,
};
use rustix::thread::UnshareFlags;

use crate::process::cgroup;
use crate::process::protocol::StartFailure;
use crate::process::sys;

/// Gives the namespace mounts of its own: a /proc that shows its own processes, nothing where
/// secrets of the worker are, and of the folder of attempts only this one's. Some container
/// hosts refuse; the job then sees the outer numbers and files, which no containment depends on.
/// Secrets of the worker are another matter: no job runs that could read them.
pub(super) fn arrange_for_job(
    hidden: &[PathBuf],
    private_folder: Option<&Path>,
) -> Result<(), StartFailure> {
    if !cover(hidden)? {
        return Ok(());
    }
    if let Some(folder) = private_folder {
        let _ = leave_alone_in_view(folder);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = mount("proc", "/proc", "proc", flags, None);
    Ok(())
}

/// The same for a process that attempts are forked from: it imports modules that a pack names, and
/// they must not find more than its scripts do. It sees no attempt's folder.
pub(super) fn arrange_for_warm(hidden: &[PathBuf], attempts: &Path) -> Result<(), StartFailure> {
    if cover(hidden)? {
        let _ = hide(attempts);
    }
    Ok(())
}

/// Covers files in mounts of this process's own; false if the host lets it have none, and nothing
/// has to be covered.
fn cover(hidden: &[PathBuf]) -> Result<bool, StartFailure> {
    if let Err(error) = make_mounts_private() {
        return match hidden.first() {
            Some(path) => Err(cannot_hide(path, error)),
            None => Ok(false),
        };
    }
    for path in hidden {
        match hide(path) {
            // What the job cannot read, or is not there, needs no cover.
            Err(_) if is_out_of_reach(path) => {}
            hidden => hidden.map_err(|error| cannot_hide(path, error))?,
        }
    }
    cgroup::mounts().iter().for_each(|mount| close_to_writers(mount));
    Ok(true)
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
