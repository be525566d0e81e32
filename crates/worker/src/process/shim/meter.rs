//! What an attempt uses, and whether that is too much.
//!
//! The kernel counts what is in a cgroup of the attempt's own, and what each process that was waited
//! for has used. In between, the tree is looked at: often if the shim has to keep a limit, rarely if
//! only to know how much memory it takes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::oom::OomWatch;
use super::sample;
use crate::clock::boot_now;
use crate::process::cgroup::Group;
use crate::process::protocol::{ExceededLimit, Oom, Used};
use crate::process::resources::{LimitPlan, Sampled};
use crate::process::sys;

/// Between two looks at a tree with a limit.
const LIMITED: Duration = Duration::from_millis(50);
/// Between two looks at the count of a group whose limit the kernel keeps.
const COUNTED: Duration = Duration::from_millis(200);
/// Before the first look at a tree without one; twice as long before each that follows.
const FIRST: Duration = Duration::from_secs(1);
/// Longest between two.
const LAST: Duration = Duration::from_secs(8);

pub(super) struct Meter {
    oom: OomWatch,
    sampled: Sampled,
    /// Files in which the kernel keeps the most memory that was used.
    peaks: Vec<PathBuf>,
    /// Files of version 2 with the time on processors.
    cpu: Vec<PathBuf>,
    /// The kernel ends one process of the group at its limit, and not the others.
    ends_one: bool,
    peak: u64,
    interval: Duration,
    next_ms: u64,
}

impl Meter {
    /// Begins to measure. `groups` are the attempt's own, the one that contains it included.
    pub(super) fn start(plan: &LimitPlan, groups: &[Group]) -> Self {
        let file = |name: &str| -> Vec<PathBuf> {
            let files = groups.iter().map(|group| group.folder().join(name));
            files.filter(|file| file.exists()).collect()
        };
        let peaks = [file("memory.peak"), file("memory.max_usage_in_bytes")].concat();
        let limits_memory = |name: &str| {
            plan.groups.iter().any(|group| group.settings.iter().any(|it| it.file == name))
        };
        let ends_one = limits_memory("memory.limit_in_bytes");
        let is_limited = ends_one || limits_memory("memory.max");
        let interval = match (plan.sampled == Sampled::default(), ends_one) {
            (false, _) => LIMITED,
            (true, true) => COUNTED,
            (true, false) => FIRST,
        };
        Self {
            oom: OomWatch::start(groups, is_limited),
            sampled: plan.sampled,
            cpu: file("cpu.stat"),
            ends_one,
            peak: 0,
            interval,
            next_ms: boot_now().0.saturating_add(millis(interval)),
            peaks,
        }
    }

    /// How long until the next look; `None` if nothing is left to be seen.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let needed = self.sampled != Sampled::default() || self.ends_one || self.peaks.is_empty();
        let left = self.next_ms.saturating_sub(boot_now().0);
        needed.then(|| Duration::from_millis(left))
    }

    /// Looks at the tree, if it is time to; says which limit it has exceeded.
    pub(super) fn look(&mut self) -> Option<ExceededLimit> {
        if self.due_in()? > Duration::ZERO {
            return None;
        }
        let began = boot_now();
        let exceeded = self.look_now();
        // A look takes a tenth of a processor at most.
        let took = boot_now().since(began).as_millis();
        let pause = millis(self.interval).max(took.saturating_mul(10));
        self.next_ms = boot_now().0.saturating_add(pause);
        exceeded
    }

    fn look_now(&mut self) -> Option<ExceededLimit> {
        if self.ends_one && self.oom.has_risen() {
            return Some(ExceededLimit::Memory);
        }
        if self.sampled == Sampled::default() && !self.peaks.is_empty() {
            return None;
        }
        let most = self.sampled.memory;
        if most.is_none() && self.sampled.processes.is_none() {
            self.interval = self.interval.saturating_mul(2).min(LAST);
        }
        let sample = sample::take(most.unwrap_or(u64::MAX));
        self.peak = self.peak.max(sample.memory);
        if most.is_some_and(|most| sample.memory > most) {
            return Some(ExceededLimit::Memory);
        }
        let over = self.sampled.processes.is_some_and(|most| sample.processes > most);
        over.then_some(ExceededLimit::Processes)
    }

    /// Explains an end that none of our signals caused.
    pub(super) fn judge(&self, code: Option<i32>, signal: Option<i32>) -> Oom {
        self.oom.judge(code, signal)
    }

    /// What was used by now. Processes that were not waited for by anybody count only where a group
    /// counts them.
    pub(super) fn used(&self) -> Used {
        let waited_for = sys::used_by_children();
        let number = |file: &PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        let counted = self.peaks.iter().filter_map(number).max();
        let cpu_us = self.cpu.iter().filter_map(|file| {
            let text = fs::read_to_string(file).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())
        });
        let cpu_us = cpu_us.max().unwrap_or(0).max(waited_for.cpu_us);
        Used {
            peak_memory: counted.unwrap_or_else(|| self.peak.max(waited_for.largest_bytes)),
            cpu_ms: cpu_us / 1000,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
