//! The engine of `outlast worker`: what the server delivers, run as attempts of actions.
//!
//! ```text
//! guardian ──signals──▶ SDK worker ◀══ session ══▶ server
//!                           │ Delivery      ▲ Outcome
//!                           ▼               │
//!            [`run_action`]: folder, parameters, environment ─▶ attempt (shim, tree)
//! ```
//!
//! - `actions`: which actions this host can run
//! - `catalog`: the actions as they are on disk now, and reloading them
//! - `crash_point`: where tests have the engine killed
//! - [`checks`]: a probe of the operator's, disk space and memory pressure
//! - `complaints`: the reasons of all checks why the worker runs nothing
//! - `cover`: what is hidden from jobs with a file
//! - `run_action`: one delivery, from parameters to its end
//! - `disk`: reading and removing files of jobs, off the engine's thread
//! - `health`: faults of the host, and recovering from them
//! - `open_files`: whether the limit on open files is high enough
//! - `report`: from an attempt's end to what is reported
//! - `status`: a socket that tells how the engine is
//! - `work_root`: where attempts have their folders, and removing what dead engines left
//! - `shutdown_budget`: whether the shutdown fits into the time that the host allows
//!
//! Phases, slots, leases and reports are the SDK's; processes are [`crate::attempt`]'s.
//! Nothing here decides whether a job is retried.

mod actions;
mod catalog;
pub mod checks;
mod complaints;
mod cover;
mod crash_point;
mod disk;
mod health;
mod open_files;
mod report;
mod run_action;
mod shutdown_budget;
mod status;
mod work_root;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::limits::KILL_CONFIRM_MAX;
use outlast_packs::PackSet;
use outlast_sdk::{Control, Role, RunError, Stage, StageEvent, Summary, Tls, Worker, control};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify, oneshot, watch};

pub use self::open_files::needed as open_files_needed;
pub use self::shutdown_budget::{Supervisor, needed_to_stop};
pub use self::status::{Asked, WorkerStatus, ask_all as ask_workers};

use self::actions::{ActionHost, Actions};
use self::catalog::Catalog;
use self::checks::Checks;
use self::complaints::Complaints;
use self::cover::Cover;
use self::crash_point::CrashPoint;
use self::disk::DiskThreads;
use self::health::{Health, Needs};
use self::run_action::ActionRunner;
use self::work_root::WorkRoot;
use crate::OwnProgram;
use crate::attempt::KILL_AFTER;
use crate::containment::{Choice, Containment};
use crate::environment::HostEnvironment;
use crate::guardian::{Announcer, GuardianEvent, GuardianLink};
use crate::probe::Probe;
use crate::resources::Enforcement;
use crate::runtime::{Interpreters, Runtime};
use crate::secrets::Secrets;
use crate::warm::WarmProcesses;

/// Beyond SIGTERM, SIGKILL and its proof: reading and reporting the last output.
const RELEASE: Duration = Duration::from_secs(3);

/// Exit code after a clean drain, handed back jobs included.
const CLEAN: i32 = 0;
/// Exit code on a fault.
const FAULT: i32 = 1;
/// Exit code for settings that cannot be used.
const USAGE: i32 = 2;
/// Exit code when the server refuses this worker's token: it is missing, unknown or for
/// another role.
const NOT_ALLOWED: i32 = 5;

/// A worker's settings.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// The server's base address.
    pub server: String,
    /// Bearer token shown to it.
    pub token: Option<String>,
    /// The file that it came from, to read it again.
    pub token_file: Option<PathBuf>,
    /// How the server's certificate is verified, and which one is presented to it.
    pub tls: Tls,
    /// The worker's name.
    pub name: String,
    /// Proposed time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How long attempts may go on when it drains.
    pub shutdown_timeout: Duration,
    /// Attempts at the same time.
    pub concurrency: u32,
    /// Queues to take jobs from.
    pub queues: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The pool it belongs to.
    pub pool: Option<String>,
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
    /// The checks of its health.
    pub checks: Checks,
    /// Files that jobs must not see; hidden from them where that is possible.
    pub hidden: Vec<PathBuf>,
    /// The program to execute as shim.
    pub program: OwnProgram,
    /// The identities of the engines before this one, oldest first.
    pub follows: Vec<WorkerId>,
}

/// What to call when the worker reaches a stage, each at most once, and while its loop turns.
#[derive(Clone, Copy, Debug)]
pub struct StageHooks {
    /// The server knows the worker.
    pub ready: fn(),
    /// It drains or ends. Called on the runtime.
    pub stopping: fn(),
    /// Its loop has turned within `alive_every`.
    pub alive: fn(),
    /// How often that is to be said; never if it says nothing.
    pub alive_every: Option<Duration>,
}

