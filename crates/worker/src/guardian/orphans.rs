//! Orphans that come to the guardian while its engine runs.
//!
//! The guardian starts nothing but the engine and reporters of deaths, and begins without a child:
//! see `front`. So a child that comes to it later has lost the shim that held it, and belongs to an
//! attempt that has ended.

use std::fs;

use outlast_core::time::{BootTime, Span};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

use crate::clock::boot_now;
use crate::process::descendants;

/// How often it is said that an orphan does not go: it may hang in the kernel for days.
const SAY_EVERY: Span = Span::from_secs(600);

/// The orphans that are being killed.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    known: Vec<Orphan>,
}

/// One that was there at the last look.
#[derive(Debug)]
struct Orphan {
    pid: Pid,
    tries: u64,
    said: BootTime,
}

impl Orphans {
    /// Kills every child but the engine and the reporters of deaths, with all below it.
    pub(super) fn kill(&mut self, engine: Pid, reporters: &[Pid]) {
        let mut children = children();
        children.retain(|child| *child != engine && !reporters.contains(child));
        self.known.retain(|known| children.contains(&known.pid));
        // Shims come here when their engine has ended, and are given the time to end their trees.
        // Only what was here before that is an orphan.
        if children.is_empty() || has_ended(engine) {
            return;
        }
        for orphan in children {
            match self.note(orphan, boot_now()) {
                Some(1) => tracing::warn!(
                    %orphan,
                    "killing a process that has killed the shim which held it"
                ),
                Some(tries) => tracing::warn!(%orphan, tries, "a killed process does not end"),
                None => {}
            }
            // None is reaped before this process does, so a number is not used again meanwhile.
            descendants::signal(orphan, Signal::KILL);
            let _ = kill_process(orphan, Signal::KILL);
        }
    }

    /// Counts a try to kill an orphan. Returns how many there were, if it is time to say so.
    fn note(&mut self, orphan: Pid, now: BootTime) -> Option<u64> {
        let Some(known) = self.known.iter_mut().find(|known| known.pid == orphan) else {
            self.known.push(Orphan { pid: orphan, tries: 1, said: now });
            return Some(1);
        };
        known.tries += 1;
        if now.since(known.said) < SAY_EVERY {
            return None;
        }
        known.said = now;
        Some(known.tries)
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

#[cfg(test)]
mod tests {
    use outlast_core::time::{BootTime, Span};
    use rustix::process::Pid;

    use super::Orphans;

    // One that hung in the kernel was logged each second, for as long as it hung.
    #[test]
    fn an_orphan_that_does_not_end_is_logged_once_and_then_rarely_with_a_count() {
        let orphan = Pid::from_raw(4_000_000).unwrap();
        let mut orphans = Orphans::default();
        let mut look = |second| orphans.note(orphan, BootTime(0).after(Span::from_secs(second)));
        let said: Vec<u64> = (0..=1200).filter_map(&mut look).collect();
        assert_eq!(said, [1, 601, 1201]);
    }
}
