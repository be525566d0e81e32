//! From an action's entry point to a program and its arguments.
//!
//! Interpreters are looked for in the PATH that jobs get: at the start, and again while one is
//! missing or gone. An interpreter that is missing is a fact about this worker that it reports, not
//! a failure of a job. Parameters never come near a command line.

mod node;
mod python;
mod shell;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// How long an interpreter may take to say its version, on a cold disk.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Most looks after which a program that did not answer is asked again: a broken interpreter may
/// be repaired, but asking one that hangs costs [`ANSWER_MAX`].
const ASK_EVERY_MAX: u32 = 12;

/// What an action is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// A POSIX shell, or bash where the script's first line asks for it.
    Shell,
    /// Python 3.
    Python,
    /// Node.js.
    Node,
}

impl Runtime {
    /// Every runtime there is.
    pub const ALL: [Self; 3] = [Self::Shell, Self::Python, Self::Node];

    /// Returns the name used in packs, settings and when a worker registers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    /// The names of programs that can serve, best first.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Shell => shell::PROGRAMS,
            Self::Python => python::PROGRAMS,
            Self::Node => node::PROGRAMS,
        }
    }

    /// Arguments that make the program print its real path and its version, a line each.
    const fn question(self) -> &'static [&'static str] {
        match self {
            Self::Shell => shell::QUESTION,
            Self::Python => python::QUESTION,
            Self::Node => node::QUESTION,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Runtime {
    type Err = UnknownRuntime;

    fn from_str(text: &str) -> Result<Self, UnknownRuntime> {
        match text {
            "shell" => Ok(Self::Shell),
            "python" => Ok(Self::Python),
            "node" | "nodejs" => Ok(Self::Node),
            _ => Err(UnknownRuntime(text.to_owned())),
        }
    }
}

/// A name that is no runtime.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown runtime {0:?}: expected shell, python or node")]
pub struct UnknownRuntime(pub String);

/// A program that runs actions of one runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// What it serves.
    pub runtime: Runtime,
    /// Where it really is, behind any version manager's wrapper.
    pub program: PathBuf,
    /// What it says its version is; empty where it has none to tell.
    pub version: String,
}

impl Interpreter {
    /// Whether the program can still be run.
    #[must_use]
    pub fn is_there(&self) -> bool {
        is_program(&self.program)
    }
}

/// A runtime that this host cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {runtime} interpreter: looked for {} in PATH {path}", .runtime.programs().join(", "))]
pub struct MissingInterpreter {
    /// What was looked for.
    pub runtime: Runtime,
    /// Where it was looked for.
    pub path: String,
}

/// The program and arguments that run an entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// An absolute path.
    pub program: PathBuf,
    /// Options of the interpreter, then the entry point.
    pub args: Vec<String>,
}

/// Every interpreter of this host that jobs can use.
#[derive(Debug, Clone)]
pub struct Interpreters {
    path: String,
    found: Vec<Interpreter>,
    unfit: Vec<Unfit>,
}

/// A program that was asked and gave no answer: it is no interpreter, it is broken or hangs, or the
/// host could not start it.
#[derive(Debug, Clone)]
struct Unfit {
    program: PathBuf,
    /// The number of looks between the last question and the next; doubles with each.
    ask_every: u32,
    /// Looks until it is asked again.
    ask_in: u32,
}

impl Interpreters {
    /// Looks for all runtimes in `path` and asks each interpreter for its version.
    pub async fn find(path: &str) -> Self {
        let none = Self { path: path.to_owned(), found: Vec::new(), unfit: Vec::new() };
        none.again().await
    }

    /// Looks again for those that are missing or gone. The others are not asked again: a host
    /// without processes to spare must not lose them.
    pub async fn again(&self) -> Self {
        let mut again = self.clone();
        again.unfit.iter_mut().for_each(|unfit| unfit.ask_in = 0);
        for runtime in Runtime::ALL {
            again.ask_for(runtime).await;
        }
        again
    }

