//! A copy of a pack for tools to work in.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use outlast_packs::environment::PackEnvironment;

/// Files longer than this are linked where possible: wheels and models, which no build changes.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Copies the files of a pack, without its environments and what tools have left in it.
pub(super) fn copy(pack: &Path, to: &Path) -> io::Result<()> {
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        fs::create_dir_all(to.join(&folder))?;
        for entry in fs::read_dir(pack.join(&folder))? {
            let entry = entry?;
            if PackEnvironment::is_left_out(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_symlink() {
                copy_link(pack, &path, &to.join(&path))?;
            } else if kind.is_file() {
                copy_file(&entry.path(), &to.join(&path))?;
            }
        }
    }
    Ok(())
}

/// A link within the pack leads to the copy, any other one to the same place as before.
fn copy_link(pack: &Path, path: &Path, to: &Path) -> io::Result<()> {
    let (link, target) = (pack.join(path), fs::read_link(pack.join(path))?);
    let real = link.canonicalize();
    let leads_out = real.as_ref().is_ok_and(|real| !real.starts_with(pack));
    match real {
        Ok(real) if leads_out || target.is_absolute() => symlink(real, to),
        Ok(_) | Err(_) => symlink(target, to),
    }
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let is_long = from.metadata()?.len() > COPIED_BYTES_MAX;
    if is_long && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::copy;

    #[test]
    fn copy_has_all_of_a_pack_but_what_tools_made() {
        let folder = tempfile::tempdir().unwrap();
        let (pack, to) = (folder.path().join("pack"), folder.path().join("to/copy"));
        let files = ["a.txt", "lib/b.py", ".npmrc", ".venv/x", ".outlast/x", "lib/__pycache__/x"];
        for file in files {
            let path = pack.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::write(folder.path().join("outside"), "o").unwrap();
        symlink("../a.txt", pack.join("lib/inner")).unwrap();
        symlink("../outside", pack.join("outer")).unwrap();
        symlink("nowhere", pack.join("dangling")).unwrap();
        let pack = pack.canonicalize().unwrap();
        copy(&pack, &to).unwrap();

        let mut names = Vec::new();
        let mut open = vec![to.clone()];
        while let Some(at) = open.pop() {
            for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
                names.push(entry.path().strip_prefix(&to).unwrap().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                }
            }
        }
        names.sort_unstable();
        assert_eq!(names, [".npmrc", "a.txt", "dangling", "lib", "lib/b.py", "lib/inner", "outer"]);
        fs::write(to.join("lib/inner"), "changed").unwrap();
        assert_eq!(fs::read_to_string(pack.join("a.txt")).unwrap(), "a.txt");
        assert_eq!(fs::read_to_string(to.join("outer")).unwrap(), "o");
    }
}
