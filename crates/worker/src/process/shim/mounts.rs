//! What of the host's files a process sees that is not the worker's own.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, mkdirat, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_change, mount_remount, move_mount, open_tree, unmount,
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
    if cover(hidden)? {
        leave_alone_in_view(private_folder);
        mount_own_proc();
    }
    Ok(())
}

/// The same for an interpreter that is started ahead of its attempt, which sees no attempt's folder until
/// then.
pub(super) fn arrange_ahead(hidden: &[PathBuf], attempts: &Path) -> Result<View, StartFailure> {
    let has_own_mounts = cover(hidden)?;
    let covered = has_own_mounts.then(|| CoveredFolder::cover(attempts).ok()).flatten();
    if has_own_mounts {
        mount_own_proc();
    }
    Ok(View { has_own_mounts, covered })
}

/// What an interpreter sees that was started ahead.
pub(super) struct View {
    has_own_mounts: bool,
    /// The folder of attempts.
    covered: Option<CoveredFolder>,
}

impl View {
    /// Lets it see its attempt's folder, and of those beside it only this one.
    pub(super) fn show(&self, private_folder: Option<&Path>) {
        let Some(folder) = private_folder.filter(|_| self.has_own_mounts) else { return };
        match &self.covered {
            Some(covered) if folder.parent() == Some(&covered.path) => covered.show(folder),
            Some(_) | None => leave_alone_in_view(Some(folder)),
        }
    }
}

fn mount_own_proc() {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = mount("proc", "/proc", "proc", flags, None);
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
fn leave_alone_in_view(folder: Option<&Path>) {
    let Some(folder) = folder else { return };
    if let Some(Ok(covered)) = folder.parent().map(CoveredFolder::cover) {
        covered.show(folder);
    }
}

/// A folder that seems to be empty.
struct CoveredFolder {
    path: PathBuf,
    /// What is below the cover.
    real: OwnedFd,
    cover: OwnedFd,
}

impl CoveredFolder {
    fn cover(path: &Path) -> Result<Self, Errno> {
        let opened =
            || open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let real = opened()?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", path, "tmpfs", flags, Some(c"mode=0700,size=64k,nr_inodes=16"))?;
        let path = path.to_owned();
        match opened() {
            Ok(cover) => Ok(Self { path, real, cover }),
            Err(error) => {
                uncover(&path);
                Err(error)
            }
        }
    }

    /// Lets one of the folders in it be seen. If that fails, all are: no attempt runs without its own.
    fn show(&self, folder: &Path) {
        if self.move_into_view(folder).is_err() {
            uncover(&self.path);
        }
    }

    fn move_into_view(&self, folder: &Path) -> Result<(), Errno> {
        let name = folder.file_name().ok_or(Errno::INVAL)?;
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(&self.real, name, clone)?;
        mkdirat(&self.cover, name, Mode::RWXU)?;
        let moved = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&tree, c"", &self.cover, name, moved)
    }
}

fn uncover(path: &Path) {
    let _ = unmount(path, UnmountFlags::DETACH);
}
