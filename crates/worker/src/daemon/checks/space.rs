//! Free space in the work folder.

use std::path::Path;

use super::Found;

/// Says whether too little is free in a folder, or enough again: a quarter more than `least`. On a
/// small file system a tenth of it counts in place of `least`. `None` in between, and if the system
/// does not say.
pub(super) fn lacking(folder: &Path, least: u64) -> Option<Found> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    let size = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    judge(size(stat.f_bavail), least.min(size(stat.f_blocks) / 10), folder)
}

fn judge(free: u64, least: u64, folder: &Path) -> Option<Found> {
    if free < least {
        let folder = folder.display();
        let (free, least) = (in_words(free), in_words(least));
        return Some(Found::Bad(format!("{folder} has {free} free, and needs {least}")));
    }
    (free >= least.saturating_add(least / 4)).then_some(Found::Good)
}

/// A size in mebibytes, or in kibibytes if it is smaller, rounded down.
pub(in crate::daemon) fn in_words(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    if bytes >= MIB { format!("{} MiB", bytes / MIB) } else { format!("{} KiB", bytes / 1024) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_must_come_back_with_some_to_spare() {
        let folder = Path::new("/work");
        let bad = judge(99 << 20, 100 << 20, folder);
        let words = "/work has 99 MiB free, and needs 100 MiB".to_owned();
        assert_eq!(bad, Some(Found::Bad(words)));
        assert_eq!(judge(110 << 20, 100 << 20, folder), None);
        assert_eq!(judge(125 << 20, 100 << 20, folder), Some(Found::Good));
    }

    #[test]
    fn folder_of_this_host_says_how_much_is_free() {
        let folder = std::env::temp_dir();
        assert_eq!(lacking(&folder, 0), Some(Found::Good));
    }
}