    /// One of many looks at intervals, for these runtimes. A program that gave no answer is asked
    /// again less and less often.
    pub async fn look(&self, runtimes: &[Runtime]) -> Self {
        let mut look = self.clone();
        for unfit in &mut look.unfit {
            unfit.ask_in = unfit.ask_in.saturating_sub(1);
        }
        for runtime in runtimes {
            look.ask_for(*runtime).await;
        }
        look
    }

    async fn ask_for(&mut self, runtime: Runtime) {
        if self.has(runtime) {
            return;
        }
        self.found.retain(|gone| gone.runtime != runtime);
        for name in runtime.programs() {
            let Some(program) = find_in_path(name, &self.path) else { continue };
            if self.unfit.iter().any(|unfit| unfit.program == program && unfit.ask_in > 0) {
                continue;
            }
            if let Some(interpreter) = ask(runtime, &program, &self.path).await {
                self.unfit.retain(|unfit| unfit.program != program);
                self.found.push(interpreter);
                return self.found.sort_by_key(|found| found.runtime);
            }
            self.put_off(program);
        }
    }

    fn put_off(&mut self, program: PathBuf) {
        if let Some(unfit) = self.unfit.iter_mut().find(|unfit| unfit.program == program) {
            unfit.ask_every = unfit.ask_every.saturating_mul(2).min(ASK_EVERY_MAX);
            unfit.ask_in = unfit.ask_every;
        } else {
            self.unfit.push(Unfit { program, ask_every: 1, ask_in: 1 });
        }
    }

    /// Whether there is an interpreter for `runtime` that can still be run.
    #[must_use]
    pub fn has(&self, runtime: Runtime) -> bool {
        self.get(runtime).is_ok_and(Interpreter::is_there)
    }

    /// Returns what was found, in the order of [`Runtime::ALL`].
    #[must_use]
    pub fn found(&self) -> &[Interpreter] {
        &self.found
    }

    /// Returns the interpreter for `runtime`.
    ///
    /// # Errors
    /// When this host has none.
    pub fn get(&self, runtime: Runtime) -> Result<&Interpreter, MissingInterpreter> {
        self.found
            .iter()
            .find(|interpreter| interpreter.runtime == runtime)
            .ok_or_else(|| MissingInterpreter { runtime, path: self.path.clone() })
    }

    /// Says how to run the script at `entry_point`.
    ///
    /// # Errors
    /// When this host has no interpreter for it.
    pub fn command_line(
        &self,
        runtime: Runtime,
        entry_point: &Path,
    ) -> Result<CommandLine, MissingInterpreter> {
        let interpreter = self.get(runtime)?;
        let (program, options) = match runtime {
            Runtime::Shell => (shell::program_for(entry_point, interpreter, &self.path), &[][..]),
            Runtime::Python => (interpreter.program.clone(), python::OPTIONS),
            Runtime::Node => (interpreter.program.clone(), node::OPTIONS),
        };
        let script = entry_point.to_string_lossy().into_owned();
        let args = options.iter().map(|option| (*option).to_owned()).chain([script]).collect();
        Ok(CommandLine { program, args })
    }
}

/// Runs the interpreter once: one that does not start and answer is not there.
pub(crate) async fn ask(runtime: Runtime, program: &Path, path: &str) -> Option<Interpreter> {
    let mut command = Command::new(program);
    command
        .args(runtime.question())
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(ANSWER_MAX, command.output()).await.ok()?.ok()?;
    if !output.status.success() {
        return None;
    }
    let answer = String::from_utf8_lossy(&output.stdout);
    let mut lines = answer.lines();
    let real = lines.next().map(str::trim).map(PathBuf::from);
    let version = lines.next().unwrap_or_default().trim().to_owned();
    let program = real.filter(|real| real.is_absolute()).unwrap_or_else(|| program.to_owned());
    Some(Interpreter { runtime, program, version })
}

/// Looks a program up as a shell would.
pub(crate) fn find_in_path(name: &str, path: &str) -> Option<PathBuf> {
    std::env::split_paths(OsStr::new(path))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_absolute() && is_program(candidate))
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
