//! Measures how fast and how full the disk below a store is.
//!
//! A measurement writes to an unnamed file in the store's folder and leaves nothing behind. It
//! blocks; async callers use a blocking thread.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::clock::precise;

/// What is written before each synchronisation: one page, as a small commit does.
const BLOCK: [u8; 4096] = [0x5a; 4096];
/// Number of measurements; one slow outlier does not change the median.
const ROUNDS: usize = 15;
/// A disk this slow needs fewer.
const SPENT_MAX: Duration = Duration::from_secs(2);

/// How long a synchronisation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsync {
    /// Median.
    pub median: Duration,
    /// The slowest.
    pub slowest: Duration,
    /// Number of measurements.
    pub rounds: usize,
}

/// How full a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Free bytes.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

/// Writes a page and waits for the disk, several times.
///
/// # Errors
/// When the folder cannot be written to.
pub fn fsync(folder: &Path) -> io::Result<Fsync> {
    let mut file = tempfile::tempfile_in(folder)?;
    let (begun, mut taken) = (precise(), Vec::with_capacity(ROUNDS));
    while taken.len() < ROUNDS && precise().saturating_sub(begun) < SPENT_MAX {
        file.write_all(&BLOCK)?;
        let before = precise();
        file.sync_data()?;
        taken.push(precise().saturating_sub(before));
    }
    taken.sort_unstable();
    let median = taken.get(taken.len() / 2).copied().unwrap_or_default();
    let slowest = taken.last().copied().unwrap_or_default();
    Ok(Fsync { median, slowest, rounds: taken.len() })
}

/// Asks the file system how full it is.
///
/// # Errors
/// When there is no such folder.
pub fn disk(folder: &Path) -> io::Result<Disk> {
    let found = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Disk { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::{ROUNDS, disk, fsync};

    #[test]
    fn a_folder_is_measured_and_nothing_is_left_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let found = fsync(folder.path()).unwrap();
        assert!((1..=ROUNDS).contains(&found.rounds), "{found:?}");
        assert!(found.median <= found.slowest, "{found:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let space = disk(folder.path()).unwrap();
        assert!(0 < space.total && space.free <= space.total, "{space:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let nowhere = std::path::Path::new("/nowhere/at/all");
        assert!(fsync(nowhere).is_err() && disk(nowhere).is_err());
    }
}
