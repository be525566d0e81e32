//! Making the environments of packs: `outlast packs sync`. No attempt ever installs anything.
//!
//! ```text
//! lock ─▶ new folder ─▶ copy of the pack ─▶ uv, pip or npm ─▶ stamp ─▶ link ─▶ remove old ones
//! ```
//!
//! What is interrupted leaves a folder without a stamp and without a link to it, which the next run
//! removes. Tools work in a copy of the pack, since building a local package writes into its folder
//! and the pack's digest would change. They hold the lock, too: one that outlives this process is
//! still waited for.

mod copy;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use outlast_packs::environment::{
    EnvironmentKind, EnvironmentState, Manifest, PackEnvironment, Stamp, SyncLock, interpreter,
};
use tokio::process::Command;
use uuid::Uuid;

use crate::runtime::{Interpreter, Interpreters, Runtime, ask, find_in_path};

/// Variables of an activated environment or of another Python, which would change what is
/// installed, and where.
const NOT_FOR_TOOLS: [&str; 15] = [
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_PYTHON",
    "UV_TARGET",
    "UV_PREFIX",
    "UV_SYSTEM_PYTHON",
    "npm_config_prefix",
    "NPM_CONFIG_PREFIX",
    "npm_config_global",
    "NPM_CONFIG_GLOBAL",
];

/// Makes environments with the tools of this host.
#[derive(Debug)]
pub struct Installer {
    path: String,
    interpreters: Interpreters,
    /// The Python that was asked for in place of the first in PATH.
    python: Option<Interpreter>,
}

/// What became of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// There was nothing to do.
    Fresh,
    /// It was made.
    Made,
    /// It was not made by this program, which leaves it alone.
    ByHand,
}

/// Why an environment could not be made. The one of before, if there was one, is still in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A program is missing.
    #[error("{0}")]
    NoProgram(String),
    /// A tool failed, and has said why.
    #[error("`{command}` failed ({how}); its output says why")]
    Tool {
        /// The command in short.
        command: &'static str,
        /// The exit code or signal.
        how: String,
    },
    /// The new environment does not work.
    #[error("{} was made and does not answer", .0.display())]
    Silent(PathBuf),
    /// The disk refused.
    #[error("cannot {act} in {}: {source}", folder.display())]
    Io {
        /// What was to be done.
        act: &'static str,
        /// Where.
        folder: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
}

/// One environment that is being made.
struct Making<'a> {
    environment: &'a PackEnvironment,
    lock: &'a SyncLock,
    folder: PathBuf,
}

/// A command that installs.
struct Tool {
    program: PathBuf,
    args: Vec<OsString>,
    /// What people know it by.
    shown: &'static str,
}

/// What it was made with.
struct Made {
    version: String,
    interpreter: PathBuf,
    with: String,
}

impl Installer {
    /// Looks for interpreters in `path`; `python` is a program that is to be used in place of the
    /// first one.
    ///
    /// # Errors
    /// When `python` is no Python 3.
    pub async fn find(path: &str, python: Option<&str>) -> Result<Self, InstallError> {
        let interpreters = Interpreters::find(path).await;
        let mut found = Self { path: path.to_owned(), interpreters, python: None };
        if let Some(named) = python {
            let program = if named.contains('/') {
                std::path::absolute(named).ok()
            } else {
                find_in_path(named, path)
            };
            let asked = match program {
                Some(program) => ask(Runtime::Python, &program, path).await,
                None => None,
            };
            let none = || {
                let why = format!("`{named}` is no Python 3: name a program in PATH, or a path");
                InstallError::NoProgram(why)
            };
            found.python = Some(asked.ok_or_else(none)?);
        }
        Ok(found)
    }

    /// Compares an environment with what its pack asks for, and with the interpreters of this host.
    pub async fn state(&self, environment: &PackEnvironment) -> EnvironmentState {
        let version = match environment.kind() {
            EnvironmentKind::Node => self.interpreters.get(Runtime::Node).ok().cloned(),
            EnvironmentKind::Python => match (environment.current(), &self.python) {
                (Some(_), Some(python)) => Some(python.clone()),
                (Some(folder), None) => {
                    let program = interpreter(&folder);
                    let Some(own) = ask(Runtime::Python, &program, &self.path).await else {
                        let why = "has an interpreter that does not answer";
                        return EnvironmentState::Missing(why.to_owned());
                    };
                    Some(own)
                }
                (None, _) => None,
            },
        };
        environment.state(version.as_ref().map(|it| it.version.as_str()))
    }

