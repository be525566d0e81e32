//! What a tree uses at one moment, read from /proc.

use std::fs;

use rustix::process::Pid;

use crate::process::{descendants, sys};

/// Memory and processes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Resident memory in bytes. What several processes share is counted once, unless the kernel does
    /// not say how much that is.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) processes: u32,
}

/// Looks at everything that descends from this process. Memory is measured exactly only if it may be
/// more than `exact_above`: that takes the kernel a while.
pub(super) fn take(exact_above: u64) -> Option<Sample> {
    // Its number is that of the /proc which is mounted, whichever namespace it belongs to.
    let own = fs::read_link("/proc/self").ok()?;
    let own = Pid::from_raw(own.to_str()?.parse().ok()?)?;
    let pids = descendants::of(own);
    let resident: Vec<u64> = pids.iter().map(|pid| resident(*pid)).collect();
    let at_most: u64 = resident.iter().sum();
    let memory = if pids.len() > 1 && at_most > exact_above {
        pids.iter().zip(resident).map(|(pid, most)| proportional(*pid).unwrap_or(most)).sum()
    } else {
        at_most
    };
    let processes = pids.iter().map(|pid| threads(*pid)).sum();
    Some(Sample { memory, processes })
}

/// Pages in memory, those shared with others included; none for a process that has ended.
fn resident(pid: Pid) -> u64 {
    let pages = read(pid, "statm").and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    pages.unwrap_or(0_u64).saturating_mul(sys::page_bytes())
}

/// Its share of what it has in memory.
fn proportional(pid: Pid) -> Option<u64> {
    let text = read(pid, "smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// One for a process that has ended meanwhile: it was there.
fn threads(pid: Pid) -> u32 {
    let text = read(pid, "stat").unwrap_or_default();
    // The name in parentheses may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_ascii_whitespace().nth(17).and_then(|number| number.parse().ok()).unwrap_or(1)
}

fn read(pid: Pid, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_with_its_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        // It may still be on its way to its own program.
        while resident(pid) < 100_000 {
            std::thread::yield_now();
        }
        assert_eq!(threads(pid), 1);
        let sample = take(0).unwrap();
        assert!(sample.processes >= 1 && sample.memory > 100_000, "{sample:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(resident(pid), 0);
    }
}