/// Why the engine does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Packs(#[from] outlast_packs::PackError),
    #[error("{0}")]
    Containment(#[from] crate::probe::NoContainment),
    #[error("cannot create a work folder in {folder}: {error}")]
    WorkRoot { folder: String, error: std::io::Error },
    #[error("{0}")]
    Settings(#[from] outlast_sdk::BuildError),
    #[error("{0}")]
    OpenFiles(#[from] open_files::TooFew),
    #[error("cannot start a thread: {0}")]
    Threads(#[source] std::io::Error),
    #[error("nothing to run: {0}")]
    NoActions(String),
}

/// Runs the engine to its end and returns the exit code. Wants a current-thread runtime:
/// the heartbeat has a thread of its own.
pub async fn run(
    config: DaemonConfig,
    link: GuardianLink,
    announcer: Announcer,
    hooks: StageHooks,
) -> i32 {
    let (control, queue) = control();
    let stages = control.clone();
    let watcher = tokio::spawn(async move {
        tokio::select! {
            () = stages.registered() => (hooks.ready)(),
            () = stages.leaving() => return (hooks.stopping)(),
        }
        stages.leaving().await;
        (hooks.stopping)();
    });
    let progress = tokio::spawn(say_alive(control.clone(), hooks));
    // Before anything else, so that a signal during a slow start is not lost.
    let reload = Arc::new(Notify::new());
    let listener = tokio::spawn(listen(link, control.clone(), Arc::clone(&reload)));
    let (name, checks) = (config.name.clone(), config.checks.clone());
    let code = match start(config, announcer, control.clone(), Arc::clone(&reload)).await {
        Ok((worker, runner, root)) => {
            let (checked, first_checks) = oneshot::channel();
            let checking = tokio::spawn(checks::keep(checks, runner.checked(root.path()), checked));
            // One that takes jobs first and finds out then would fail them.
            let _ = tokio::time::timeout(checks::FIRST_MAX, first_checks).await;
            let (stage, control_of_status) = (runner.stage.subscribe(), control.clone());
            let source = status::Source { name, control: control_of_status, stage };
            let answering = tokio::spawn(status::answer(root.path(), source));
            let (catalog, disk) = (Arc::clone(&runner.catalog), runner.disk.clone());
            let asked = catalog::Asked { reload, warm: runner.warm.clone() };
            let keeper = tokio::spawn(catalog::keep(catalog, control, asked));
            let staying = tokio::spawn(root.stay());
            let ended = worker.run(runner, queue).await;
            keeper.abort();
            checking.abort();
            staying.abort();
            answering.abort();
            disk.remove_last(move || root.remove(), RELEASE);
            exit_code(ended)
        }
        Err(error) => {
            tracing::error!("cannot start the worker: {error}");
            match error {
                // A service manager tries again what may pass, and leaves what needs an edit.
                StartError::Packs(error) if error.may_pass() => FAULT,
                StartError::Settings(_) | StartError::Packs(_) | StartError::OpenFiles(_) => USAGE,
                StartError::Containment(_)
                | StartError::WorkRoot { .. }
                | StartError::Threads(_)
                | StartError::NoActions(_) => FAULT,
            }
        }
    };
    listener.abort();
    watcher.abort();
    progress.abort();
    code
}

/// Says that the worker makes progress, while it does. Before its loop turns, this task is all there is.
async fn say_alive(control: Control, hooks: StageHooks) {
    let Some(every) = hooks.alive_every else { return };
    loop {
        if control.status().is_none_or(|status| status.loop_age <= every) {
            (hooks.alive)();
        }
        tokio::time::sleep(every).await;
    }
}

fn exit_code(ended: Result<Summary, RunError>) -> i32 {
    match ended {
        Ok(summary) if summary.left_at_once || summary.thrown_away > 0 => FAULT,
        Ok(_) => CLEAN,
        Err(error) => {
            tracing::error!("worker ended: {error}");
            if matches!(error, RunError::NotAllowed(_)) { NOT_ALLOWED } else { FAULT }
        }
    }
}

/// Passes the guardian's events on to the worker.
async fn listen(mut link: GuardianLink, control: Control, reload: Arc<Notify>) {
    loop {
        match link.next().await {
            GuardianEvent::Terminate => control.send(StageEvent::TerminateSignal),
            GuardianEvent::Quiet => control.send(StageEvent::StopSignal),
            GuardianEvent::Resume => control.send(StageEvent::ContinueSignal),
            GuardianEvent::ReloadPacks => {
                control.read_token_again();
                reload.notify_one();
            }
            GuardianEvent::GuardianGone => return control.send(StageEvent::GuardianGone),
        }
    }
}

async fn start(
    config: DaemonConfig,
    announcer: Announcer,
    control: Control,
    reload: Arc<Notify>,
) -> Result<(Worker, ActionRunner, WorkRoot), StartError> {
    if !config.has_patient_parent {
        shutdown_budget::check(&config.variables, needed_to_stop(config.shutdown_timeout));
    }
    open_files::ensure(config.concurrency)?;
    let packs = PackSet::load(&config.packs)?;
    catalog::say(&packs);
    let parent = config.work_folder.clone().unwrap_or_else(std::env::temp_dir);
    // TMPDIR may be relative, and jobs start elsewhere.
    let parent = std::path::absolute(&parent).unwrap_or(parent);
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
    let (probe, cover) = find_containment(&config).await?;
    let action_host = ActionHost {
        interpreters: RwLock::new(interpreters),
        looking: Mutex::default(),
        wanted: config.runtimes.clone(),
        containment: probe.chosen,
        secrets: Secrets::new(config.secrets.clone()),
        path: host.path().to_owned(),
        packs_folder: root.packs(),
    };
    let catalog = Arc::new(Catalog::new(config.packs.clone(), action_host));
    let actions = catalog.put(packs, Vec::new());
    if actions.references().next().is_none() {
        return Err(StartError::NoActions(catalog.host.why_nothing(&actions)));
    }
    let enforcement = Enforcement::find();
    say_ready(&config, &probe, &actions);
    let _ = catalog.about.set(about(&config, &Holding { containment: probe.chosen, enforcement }));
    let worker = describe(&config, &actions, catalog.describe(&actions))?;
    let disk = DiskThreads::start(config.concurrency).map_err(StartError::Threads)?;
    let health = Health::new(Needs {
        complaints: Complaints::new(control.clone()),
        disk: disk.clone(),
        containments: [probe.chosen, probe.ordinary],
        program: config.program.clone(),
        cover: cover.clone(),
        catalog: Arc::clone(&catalog),
        reload: Arc::clone(&reload),
        folder: root.attempts(),
        state: health::State::default(),
    });
    let runner = ActionRunner {
        catalog,
        warm: WarmProcesses::new(config.program.clone(), root.attempts()),
        announcer,
        crash_point: CrashPoint::of(&config.variables),
        stage: watch::Sender::new(Stage::Running),
        control,
        reload,
        host,
        containment: probe,
        cover,
        enforcement,
        program: config.program,
        packs_folder: root.packs(),
        attempts_folder: root.attempts(),
        disk,
        health,
        server: config.server.split(',').next().map(str::to_owned).filter(|it| !it.contains('@')),
    };
    Ok((worker, runner, root))
}

fn say_ready(config: &DaemonConfig, probe: &Probe, actions: &Actions) {
    tracing::info!(
        name = config.name,
        heartbeat_interval = ?config.heartbeat_interval,
        containment = %probe.chosen,
        ordinary_jobs = %probe.ordinary,
        runtimes = actions.runtimes().join(","),
        actions = actions.references().count(),
        "worker is ready to register"
    );
}

/// Finds the containment for jobs, and what to hide from them.
async fn find_containment(config: &DaemonConfig) -> Result<(Probe, Cover), StartError> {
    let home = config.variables.iter().find(|(name, _)| name == "HOME");
    let home = home.map_or("", |(_, home)| home.as_str());
    let cover = Cover::new(&config.hidden, home);
    let probe = Probe::hiding(config.containment, &config.program, &cover.now()).await?;
    for refused in &probe.refused {
        tracing::info!(kind = %refused.kind, reason = refused.reason, "containment is not available");
    }
    Ok((probe, cover))
}

/// How attempts are held on this host.
struct Holding {
    containment: Containment,
    enforcement: Enforcement,
}

/// What the server learns about the worker beside its packs.
fn about(config: &DaemonConfig, Holding { containment, enforcement }: &Holding) -> Value {
    let host = rustix::system::uname();
    json!({
        "host": host.nodename().to_string_lossy(),
        "pid": std::process::id(),
        "containment": containment.name(),
        "limits": {
            "memory": enforcement.memory.name(),
            "cpu": enforcement.cpu.name(),
            "processes": enforcement.processes.name(),
        },
        "shutdown_timeout_seconds": config.shutdown_timeout.as_secs_f64(),
    })
}

fn describe(config: &DaemonConfig, actions: &Actions, about: String) -> Result<Worker, StartError> {
    let confirm = Duration::from_millis(KILL_CONFIRM_MAX.as_millis());
    let worker = Worker::builder(&config.server)
        .token(config.token.clone())
        .token_file(config.token_file.clone())
        .tls(config.tls.clone())
        .name(&config.name)
        .role(Role::Action)
        .queues(&config.queues)
        .concurrency(config.concurrency)
        .runtimes(actions.runtimes())
        .labels(config.labels.clone())
        .types(actions.references())
        .about_json(about)
        .follows(config.follows.iter().copied())
        .heartbeat_interval(config.heartbeat_interval)
        .shutdown_timeout(config.shutdown_timeout);
    let worker = match &config.pool {
        Some(pool) => worker.pool(pool),
        None => worker,
    };
    let worker = worker
        // An attempt ends itself: these bounds are for one that does not.
        .stop_window(KILL_AFTER + confirm + RELEASE)
        .force_window(confirm + RELEASE)
        .build()?;
    Ok(worker)
}