    /// Makes an environment unless it is fresh, and removes older ones that are not in use. `say`
    /// shows the user what takes time.
    ///
    /// # Errors
    /// Why it could not be made.
    pub async fn sync(
        &self,
        environment: &PackEnvironment,
        say: &mut dyn FnMut(&str),
    ) -> Result<Synced, InstallError> {
        match self.state(environment).await {
            EnvironmentState::ByHand => return Ok(Synced::ByHand),
            EnvironmentState::Fresh => {
                // Old ones may be out of use by now. They do no harm where they cannot be removed.
                if let Ok(Some(lock)) = environment.try_lock() {
                    drop(environment.sweep(&lock));
                }
                return Ok(Synced::Fresh);
            }
            EnvironmentState::Stale(_) | EnvironmentState::Missing(_) => {}
        }
        let lock = take_lock(environment, say)?;
        // Another process may have made it meanwhile.
        let why = match self.state(environment).await {
            EnvironmentState::ByHand => return Ok(Synced::ByHand),
            EnvironmentState::Fresh => return Ok(Synced::Fresh),
            EnvironmentState::Stale(why) => format!("is stale: {why}"),
            EnvironmentState::Missing(why) => why,
        };
        say(&format!("{}; making it", environment.says(&why)));
        sweep(environment, &lock, say);
        let id = &Uuid::now_v7().simple().to_string()[20..];
        let folder = environment.new_folder(&lock, id);
        let making = Making { environment, lock: &lock, folder };
        if let Err(error) = self.make(&making).await {
            // The first fault is the one to tell; what is left is removed by the next run.
            drop(fs::remove_dir_all(&making.folder));
            return Err(error);
        }
        sweep(environment, &lock, say);
        Ok(Synced::Made)
    }

    async fn make(&self, making: &Making<'_>) -> Result<(), InstallError> {
        let environment = making.environment;
        let made = match environment.kind() {
            EnvironmentKind::Python => self.python_environment(making).await?,
            EnvironmentKind::Node => self.node_modules(making).await?,
        };
        let stamp = Stamp {
            digest: environment.digest().to_owned(),
            version: made.version,
            interpreter: made.interpreter,
            folder: environment.folder().to_owned(),
            made_with: made.with,
        };
        let put = environment.put(making.lock, &making.folder, &stamp);
        put.map_err(|source| refused(environment, "put the environment in place", source))
    }

    async fn python_environment(&self, making: &Making<'_>) -> Result<Made, InstallError> {
        let base = match &self.python {
            Some(python) => python,
            None => self
                .interpreters
                .get(Runtime::Python)
                .map_err(|missing| InstallError::NoProgram(missing.to_string()))?,
        };
        let folder = making.folder.as_path();
        let uv = find_in_path("uv", &self.path);
        let venv = match &uv {
            Some(uv) => {
                Tool::new(uv, "uv venv", &["venv", "--no-project", "--python"]).arg(&base.program)
            }
            None => Tool::new(&base.program, "python -m venv", &["-I", "-m", "venv"]),
        };
        self.run(venv.arg(folder), making.environment.folder(), making.lock).await?;
        let copy = copy_pack(making)?;
        let (own, list) = (interpreter(folder), requirements(making)?);
        let install = match &uv {
            Some(uv) => {
                let words = ["pip", "install", "--compile-bytecode", "--python"];
                Tool::new(uv, "uv pip install", &words).arg(&own)
            }
            None => {
                // Not with modules of the pack: one may be called as one of Python.
                let words =
                    ["-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"];
                Tool::new(&own, "pip install", &words)
            }
        };
        self.run(install.arg("-r").arg(list), &copy, making.lock).await?;
        let answer = ask(Runtime::Python, &own, &self.path).await;
        let answer = answer.ok_or_else(|| InstallError::Silent(own.clone()))?;
        let real = own.canonicalize();
        let interpreter = real.map_err(|source| {
            refused(making.environment, "find the interpreter of the environment", source)
        })?;
        let with = if uv.is_some() { "uv" } else { "pip" };
        Ok(Made { version: answer.version, interpreter, with: with.to_owned() })
    }

