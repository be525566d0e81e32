//! From an action's entry point to a program and its arguments.
//!
//! Interpreters are looked for in the PATH that jobs get: at the start, and again when one is
//! gone. An interpreter that is missing is a fact about this worker that it reports, not a failure
//! of a job. Parameters never come near a command line.

mod node;
mod python;
mod shell;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// How long an interpreter may take to say its version, on a cold disk.
const ANSWER_MAX: Duration = Duration::from_secs(10);

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
    /// Programs that were asked and are no interpreter.
    unfit: Vec<PathBuf>,
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
        let mut again = Self { path: self.path.clone(), found: Vec::new(), unfit: Vec::new() };
        for runtime in Runtime::ALL {
            match self.get(runtime) {
                Ok(known) if known.is_there() => again.found.push(known.clone()),
                _ => again.ask_for(runtime).await,
            }
        }
        again
    }

    async fn ask_for(&mut self, runtime: Runtime) {
        for name in runtime.programs() {
            let Some(program) = find_in_path(name, &self.path) else { continue };
            match probe(runtime, &program, &self.path).await {
                Probe::Fit(interpreter) => return self.found.push(interpreter),
                Probe::Unfit => self.unfit.push(program),
                Probe::None => {}
            }
        }
    }

    /// Whether there is an interpreter for `runtime`, or a program that was not asked yet.
    #[must_use]
    pub fn may_have(&self, runtime: Runtime) -> bool {
        if let Ok(known) = self.get(runtime)
            && known.is_there()
        {
            return true;
        }
        let programs = runtime.programs().iter();
        programs
            .filter_map(|name| find_in_path(name, &self.path))
            .any(|program| !self.unfit.contains(&program))
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

/// What a program says when it is asked whether it serves a runtime.
enum Probe {
    Fit(Interpreter),
    /// It is no interpreter, or a broken one.
    Unfit,
    /// It could not be asked: the host has nothing to spare.
    None,
}

/// Runs the interpreter once: one that does not start is not there.
async fn probe(runtime: Runtime, program: &Path, path: &str) -> Probe {
    let mut command = Command::new(program);
    command
        .args(runtime.question())
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = match timeout(ANSWER_MAX, command.output()).await {
        Ok(Ok(output)) if output.status.success() => output,
        Ok(Ok(_)) => return Probe::Unfit,
        Ok(Err(error)) if is_unfit(&error) => return Probe::Unfit,
        Ok(Err(_)) | Err(_) => return Probe::None,
    };
    let answer = String::from_utf8_lossy(&output.stdout);
    let mut lines = answer.lines();
    let real = lines.next().map(str::trim).map(PathBuf::from);
    let version = lines.next().unwrap_or_default().trim().to_owned();
    let program = real.filter(|real| real.is_absolute()).unwrap_or_else(|| program.to_owned());
    Probe::Fit(Interpreter { runtime, program, version })
}

/// Whether the program is to blame for not starting, and not the host.
fn is_unfit(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied};
    let is_no_program = error.raw_os_error() == Some(libc::ENOEXEC);
    is_no_program || matches!(error.kind(), NotFound | PermissionDenied)
}

/// Looks a program up as a shell would.
fn find_in_path(name: &str, path: &str) -> Option<PathBuf> {
    std::env::split_paths(OsStr::new(path))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_absolute() && is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
