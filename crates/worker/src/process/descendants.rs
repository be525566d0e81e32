//! Who descends from whom, read from /proc. A picture of one moment: callers repeat.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Lists every living descendant of `root`, nearest first.
pub(crate) fn of(root: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut next = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(below.iter().copied().filter_map(Pid::from_raw));
        next.extend(below);
    }
    found
}

/// Lists every living descendant of this process.
pub(crate) fn of_this() -> Vec<Pid> {
    // Its number is that of the /proc which is mounted, whichever namespace it belongs to.
    let own = fs::read_link("/proc/self").ok();
    let own = own.and_then(|own| Pid::from_raw(own.to_str()?.parse().ok()?));
    own.map_or_else(Vec::new, of)
}

/// Sends `signal` to every living descendant of `root`.
pub(crate) fn signal(root: Pid, signal: Signal) {
    for pid in of(root) {
        // One that ended since the picture was taken is not there to be signalled. It keeps
        // its number until we reap it or its parent does, so a stranger is not hit in its
        // stead by anything short of the whole pid range wrapping in between.
        let _ = kill_process(pid, signal);
    }
}

/// Lists (pid, parent) of every process that is not a zombie.
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may hold spaces and parentheses of its own.
            let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
            let state = fields.next()?;
            let parent: i32 = fields.next()?.parse().ok()?;
            (!matches!(state, "Z" | "X")).then_some((pid, parent))
        })
        .collect()
}
