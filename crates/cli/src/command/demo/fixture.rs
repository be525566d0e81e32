//! The fixture: a temporary folder, a server and workers as children, and the disruption.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_cli_core::client::{Client, ClientConfig};
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::{at, text_at};
use outlast_cli_core::process::{Child, Launch};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::pack;
use crate::command::workers;

/// Jobs at the same time on each worker.
const CONCURRENCY: &str = "4";
/// Shorter than the long jobs, so that the drain has something to interrupt and hand on.
const DRAIN: &str = "1s";
/// The worker that is killed.
pub(super) const KILLED: &str = "demo-2";
const REGISTER_MAX: Duration = Duration::from_secs(20);
const BUSY_MAX: Duration = Duration::from_secs(5);
const STOP_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Everything that runs for the demo. Dropping it kills the processes and removes the folder.
#[derive(Debug)]
pub(super) struct Fixture {
    // Dropped in this order: workers, server, folder.
    workers: Vec<Child>,
    server: Child,
    url: String,
    client: Client,
    folder: TempDir,
}

impl Fixture {
    /// Starts the server and three workers, and waits until all are there.
    pub(super) async fn start() -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::failed(format!("cannot prepare a temporary folder: {error}"))
        };
        let folder = TempDir::with_prefix("outlast-demo-").map_err(cannot)?;
        pack::write(&folder.path().join("packs")).map_err(cannot)?;
        std::fs::write(folder.path().join("ledger"), "").map_err(cannot)?;
        let args = server_args(folder.path());
        let server = Child::start(Launch::with_log_in(folder.path(), "server", args))?;
        let Some(url) = server.address().await else {
            return Err(server.explain(Failure::failed("the server did not start")));
        };
        let client = Client::new(ClientConfig::plain(url.clone()))?;
        let mut fixture = Self { workers: Vec::new(), server, url, client, folder };
        for name in ["demo-1", "demo-2", "demo-3"] {
            fixture.start_worker(name)?;
        }
        let registered = fixture.await_registered().await;
        fixture.explain(registered)?;
        Ok(fixture)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    fn start_worker(&mut self, name: &str) -> Result<(), Failure> {
        let mut args: Vec<OsString> = vec!["worker".into()];
        for (flag, value) in [("--server", self.url.as_str()), ("--name", name)] {
            args.extend([flag.into(), value.into()]);
        }
        for (flag, value) in [("--concurrency", CONCURRENCY), ("--shutdown-timeout", DRAIN)] {
            args.extend([flag.into(), value.into()]);
        }
        args.extend(["--packs".into(), self.folder.path().join("packs").into()]);
        self.workers.push(Child::start(Launch::with_log_in(self.folder.path(), name, args))?);
        Ok(())
    }

    async fn await_registered(&self) -> Result<(), Failure> {
        let begun = clock::moment();
        while self.active().await?.len() < self.workers.len() {
            if let Some(ended) = self.workers.iter().find(|worker| worker.has_ended()) {
                let failure = Failure::failed(format!("worker {} did not start", ended.name()));
                return Err(ended.explain(failure));
            }
            if clock::moment().since(begun) > REGISTER_MAX {
                return Err(Failure::failed("the workers did not register in time"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn active(&self) -> Result<Vec<Value>, Failure> {
        let workers = workers::all(&self.client, &[]).await?;
        let active = |worker: &Value| text_at(worker, "status") == "active";
        Ok(workers.into_iter().filter(active).collect())
    }

    /// Runtimes that every worker has.
    pub(super) async fn runtimes(&self) -> Result<Vec<String>, Failure> {
        let workers = self.active().await?;
        let of = |worker: &Value| -> BTreeSet<String> {
            let names = at(worker, "runtimes").and_then(Value::as_array);
            let names = names.into_iter().flatten().filter_map(Value::as_str);
            names.map(ToOwned::to_owned).collect()
        };
        let shared = workers.iter().map(of).reduce(|all, one| &all & &one).unwrap_or_default();
        // In this order, so that the load is the same on every machine.
        let known = ["shell", "python", "node"].into_iter().filter(|name| shared.contains(*name));
        let runtimes: Vec<String> = known.map(ToOwned::to_owned).collect();
        if runtimes.is_empty() {
            return Err(Failure::failed("the workers found no shell, python or node"));
        }
        Ok(runtimes)
    }

    /// Waits until both workers that will be disrupted hold running jobs, for the disruption would show
    /// little otherwise. Gives up after a while.
    pub(super) async fn await_busy_workers(&self) -> Result<(), Failure> {
        let begun = clock::moment();
        while clock::moment().since(begun) < BUSY_MAX {
            let query = [("status", Some("running".to_owned())), ("limit", Some("100".to_owned()))];
            let answer = self.client.get(&["api", "v1", "executions"], &query).await?;
            let jobs = answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
            let busy: BTreeSet<String> =
                jobs.iter().map(|job| text_at(job, "worker.name")).collect();
            if busy.contains("demo-1") && busy.contains(KILLED) {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Drains one worker, kills another, starts a third. Returns when the kill was.
    pub(super) fn disrupt(&mut self) -> Result<Moment, Failure> {
        if let [drained, killed, ..] = self.workers.as_slice() {
            drained.signal(Signal::TERM);
            killed.kill_with_children();
        }
        let killed_at = clock::moment();
        self.start_worker("demo-4")?;
        Ok(killed_at)
    }

    /// Stops everything in order: workers first, then the server. Returns a fault for each that
    /// did not stop cleanly, except the worker that was killed.
    pub(super) async fn stop(self) -> Vec<String> {
        let workers = || self.workers.iter().filter(|worker| worker.name() != KILLED);
        for worker in workers() {
            worker.signal(Signal::TERM);
        }
        let mut faults = Vec::new();
        for child in workers().chain([&self.server]) {
            if let Err(failure) = child.stop(STOP_MAX).await {
                faults.push(failure.message);
            }
        }
        faults
    }

    /// Adds the last log lines of the server and the workers to a failure.
    pub(super) fn explain<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        outcome.map_err(|failure| {
            let children = self.workers.iter().chain([&self.server]);
            children.fold(failure, |failure, child| child.explain(failure))
        })
    }
}

fn server_args(folder: &Path) -> Vec<OsString> {
    let mut database = OsString::from("sqlite:");
    database.push(folder.join("outlast.db"));
    let mut args: Vec<OsString> = vec!["server".into(), "--listen".into(), "127.0.0.1:0".into()];
    args.extend(["--database".into(), database, "--packs".into(), folder.join("packs").into()]);
    args
}
