//! How an attempt ended.

use std::fmt;
use std::time::Duration;

use outlast_core::resources::Usage;
use outlast_core::time::BootTime;

use super::output::OutputSummary;
use crate::process::protocol::{Oom, StartFailure};

/// How an attempt ended.
#[derive(Debug)]
pub struct AttemptEnd {
    /// Why it ended.
    pub kind: EndKind,
    /// Exit code of the main process, also when it was ordered to end and then exited.
    pub code: Option<i32>,
    /// Signal that ended the main process.
    pub signal: Option<i32>,
    /// No process of the tree is alive, with proof.
    pub tree_empty: bool,
    /// The program was executed: its effects may exist.
    pub executed: bool,
    /// When it was spawned.
    pub started: BootTime,
    /// From spawning to the proof that the tree is empty, or giving up on it.
    pub duration: Duration,
    /// What was kept of its output.
    pub output: OutputSummary,
    /// What it used, unless its end was not seen.
    pub usage: Usage,
}

/// Why an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndKind {
    /// The main process exited by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// The main process died of a signal that was not ours.
    Signalled {
        /// The signal's number.
        signal: i32,
        /// Whether it was the OOM killer's is known to be false, or unknown.
        oom: Oom,
    },
    /// It ran longer than its timeout and was ended.
    TimedOut,
    /// It was cancelled and ended.
    Cancelled,
    /// The worker is shutting down and ended it.
    Interrupted,
    /// Its deadline passed without a renewal and the shim ended it.
    DeadlinePassed,
    /// The kernel's out-of-memory killer ended it, or its shim did at its limit.
    OomKilled,
    /// It had more processes and threads than it may, and its shim ended it.
    TooManyProcesses,
    /// Nothing was executed.
    SpawnFailed(StartFailure),
    /// Its shim was killed where the job has the right to do that.
    ShimKilled,
    /// Its shim was killed from outside, and the tree with it.
    ShimDied {
        /// A sentence for the operator.
        reason: String,
    },
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::Signalled { signal, .. } => write!(f, "killed by signal {signal}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Interrupted => f.write_str("interrupted by shutdown"),
            Self::DeadlinePassed => f.write_str("ended because its lease was not renewed"),
            Self::OomKilled => f.write_str("killed for want of memory"),
            Self::TooManyProcesses => f.write_str("ended for having too many processes"),
            Self::SpawnFailed(StartFailure { reason, .. }) => {
                write!(f, "failed to start: {reason}")
            }
            Self::ShimKilled => f.write_str("its shim was killed, most likely by the job itself"),
            Self::ShimDied { reason } => write!(f, "lost its shim: {reason}"),
        }
    }
}

impl AttemptEnd {
    /// An end of which nothing is known.
    pub(super) fn unknown(reason: &str) -> Self {
        Self {
            kind: EndKind::ShimDied { reason: reason.to_owned() },
            code: None,
            signal: None,
            tree_empty: false,
            executed: true,
            started: BootTime::default(),
            duration: Duration::ZERO,
            output: OutputSummary::default(),
            usage: Usage::default(),
        }
    }
}
