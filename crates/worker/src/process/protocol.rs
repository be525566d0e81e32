//! What engine and shim say to each other: one JSON object a line, both ways on one socket.
//!
//! ```text
//! engine ──▶ shim: task, then any of term | kill | deadline
//! shim ──▶ engine: launched, [holding], [not_served], [starting], started | spawn_failed,
//!                  [deadline_passed], exited, empty
//! ```
//!
//! A shim with an interpreter that is started ahead gets its task in two parts, and may be asked in
//! between whether it is there:
//!
//! ```text
//! engine ──▶ shim: ahead                      ping        attempt, as above
//! shim ──▶ engine:        holding, waiting | unfit   here
//! ```
//!
//! The end of the stream is a message too: to the shim it says that the engine is gone, to
//! the engine that the shim is. `empty` is said only when no process of the tree is alive.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::resources::LimitPlan;

/// Longest line either side accepts: a spec with all its arguments and environment.
pub(crate) const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a shim is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShimTask {
    /// To hold an attempt.
    Attempt(Box<ShimSpec>),
    /// To become a process that attempts are forked from.
    Warm(WarmProgram),
    /// To start an interpreter that waits for an attempt, which is another task.
    Ahead(Box<AheadProgram>),
    /// To say that it is there.
    Ping,
}

/// The program of an interpreter that is started ahead of its attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AheadProgram {
    /// Its last argument is followed by the number of its link, and by one that makes room in the list of
    /// processes.
    pub(crate) program: WarmProgram,
    pub(crate) room: usize,
    /// What it reads from its link first.
    pub(crate) messages: Vec<String>,
}

/// A program that is executed before there is an attempt for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WarmProgram {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    /// Files that it must not see.
    pub(crate) hidden: Vec<PathBuf>,
    /// Where attempts have their folders.
    pub(crate) attempts: PathBuf,
}

/// What the shim must run, and inside what.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShimSpec {
    /// What the list of processes shows of a shim that was there before.
    pub(crate) label: String,
    pub(crate) program: String,
    /// Its options and then, for an interpreter, its script.
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    pub(crate) contained_in: ContainedIn,
    /// Files that the job must not see, where its containment can hide them.
    pub(crate) hidden: Vec<PathBuf>,
    /// The attempt's own folder; its neighbours' are beside it.
    pub(crate) private_folder: Option<PathBuf>,
    /// CLOCK_BOOTTIME in milliseconds at which the tree is ended in any case.
    pub(crate) deadline_boot_ms: Option<u64>,
    /// How what it may use is limited.
    pub(crate) limits: LimitPlan,
}

/// The containment of one attempt, with the place it uses.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContainedIn {
    Pidns,
    Cgroup { folder: PathBuf },
    Subreaper,
}

/// An order from the engine.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// SIGTERM to the whole tree.
    Term,
    /// SIGKILL to the whole tree.
    Kill,
    /// A new deadline, replacing the one before.
    Deadline { boot_ms: u64 },
}

/// A report from the shim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The shim is there, and a child of the engine with this number. The spawner that made it says
    /// the same.
    Launched { pid: i32 },
    /// The namespace is there and `init` is its first process, as the engine's namespace
    /// counts. Said before anything runs in it, so that the engine can always end it.
    Holding { init: i32 },
    /// The interpreter has loaded all and waits for an attempt. `pid` counts as above, where that can be
    /// known.
    Waiting { pid: Option<i32> },
    /// It does not wait, for this reason, or because it has ended without a word.
    Unfit { why: Option<String> },
    /// The shim is there, as it was asked.
    Here,
    /// The job was not forked, or not taken by the interpreter that was started ahead. Nothing of it has
    /// run: the program is executed.
    NotServed(NotServed),
    /// The job's program is executed next: a shim that dies from here on may have done it.
    Starting,
    /// The job's program was executed. `pid` counts as above, where that can be known.
    Started { pid: Option<i32> },
    /// Nothing was executed.
    SpawnFailed(StartFailure),
    /// The deadline passed and the tree was sent SIGKILL.
    DeadlinePassed,
    /// The job's main process ended.
    Exited(MainExit),
    /// No process of the tree is alive.
    Empty,
}

/// Why a warm interpreter did not serve an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotServed {
    pub(crate) why: String,
    pub(crate) blame: Blame,
}

/// What it says about warm interpreters that one did not serve an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Blame {
    /// Nothing: it was not asked, because none could serve this attempt.
    Attempt,
    /// It may serve none.
    Process,
    /// It has not answered in time.
    Hangs,
}

/// Why nothing was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    /// A sentence for the operator.
    pub reason: String,
    /// What is to blame for it.
    pub fault: StartFault,
}

/// What is to blame when nothing was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartFault {
    /// The job: its arguments and environment, which are made of its parameters, are too long.
    Job,
    /// The host, which has no process, descriptor or memory to spare at the moment.
    Scarcity,
    /// The worker or its host, for another reason.
    Host,
}

impl StartFailure {
    /// A failure that says nothing about the job.
    pub(crate) fn of_host(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), fault: StartFault::Host }
    }

    /// A system call without which this cannot be done has failed; it says nothing about the job.
    pub(crate) fn cannot(what: impl Display, error: impl Into<io::Error>) -> Self {
        Self::of_call(format_args!("cannot {what}"), &error.into())
    }

    /// A failure of a system call that says nothing about the job.
    pub(crate) fn of_call(what: impl Display, error: &io::Error) -> Self {
        Self { reason: format!("{what}: {error}"), fault: StartFault::of(error) }
    }
}

impl StartFault {
    /// The fault that an error of a system call shows. `ENOSPC` is not scarcity: it is the answer of
    /// a host without user namespaces.
    pub(crate) fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Scarcity,
            _ => Self::Host,
        }
    }
}

/// How the job's main process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MainExit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// The shim had signalled the tree before: the end may be its doing.
    pub(crate) signalled_by_us: bool,
    pub(crate) oom: Oom,
    /// The limit for which the shim ended the tree.
    pub(crate) exceeded: Option<ExceededLimit>,
    pub(crate) used: Used,
}

/// What the tree has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    /// Most bytes of memory at a time.
    pub(crate) peak_memory: u64,
    /// Time on processors.
    pub(crate) cpu_ms: u64,
}

/// A limit of the attempt that the shim keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExceededLimit {
    Memory,
    Processes,
}

/// Whether the kernel's out-of-memory killer did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Oom {
    /// The memory controller counted an OOM kill while the job ran.
    Yes,
    /// It counted none, or the end was not one an OOM kill brings.
    No,
    /// Killed by a SIGKILL that was not ours, with no counter to ask.
    Unknown,
}
