//! A server and workers that are killed, and jobs that write down when they start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_cli_core::client::Client;
use outlast_cli_core::client::ClientConfig;
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::text_at;
use outlast_cli_core::process::{Child, Launch};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server;

/// How long a job's first attempt sleeps; later ones end at once.
pub(crate) const LONG: f64 = 120.0;
pub(crate) const SHORT: f64 = 1.0;
/// Precision of what is read from the ledger.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often the API is polled, and a server that is down is tried.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// Longer than a lease: by then a job runs again, or something is broken.
const WAIT_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(40);

const PACK: &str = "ref: bench\nlabel: Bench\nversion: 1.0.0\n";
const ACTION: &str = "ref: bench.note\nlabel: Note, sleep the first time\nrunner_type: shell\n\
                      entry_point: note.sh\nparameter_delivery: env\nparameters:\n  \
                      ledger: {type: string, required: true}\n  \
                      seconds: {type: number, required: true}\n";
const SCRIPT: &str = r#"#!/bin/sh
set -eu
first="$ATTUNE_ACTION_LEDGER.$OUTLAST_JOB_ID"
if [ -e "$first" ]; then again=yes; else again=; : > "$first"; fi
echo "$OUTLAST_JOB_ID $OUTLAST_EPOCH" >> "$ATTUNE_ACTION_LEDGER"
[ "$again" ] || exec sleep "$ATTUNE_ACTION_SECONDS"
"#;

/// Everything that runs. Dropping it kills the processes.
#[derive(Debug)]
pub(crate) struct Fixture {
    // Dropped in this order: workers first.
    workers: Vec<Child>,
    server: Child,
    url: String,
    client: Client,
    folder: PathBuf,
    /// How many workers there should be.
    fleet: usize,
    started: usize,
    /// Workers that may end because a process of theirs was killed.
    killed: usize,
}

impl Fixture {
    /// Starts the server and `fleet` workers in `folder`, and waits until all have registered.
    pub(crate) async fn start(folder: &Path, fleet: usize) -> Result<Self, Failure> {
        write_pack(&folder.join("packs/bench")).map_err(|error| {
            Failure::failed(format!("cannot write to {}: {error}", folder.display()))
        })?;
        let server = server::start(folder, "server", server::sqlite_in(folder), "127.0.0.1:0")?;
        let url = server::address(&server).await?;
        let client = Client::new(ClientConfig::plain(url.clone()))?;
        let folder = folder.to_owned();
        let mut fixture =
            Self { workers: Vec::new(), server, url, client, folder, fleet, started: 0, killed: 0 };
        fixture.start_missing()?;
        let there = fixture.await_workers().await;
        fixture.explain(there)?;
        Ok(fixture)
    }

    /// Starts workers until there are as many as there should be.
    fn start_missing(&mut self) -> Result<(), Failure> {
        while self.workers.len() < self.fleet {
            self.started += 1;
            let name = format!("bench-{}", self.started);
            let packs = self.folder.join("packs");
            let mut args: Vec<OsString> = vec!["worker".into(), "--server".into()];
            args.extend([OsString::from(&self.url), "--name".into(), OsString::from(&name)]);
            args.extend(["--packs".into(), packs.into()]);
            self.workers.push(Child::start(Launch::with_log_in(&self.folder, &name, args))?);
        }
        Ok(())
    }

