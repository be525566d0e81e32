//! `outlast worker` as processes: the guardian that we start, the engine below it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::binary;
use crate::process::{self, Finished, Process};
use crate::process_table::{self, ProcessId};
use crate::wait::{HEARTBEAT, eventually};

const START_BOUND: Duration = Duration::from_secs(30);

/// How to start a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    name: String,
    concurrency: u32,
    shutdown_timeout: Duration,
    heartbeat: Duration,
    arguments: Vec<String>,
    server: Option<String>,
    parent: Vec<String>,
    program: Option<PathBuf>,
}

impl WorkerOptions {
    /// A worker of this name with four slots and ten seconds of grace.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            concurrency: 4,
            shutdown_timeout: Duration::from_secs(10),
            heartbeat: HEARTBEAT,
            arguments: Vec::new(),
            server: None,
            parent: Vec::new(),
            program: None,
        }
    }

    /// Runs another build.
    #[must_use]
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Sets the number of slots.
    #[must_use]
    pub const fn concurrency(mut self, slots: u32) -> Self {
        self.concurrency = slots;
        self
    }

    /// Sets the grace period.
    #[must_use]
    pub const fn shutdown_timeout(mut self, grace: Duration) -> Self {
        self.shutdown_timeout = grace;
        self
    }

    /// Sets the heartbeat interval it proposes.
    #[must_use]
    pub const fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }

    /// Adds a flag and its value.
    #[must_use]
    pub fn flag(mut self, flag: &str, value: &str) -> Self {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Starts it by way of a program that executes what it is given, such as `env`.
    #[must_use]
    pub fn below(mut self, program: &[&str]) -> Self {
        self.parent = program.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Connects to this URL, a proxy say, rather than to the scene's server.
    #[must_use]
    pub fn through(mut self, url: &str) -> Self {
        self.server = Some(url.to_owned());
        self
    }
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    name: String,
    id: String,
}

impl Worker {
    /// Starts a worker and waits until it is registered.
    #[must_use]
    pub fn start(options: &WorkerOptions, url: &str, packs: &Path, folder: &Path) -> Self {
        let mut worker = Self::start_unregistered(options, url, packs, folder);
        let line = worker.process.await_line("registered", START_BOUND);
        // The line reads: worker NAME (ID: …) registered.
        let id = line.split("ID: ").nth(1).and_then(|rest| rest.split(')').next());
        worker.id = id.unwrap_or_default().trim().to_owned();
        assert!(!worker.id.is_empty(), "an id in {line:?}");
        worker
    }

    /// Starts a worker and waits for nothing.
    #[must_use]
    pub fn start_unregistered(
        options: &WorkerOptions,
        url: &str,
        packs: &Path,
        folder: &Path,
    ) -> Self {
        let config: PathBuf = folder.join("outlast.yaml");
        let mut arguments: Vec<String> = [
            "worker",
            "--server",
            options.server.as_deref().unwrap_or(url),
            "--name",
            &options.name,
            "--concurrency",
            &options.concurrency.to_string(),
            "--heartbeat-interval",
            &format!("{}ms", options.heartbeat.as_millis()),
            "--shutdown-timeout",
            &format!("{}ms", options.shutdown_timeout.as_millis()),
            "--packs",
            &packs.display().to_string(),
            "--config",
            &config.display().to_string(),
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend(options.arguments.iter().cloned());
        let program = options.program.as_deref().unwrap_or_else(|| binary::outlast());
        let mut command = process::command_of(program, &arguments);
        if !options.parent.is_empty() {
            command = process::below(&options.parent, &command);
        }
        let process = Process::spawn(&options.name, command, folder);
        Self { process, name: options.name.clone(), id: String::new() }
    }

    /// Returns the id the server knows it by.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns everything it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `outlast health worker` for it on this host, `bound` long at most.
    #[must_use]
    pub fn health(&self, more: &[&str], bound: Duration) -> Finished {
        let words = [&["health", "worker", "--name", self.name()], more].concat();
        process::run_to_end(&words, bound)
    }

    /// Returns the guardian.
    #[must_use]
    pub const fn guardian(&self) -> &Process {
        &self.process
    }

    /// Returns the guardian, to signal it or to wait for it.
    pub const fn guardian_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Finds the engine: the child of the guardian that runs jobs.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn engine(&self) -> ProcessId {
        eventually("the guardian has an engine", START_BOUND, || {
            let children = process_table::children(self.process.pid());
            let is_engine = |pid: &ProcessId| process_table::with_argument("engine").contains(pid);
            children.iter().copied().find(is_engine).or_else(|| children.first().copied())
        })
    }

    /// Kills guardian and engine together, as the machine's memory killer or a power cut of the
    /// container would; neither gets to say goodbye.
    pub fn kill_whole(&mut self) {
        self.kill_whole_with(|_| Vec::new());
    }

    /// Kills guardian and engine together with what `more` finds below the engine.
    pub fn kill_whole_with(&mut self, more: impl Fn(ProcessId) -> Vec<ProcessId>) {
        let engine = self.engine();
        // A stopped guardian cannot react to the death of its engine, nor the engine to others'.
        self.process.signal(Signal::STOP);
        process_table::signal(engine, Signal::STOP);
        for pid in more(engine) {
            process_table::signal(pid, Signal::KILL);
        }
        process_table::signal(engine, Signal::KILL);
        self.process.kill();
    }

    /// Kills the engine alone: its guardian lives on.
    pub fn kill_engine(&self) {
        process_table::signal(self.engine(), Signal::KILL);
    }

    /// Freezes the engine: it keeps its connections and says nothing.
    ///
    /// # Panics
    ///
    /// When it does not stop.
    pub fn freeze_engine(&self) -> Frozen {
        let engine = self.engine();
        process_table::signal(engine, Signal::STOP);
        eventually("the engine is stopped", START_BOUND, || {
            process_table::is_stopped(engine).then_some(())
        });
        Frozen { stopped: vec![engine] }
    }

    /// Freezes guardian, engine, shims and jobs, as a suspended host or a paused container.
    ///
    /// # Panics
    ///
    /// When they do not stop.
    pub fn freeze_whole(&self) -> Frozen {
        let mut stopped = vec![self.process.pid()];
        stopped.extend(process_table::descendants(self.process.pid()));
        for pid in &stopped {
            process_table::signal(*pid, Signal::STOP);
        }
        eventually("the worker is stopped", START_BOUND, || {
            let stands =
                |pid: &ProcessId| process_table::is_stopped(*pid) || !process_table::is_alive(*pid);
            stopped.iter().all(stands).then_some(())
        });
        Frozen { stopped }
    }

    /// Freezes the guardian alone.
    ///
    /// # Panics
    ///
    /// When it does not stop.
    pub fn freeze_guardian(&self) -> Frozen {
        let guardian = self.process.pid();
        process_table::signal(guardian, Signal::STOP);
        eventually("the guardian is stopped", START_BOUND, || {
            process_table::is_stopped(guardian).then_some(())
        });
        Frozen { stopped: vec![guardian] }
    }

    /// Sends SIGHUP: packs are read again.
    pub fn hang_up(&self) {
        self.process.signal(Signal::HUP);
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits for its end and returns the exit code.
    pub fn await_end(&mut self, bound: Duration) -> Option<i32> {
        self.process.await_end(bound)
    }
}

/// Frozen processes, which thaw when this is dropped.
#[derive(Debug)]
pub struct Frozen {
    stopped: Vec<ProcessId>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.stopped {
            process_table::signal(*pid, Signal::CONT);
        }
    }
}
