//! Holding an environment, so that `outlast packs sync` does not remove it meanwhile.
//!
//! A shared lock on a file in it says that it is in use. Who removes it takes the lock alone, and
//! gives up if it does not get it at once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::plain_file;

/// The file that is locked.
pub(super) const FILE: &str = "in-use";

/// An environment that stays until this is dropped.
#[derive(Debug)]
pub struct InUse {
    folder: PathBuf,
    /// Nothing where files cannot be locked, or this user must not read them.
    _lock: Option<File>,
}

impl InUse {
    /// Holds the environment in `folder`; nothing if it is being removed.
    pub(super) fn of(folder: PathBuf) -> Option<Self> {
        let path = folder.join(FILE);
        let lock = match plain_file::open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => None,
        };
        if let Some(file) = &lock {
            match flock(file, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => return None,
                // It may have been removed between the two.
                Ok(()) if !is_at(file, &path) => return None,
                Ok(()) | Err(_) => {}
            }
        }
        Some(Self { folder, _lock: lock })
    }

    /// The environment's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Removes an environment unless it is in use; true if it is gone.
pub(super) fn remove_unused(folder: &Path) -> io::Result<bool> {
    // One that has no such file was never whole.
    let lock = match plain_file::open(&folder.join(FILE)) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(file) = &lock {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            locked => locked?,
        }
    }
    fs::remove_dir_all(folder)?;
    Ok(true)
}

fn is_at(file: &File, path: &Path) -> bool {
    let inode = |found: fs::Metadata| (found.dev(), found.ino());
    let opened = file.metadata().map(inode);
    opened.is_ok_and(|opened| fs::metadata(path).map(inode).is_ok_and(|there| there == opened))
}
