//! Orphans that come to the guardian while its engine runs.
//!
//! The guardian starts nothing but the engine as long as that runs. A child that comes to it later
//! has lost the shim that held it, and belongs to an attempt that has ended. Children that this
//! process had before, such as the reader of its log that a shell started, are not touched.

use std::fs;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

use crate::process::descendants;

/// Kills every child but the engine and those that were there before it, with all below it.
pub(super) fn kill(engine: Pid, before: &[Pid]) {
    let mut orphans = children();
    orphans.retain(|child| *child != engine && !before.contains(child));
    // Shims come here when their engine has ended, and are given the time to end their trees. Only
    // what was here before that is an orphan.
    if orphans.is_empty() || has_ended(engine) {
        return;
    }
    for orphan in orphans {
        tracing::warn!(%orphan, "killing a process that has killed the shim which held it");
        // None is reaped before this process does, so a number is not used again meanwhile.
        descendants::signal(orphan, Signal::KILL);
        let _ = kill_process(orphan, Signal::KILL);
    }
}

/// The children of all threads: the kernel gives orphans to one of them.
pub(super) fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", getpid())) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    let lists: Vec<String> = lists.map(Result::unwrap_or_default).collect();
    let numbers = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

/// Whether it has ended, without reaping it.
fn has_ended(engine: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(engine), look), Ok(None))
}
