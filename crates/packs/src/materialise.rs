//! Writing the built-in pack to disk, so that its scripts can be run.
//!
//! Safe to repeat and to do from several processes at once: a file that is already right is
//! left alone, any other is replaced in one step, and nothing is ever removed.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use include_dir::{Dir, DirEntry, File};

use crate::error::PackError;
use crate::pack::Origin;
use crate::set::{CORE, PackSet};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o755;

impl PackSet {
    /// Writes built-in packs to `folder`, one folder each, readable by this user only.
    ///
    /// # Errors
    /// When a file cannot be written, or `folder` is a link or owned by another user.
    pub fn materialise(&self, folder: &Path) -> Result<(), PackError> {
        for pack in self.packs().filter(|pack| pack.origin == Origin::BuiltIn) {
            let target = folder.join(&pack.reference);
            private_folder(folder).and_then(|()| write_folder(&CORE, &target)).map_err(
                |source| PackError::io(target.display().to_string(), "write built-in pack", source),
            )?;
        }
        Ok(())
    }
}

fn write_folder(dir: &Dir<'_>, root: &Path) -> io::Result<()> {
    private_folder(&root.join(dir.path()))?;
    for entry in dir.entries() {
        match entry {
            DirEntry::Dir(inner) => write_folder(inner, root)?,
            DirEntry::File(file) => write_file(file, &root.join(file.path()))?,
        }
    }
    Ok(())
}

/// Makes a folder for this user only, or takes one that is there and makes it so.
fn private_folder(path: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path);
    made?;
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder of its own"));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(FOLDER_MODE))
}

fn write_file(file: &File<'_>, target: &Path) -> io::Result<()> {
    if is_right(file, target) {
        return Ok(());
    }
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = target.with_extension(format!("{}-{count}.new", process::id()));
    let written = write_draft(file, &draft).and_then(|()| fs::rename(&draft, target));
    if written.is_err() {
        // The first fault is the one to tell; a draft left behind does no harm.
        drop(fs::remove_file(&draft));
    }
    written
}

fn write_draft(file: &File<'_>, draft: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut open = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(draft)?;
    open.write_all(file.contents())?;
    // The mode above was cut by the process's umask.
    open.set_permissions(fs::Permissions::from_mode(FILE_MODE))
}

fn is_right(file: &File<'_>, target: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(target) else { return false };
    found.is_file()
        && found.permissions().mode() & 0o777 == FILE_MODE
        && fs::read(target).is_ok_and(|content| content == file.contents())
}
