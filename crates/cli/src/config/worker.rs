//! What a worker is started with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use outlast_sdk::Tls;
use outlast_worker::daemon::checks::{Checks, Probe};

use super::token::{token, token_file};
use super::value::{self, Containment};
use super::{ConfigError, Origin, Settings, client};

/// Everything a worker needs to know, checked.
#[derive(Clone, Debug)]
pub(crate) struct WorkerConfig {
    /// The base addresses of the servers, with commas between them.
    pub(crate) server: String,
    /// Bearer token shown to it.
    pub(crate) token: Option<String>,
    /// The file that it was read from, if it was.
    pub(crate) token_file: Option<PathBuf>,
    /// How the server's certificate is verified, and which client certificate is presented.
    pub(crate) tls: Tls,
    /// Label; the host's name if none was given.
    pub(crate) name: String,
    /// Proposed time between two heartbeats.
    pub(crate) heartbeat_interval: Duration,
    /// How long running jobs may take when it stops.
    pub(crate) shutdown_timeout: Duration,
    /// Jobs at the same time.
    pub(crate) concurrency: u32,
    /// Queues to take jobs from.
    pub(crate) queues: Vec<String>,
    /// Labels it carries.
    pub(crate) labels: BTreeMap<String, String>,
    /// The pool it belongs to.
    pub(crate) pool: Option<String>,
    /// Runtimes it offers; all that are found if empty.
    pub(crate) runtimes: Vec<String>,
    /// Folders with packs.
    pub(crate) packs: Vec<PathBuf>,
    /// Variables that jobs get of the worker's.
    pub(crate) environment: Vec<String>,
    /// Folder with secrets that actions may ask for.
    pub(crate) secrets: Option<PathBuf>,
    /// How it holds process trees.
    pub(crate) containment: Containment,
    /// Where attempts have their folders; the system's temporary folder if not said.
    pub(crate) work_dir: Option<PathBuf>,
    /// The checks of its health.
    pub(crate) checks: Checks,
    /// Files with a token, which are no business of jobs.
    pub(crate) hidden: Vec<PathBuf>,
}

impl WorkerConfig {
    /// Reads the settings.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ConfigError> {
        let name = settings.get("worker.name", value::text)?;
        Ok(Self {
            server: settings.get("worker.server", value::servers)?,
            token: token(settings)?,
            token_file: token_file(settings)?.map(absolute),
            tls: client::tls(settings)?,
            name: if name.is_empty() { host_name() } else { name },
            heartbeat_interval: settings.get("worker.heartbeat_interval", value::heartbeat)?,
            shutdown_timeout: settings.get("worker.shutdown_timeout", value::duration)?,
            concurrency: settings.get("worker.concurrency", value::concurrency)?,
            queues: settings.get("worker.queues", value::queues)?,
            labels: settings.get("worker.labels", value::worker_labels)?,
            pool: settings.get("worker.pool", value::pool)?,
            runtimes: settings.get("worker.runtimes", value::runtimes)?,
            packs: settings.get("worker.packs", value::paths)?,
            environment: settings.get("worker.environment", value::variables)?,
            secrets: settings.get("worker.secrets", value::path)?.map(absolute),
            containment: settings.get("worker.containment", value::containment)?,
            work_dir: settings.get("worker.work_dir", value::path)?.map(absolute),
            checks: checks(settings)?,
            hidden: hidden(settings)?,
        })
    }
}

fn checks(settings: &Settings) -> Result<Checks, ConfigError> {
    let command = settings.get("worker.probe.command", value::command)?;
    let probe = Probe {
        command: command.clone(),
        interval: settings.get("worker.probe.interval", value::probe_duration)?,
        timeout: settings.get("worker.probe.timeout", value::probe_duration)?,
        failures: settings.get("worker.probe.failures", value::times)?,
        recoveries: settings.get("worker.probe.recoveries", value::times)?,
    };
    Ok(Checks {
        probe: (!command.is_empty()).then_some(probe),
        disk_free: settings.get("worker.checks.disk_free", value::size_or_none)?,
        memory_pressure: settings.get("worker.checks.memory_pressure", value::percent)?,
    })
}

/// The files of token and key, and files of settings that hold a secret.
pub(crate) fn hidden(settings: &Settings) -> Result<Vec<PathBuf>, ConfigError> {
    let mut found: Vec<PathBuf> = Vec::new();
    for key in ["worker.token_file", "worker.client_key"] {
        found.extend(settings.get(key, value::file)?);
    }
    for setting in settings.iter() {
        let says = !setting.shown().is_empty() && setting.shown() != "0 hidden";
        if let (true, Origin::File { path, .. }) = (setting.key.secret && says, &setting.origin)
            && !found.contains(path)
        {
            found.push(path.clone());
        }
    }
    Ok(found)
}

/// A job starts in another folder, where a relative path names something else.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy().into_owned();
    if name.is_empty() { "worker".to_owned() } else { name }
}
