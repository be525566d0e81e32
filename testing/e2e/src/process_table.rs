//! The machine's process table, read from `/proc`.
//!
//! Works across PID namespaces: the harness sits in the outermost one and sees every process.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::poll;

/// A process id.
pub type ProcessId = i32;

/// Lists every process.
#[must_use]
pub fn all() -> Vec<ProcessId> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Tells whether a process runs; one that only waits to be reaped does not.
#[must_use]
pub fn is_alive(pid: ProcessId) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// Tells whether a process that was sent SIGSTOP runs no more of its code: it is stopped, or it
/// waits in the kernel and will stop before it runs again. A shell does so while a child that it has
/// made with `vfork` is stopped before its `exec`: neither goes on until both are continued.
#[must_use]
pub fn is_stopped(pid: ProcessId) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| matches!(state, 'T' | 'D'))
}

/// Lists the live children of a process.
#[must_use]
pub fn children(parent: ProcessId) -> Vec<ProcessId> {
    let is_child = |pid: &ProcessId| {
        state_and_parent(*pid).is_some_and(|(state, found)| found == parent && state != 'Z')
    };
    all().into_iter().filter(is_child).collect()
}

/// Lists the live descendants of a process, nearest first.
#[must_use]
pub fn descendants(root: ProcessId) -> Vec<ProcessId> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children(parent) {
            found.push(child);
            next.push(child);
        }
    }
    found
}

/// Lists live processes that carry the environment variable `name=value`.
#[must_use]
pub fn with_variable(name: &str, value: &str) -> Vec<ProcessId> {
    let wanted = format!("{name}={value}");
    having("environ", |entries| entries.contains(wanted.as_str()))
}

/// Lists live processes of any of these jobs, as `(pid, job)`.
#[must_use]
pub fn of_jobs(jobs: &BTreeSet<String>) -> Vec<(ProcessId, String)> {
    let job_of = |pid: ProcessId| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment);
        let job =
            environment.split('\0').find_map(|entry| entry.strip_prefix("OUTLAST_JOB_ID="))?;
        (jobs.contains(job) && is_alive(pid)).then(|| (pid, job.to_owned()))
    };
    all().into_iter().filter_map(job_of).collect()
}

/// Lists live processes that were given `argument` on their command line.
#[must_use]
pub fn with_argument(argument: &str) -> Vec<ProcessId> {
    having("cmdline", |entries| entries.contains(argument))
}

/// Returns living processes one of whose arguments contains this text.
#[must_use]
pub fn with_argument_containing(text: &str) -> Vec<ProcessId> {
    having("cmdline", |entries| entries.iter().any(|entry| entry.contains(text)))
}

fn having(file: &str, holds: impl Fn(&BTreeSet<&str>) -> bool) -> Vec<ProcessId> {
    let holds = |pid: &ProcessId| {
        let Ok(content) = fs::read(format!("/proc/{pid}/{file}")) else { return false };
        let content = String::from_utf8_lossy(&content);
        holds(&content.split('\0').collect()) && is_alive(*pid)
    };
    all().into_iter().filter(holds).collect()
}

/// Returns the resident memory of a process in bytes.
#[must_use]
pub fn resident_bytes(pid: ProcessId) -> Option<u64> {
    let kilobytes = status_field(pid, "VmRSS:")?;
    let kilobytes: u64 = kilobytes.trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Tells whether `signal` was sent to a process that has not taken it yet.
#[must_use]
pub fn is_pending(pid: ProcessId, signal: Signal) -> bool {
    ["SigPnd:", "ShdPnd:"].into_iter().any(|field| has(pid, field, signal))
}

/// Tells whether a process holds `signal` back.
#[must_use]
pub fn is_blocked(pid: ProcessId, signal: Signal) -> bool {
    has(pid, "SigBlk:", signal)
}

/// Whether a mask of the process has this signal.
fn has(pid: ProcessId, field: &str, signal: Signal) -> bool {
    let number = u32::try_from(signal.as_raw()).unwrap_or(1);
    status_field(pid, field)
        .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
        .is_some_and(|mask| mask & (1 << (number - 1)) != 0)
}

fn status_field(pid: ProcessId, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(field)?.trim().to_owned()))
}

fn state_and_parent(pid: ProcessId) -> Option<(char, ProcessId)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything, parentheses too.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Sends a signal; a process that is gone is not an error.
pub fn signal(pid: ProcessId, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The only errors are "gone" and "not ours"; both are noticed by the wait for the effect.
        let _sent = kill_process(pid, signal);
    }
}

/// Kills what `find` lists until it lists nothing; returns what would not go.
pub fn kill_all(find: impl Fn() -> Vec<ProcessId>) -> Vec<ProcessId> {
    let gone = poll(Duration::from_secs(5), || {
        let found = find();
        found.iter().for_each(|pid| signal(*pid, Signal::KILL));
        found.is_empty().then_some(())
    });
    if gone.is_some() { Vec::new() } else { find() }
}

/// Returns the time since boot, the clock that the ledger uses as well.
#[must_use]
pub fn since_boot() -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(0.0))
}
