//! Where environments lie, and putting a new one in place of the old one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FlockOperation, flock, syncfs};
use rustix::io::Errno;

use super::{EnvironmentKind, PackEnvironment, Stamp, in_use};

/// The folder of all environments of a pack. It is hidden, so it is not part of the pack.
const HOME: &str = ".outlast";
/// The folder in an environment with a copy of the pack, in which it is made.
const COPY: &str = "pack";
/// The file that is locked while environments of a pack are made.
const LOCK: &str = "lock";

/// The right to make environments of one pack. Programs that inherit its file hold it on.
#[derive(Debug)]
pub struct SyncLock(File);

impl SyncLock {
    /// The file that is locked.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.0
    }
}

impl PackEnvironment {
    /// Takes the right to make environments of the pack, unless another process has it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn try_lock(&self) -> io::Result<Option<SyncLock>> {
        self.lock_by(FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits for the right to make environments of the pack.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn lock(&self) -> io::Result<Option<SyncLock>> {
        self.lock_by(FlockOperation::LockExclusive)
    }

    fn lock_by(&self, operation: FlockOperation) -> io::Result<Option<SyncLock>> {
        fs::create_dir_all(self.home())?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(self.home().join(LOCK))?;
        match flock(&file, operation) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            locked => Ok(locked.map(|()| Some(SyncLock(file)))?),
        }
    }

    /// The folder of a new environment, which is not there yet. `id` makes it unique.
    #[must_use]
    pub fn new_folder(&self, _lock: &SyncLock, id: &str) -> PathBuf {
        self.home().join(format!("{}{id}", self.prefix()))
    }

    /// Where the copy of the pack is, in which the environment in `folder` is made.
    #[must_use]
    pub fn copy_in(folder: &Path) -> PathBuf {
        folder.join(COPY)
    }

    /// Whether a name in the pack's folder is no part of what environments are made of.
    #[must_use]
    pub fn is_left_out(name: &str) -> bool {
        let links = [EnvironmentKind::Python.link(), EnvironmentKind::Node.link()];
        name == HOME || name == ".git" || links.contains(&name) || crate::digest::is_made(name)
    }

    /// Says of the environment in `folder` that it is whole, and puts it in place.
    ///
    /// # Errors
    /// When the disk refuses, or something else has taken the place.
    pub fn put(&self, _lock: &SyncLock, folder: &Path, stamp: &Stamp) -> io::Result<()> {
        File::create(folder.join(in_use::FILE))?;
        // The stamp must not be on the disk before what it speaks of.
        syncfs(File::open(folder)?)?;
        stamp.write(folder)?;
        let name = folder.file_name().unwrap_or_default();
        let draft = self.home().join(format!("{}.link", name.display()));
        let mut target = Path::new(HOME).join(name);
        if self.kind() == EnvironmentKind::Node {
            target = target.join(COPY).join(self.kind().link());
        }
        symlink(target, &draft)?;
        fs::rename(draft, self.folder().join(self.kind().link()))?;
        File::open(self.folder())?.sync_all()
    }

    /// Removes what is neither in force nor in use: older environments and half ones. Returns how
    /// many are still in use.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sweep(&self, _lock: &SyncLock) -> io::Result<usize> {
        let current = self.current();
        let mut kept = 0;
        for entry in fs::read_dir(self.home())? {
            let entry = entry?;
            let path = entry.path();
            let is_ours = entry.file_name().to_string_lossy().starts_with(self.prefix());
            if !is_ours || Some(&path) == current.as_ref() {
                continue;
            }
            if !entry.file_type()?.is_dir() {
                fs::remove_file(&path)?;
            } else if !in_use::remove_unused(&path)? {
                kept += 1;
            }
        }
        Ok(kept)
    }

    /// The environment that a link leads to, if it is one of the pack's own.
    pub(super) fn behind(&self, link: &Path) -> Option<PathBuf> {
        let target = fs::read_link(link).ok()?;
        let mut parts = target.strip_prefix(HOME).ok()?.components();
        let Some(Component::Normal(name)) = parts.next() else { return None };
        name.to_str()?.starts_with(self.prefix()).then(|| self.home().join(name))
    }

    fn home(&self) -> PathBuf {
        self.folder().join(HOME)
    }

    const fn prefix(&self) -> &'static str {
        match self.kind() {
            EnvironmentKind::Python => "python-",
            EnvironmentKind::Node => "node-",
        }
    }
}
