//! The private work folder of one attempt: its working directory, its parameter file and
//! its checkpoint. Removed with the attempt.
//!
//! What a job leaves in it is not trusted: the checkpoint is read only if it is a plain file
//! of bounded size.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use outlast_core::limits::CHECKPOINT_BYTES_MAX;
use rustix::fs::{Mode, OFlags, open, openat};

/// Owner only, as everything in the folder.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A folder that lives as long as this value.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Makes a new folder called `name` below `root`, which is made where missing.
    ///
    /// # Errors
    /// When it exists already or the disk refuses.
    pub fn create(root: &Path, name: &str) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.mode(FOLDER_MODE).recursive(true).create(root)?;
        let path = root.join(name);
        // Never one that another user prepared, with links in it.
        builder.recursive(false).create(&path)?;
        let folder = Self { path };
        DirBuilder::new().mode(FOLDER_MODE).create(folder.working())?;
        Ok(folder)
    }

    /// Returns the whole folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the job's working directory.
    #[must_use]
    pub fn working(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Returns where the checkpoint is, for `OUTLAST_CHECKPOINT`.
    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Writes the parameter file and returns its path.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_parameters(&self, body: &[u8]) -> io::Result<PathBuf> {
        let path = self.path.join("parameters");
        write_new(&path, body)?;
        Ok(path)
    }

    /// Writes a file with a secret and returns its path. It goes with the folder.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_secret(&self, name: &str, value: &[u8]) -> io::Result<PathBuf> {
        let folder = self.path.join("secrets");
        DirBuilder::new().mode(FOLDER_MODE).recursive(true).create(&folder)?;
        let path = folder.join(name);
        write_new(&path, value)?;
        Ok(path)
    }

    /// Hands on the checkpoint of an earlier attempt.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_checkpoint(&self, body: &[u8]) -> io::Result<()> {
        write_new(&self.checkpoint(), body)
    }

    /// Reads the checkpoint the job left, if it left one.
    ///
    /// # Errors
    /// When it is too large, is no plain file, or cannot be read.
    pub fn read_checkpoint(&self) -> Result<Option<Vec<u8>>, CheckpointError> {
        // A pipe must not hold us up and a link must not lead us elsewhere.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.checkpoint());
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                return Err(CheckpointError::NotAFile);
            }
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(CheckpointError::NotAFile);
        }
        read_bounded(&file).map(Some)
    }

    /// Removes the folder with everything in it.
    ///
    /// # Errors
    /// When something in it cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        let removed = remove(&self.path);
        // Tried already: dropping must not try again.
        std::mem::forget(self);
        removed
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(%error, folder = %self.path.display(), "cannot remove a work folder");
        }
    }
}

/// Why a checkpoint was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// More than the product stores.
    #[error("checkpoint is larger than {} bytes", CHECKPOINT_BYTES_MAX)]
    TooLarge,
    /// A link, a folder, a pipe.
    #[error("checkpoint is not a plain file")]
    NotAFile,
    /// The disk refused.
    #[error("checkpoint cannot be read")]
    Io(#[from] io::Error),
}

fn read_bounded(file: &File) -> Result<Vec<u8>, CheckpointError> {
    let mut body = Vec::new();
    let max = u64::try_from(CHECKPOINT_BYTES_MAX).unwrap_or(u64::MAX);
    file.take(max.saturating_add(1)).read_to_end(&mut body)?;
    if body.len() > CHECKPOINT_BYTES_MAX {
        return Err(CheckpointError::TooLarge);
    }
    Ok(body)
}

fn write_new(path: &Path, body: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(body)
}

/// Removes a folder with everything in it, also what a job has shut; one that is gone is fine.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // A job may take its own rights away from a folder; give them back once.
            unlock(path);
            fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A folder whatever its rights are, and never by way of a link.
const PLACE: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens all folders from here down. Each is held while its rights change: its path may lead
/// elsewhere by then.
fn unlock(folder: &Path) {
    if let Ok(place) = open(folder, PLACE, Mode::empty()) {
        unlock_place(&place);
    }
}

fn unlock_place(place: &OwnedFd) {
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let _ = fs::set_permissions(&path, fs::Permissions::from_mode(FOLDER_MODE));
    let Ok(entries) = fs::read_dir(&path) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(below) = openat(place, entry.file_name(), PLACE, Mode::empty())
        {
            unlock_place(&below);
        }
    }
}

#[cfg(test)]
mod tests;
