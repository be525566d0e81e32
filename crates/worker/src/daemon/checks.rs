//! Checks of the worker's health that go on all the time: a probe of the operator's, free space in
//! the work folder, and memory pressure. A worker that fails one takes no work, says why with its
//! heartbeats, and takes work again by itself. What runs runs on.
//!
//! ```text
//! first run ──failed──▶ unhealthy        healthy ──`failures` in a row──▶ unhealthy
//!     └────────ended well──▶ healthy         ▲───────`recoveries` in a row────┘
//! ```
//!
//! A worker that starts is not known to be healthy: it registers after its first checks.

mod pressure;
pub(super) mod space;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use outlast_core::limits;
use tokio::sync::oneshot;

use super::complaints::{Complaints, Source};
use super::disk::DiskThreads;
use crate::OwnProgram;
use crate::attempt::{Attempt, AttemptEnd, AttemptSpec, EndKind};
use crate::containment::Containment;
use crate::environment::HostEnvironment;

/// Time between two looks at disk space and memory pressure.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a worker that starts waits for the first run of its probe.
const FIRST_WAITS: Duration = Duration::from_millis(1500);

/// What a worker says of itself while a first check takes longer.
struct SlowCheck {
    source: Source,
    words: &'static str,
}

const NO_ANSWER: SlowCheck = SlowCheck {
    source: Source::Disk,
    words: "the file system of the work folder has not answered",
};
const STILL_RUNS: SlowCheck =
    SlowCheck { source: Source::Probe, words: "the first run of the probe has not ended" };

/// The same for all of its first checks: a file system may not answer.
pub(super) const FIRST_MAX: Duration = Duration::from_secs(2);

/// How long a probe has between SIGTERM and SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(1);

/// Most of what a probe says that is part of the reason.
const SAYS_BYTES_MAX: usize = 200;

/// What checks a worker's health.
#[derive(Clone, Debug)]
pub struct Checks {
    /// A program of the operator's.
    pub probe: Option<Probe>,
    /// Bytes that must be free in the work folder; 0: not checked.
    pub disk_free: u64,
    /// Percent of the time in which everything may wait for memory; 0: not checked.
    pub memory_pressure: u32,
}

/// A program that says by its exit code whether the worker is healthy: 0 is healthy.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Time from the end of a run to the next.
    pub interval: Duration,
    /// Longest that it may run. Then it is killed with all its processes, and has failed.
    pub timeout: Duration,
    /// Failures in a row that make a worker unhealthy.
    pub failures: u32,
    /// Successes in a row that make it healthy again.
    pub recoveries: u32,
}

/// What the checks need of the worker.
pub(super) struct CheckedWorker {
    pub(super) complaints: Complaints,
    pub(super) disk: DiskThreads,
    pub(super) folder: PathBuf,
    pub(super) host: HostEnvironment,
    pub(super) containment: Containment,
    pub(super) program: OwnProgram,
}

/// Checks until it is dropped. `checked` hears when the worker has been checked once, or when that
/// takes long: then it is unhealthy until it has been.
pub(super) async fn keep(checks: Checks, worker: CheckedWorker, checked: oneshot::Sender<()>) {
    let (looked, first_look) = oneshot::channel();
    let (probed, first_probe) = oneshot::channel();
    let say = async {
        // What needs no check drops its end.
        let _ = tokio::join!(first_look, first_probe);
        let _ = checked.send(());
    };
    tokio::join!(say, look(&checks, &worker, looked), async {
        match &checks.probe {
            Some(probe) => probe_on(probe, &worker, probed).await,
            None => drop(probed),
        }
    });
}

