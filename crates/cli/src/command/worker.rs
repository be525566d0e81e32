//! `outlast worker`: the guardian. Its engine and shims are in `inner_process.rs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use clap::builder::NonEmptyStringValueParser;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_core::id::WorkerId;
use outlast_worker::OwnProgram;
use outlast_worker::containment::UnknownContainment;
use outlast_worker::daemon::DaemonConfig;
use outlast_worker::guardian::{self, GuardianOptions};
use outlast_worker::runtime::UnknownRuntime;
use uuid::Uuid;

use super::{TrustArgs, server_flags};
use crate::config::token::TokenFlags;
use crate::config::worker::WorkerConfig;
use crate::config::{Environment, Flag, Settings};

/// The hidden subcommand of a worker's engine.
pub(crate) const ENGINE: &str = "engine";

/// The hidden subcommand of what reports a killed engine's death.
pub(crate) const REPORTER: &str = "report-death";

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Server to work for, or several with commas between them [default: OUTLAST_SERVER, OJS_URL or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    token: TokenFlags,
    #[command(flatten)]
    trust: TrustArgs,
    /// Name of this worker [default: the host name]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// Queues to take jobs from, such as default,mail [default: default]
    #[arg(long)]
    queues: Option<String>,
    /// Jobs to run at the same time [default: 10]
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// Runtimes to offer, such as shell,python,node [default: all that are found]
    #[arg(long)]
    runtimes: Option<String>,
    /// Labels, such as zone=a,disk=ssd
    #[arg(long)]
    labels: Option<String>,
    /// Pool to belong to; jobs ask for it with --requires pool=NAME
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Folder with packs; may be given several times
    #[arg(long, value_name = "DIR")]
    packs: Vec<String>,
    /// Time that running jobs have to finish at shutdown [default: 30s]
    #[arg(long, value_name = "DURATION")]
    shutdown_timeout: Option<String>,
    /// Time between two heartbeats [default: 5s]
    #[arg(long, value_name = "DURATION")]
    heartbeat_interval: Option<String>,
    /// Containment of process trees: auto, pidns, cgroup, subreaper [default: auto]
    #[arg(long, value_name = "KIND")]
    containment: Option<String>,
    /// Folder for the working folders of attempts [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The identity of an engine before this one, by its guardian
    #[arg(long, hide = true, value_name = "ID")]
    follows: Vec<Uuid>,
}

impl Args {
    /// The identities of the engines before this one, oldest first.
    pub(crate) fn follows(&self) -> Vec<WorkerId> {
        self.follows.iter().copied().map(WorkerId).collect()
    }

    /// The file with settings that was named.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    pub(crate) fn config(self, environment: &Environment) -> Result<WorkerConfig, Failure> {
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
            Flag::new("worker.pool", "--pool", self.pool),
            Flag::many("worker.packs", "--packs", self.packs),
            Flag::new("worker.shutdown_timeout", "--shutdown-timeout", self.shutdown_timeout),
            Flag::new("worker.heartbeat_interval", "--heartbeat-interval", self.heartbeat_interval),
            Flag::new("worker.containment", "--containment", self.containment),
        ]);
        flags.push(Flag::new("worker.work_dir", "--work-dir", self.work_dir));
        flags
    }
}

/// The guardian: checks its arguments, so that wrong usage is reported once, and starts the
/// engine with the same ones.
pub(crate) fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let shutdown_timeout = args.config(environment)?.shutdown_timeout;
    environment.warn_of_strangers();
    let hidden = |subcommand: &str| -> Vec<OsString> {
        std::iter::once(subcommand.into()).chain(std::env::args_os().skip(1)).collect()
    };
    let options = GuardianOptions {
        program: OwnProgram::running(),
        engine_args: hidden(ENGINE),
        reporter_args: hidden(REPORTER),
        shutdown_timeout,
    };
    match guardian::run(&options) {
        0 => Ok(Exit::Ok),
        // The engine has logged the reason.
        2 => Err(Failure::usage("")),
        5 => Err(Failure::new(Exit::NotAllowed, "")),
        _ => Err(Failure::failed("")),
    }
}

pub(crate) fn daemon_config(
    config: WorkerConfig,
    environment: &Environment,
) -> Result<DaemonConfig, Failure> {
    let runtimes = config.runtimes.iter().map(|name| name.parse()).collect::<Result<_, _>>();
    let containment = config.containment.word().parse();
    Ok(DaemonConfig {
        server: config.server,
        token: config.token,
        token_file: config.token_file,
        tls: config.tls,
        name: config.name,
        heartbeat_interval: config.heartbeat_interval,
        shutdown_timeout: config.shutdown_timeout,
        concurrency: config.concurrency,
        queues: config.queues,
        labels: config.labels,
        pool: config.pool,
        runtimes: runtimes.map_err(|error: UnknownRuntime| Failure::usage(error.to_string()))?,
        packs: config.packs,
        containment: containment
            .map_err(|error: UnknownContainment| Failure::usage(error.to_string()))?,
        variables: environment.variables().to_vec(),
        environment: config.environment,
        secrets: config.secrets,
        work_folder: config.work_dir,
        has_patient_parent: false,
        checks: config.checks,
        hidden: config.hidden,
        program: OwnProgram::running(),
        follows: Vec::new(),
    })
}