    /// Waits until as many workers as there should be are in service; one that has ended because
    /// it was killed is replaced.
    pub(crate) async fn await_workers(&mut self) -> Result<(), Failure> {
        let begun = clock::moment();
        loop {
            let answer = self.client.get(&["api", "v1", "workers"], &[]).await?;
            let workers = answer.get("data").and_then(Value::as_array);
            let active = |worker: &&Value| text_at(worker, "state") == "running";
            if workers.into_iter().flatten().filter(active).count() >= self.fleet {
                return Ok(());
            }
            self.replace_killed()?;
            in_time(begun, "the workers did not register")?;
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn replace_killed(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.workers.iter().position(Child::has_ended) {
            if self.killed == 0 {
                let name = self.workers.get(ended).map_or("", Child::name);
                return Err(Failure::failed(format!("worker {name} ended")));
            }
            self.killed -= 1;
            self.workers.remove(ended);
        }
        self.start_missing()
    }

    pub(crate) fn server_kib(&self) -> u64 {
        self.server.resident_kib().0
    }

    /// Resident memory of the first worker's own process, which guards the engine.
    pub(crate) fn guardian_kib(&self) -> u64 {
        self.workers.first().map_or(0, |worker| worker.resident_kib().0)
    }

    /// Resident memory of the first worker's engine.
    pub(crate) fn engine_kib(&self) -> u64 {
        self.workers.first().map_or(0, |worker| worker.resident_kib().1)
    }

    /// Enqueues a job whose first attempt sleeps so long.
    pub(crate) async fn submit(&self, seconds: f64) -> Result<String, Failure> {
        let parameters = json!({"ledger": self.ledger(), "seconds": seconds});
        let body = json!({"action_ref": "bench.note", "parameters": parameters});
        let answer = self.client.post(&["api", "v1", "executions"], &body).await?;
        let id = answer.pointer("/data/id").and_then(Value::as_str).map(ToOwned::to_owned);
        id.ok_or_else(|| Failure::failed("the server accepted a job but did not return its id"))
    }

    /// Enqueues a job as soon as the server is back.
    pub(crate) async fn submit_when_back(&self) -> Result<String, Failure> {
        let begun = clock::moment();
        loop {
            match self.submit(0.0).await {
                Err(failure) if failure.exit == Exit::Unreachable => {}
                other => return other,
            }
            in_time(begun, "the server did not come back")?;
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Waits until a job has started this many times, and returns when that was seen.
    pub(crate) async fn await_start(&self, job: &str, count: usize) -> Result<Moment, Failure> {
        let begun = clock::moment();
        while self.starts(job)? < count {
            in_time(begun, &format!("job {job} did not start {count} times"))?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(clock::moment())
    }

    /// How often a job has started, as the job itself wrote down.
    pub(crate) fn starts(&self, job: &str) -> Result<usize, Failure> {
        match std::fs::read_to_string(self.ledger()) {
            Ok(text) => Ok(text.lines().filter(|line| line.starts_with(job)).count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(Failure::failed(format!("cannot read the jobs' ledger: {error}"))),
        }
    }

    pub(crate) async fn await_completed(&self, job: &str) -> Result<(), Failure> {
        let begun = clock::moment();
        loop {
            let status = text_at(&self.execution(job).await?, "data.status");
            if status == "completed" {
                return Ok(());
            }
            in_time(begun, &format!("job {job} is still {status}"))?;
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// The worker that runs a job. The server may hear of the start a little after the ledger.
    pub(crate) async fn worker_of(&self, job: &str) -> Result<String, Failure> {
        let begun = clock::moment();
        loop {
            let name = text_at(&self.execution(job).await?, "data.worker.name");
            if self.workers.iter().any(|worker| worker.name() == name) {
                return Ok(name);
            }
            in_time(begun, &format!("no worker runs job {job}"))?;
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn execution(&self, job: &str) -> Result<Value, Failure> {
        self.client.get(&["api", "v1", "executions", job], &[]).await
    }

    /// Kills a worker: all of it, or its engine alone. Returns when.
    pub(crate) fn kill(&mut self, name: &str, whole: bool) -> Result<Moment, Failure> {
        let worker = self.workers.iter().find(|worker| worker.name() == name);
        let worker = worker.ok_or_else(|| Failure::failed(format!("no worker {name}")))?;
        let now = clock::moment();
        if whole {
            worker.kill_with_children();
        } else {
            worker.kill_children();
        }
        self.killed += 1;
        Ok(now)
    }

    /// Kills the server and starts it again on the same address as soon as it is gone. Returns
    /// when it was killed.
    pub(crate) async fn restart_server(&mut self) -> Result<Moment, Failure> {
        let killed = clock::moment();
        self.server.signal(Signal::KILL);
        self.server.ended().await;
        let listen = self.url.strip_prefix("http://").unwrap_or(&self.url);
        self.server =
            server::start(&self.folder, "server", server::sqlite_in(&self.folder), listen)?;
        Ok(killed)
    }

    /// Stops everything in order: workers first, then the server.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        for worker in &self.workers {
            worker.stop(STOP_MAX).await?;
        }
        self.server.stop(STOP_MAX).await
    }

    /// Adds the last log lines of the server and the workers to a failure.
    pub(crate) fn explain<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        outcome.map_err(|failure| {
            let children = self.workers.iter().chain([&self.server]);
            children.fold(failure, |failure, child| child.explain(failure))
        })
    }

    fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }
}

/// Whether there is time left to wait for `what`.
fn in_time(begun: Moment, what: &str) -> Result<(), Failure> {
    if clock::moment().since(begun) < WAIT_MAX {
        return Ok(());
    }
    Err(Failure::failed(format!("{what} within {WAIT_MAX:?}")))
}

fn write_pack(pack: &Path) -> std::io::Result<()> {
    let actions = pack.join("actions");
    std::fs::create_dir_all(&actions)?;
    std::fs::write(pack.join("pack.yaml"), PACK)?;
    std::fs::write(actions.join("note.yaml"), ACTION)?;
    std::fs::write(actions.join("note.sh"), SCRIPT)
}
