//! One `outlast` process: started, logged, signalled, and certainly ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::binary;
use crate::process_table::{self, ProcessId};
use crate::wait::{eventually, poll};

/// Variable that marks everything descended from a process of ours.
/// A name that a worker keeps in its environment, and hands to its jobs.
const MARK: &str = "LC_E2E_PROCESS";
const TAIL_LINES: usize = 60;

/// A running `outlast`. Dropping it kills it and everything below it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
    mark: String,
    code: Option<Option<i32>>,
}

/// How a finished command ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote on stdout.
    pub stdout: String,
    /// What it wrote on stderr.
    pub stderr: String,
}

/// Prepares a command line of the binary under test, without any of our own settings.
#[must_use]
pub fn command(arguments: &[String]) -> Command {
    command_of(binary::outlast(), arguments)
}

/// Prepares a command line of another build.
#[must_use]
pub fn command_of(program: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_setting = text.starts_with("OUTLAST_") || text.starts_with("OJS_");
        if is_setting && text != "OUTLAST_LOG" {
            command.env_remove(&name);
        }
    }
    command
}

/// The same command in a process that may open this many files and no more.
#[must_use]
pub fn with_open_files(command: &Command, limit: u32) -> Command {
    let limit = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
    below(&["sh".to_owned(), "-c".to_owned(), limit], command)
}

/// The same command started by way of a program that executes what it is given.
///
/// # Panics
///
/// When no program is named.
#[must_use]
pub fn below(program: &[String], command: &Command) -> Command {
    let (program, args) = program.split_first().expect("a program");
    let mut started = Command::new(program);
    started.args(args).arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => started.env(name, value),
            None => started.env_remove(name),
        };
    }
    started
}

/// Longest that a command which asks a server takes.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// Runs a command of the command line against a server, to its end.
///
/// # Panics
///
/// When it does not end in time.
#[must_use]
pub fn run_against(url: &str, words: &[&str]) -> Finished {
    run_to_end(&[words, &["--server", url]].concat(), COMMAND_MAX)
}

/// Runs a command line to its end.
///
/// # Panics
///
/// When it does not end in time.
#[must_use]
pub fn run_to_end(arguments: &[&str], bound: Duration) -> Finished {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (out, err) = (folder.path().join("stdout"), folder.path().join("stderr"));
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let mut child = command(&arguments)
        .stdout(File::create(&out).expect("a file"))
        .stderr(File::create(&err).expect("a file"))
        .spawn()
        .expect("the binary starts");
    let ended = poll(bound, || child.try_wait().expect("waiting for our child"));
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into();
    let Some(status) = ended else {
        let _killed = child.kill();
        let _reaped = child.wait();
        let stderr: String = read(&err);
        panic!("outlast {arguments:?} did not end within {bound:?}; stderr:\n{stderr}");
    };
    Finished { code: status.code(), stdout: read(&out), stderr: read(&err) }
}

impl Process {
    /// Starts the binary with these arguments; both outputs go to `folder/name.log`.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, arguments: &[String], folder: &Path) -> Self {
        Self::spawn(name, command(arguments), folder)
    }

    /// Starts a prepared command; both outputs go to `folder/name.log`.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(name: &str, mut command: Command, folder: &Path) -> Self {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let log = folder.join(format!("{number}-{name}.log"));
        let output = File::create(&log).expect("a log file");
        let child = command
            .env(MARK, &mark)
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("the binary starts");
        Self { child, name: name.to_owned(), log, mark, code: None }
    }

    /// Returns its process id; for a worker that of the guardian.
    #[must_use]
    pub fn pid(&self) -> ProcessId {
        ProcessId::try_from(self.child.id()).expect("a process id")
    }

    /// Returns everything it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until it writes a line with `text`, and returns the line.
    ///
    /// # Panics
    ///
    /// When it does not in time, or ends first; the message carries the end of its log.
    #[must_use]
    pub fn await_line(&mut self, text: &str, bound: Duration) -> String {
        let find = |log: &str| log.lines().find(|line| line.contains(text)).map(str::to_owned);
        let found =
            poll(bound, || find(&self.log()).map(Some).or_else(|| self.ended().map(|_| None)));
        let found = found.flatten().or_else(|| find(&self.log()));
        found.unwrap_or_else(|| {
            let state = self
                .ended()
                .map_or_else(|| "runs on".to_owned(), |code| format!("ended: {code:?}"));
            panic!("{} never wrote {text:?} and {state}; its log:\n{}", self.name, self.tail())
        })
    }

    /// Returns the end of its log.
    #[must_use]
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Sends a signal to this very process.
    pub fn signal(&self, signal: Signal) {
        if self.code.is_none() {
            process_table::signal(self.pid(), signal);
        }
    }

    /// Sends a signal and waits until the process has taken it, so that the next one of the same
    /// kind is not merged with it.
    ///
    /// # Panics
    ///
    /// When it does not take it.
    pub fn signal_taken(&mut self, signal: Signal) {
        self.signal(signal);
        eventually("the signal is taken", Duration::from_secs(10), || {
            let taken = !process_table::is_pending(self.pid(), signal) || self.ended().is_some();
            taken.then_some(())
        });
    }

    /// Kills this very process and reaps it.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if self.code.is_none() {
            let status = self.child.wait().ok();
            self.code = Some(status.and_then(|status| status.code()));
        }
    }

    /// Returns how it ended, if it has: `Some(None)` when by a signal.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        if self.code.is_none() {
            let status = self.child.try_wait().expect("waiting for our child")?;
            self.code = Some(status.code());
        }
        self.code
    }

    /// Waits for its end and returns the exit code; `None` when a signal ended it.
    ///
    /// # Panics
    ///
    /// When it does not end in time.
    pub fn await_end(&mut self, bound: Duration) -> Option<i32> {
        match poll(bound, || self.ended()) {
            Some(code) => code,
            None => panic!("{} did not end within {bound:?}; log:\n{}", self.name, self.tail()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- end of the log of {} ----\n{}", self.name, self.tail());
        }
        let mut below = Vec::new();
        if self.ended().is_none() {
            below = process_table::descendants(self.pid());
            self.kill();
        }
        let left = process_table::kill_all(|| {
            let mut left = process_table::with_variable(MARK, &self.mark);
            left.extend(below.iter().copied().filter(|pid| process_table::is_alive(*pid)));
            left
        });
        if !left.is_empty() {
            eprintln!("{}: these processes would not end: {left:?}", self.name);
        }
    }
}
