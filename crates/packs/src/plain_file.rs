//! Opening files that others may have put there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a plain file for reading, and waits for nothing: opening a pipe waits for a writer, and
/// opening a device may do anything. The file is looked at after it was opened, so its name cannot
/// become another file's in between.
///
/// # Errors
/// When it cannot be opened, or is no plain file.
pub fn open(path: &Path) -> io::Result<File> {
    check(options(OFlags::NONBLOCK).open(path)?)
}

/// Does the same, and follows no link in the last part of the path.
///
/// # Errors
/// When it cannot be opened, or is no plain file.
pub fn open_itself(path: &Path) -> io::Result<File> {
    check(options(OFlags::NONBLOCK | OFlags::NOFOLLOW).open(path)?)
}

fn options(flags: OFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    options
}

fn check(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{open, open_itself};

    #[test]
    fn a_pipe_is_refused_at_once_and_a_link_only_where_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        fs::write(at("file"), "x").unwrap();
        symlink("file", at("link")).unwrap();
        for open in [open, open_itself] {
            assert_eq!(open(&at("pipe")).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(open(folder.path()).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(open(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
            open(&at("file")).unwrap();
        }
        open(&at("link")).unwrap();
        open_itself(&at("link")).unwrap_err();
    }
}
