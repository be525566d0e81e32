//! `outlast worker`: the guardian here, its engine and shims as processes of this same program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use outlast_worker::containment::UnknownContainment;
use outlast_worker::daemon::{self, DaemonConfig, Tell};
use outlast_worker::guardian::{self, GuardianLink, GuardianOptions};
use outlast_worker::runtime::UnknownRuntime;
use outlast_worker::{OwnProgram, handover, keeper, shim};

use super::{TrustArgs, server_flags};
use crate::cli;
use crate::config::token::TokenFlags;
use crate::config::worker::WorkerConfig;
use crate::config::{Environment, Flag, Settings};
use crate::exit::{Exit, Failure};
use crate::log::{self, Loudness};
use crate::service_manager;

/// The hidden subcommand of a worker's engine.
const ENGINE: &str = "engine";

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Server to work for [default: OUTLAST_SERVER, OJS_URL or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    token: TokenFlags,
    #[command(flatten)]
    trust: TrustArgs,
    /// Label of this worker [default: the host's name]
    #[arg(long)]
    name: Option<String>,
    /// Queues to take jobs from, such as default,mail [default: default]
    #[arg(long)]
    queues: Option<String>,
    /// Jobs at the same time [default: 10]
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// Runtimes to offer, such as shell,python,node [default: all that are found]
    #[arg(long)]
    runtimes: Option<String>,
    /// Labels, such as zone=a,disk=ssd
    #[arg(long)]
    labels: Option<String>,
    /// Folder with packs; may be given several times
    #[arg(long, value_name = "DIR")]
    packs: Vec<String>,
    /// How long running jobs may take at a stop [default: 30s]
    #[arg(long, value_name = "DURATION")]
    shutdown_timeout: Option<String>,
    /// Time between two heartbeats [default: 5s]
    #[arg(long, value_name = "DURATION")]
    heartbeat_interval: Option<String>,
    /// How process trees are held: auto, pidns, cgroup, subreaper [default: auto]
    #[arg(long, value_name = "KIND")]
    containment: Option<String>,
    /// Folder in which attempts have theirs [default: where temporary files belong]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Args {
    fn config(self, environment: &Environment) -> Result<WorkerConfig, Failure> {
        let file = self.config.clone();
        let settings = Settings::load(file.as_deref(), environment, self.flags())?;
        Ok(WorkerConfig::new(&settings)?)
    }

    /// The keys that flags set.
    pub(crate) fn flags(self) -> Vec<Flag> {
        let mut flags = server_flags(self.server, self.token, &self.trust);
        flags.extend([
            Flag::new("worker.name", "--name", self.name),
            Flag::new("worker.queues", "--queues", self.queues),
            Flag::new("worker.concurrency", "--concurrency", self.concurrency),
            Flag::new("worker.runtimes", "--runtimes", self.runtimes),
            Flag::new("worker.labels", "--labels", self.labels),
            Flag::many("worker.packs", "--packs", self.packs),
            Flag::new("worker.shutdown_timeout", "--shutdown-timeout", self.shutdown_timeout),
            Flag::new("worker.heartbeat_interval", "--heartbeat-interval", self.heartbeat_interval),
            Flag::new("worker.containment", "--containment", self.containment),
        ]);
        flags.push(Flag::new("worker.work_dir", "--work-dir", self.work_dir));
        flags
    }
}

/// The guardian: checks what it was told, so that wrong usage is said once, and starts the
/// engine with the very same words.
pub(crate) fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    args.config(environment)?;
    environment.warn_of_strangers();
    let mut engine_args = vec![OsString::from(ENGINE)];
    engine_args.extend(std::env::args_os().skip(1));
    let options = GuardianOptions { program: OwnProgram::running(), engine_args };
    match guardian::run(&options) {
        0 => Ok(Exit::Ok),
        // The engine has said why.
        2 => Err(Failure::usage("")),
        5 => Err(Failure::new(Exit::NotAllowed, "")),
        _ => Err(Failure::failed("")),
    }
}

/// Runs this process as a shim, a keeper or an engine if it was started as one.
pub(crate) fn inner_process() -> Option<ExitCode> {
    let name = std::env::args_os().nth(1)?;
    if name == shim::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(shim::main()).unwrap_or(1)));
    }
    if name == keeper::SUBCOMMAND {
        return Some(ExitCode::from(u8::try_from(keeper::main()).unwrap_or(1)));
    }
    // From here on no other process of this user looks into this one.
    handover::close_to_others();
    (name == ENGINE).then(engine)
}

fn engine() -> ExitCode {
    let environment = Environment::of_process();
    // What it starts are jobs, and programs that it asks for their version.
    handover::keep_from_children();
    let (format, args, parent) = match cli::engine_args(std::env::args_os().skip(2)) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    log::start(format, Loudness::Info, &environment);
    let daemon = args.config(&environment).and_then(|config| daemon_config(config, &environment));
    // A parent of this same program waits as long as it takes.
    let daemon =
        daemon.map(|daemon| DaemonConfig { has_patient_parent: parent.is_some(), ..daemon });
    match daemon.and_then(|daemon| run_engine(daemon, &environment)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                tracing::error!("{}", failure.message);
            }
            failure.exit.into()
        }
    }
}

fn run_engine(config: DaemonConfig, environment: &Environment) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let tell = Tell { ready: service_manager::ready, stopping: service_manager::stopping };
    let code = runtime.block_on(async {
        service_manager::keep_watchdog(environment);
        let link = GuardianLink::from_stdin()
            .map_err(|error| Failure::failed(format!("no guardian: {error}")))?;
        Ok::<i32, Failure>(daemon::run(config, link, tell).await)
    })?;
    match code {
        0 => Ok(Exit::Ok),
        // The daemon has said why.
        2 => Err(Failure::usage("")),
        5 => Err(Failure::new(Exit::NotAllowed, "")),
        _ => Err(Failure::failed("")),
    }
}

pub(super) fn daemon_config(
    config: WorkerConfig,
    environment: &Environment,
) -> Result<DaemonConfig, Failure> {
    let runtimes = config.runtimes.iter().map(|name| name.parse()).collect::<Result<_, _>>();
    let containment = config.containment.word().parse();
    Ok(DaemonConfig {
        server: config.server,
        token: config.token,
        tls: config.tls,
        name: config.name,
        heartbeat_interval: config.heartbeat_interval,
        shutdown_timeout: config.shutdown_timeout,
        concurrency: config.concurrency,
        queues: config.queues,
        labels: config.labels,
        runtimes: runtimes.map_err(|error: UnknownRuntime| Failure::usage(error.to_string()))?,
        packs: config.packs,
        containment: containment
            .map_err(|error: UnknownContainment| Failure::usage(error.to_string()))?,
        variables: environment.variables().to_vec(),
        environment: config.environment,
        secrets: config.secrets,
        work_folder: config.work_dir,
        has_patient_parent: false,
        hidden: config.hidden,
        program: OwnProgram::running(),
    })
}
