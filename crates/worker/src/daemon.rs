//! The engine of `outlast worker`: what the server delivers, run as attempts of actions.
//!
//! ```text
//! guardian ──signals──▶ SDK worker ◀══ session ══▶ server
//!                           │ Delivery      ▲ Ended
//!                           ▼               │
//!            [`run_action`]: folder, parameters, environment ─▶ attempt (shim, tree)
//! ```
//!
//! - `actions`: which actions this host can run
//! - `shelf`: the actions as they are on disk now, and reading them again
//! - `run_action`: one delivery, from parameters to its end
//! - `backroom`: reading and removing what jobs left, kept away from the engine's thread
//! - `health`: faults of the host, and coming back from them by itself
//! - `open_files`: whether the limit on open files is high enough
//! - `verdict`: from an attempt's ending to what is reported
//! - `work_root`: where attempts have their folders, and removing what dead engines left
//! - `surroundings`: whether the shutdown fits into what the host allows
//!
//! Phases, slots, leases and reports are the SDK's; processes are [`crate::attempt`]'s.
//! Nothing here decides whether a job is tried again.

mod actions;
mod backroom;
mod health;
mod open_files;
mod run_action;
mod shelf;
mod surroundings;
mod verdict;
mod work_root;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use outlast_core::limits::KILL_CONFIRM_MAX;
use outlast_packs::PackSet;
use outlast_sdk::{Control, Role, RunError, StageEvent, Summary, Tls, Worker, control};
use serde_json::json;
use tokio::sync::Notify;

pub use self::open_files::needed as open_files_needed;
pub use self::surroundings::{Outer, needed_to_stop};

use self::actions::Actions;
use self::backroom::Backroom;
use self::health::{Health, Needs};
use self::run_action::ActionRunner;
use self::shelf::Shelf;
use self::work_root::WorkRoot;
use crate::OwnProgram;
use crate::attempt::KILL_AFTER;
use crate::containment::{Choice, Containment};
use crate::environment::HostEnvironment;
use crate::guardian::{GuardianEvent, GuardianLink, IdentityWriter};
use crate::probe::Probe;
use crate::runtime::{Interpreters, Runtime};
use crate::secrets::Secrets;

/// Beyond SIGTERM, SIGKILL and its proof: reading the last output and telling it.
const RELEASE: Duration = Duration::from_secs(3);

/// Exit code after a clean drain, handed back jobs included.
const CLEAN: i32 = 0;
/// Exit code on a fault.
const FAULT: i32 = 1;
/// Exit code when what it was told cannot be used.
const USAGE: i32 = 2;
/// Exit code when the server does not let this worker in: its token is missing, unknown or
/// for something else.
const NOT_ALLOWED: i32 = 5;

/// Everything a worker is told.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// The server's base address.
    pub server: String,
    /// Bearer token shown to it.
    pub token: Option<String>,
    /// How the server's certificate is judged, and which one is shown to it.
    pub tls: Tls,
    /// Label.
    pub name: String,
    /// Proposed time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How long attempts may go on when it drains.
    pub shutdown_timeout: Duration,
    /// Attempts at the same time.
    pub concurrency: u32,
    /// Queues to take jobs from.
    pub queues: Vec<String>,
    /// Labels it carries.
    pub labels: BTreeMap<String, String>,
    /// Runtimes to offer; all that are found if empty.
    pub runtimes: Vec<Runtime>,
    /// Folders with packs, beside the built-in one.
    pub packs: Vec<PathBuf>,
    /// How process trees are held.
    pub containment: Choice,
    /// The worker's own environment: jobs get the allowed part of it.
    pub variables: Vec<(String, String)>,
    /// Variables of it that jobs get besides the usual ones; `*` at the end stands for any rest.
    pub environment: Vec<String>,
    /// The folder with secrets that actions may ask for.
    pub secrets: Option<PathBuf>,
    /// Where attempts have their folders; the system's temporary folder if not said.
    pub work_folder: Option<PathBuf>,
    /// Whether the process that started it waits for it, however long a shutdown takes.
    pub has_patient_parent: bool,
    /// Files that jobs have no business with, hidden from them where that is possible.
    pub hidden: Vec<PathBuf>,
    /// The program to execute as shim.
    pub program: OwnProgram,
}

