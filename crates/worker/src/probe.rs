//! Which containment really works on this host.
//!
//! Nothing here trusts a version number or a file's existence: a kind works when a job was run
//! in it and its tree was seen to be empty.

use std::path::PathBuf;
use std::time::Duration;

use crate::OwnProgram;
use crate::attempt::{Attempt, AttemptSpec, EndKind, StartFailure, StartFault};
use crate::containment::{Choice, Containment};
use crate::shim::{NOOP, SUBCOMMAND};

/// How long one trial may take on a host that is busy starting everything at once, and those
/// after it. Together less than what init systems wait for a stop.
const TRIALS: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(10), Duration::from_secs(15)];

/// Between two trials.
const PAUSE: Duration = Duration::from_millis(200);

/// What a probe found.
#[derive(Debug)]
pub struct Probe {
    /// The best kind that works. It holds the jobs that must not overlap.
    pub chosen: Containment,
    /// What holds the others: the same, or one in which they can do more.
    pub ordinary: Containment,
    /// Better kinds that do not work here, and why.
    pub refused: Vec<Refused>,
}

/// One kind that does not work here.
#[derive(Debug)]
pub struct Refused {
    /// The kind that was tried.
    pub kind: Containment,
    /// Why it does not work.
    pub reason: String,
}

/// No containment that was asked for works on this host.
#[derive(Debug, thiserror::Error)]
#[error("no containment works on this host: {}", .refused.iter().map(|r| format!("{}: {}", r.kind, r.reason)).collect::<Vec<_>>().join("; "))]
pub struct NoContainment {
    /// Every kind that was tried.
    pub refused: Vec<Refused>,
}

impl Probe {
    /// Tries `choice` on this host and returns the best kind that works.
    ///
    /// A trial that only took too long, or for which the host had no processes or descriptors
    /// to spare, says nothing about the kind: it is made again, and in the end fails the probe
    /// rather than passing for a weaker kind.
    ///
    /// # Errors
    /// When the forced kind does not work, none does, or it could not be found out.
    pub async fn run(choice: Choice, program: &OwnProgram) -> Result<Self, NoContainment> {
        Self::hiding(choice, program, &[]).await
    }

    /// The same for jobs from which these files are to be hidden: a kind that can hide files
    /// works only if it can hide these.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn hiding(
        choice: Choice,
        program: &OwnProgram,
        hidden: &[PathBuf],
    ) -> Result<Self, NoContainment> {
        Self::with(choice, &Trials { program, hidden, limits: &TRIALS }).await
    }

    /// The same with these limits of one trial after another.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn within(
        choice: Choice,
        program: &OwnProgram,
        limits: &[Duration],
    ) -> Result<Self, NoContainment> {
        Self::with(choice, &Trials { program, hidden: &[], limits }).await
    }

    async fn with(choice: Choice, trials: &Trials<'_>) -> Result<Self, NoContainment> {
        let candidates = match choice {
            Choice::Auto => Containment::ALL.to_vec(),
            Choice::Forced(kind) => vec![kind],
        };
        let mut refused = Vec::new();
        for kind in candidates {
            match repeated_trial(kind, trials).await {
                Ok(()) => {
                    warn_of_readable(kind, trials.hidden);
                    let ordinary = ordinary(kind, choice, trials).await;
                    return Ok(Self { chosen: kind, ordinary, refused });
                }
                Err(Failed::ByKind(reason)) => refused.push(Refused { kind, reason }),
                Err(Failed::ByHost(reason)) => {
                    refused.push(Refused { kind, reason });
                    break;
                }
            }
        }
        Err(NoContainment { refused })
    }
}

/// Only a PID namespace has mounts of its own, in which files are hidden.
fn warn_of_readable(chosen: Containment, hidden: &[PathBuf]) {
    if chosen != Containment::Pidns && !hidden.is_empty() {
        tracing::warn!(
            files = names(hidden),
            containment = chosen.name(),
            "jobs can read these files: only a PID namespace hides them; a token can be given in the environment instead, a key cannot"
        );
    }
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    names.join(", ")
}

/// What holds jobs that may overlap, where `chosen` holds those that must not.
///
/// In a namespace made through a user namespace every user but the worker's is unknown: files
/// of root seem to belong to `nobody`, and ssh, git over ssh and ansible refuse to run. A cgroup
/// has no such effect. But it hides no files, and that comes first.
async fn ordinary(chosen: Containment, choice: Choice, trials: &Trials<'_>) -> Containment {
    let narrow = chosen == Containment::Pidns && Containment::knows_one_user();
    if choice == Choice::Auto && narrow {
        if !trials.hidden.is_empty() {
            tracing::info!(
                files = names(trials.hidden),
                "all jobs run in a PID namespace, which hides these files from them; a cgroup could hide none"
            );
            return chosen;
        }
        let cgroup = repeated_trial(Containment::Cgroup, trials).await;
        if cgroup.is_ok() {
            return Containment::Cgroup;
        }
    }
    chosen
}

/// Why a trial failed.
enum Failed {
    /// The kind does not work here.
    ByKind(String),
    /// Nothing was found out.
    ByHost(String),
}

/// How kinds are tried.
struct Trials<'a> {
    program: &'a OwnProgram,
    /// Files that jobs must not see.
    hidden: &'a [PathBuf],
    /// How long each trial may take, one after another.
    limits: &'a [Duration],
}

async fn repeated_trial(kind: Containment, trials: &Trials<'_>) -> Result<(), Failed> {
    let mut failed = Failed::ByHost("it was not tried".to_owned());
    for limit in trials.limits {
        match trial(kind, trials, *limit).await {
            Err(Failed::ByHost(reason)) => {
                tracing::warn!(%kind, reason, "containment trial inconclusive, retrying");
                failed = Failed::ByHost(reason);
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
    Err(failed)
}

/// Runs the program itself, doing nothing, as a job in `kind`.
async fn trial(kind: Containment, trials: &Trials<'_>, limit: Duration) -> Result<(), Failed> {
    let program = trials.program;
    let path = program.path().to_str();
    let path = path.ok_or_else(|| Failed::ByKind("the program's path is not UTF-8".to_owned()))?;
    let spec = AttemptSpec {
        args: vec![SUBCOMMAND.to_owned(), NOOP.to_owned()],
        timeout: Some(limit),
        kill_after: Duration::ZERO,
        containment: kind,
        hidden: trials.hidden.to_vec(),
        shim: program.clone(),
        ..AttemptSpec::new("probe", path)
    };
    let ending = Attempt::spawn(spec).finished().await;
    match ending.kind {
        EndKind::Exited { code: 0 } if ending.tree_empty => Ok(()),
        EndKind::TimedOut => Err(Failed::ByHost(format!("a trial took more than {limit:?}"))),
        EndKind::SpawnFailed(StartFailure { reason, fault: StartFault::Scarcity }) => {
            Err(Failed::ByHost(reason))
        }
        EndKind::SpawnFailed(StartFailure { reason, .. }) => Err(Failed::ByKind(reason)),
        other => Err(Failed::ByKind(format!("a trial did not end well: {other}"))),
    }
}