    async fn node_modules(&self, making: &Making<'_>) -> Result<Made, InstallError> {
        let node = self.interpreters.get(Runtime::Node);
        let node = node.map_err(|missing| InstallError::NoProgram(missing.to_string()))?;
        let npm = find_in_path("npm", &self.path).ok_or_else(|| {
            InstallError::NoProgram(format!("no npm: it is not in PATH {}", self.path))
        })?;
        let copy = copy_pack(making)?;
        let is_locked =
            matches!(making.environment.manifest(), Manifest::Package { is_locked: true });
        let (verb, shown) = if is_locked { ("ci", "npm ci") } else { ("install", "npm install") };
        let words = [verb, "--omit=dev", "--no-audit", "--no-fund", "--no-progress"];
        self.run(Tool::new(&npm, shown, &words), &copy, making.lock).await?;
        // Optional packages that this host cannot have leave nothing behind.
        let made = fs::create_dir_all(copy.join(EnvironmentKind::Node.link()));
        made.map_err(|source| refused(making.environment, "make node_modules", source))?;
        let interpreter = node.program.canonicalize().unwrap_or_else(|_| node.program.clone());
        Ok(Made { version: node.version.clone(), interpreter, with: shown.to_owned() })
    }

    /// Runs a tool in a folder, with its output on standard error.
    async fn run(&self, tool: Tool, folder: &Path, lock: &SyncLock) -> Result<(), InstallError> {
        let io =
            |source| InstallError::Io { act: "start a tool", folder: folder.to_owned(), source };
        let output = io::stderr().as_fd().try_clone_to_owned().map_err(io)?;
        let mut command = Command::new(&tool.program);
        command.args(&tool.args).current_dir(folder).env("PATH", &self.path);
        // An empty file: no one answers questions here, and the lock is held on.
        command.stdin(Stdio::from(lock.file().try_clone().map_err(io)?));
        command.stdout(Stdio::from(output)).kill_on_drop(true);
        for name in NOT_FOR_TOOLS {
            command.env_remove(name);
        }
        let status = command.status().await.map_err(io)?;
        let failed = || InstallError::Tool { command: tool.shown, how: status.to_string() };
        status.success().then_some(()).ok_or_else(failed)
    }
}

impl Tool {
    fn new(program: &Path, shown: &'static str, words: &[&str]) -> Self {
        let args = words.iter().map(OsString::from).collect();
        Self { program: program.to_owned(), args, shown }
    }

    fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }
}

fn take_lock(
    environment: &PackEnvironment,
    say: &mut dyn FnMut(&str),
) -> Result<SyncLock, InstallError> {
    let refused = |source| refused(environment, "make environments", source);
    if let Some(lock) = environment.try_lock().map_err(refused)? {
        return Ok(lock);
    }
    say(&format!("another process makes environments of pack {}; waiting", environment.pack()));
    let lock = environment.lock().map_err(refused)?;
    lock.ok_or_else(|| refused(io::Error::from(io::ErrorKind::WouldBlock)))
}

/// Removes old environments. One that stays takes room and does no other harm.
fn sweep(environment: &PackEnvironment, lock: &SyncLock, say: &mut dyn FnMut(&str)) {
    if let Err(source) = environment.sweep(lock) {
        say(&refused(environment, "remove old environments", source).to_string());
    }
}

fn copy_pack(making: &Making<'_>) -> Result<PathBuf, InstallError> {
    let to = PackEnvironment::copy_in(&making.folder);
    let copied = copy::copy(making.environment.folder(), &to);
    copied.map_err(|source| refused(making.environment, "copy the pack", source))?;
    Ok(to)
}

/// The list of what is to be installed, as pip and uv read it.
fn requirements(making: &Making<'_>) -> Result<PathBuf, InstallError> {
    let manifest = making.environment.manifest();
    let Manifest::Project(dependencies) = manifest else {
        return Ok(PackEnvironment::copy_in(&making.folder).join(manifest.file()));
    };
    let list = making.folder.join("requirements.txt");
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&list)?;
        dependencies.iter().try_for_each(|it| writeln!(file, "{it}"))
    };
    write().map_err(|source| refused(making.environment, "list the requirements", source))?;
    Ok(list)
}

fn refused(environment: &PackEnvironment, act: &'static str, source: io::Error) -> InstallError {
    InstallError::Io { act, folder: environment.folder().to_owned(), source }
}
