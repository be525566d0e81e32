//! One attempt as the engine sees it: a program run to its end, whatever that end is.
//!
//! ```text
//! spawn ──▶ running ──▶ main process ends ──▶ tree empty ──▶ AttemptEnd
//!             ├─ timeout | cancel | interrupt: SIGTERM, kill_after, SIGKILL ─┤
//!             └─ deadline | kill_now: SIGKILL ────────────────────────────────┘
//! ```
//!
//! There is exactly one [`AttemptEnd`], and where its `tree_empty` is true no process of the
//! attempt was alive when it was made. Output readers, timeout and orders are armed before a
//! byte of input is written, and memory is bounded whatever the job writes. Nothing here
//! decides whether a job is retried, or talks to a server.

mod attempt_task;
mod end;
mod output;
mod proof;
mod stop;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use outlast_core::limits;
use outlast_core::resources::Resources;
use outlast_core::time::BootTime;
use tokio::sync::{mpsc, oneshot};

pub use self::end::{AttemptEnd, EndKind};
pub use self::output::{Captured, Output, OutputLimits, OutputSummary, Stream};
pub use crate::process::protocol::{Oom, StartFailure, StartFault};

use self::stop::Command;
use crate::process::OwnProgram;
use crate::process::containment::Containment;
use crate::process::resources::Enforcement;
use crate::warm::WarmProcess;

/// Between SIGTERM and SIGKILL, unless an action says otherwise.
pub const KILL_AFTER: Duration = Duration::from_secs(5);

/// Orders that may wait for the attempt's own task, which never waits for anyone.
const COMMAND_QUEUE: usize = 32;

/// What to run, inside what, and for how long.
#[derive(Debug, Clone)]
pub struct AttemptSpec {
    /// Shown in the process list behind `outlast shim`; the job's id.
    pub label: String,
    /// The program, looked up in the PATH of `env` if it has no slash.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment; nothing is added.
    pub env: Vec<(String, String)>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// What it may read on standard input, which ends afterwards.
    pub stdin: Vec<u8>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// How long it has between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// How much of its output is kept.
    pub limits: OutputLimits,
    /// When the tree must be dead even if this engine is frozen.
    pub deadline: Option<BootTime>,
    /// What holds its tree.
    pub containment: Containment,
    /// What it may use.
    pub resources: Resources,
    /// By what that is limited here.
    pub enforcement: Enforcement,
    /// Files that it must not see, where its containment can hide them.
    pub hidden: Vec<PathBuf>,
    /// Its own folder: what lies beside it is hidden from it, where its containment can.
    pub private_folder: Option<PathBuf>,
    /// The program to execute as the shim.
    pub shim: OwnProgram,
    /// The interpreter that is there already. If it is of no use, the program is executed.
    pub warm: Option<WarmProcess>,
}

impl AttemptSpec {
    /// Describes a plain run of `program`: no arguments, no environment, no input, no time
    /// limit, in `/`, inside a PID namespace, with the product's limits.
    #[must_use]
    pub fn new(label: impl Into<String>, program: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: PathBuf::from("/"),
            stdin: Vec::new(),
            timeout: None,
            kill_after: KILL_AFTER,
            limits: OutputLimits {
                log_bytes_max: limits::LOG_BYTES_MAX,
                result_bytes_max: limits::RESULT_BYTES_MAX,
            },
            deadline: None,
            containment: Containment::Pidns,
            resources: Resources::NONE,
            enforcement: Enforcement::BY_SHIM,
            hidden: Vec::new(),
            private_folder: None,
            shim: OwnProgram::running(),
            warm: None,
        }
    }
}

/// A running attempt. When this and every handle are dropped, the tree is killed.
#[derive(Debug)]
pub struct Attempt {
    handle: AttemptHandle,
    output: Option<mpsc::UnboundedReceiver<Output>>,
    ending: oneshot::Receiver<AttemptEnd>,
}

impl Attempt {
    /// Starts the attempt on the current tokio runtime. A failure to start is an ending too.
    #[must_use]
    pub fn spawn(spec: AttemptSpec) -> Self {
        let (commands, command_queue) = mpsc::channel(COMMAND_QUEUE);
        let (chunks, output) = mpsc::unbounded_channel();
        let (end, ending) = oneshot::channel();
        tokio::spawn(async move {
            let result = attempt_task::run(spec, command_queue, chunks).await;
            // The receiver may be gone; the tree has ended all the same.
            let _ = end.send(result);
        });
        Self { handle: AttemptHandle { commands }, output: Some(output), ending }
    }

    /// Returns a handle to stop the attempt by.
    #[must_use]
    pub fn handle(&self) -> AttemptHandle {
        self.handle.clone()
    }

    /// Takes the stream of output, once. A reader that falls behind holds nothing back, and
    /// finds all of it up to the limit; one that is dropped, or never taken before
    /// [`Self::finished`], lets output go unseen.
    pub fn take_output(&mut self) -> Option<mpsc::UnboundedReceiver<Output>> {
        self.output.take()
    }

    /// Waits for the end.
    pub async fn finished(mut self) -> AttemptEnd {
        // It has no reader any more: it must not hold the job back.
        drop(self.output.take());
        match (&mut self.ending).await {
            Ok(ending) => ending,
            // Only a runtime that is being shut down drops the task.
            Err(_) => AttemptEnd::unknown("the engine is shutting down"),
        }
    }
}

/// Stops a running attempt. Every call is allowed at any time; after the end it does nothing.
#[derive(Debug, Clone)]
pub struct AttemptHandle {
    commands: mpsc::Sender<Command>,
}

impl AttemptHandle {
    /// Ends the tree because the job was cancelled: SIGTERM, then SIGKILL.
    pub fn cancel(&self) {
        self.send(Command::Cancel);
    }

    /// Ends the tree because the worker is shutting down: SIGTERM, then SIGKILL.
    pub fn interrupt(&self) {
        self.send(Command::Interrupt);
    }

    /// Asks the main process to stop, by SIGTERM, and leaves it the time that it takes. If it then
    /// ends by the signal, or with exit code 75 or 143, that is an interruption.
    pub fn ask_to_stop(&self) {
        self.send(Command::Ask);
    }

    /// Ends the tree with SIGKILL at once; counts as an interruption unless it was being
    /// stopped for another reason already.
    pub fn kill_now(&self) {
        self.send(Command::KillNow);
    }

    /// Moves the deadline at which the shim ends the tree by itself.
    pub fn extend_deadline(&self, deadline: BootTime) {
        self.send(Command::Deadline(deadline));
    }

    fn send(&self, command: Command) {
        // Full only when orders come in faster than a task that never blocks can take them,
        // and closed only after the end.
        if let Err(mpsc::error::TrySendError::Full(command)) = self.commands.try_send(command) {
            tracing::warn!(?command, "too many orders for one attempt, dropped one");
        }
    }
}