/// Who is told how far the worker is, each once at most.
#[derive(Clone, Copy, Debug)]
pub struct Tell {
    /// The server knows the worker.
    pub ready: fn(),
    /// It drains or ends.
    pub stopping: fn(),
}

/// Why the engine does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Packs(#[from] outlast_packs::PackError),
    #[error("{0}")]
    Containment(#[from] crate::probe::NoContainment),
    #[error("work folder cannot be made below {folder}: {error}")]
    WorkRoot { folder: String, error: std::io::Error },
    #[error("{0}")]
    Settings(#[from] outlast_sdk::BuildError),
    #[error("{0}")]
    OpenFiles(#[from] open_files::TooFew),
    #[error("no thread can be started: {0}")]
    Threads(#[source] std::io::Error),
    #[error("nothing to run: no action fits the runtimes that are here ({found})")]
    NoActions { found: String },
}

/// Runs the engine to its end and returns the exit code. Wants a current-thread runtime:
/// the heartbeat has a thread of its own.
pub async fn run(
    config: DaemonConfig,
    (link, identity): (GuardianLink, IdentityWriter),
    tell: Tell,
) -> i32 {
    let (control, queue) = control();
    let standing = control.clone();
    let teller = tokio::spawn(async move {
        tokio::select! {
            () = standing.registered() => (tell.ready)(),
            () = standing.leaving() => return (tell.stopping)(),
        }
        standing.leaving().await;
        (tell.stopping)();
    });
    // From the first moment on: a signal during a slow start is not lost.
    let again = Arc::new(Notify::new());
    let listener = tokio::spawn(listen(link, control.clone(), Arc::clone(&again)));
    let code = match start(config, identity, control.clone(), Arc::clone(&again)).await {
        Ok((worker, runner, root)) => {
            let (shelf, backroom) = (Arc::clone(&runner.shelf), runner.backroom.clone());
            let keeper = tokio::spawn(shelf::keep(shelf, control, again));
            let ended = worker.run(runner, queue).await;
            keeper.abort();
            backroom.remove_last(move || root.remove(), RELEASE);
            exit_code(ended)
        }
        Err(error) => {
            tracing::error!("cannot start the worker: {error}");
            match error {
                StartError::Settings(_) | StartError::Packs(_) | StartError::OpenFiles(_) => USAGE,
                StartError::Containment(_)
                | StartError::WorkRoot { .. }
                | StartError::Threads(_)
                | StartError::NoActions { .. } => FAULT,
            }
        }
    };
    listener.abort();
    teller.abort();
    code
}

fn exit_code(ended: Result<Summary, RunError>) -> i32 {
    match ended {
        Ok(summary) if summary.left_at_once => FAULT,
        Ok(_) => CLEAN,
        Err(error) => {
            tracing::error!("worker ended: {error}");
            if matches!(error, RunError::NotAllowed(_)) { NOT_ALLOWED } else { FAULT }
        }
    }
}

/// Passes on what the guardian says.
async fn listen(mut link: GuardianLink, control: Control, again: Arc<Notify>) {
    loop {
        match link.next().await {
            GuardianEvent::Terminate => control.tell(StageEvent::TerminateSignal),
            GuardianEvent::Quiet => control.tell(StageEvent::StopSignal),
            GuardianEvent::Resume => control.tell(StageEvent::ContinueSignal),
            GuardianEvent::ReadAgain => again.notify_one(),
            GuardianEvent::GuardianGone => return control.tell(StageEvent::GuardianGone),
        }
    }
}

async fn start(
    config: DaemonConfig,
    identity: IdentityWriter,
    control: Control,
    again: Arc<Notify>,
) -> Result<(Worker, ActionRunner, WorkRoot), StartError> {
    if !config.has_patient_parent {
        surroundings::check(&config.variables, needed_to_stop(config.shutdown_timeout));
    }
    open_files::ensure(config.concurrency)?;
    let packs = PackSet::load(&config.packs)?;
    shelf::say(&packs);
    let parent = config.work_folder.clone().unwrap_or_else(std::env::temp_dir);
    let root = WorkRoot::create(&parent)
        .map_err(|error| StartError::WorkRoot { folder: parent.display().to_string(), error })?;
    let cleaner = std::thread::Builder::new().name("cleaner".to_owned());
    // Before it is registered there is room for a thread, and if not the next one cleans up.
    drop(cleaner.spawn(move || work_root::remove_abandoned(&parent)));
    packs.materialise(&root.packs())?;
    let host = HostEnvironment::allowed_of(config.variables.iter().cloned())
        .also(config.variables.iter().cloned(), &config.environment);
    let interpreters = Interpreters::find(host.path()).await;
    crate::keeper::end_orphans();
    let (probe, hidden) = find_containment(&config).await?;
    let shelf = Shelf {
        folders: config.packs.clone(),
        interpreters,
        wanted: config.runtimes.clone(),
        containment: probe.chosen,
        secrets: Secrets::new(config.secrets.clone()),
        packs_folder: root.packs(),
        offered: RwLock::default(),
    };
    let actions = shelf.put(packs);
    if actions.references().next().is_none() {
        return Err(StartError::NoActions { found: actions.runtimes().join(", ") });
    }
    tracing::info!(
        name = config.name,
        heartbeat_interval = ?config.heartbeat_interval,
        containment = %probe.chosen,
        ordinary_jobs = %probe.ordinary,
        runtimes = actions.runtimes().join(","),
        actions = actions.references().count(),
        "worker is set up"
    );
    let worker = describe(&config, &actions, probe.chosen)?;
    let backroom = Backroom::start(config.concurrency).map_err(StartError::Threads)?;
    let health = Health::new(Needs {
        control,
        backroom: backroom.clone(),
        containments: [probe.chosen, probe.ordinary],
        program: config.program.clone(),
        hidden: hidden.clone(),
        interpreters: actions.programs(),
        folder: root.attempts(),
        state: health::State::default(),
    });
    let runner = ActionRunner {
        shelf: Arc::new(shelf),
        identity,
        again,
        host,
        containment: probe,
        hidden,
        program: config.program,
        packs_folder: root.packs(),
        attempts_folder: root.attempts(),
        backroom,
        health,
        server: Some(config.server).filter(|url| !url.contains('@')),
    };
    Ok((worker, runner, root))
}

/// Finds what holds jobs, and which files are to be hidden from them.
async fn find_containment(config: &DaemonConfig) -> Result<(Probe, Vec<PathBuf>), StartError> {
    let hidden = config.hidden.iter().filter_map(|path| std::path::absolute(path).ok());
    let hidden: Vec<PathBuf> = hidden.collect();
    let probe = Probe::hiding(config.containment, &config.program, &hidden).await?;
    for refused in &probe.refused {
        tracing::info!(kind = %refused.kind, reason = refused.reason, "containment does not work here");
    }
    Ok((probe, hidden))
}

fn describe(
    config: &DaemonConfig,
    actions: &Actions,
    containment: Containment,
) -> Result<Worker, StartError> {
    let confirm = Duration::from_millis(KILL_CONFIRM_MAX.as_millis());
    let host = rustix::system::uname();
    let about = json!({
        "host": host.nodename().to_string_lossy(),
        "pid": std::process::id(),
        "containment": containment.name(),
        "interpreters": actions.versions(),
    });
    let worker = Worker::builder(&config.server)
        .token(config.token.clone())
        .tls(config.tls.clone())
        .name(&config.name)
        .role(Role::Action)
        .queues(&config.queues)
        .concurrency(config.concurrency)
        .runtimes(actions.runtimes())
        .labels(config.labels.clone())
        .types(actions.references())
        .about_json(about.to_string())
        .heartbeat_interval(config.heartbeat_interval)
        .shutdown_timeout(config.shutdown_timeout)
        // An attempt ends itself: these bounds are for one that does not.
        .stop_window(KILL_AFTER + confirm + RELEASE)
        .force_window(confirm + RELEASE)
        .build()?;
    Ok(worker)
}
