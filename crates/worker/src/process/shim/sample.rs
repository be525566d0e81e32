//! What a tree uses at one moment, read from /proc.

use std::fs;

use rustix::process::Pid;

use crate::process::{descendants, memory};

/// Memory and processes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Bytes of memory that belong to its processes alone: no mapped files, which the kernel can drop,
    /// and no memory files. What a fork shares counts for each process, unless that is too much.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) processes: u32,
}

/// Looks at everything that descends from this process. Memory that processes share is counted once
/// only if it seems to be more than `exact_above` in all: that takes the kernel a while.
pub(super) fn take(exact_above: u64) -> Sample {
    let pids = descendants::of_this();
    let private: Vec<u64> = pids.iter().map(|pid| memory::own_bytes(*pid).unwrap_or(0)).collect();
    let at_most: u64 = private.iter().sum();
    let memory = if pids.len() > 1 && at_most > exact_above {
        pids.iter().zip(private).map(|(pid, most)| proportional(*pid).unwrap_or(most)).sum()
    } else {
        at_most
    };
    let processes = pids.iter().map(|pid| threads(*pid)).sum();
    Sample { memory, processes }
}

/// Memory that is its own, with what several processes share divided among them. Kernels before 5.4 do not say it.
fn proportional(pid: Pid) -> Option<u64> {
    let text = read(pid, "smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"))?;
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
        let private = || memory::own_bytes(pid).unwrap_or(0);
        while private() < 20_000 {
            std::thread::yield_now();
        }
        assert_eq!(threads(pid), 1);
        let sample = take(0);
        assert!(sample.processes >= 1 && sample.memory > 20_000, "{sample:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(private(), 0);
    }
}
