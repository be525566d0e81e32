//! Where attempts have their folders. Locked while its engine lives, so that a later one
//! can remove what a killed engine left and nothing else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_packs::plain_file;
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};
use rustix::io::Errno;
use uuid::Uuid;

const PREFIX: &str = "outlast-worker-";
const LOCK: &str = "lock";

/// How often the lock is touched. Systems that clean temporary folders remove what was not used
/// for days, and a folder without its lock would stay for good.
const TOUCH_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The private folder of one engine.
#[derive(Debug)]
pub(super) struct WorkRoot {
    folder: PathBuf,
    lock_path: PathBuf,
    lock: Arc<File>,
}

impl WorkRoot {
    /// Makes a new one below `parent`.
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        loop {
            let folder = parent.join(format!("{PREFIX}{}", Uuid::now_v7()));
            let lock_path = folder.with_extension(LOCK);
            let new =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock_path)?;
            // The lock exists before the folder: a folder without a held lock is abandoned.
            if let Some(lock) = hold(new)? {
                DirBuilder::new().mode(0o700).create(&folder)?;
                return Ok(Self { folder, lock_path, lock: Arc::new(lock) });
            }
        }
    }

    /// Keeps the lock from looking unused, for as long as this is polled.
    pub(super) fn stay(&self) -> impl Future<Output = ()> + Send + use<> {
        let lock = Arc::clone(&self.lock);
        async move {
            loop {
                tokio::time::sleep(TOUCH_EVERY).await;
                if let Err(error) = touch(&lock) {
                    tracing::warn!(%error, "cannot touch the lock of the work folder");
                }
            }
        }
    }

    /// The folder itself.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Where built-in packs are written.
    pub(super) fn packs(&self) -> PathBuf {
        self.folder.join("packs")
    }

    /// Where attempts have their folders.
    pub(super) fn attempts(&self) -> PathBuf {
        self.folder.join("attempts")
    }

    /// Removes everything.
    pub(super) fn remove(self) {
        remove(&self.folder, &self.lock_path);
    }
}

/// Holds a lock that was just made, for as long as it is open. Until then its engine looks dead, and
/// another one may remove it: nothing is returned if it has, whatever the clocks say.
fn hold(lock: File) -> io::Result<Option<File>> {
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock).filter(|lock| lock.metadata().is_ok_and(|file| file.nlink() > 0))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn touch(lock: &File) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Ok(futimens(lock, &Timestamps { last_access: now, last_modification: now })?)
}

fn remove(folder: &Path, lock_path: &Path) {
    let removed = crate::folder::remove(folder);
    // The lock goes last: while it is there, another worker may try again.
    if let Err(error) = removed.and_then(|()| fs::remove_file(lock_path)) {
        tracing::warn!(%error, folder = %folder.display(), "cannot remove a work folder");
    }
}

/// The roots below `parent`, of all users, and of dead engines as well.
pub(super) fn folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let is_root = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(PREFIX) && path.extension().is_none()
    };
    entries.flatten().map(|entry| entry.path()).filter(is_root).collect()
}

/// Removes the roots below `parent` whose engine is dead. That may take as long as they are
/// large: it is for a thread of its own.
pub(super) fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for lock_path in entries.flatten().map(|entry| entry.path()) {
        let name = lock_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_lock = lock_path.extension().is_some_and(|extension| extension == LOCK);
        if !(is_lock && name.starts_with(PREFIX)) {
            continue;
        }
        // What is no lock of ours is not waited for. Another user's cannot be opened, a living engine's cannot be locked.
        let Ok(lock) = plain_file::open_itself(&lock_path) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!(lock = %lock_path.display(), "removing files left by a dead engine");
            remove(&lock_path.with_extension(""), &lock_path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use rustix::fs::{
        AtFlags, CWD, FileType, FlockOperation, Mode, Timespec, Timestamps, flock, mknodat,
        utimensat,
    };

    use super::{LOCK, PREFIX, TOUCH_EVERY, WorkRoot, hold, remove_abandoned, touch};

    fn abandoned(parent: &std::path::Path) -> std::path::PathBuf {
        let folder = parent.join(format!("{PREFIX}dead"));
        fs::create_dir_all(folder.join("attempts")).unwrap();
        let lock = File::create(folder.with_extension("lock")).unwrap();
        let past = lock.metadata().unwrap().modified().unwrap() - Duration::from_secs(60);
        lock.set_modified(past).unwrap();
        folder
    }

    #[test]
    fn a_new_engine_removes_what_a_dead_one_left_and_nothing_of_a_living_one() {
        let parent = tempfile::tempdir().unwrap();
        let living = WorkRoot::create(parent.path()).unwrap();
        fs::create_dir(living.attempts()).unwrap();
        let dead = abandoned(parent.path());

        let next = WorkRoot::create(parent.path()).unwrap();
        remove_abandoned(parent.path());

        assert!(!dead.exists(), "the dead one's is gone");
        assert!(living.attempts().exists(), "the living one's is not");
        next.remove();
        living.remove();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_lock_is_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let dead = abandoned(parent.path());
        let lock = dead.with_extension("lock");
        fs::remove_file(&lock).unwrap();
        mknodat(CWD, &lock, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // An old one.
        let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: old, last_modification: old };
        utimensat(CWD, &lock, &times, AtFlags::empty()).unwrap();

        remove_abandoned(parent.path());

        assert!(dead.exists(), "whose it is cannot be known");
    }

    // With the clock set back by a year, nothing was removed for a year.
    #[test]
    fn what_a_dead_engine_left_is_removed_also_if_the_clock_was_set_back_since() {
        let parent = tempfile::tempdir().unwrap();
        let dead = abandoned(parent.path());
        let lock = File::options().write(true).open(dead.with_extension("lock")).unwrap();
        let made = lock.metadata().unwrap().modified().unwrap();
        lock.set_modified(made + Duration::from_secs(365 * 24 * 3600)).unwrap();
        remove_abandoned(parent.path());
        assert!(!dead.exists());
    }

    // A lock was taken for an old one where its file system's clock went ahead of this one.
    #[test]
    fn a_lock_that_another_engine_takes_or_removes_before_it_is_held_is_given_up() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join(format!("{PREFIX}new.{LOCK}"));
        let made = || File::create(&path).unwrap();
        let taken = made();
        flock(&taken, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(hold(made()).unwrap().is_none(), "another one is removing it");
        drop(taken);
        let removed = made();
        remove_abandoned(parent.path());
        assert!(!path.exists() && hold(removed).unwrap().is_none());
        let held = hold(made()).unwrap();
        remove_abandoned(parent.path());
        assert!(held.is_some() && path.exists());
    }

    // After ten days systemd-tmpfiles removed the lock, and then no worker removed the folder.
    #[test]
    fn the_lock_of_a_living_engine_does_not_grow_old() {
        let parent = tempfile::tempdir().unwrap();
        let living = WorkRoot::create(parent.path()).unwrap();
        let modified = || living.lock.metadata().unwrap().modified().unwrap();
        let made = modified();
        living.lock.set_modified(made - TOUCH_EVERY * 10).unwrap();
        touch(&living.lock).unwrap();
        assert!(modified() >= made, "{:?}", modified());
    }
}
