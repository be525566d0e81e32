//! Memory pressure, as the kernel measures it (PSI): the share of the last ten seconds in which every
//! process of a cgroup, or of the host, waited for memory at once.

use std::fs;
use std::path::{Path, PathBuf};

use super::Found;
use crate::process::cgroup;

/// The host's.
const HOST: &str = "/proc/pressure/memory";

/// Finds the file of this process's own cgroup (version 2), in which other groups' trouble does not
/// count; without one, the host's.
pub(super) fn file() -> PathBuf {
    let own = cgroup::process_folder().map(|folder| folder.join("memory.pressure")).ok();
    own.filter(|file| file.exists()).unwrap_or_else(|| HOST.into())
}

/// Says whether pressure is too high, or low again: below half of `most` percent. `None` in between,
/// and where the kernel does not measure it.
pub(super) fn too_high(file: &Path, most: u32) -> Option<Found> {
    judge(full_avg10(&fs::read_to_string(file).ok()?)?, most)
}

/// Reads `full avg10=…`, in hundredths of a percent.
fn full_avg10(text: &str) -> Option<u32> {
    let full = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let avg10 = full.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    let (whole, part) = avg10.split_once('.').unwrap_or((avg10, "0"));
    let (whole, part): (u32, u32) = (whole.parse().ok()?, part.parse().ok()?);
    Some(whole.saturating_mul(100).saturating_add(part))
}

fn judge(hundredths: u32, most: u32) -> Option<Found> {
    let percent = hundredths / 100;
    if percent >= most {
        let words = format!("memory is short: all waited for it in {percent} % of the last 10 s");
        return Some(Found::Bad(words));
    }
    (percent < most.div_ceil(2)).then_some(Found::Good)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "some avg10=61.20 avg60=3.00 avg300=0.10 total=123\n\
                        full avg10=60.05 avg60=2.00 avg300=0.00 total=99\n";

    #[test]
    fn what_the_kernel_says_is_read_and_judged() {
        assert_eq!(full_avg10(TEXT), Some(6005));
        assert_eq!(full_avg10("some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n"), None);
        assert!(matches!(judge(6005, 60), Some(Found::Bad(words)) if words.contains("in 60 %")));
        assert_eq!(judge(4500, 60), None);
        assert_eq!(judge(2999, 60), Some(Found::Good));
        assert_eq!(judge(0, 1), Some(Found::Good));
    }
}
