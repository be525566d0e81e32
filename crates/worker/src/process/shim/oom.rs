//! Whether the kernel's out-of-memory killer ended a job, as far as that can be known.
//!
//! The memory controller counts OOM kills a cgroup. The attempt's own group answers for the
//! attempt alone: a failure after a kill comes of the kill, and with a limit of the attempt's own
//! the kill is a failure, whatever the job made of it. The
//! worker's group is shared by its attempts, where a count that rose while a job was killed by a
//! SIGKILL that did not come from here is evidence enough.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::cgroup::{self, Group};
use crate::process::protocol::Oom;

/// Exit code by which a shell passes on that its child died of SIGKILL.
const SHELL_KILLED: i32 = 128 + libc::SIGKILL;

pub(super) struct OomWatch {
    counter: Option<(PathBuf, u64)>,
    /// Whether the counter is the attempt's alone.
    is_own: bool,
    /// Whether the attempt has a limit of its own, which ends all of it.
    is_limited: bool,
}

impl OomWatch {
    /// Notes the count at the start, in a group of the attempt's own if one counts.
    pub(super) fn start(own_groups: &[Group], is_limited: bool) -> Self {
        let files = |group: &Group| {
            ["memory.events", "memory.oom_control"].map(|name| group.folder().join(name))
        };
        let counted = |file: PathBuf| read_count(&file).map(|count| (file, count));
        let own = own_groups.iter().flat_map(files).find_map(counted);
        let is_own = own.is_some();
        let counter = own.or_else(|| cgroup::memory_counter_files().into_iter().find_map(counted));
        Self { counter, is_own, is_limited }
    }

    /// Whether the kernel has killed a process for want of memory since the start.
    pub(super) fn has_risen(&self) -> bool {
        let now =
            self.counter.as_ref().and_then(|(file, before)| Some((read_count(file)?, before)));
        now.is_some_and(|(now, before)| now > *before)
    }

    /// Explains an end that none of our signals caused.
    pub(super) fn judge(&self, code: Option<i32>, signal: Option<i32>) -> Oom {
        if self.is_own {
            let is_failure = self.is_limited || code != Some(0);
            return if is_failure && self.has_risen() { Oom::Yes } else { Oom::No };
        }
        let killed = signal == Some(libc::SIGKILL);
        if !killed && code != Some(SHELL_KILLED) {
            return Oom::No;
        }
        match &self.counter {
            Some((file, before)) => match read_count(file) {
                Some(now) if now > *before => Oom::Yes,
                Some(_) => Oom::No,
                None => Oom::Unknown,
            },
            None if killed => Oom::Unknown,
            None => Oom::No,
        }
    }
}

/// Reads the line `oom_kill N`, which both generations of cgroups have.
fn read_count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}