async fn look(checks: &Checks, worker: &CheckedWorker, looked: oneshot::Sender<()>) {
    let pressure = pressure::file();
    let mut looked = Some(looked);
    loop {
        if checks.disk_free > 0 {
            let (folder, least) = (worker.folder.clone(), checks.disk_free);
            // On the reader's thread: a file system that does not answer holds up no heartbeat.
            let looking = worker.disk.read(move || space::lacking(&folder, least));
            let is_first = looked.is_some();
            let found = unless_slow(looking, worker, &NO_ANSWER, &mut looked).await;
            if is_first && looked.is_none() {
                // Neither good nor bad is an answer, too.
                worker.complaints.withdraw(Source::Disk);
            }
            note(worker, Source::Disk, found.flatten());
        }
        if checks.memory_pressure > 0 {
            note(worker, Source::Memory, pressure::too_high(&pressure, checks.memory_pressure));
        }
        looked.take().map(|looked| looked.send(()));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Notes what a look has found, if that is clear.
fn note(worker: &CheckedWorker, source: Source, found: Option<Found>) {
    match found {
        Some(Found::Bad(reason)) => worker.complaints.raise(source, &reason),
        Some(Found::Good) => worker.complaints.withdraw(source),
        None => {}
    }
}

/// What a look has found. Between good and bad nothing changes, so that a worker does not go back
/// and forth.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Good,
    Bad(String),
}

/// Awaits a check. If it is the first one, the worker waits for it no longer than [`FIRST_WAITS`]: until it
/// has ended, the worker is unhealthy in these words. `waiting` is the worker while it waits.
async fn unless_slow<T>(
    check: impl Future<Output = T>,
    worker: &CheckedWorker,
    slow: &SlowCheck,
    waiting: &mut Option<oneshot::Sender<()>>,
) -> T {
    let mut check = pin!(check);
    if waiting.is_some() {
        if let Ok(found) = tokio::time::timeout(FIRST_WAITS, &mut check).await {
            return found;
        }
        worker.complaints.raise(slow.source, slow.words);
        waiting.take().map(|waiting| waiting.send(()));
    }
    check.await
}

async fn probe_on(probe: &Probe, worker: &CheckedWorker, probed: oneshot::Sender<()>) {
    let mut streak = Streak::default();
    let mut probed = Some(probed);
    loop {
        let running = run(probe, worker);
        let failure = unless_slow(running, worker, &STILL_RUNS, &mut probed).await.err();
        streak.add(failure.is_some(), probe);
        match failure {
            // Also when it fails for another reason than before.
            Some(failure) if streak.unhealthy => {
                worker.complaints.raise(Source::Probe, &in_words(streak.runs, &failure));
            }
            Some(failure) => tracing::warn!(failure, "probe failed"),
            None if streak.unhealthy => {}
            None => worker.complaints.withdraw(Source::Probe),
        }
        probed.take().map(|probed| probed.send(()));
        tokio::time::sleep(probe.interval).await;
    }
}

fn in_words(failures: u32, failure: &str) -> String {
    match failures {
        1 => format!("probe failed: {failure}"),
        times => format!("probe failed {times} times: {failure}"),
    }
}

/// Runs in a row that ended alike.
#[derive(Debug, Default)]
struct Streak {
    failed: bool,
    runs: u32,
    unhealthy: bool,
}

impl Streak {
    fn add(&mut self, failed: bool, probe: &Probe) {
        // Nothing is known before the first run: it decides alone.
        let is_first = self.runs == 0;
        self.runs = if self.failed == failed { self.runs.saturating_add(1) } else { 1 };
        self.failed = failed;
        if is_first || self.runs >= if failed { probe.failures } else { probe.recoveries } {
            self.unhealthy = failed;
        }
    }
}

/// Runs the probe once, held like a job.
async fn run(probe: &Probe, worker: &CheckedWorker) -> Result<(), String> {
    let [program, args @ ..] = probe.command.as_slice() else { return Ok(()) };
    let spec = AttemptSpec {
        args: args.to_vec(),
        env: worker.host.variables(),
        cwd: worker.folder.clone(),
        timeout: Some(probe.timeout),
        kill_after: KILL_AFTER,
        containment: worker.containment,
        shim: worker.program.clone(),
        ..AttemptSpec::new("probe", program)
    };
    judge(&Attempt::spawn(spec).finished().await, probe.timeout)
}

/// Says how it failed, with the last line that it printed.
fn judge(ended: &AttemptEnd, timeout: Duration) -> Result<(), String> {
    let how = match &ended.kind {
        EndKind::Exited { code: 0 } => return Ok(()),
        EndKind::TimedOut => format!("it ran longer than {timeout:?} and was killed"),
        other => other.to_string(),
    };
    let last_line = |said: &[u8]| {
        let said = String::from_utf8_lossy(said);
        let line = said.lines().map(str::trim).rfind(|line| !line.is_empty())?.to_owned();
        Some(limits::cut(line, SAYS_BYTES_MAX))
    };
    let output = &ended.output;
    match last_line(&output.stderr.bytes).or_else(|| last_line(&output.stdout.bytes)) {
        Some(line) => Err(format!("{how}: {line}")),
        None => Err(how),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_failures_in_a_row_make_it_unhealthy_and_some_successes_healthy_again() {
        let probe = Probe {
            command: Vec::new(),
            interval: Duration::ZERO,
            timeout: Duration::ZERO,
            failures: 3,
            recoveries: 2,
        };
        for (runs, expected) in
            [(".ff.fff.f..f.ff..", "------uuuu-------"), ("f.ff..", "uuuuu-"), ("f..ff", "uu---")]
        {
            let mut streak = Streak::default();
            let unhealthy: String = runs
                .chars()
                .map(|run| {
                    streak.add(run == 'f', &probe);
                    if streak.unhealthy { 'u' } else { '-' }
                })
                .collect();
            assert_eq!(unhealthy, expected, "{runs}");
        }
    }
}
