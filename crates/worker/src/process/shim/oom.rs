//! Whether the kernel's out-of-memory killer ended a job, as far as that can be known.
//!
//! The memory controller counts OOM kills a cgroup. The attempt's own group answers for the
//! attempt alone; the worker's group is shared by its attempts, where a count that rose
//! while a job was killed by a SIGKILL that did not come from here is evidence enough.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::cgroup;
use crate::process::protocol::Oom;

/// Exit code by which a shell passes on that its child died of SIGKILL.
const SHELL_KILLED: i32 = 128 + libc::SIGKILL;

pub(super) struct OomWatch {
    counter: Option<(PathBuf, u64)>,
}

impl OomWatch {
    /// Notes the count at the start, in the attempt's own group if it has one.
    pub(super) fn start(own_group: Option<&Path>) -> Self {
        let own = own_group.map(|folder| folder.join("memory.events"));
        let counter = own
            .into_iter()
            .chain(cgroup::memory_counter_files())
            .find_map(|file| read_count(&file).map(|count| (file, count)));
        Self { counter }
    }

    /// Explains an end that none of our signals caused.
    pub(super) fn judge(&self, code: Option<i32>, signal: Option<i32>) -> Oom {
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
