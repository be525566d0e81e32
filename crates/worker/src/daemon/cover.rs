//! What is hidden from jobs with a file that they must not see.
//!
//! A cover lies on the file that is there when a job starts. If the file is replaced by rename, as
//! when a token is rotated, the new one has none. So its whole folder is covered where it holds
//! nothing else. That is looked up at each start: what else is in a folder may change.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Files with secrets of the worker, which no job is to see.
#[derive(Clone, Debug)]
pub(super) struct Cover {
    files: Vec<PathBuf>,
    /// The folder that jobs are given as their home.
    home: PathBuf,
}

impl Cover {
    pub(super) fn new(files: &[PathBuf], home: &str) -> Self {
        let files = files.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
        Self { files, home: home.into() }
    }

    /// Files and folders to hide from a job that starts now.
    pub(super) fn now(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| of(file.clone(), &self.home)).collect()
    }
}

/// The file, or its folder if that holds nothing else and is not `home`, which jobs are given.
fn of(file: PathBuf, home: &Path) -> PathBuf {
    let Some((folder, name)) = file.parent().zip(file.file_name()) else { return file };
    let is_used = folder == home || std::env::current_dir().is_ok_and(|here| here == *folder);
    if folder.parent().is_none() || is_used || !holds_only(folder, name) {
        return file;
    }
    folder.to_owned()
}

/// Names that begin with `..` are how Kubernetes replaces all files of a volume at once.
fn holds_only(folder: &Path, name: &OsStr) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let is_known = |entry: fs::DirEntry| {
        let found = entry.file_name();
        found == name || found.as_encoded_bytes().starts_with(b"..")
    };
    entries.into_iter().all(|entry| entry.is_ok_and(is_known))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{Cover, of};

    #[test]
    fn a_folder_is_covered_with_its_file_only_if_it_holds_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("token");
        let file = folder.join("token");
        fs::create_dir_all(folder.join("..2026_11_25")).unwrap();
        fs::write(folder.join("..2026_11_25/token"), "x").unwrap();
        symlink("..2026_11_25", folder.join("..data")).unwrap();
        symlink("..data/token", &file).unwrap();
        assert_eq!(of(file.clone(), Path::new("/root")), folder);
        assert_eq!(of(file.clone(), &folder), file, "jobs work there");
        fs::write(folder.join("other"), "x").unwrap();
        assert_eq!(of(file.clone(), Path::new("/root")), file);
        let missing = parent.path().join("missing/token");
        assert_eq!(of(missing.clone(), Path::new("")), missing);
    }

    // It was looked up once: a token that was replaced after a file beside it had gone was readable
    // by jobs.
    #[test]
    fn a_folder_is_looked_at_again_for_each_job() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("token"), folder.path().join("other"));
        for path in [&file, &other] {
            fs::write(path, "x").unwrap();
        }
        let cover = Cover::new(std::slice::from_ref(&file), "/root");
        assert_eq!(cover.now(), [file]);
        fs::remove_file(other).unwrap();
        assert_eq!(cover.now(), [folder.path()]);
    }
}
