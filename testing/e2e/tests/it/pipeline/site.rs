//! Everything that the pipeline consists of: server, worker, PostgreSQL, FTP server, and its folders.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use outlast_cluster::{Cluster, Session, Stop};
use outlast_e2e::wait::{KILL_AFTER, LEASE, eventually, poll, within};
use outlast_e2e::{Api, Server, ServerOptions, Worker, WorkerOptions, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::arrivals::Arrival;
use super::receiver::{Hold, Receiver};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ase-pipeline");
/// Files that arrive for one run.
const FILES: usize = 3;
/// What computes in the place of the example's program, and the file that makes it wait.
const COMPUTING: &str = "compute";
const COMPUTING_HOLD: &str = "hold-solver";

/// The whole pipeline, with nothing in it yet.
pub(super) struct Site {
    // Dropped in this order: what uses the folder and the database before these.
    worker: Option<Worker>,
    server: Server,
    receiver: Receiver,
    cluster: Cluster,
    database: String,
    arrivals: Vec<Arrival>,
    name: String,
    folder: TempDir,
}

impl Site {
    /// Starts all but the worker, which will have this name; `None` where something is missing and that
    /// is allowed.
    pub(super) fn start(name: &str) -> Option<Self> {
        if !(skip::has("psql", "postgresql-client") && skip::has("python3", "python3")) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("outlast-ase-").tempdir().expect("a folder");
        let receiver = Receiver::start(folder.path())?;
        let cluster = Cluster::start(&[]).expect("a PostgreSQL");
        let database = cluster.create_database().expect("a database");
        let schema = fs::read_to_string(example("schema.sql")).expect("the schema");
        Session::open(&database).and_then(|session| session.run(&schema)).expect("its tables");
        fs::create_dir(folder.path().join("incoming")).expect("a folder");
        write_secrets(&folder.path().join("secrets"));
        write_computing(folder.path());
        let options = options(folder.path());
        let server = Server::start(folder.path(), &example("packs"), &options);
        let (worker, name, arrivals) = (None, name.to_lowercase(), Vec::new());
        Some(Self { worker, server, receiver, cluster, database, arrivals, name, folder })
    }

    /// Puts files of a new run into the folder of arrivals.
    pub(super) fn arrive(&mut self, run: &str) -> Vec<Arrival> {
        let first = self.arrivals.len();
        for index in first..first + FILES {
            let number = i64::try_from(index).expect("few");
            let file = Arrival::new(format!("{run}-{index:02}.csv"), number);
            file.arrive(&self.incoming());
            self.receiver.expect(file.name(), file.results());
            self.arrivals.push(file);
        }
        self.arrivals[first..].to_vec()
    }

    /// Begins a run of the pipeline beside the test.
    pub(super) fn begin(&self, run: fn(&str, &str)) -> JoinHandle<()> {
        let (url, folder) = (self.server.url(), self.incoming().display().to_string());
        thread::spawn(move || run(&url, &folder))
    }

    /// Starts a worker with this grace period, in place of the one before.
    pub(super) fn start_worker(&mut self, grace: Duration) {
        if let Some(mut before) = self.worker.take() {
            before.terminate();
            assert_eq!(before.await_end(within(LEASE)), Some(0));
        }
        let port = self.cluster.port();
        let name = self.database.rsplit('/').next().expect("a name");
        let words = [
            "env".to_owned(),
            "PGHOST=127.0.0.1".to_owned(),
            format!("PGPORT={port}"),
            format!("PGDATABASE={name}"),
            "PGUSER=outlast".to_owned(),
            "ASE_FTP_HOST=127.0.0.1".to_owned(),
            format!("ASE_FTP_PORT={}", self.receiver.port()),
            "ASE_FTP_USER=ase".to_owned(),
            format!("ASE_SOLVER_COMPUTE={}", self.folder.path().join(COMPUTING).display()),
            "ASE_SOLVER_SECONDS=0".to_owned(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let options = WorkerOptions::named(&self.name).shutdown_timeout(grace).below(&words);
        let packs = example("packs");
        let url = self.server.url();
        self.worker = Some(Worker::start(&options, &url, &packs, self.folder.path()));
    }

    pub(super) fn worker(&self) -> &Worker {
        self.worker.as_ref().expect("a worker")
    }

    /// Waits until the server knows that the worker drains.
    #[track_caller]
    pub(super) fn await_drain(&self) {
        let api = Api::new(&self.server.url());
        eventually("the worker drains", within(LEASE), || {
            (api.try_worker(self.worker().id())?["state"] == "draining").then_some(())
        });
    }

    /// Waits until the worker has sent SIGTERM to what it runs.
    #[track_caller]
    pub(super) fn await_stopping(&mut self) {
        let worker = self.worker.as_mut().expect("a worker");
        eventually("the worker stops its jobs", within(LEASE), || {
            let health = worker.health(&["-o", "json"], within(LEASE)).stdout;
            let stage = serde_json::from_str::<Value>(&health).ok().map(|it| it["stage"].clone());
            let is_stopping = stage.is_some_and(|stage| stage == "stopping");
            (is_stopping || worker.guardian_mut().ended().is_some()).then_some(())
        });
    }

    /// Waits until the worker has ended by itself, and returns its exit code.
    #[track_caller]
    pub(super) fn end_of_worker(&mut self) -> Option<i32> {
        self.worker.take().expect("a worker").await_end(within(KILL_AFTER))
    }

    pub(super) fn kill_worker(&mut self) {
        self.worker.take().expect("a worker").kill_whole();
    }

    pub(super) fn kill_server(&mut self) {
        self.server.kill();
    }

    pub(super) fn start_server(&mut self) {
        self.server.start_again();
    }

    /// Asks the server to stop, and waits until it has.
    pub(super) fn stop_server(&mut self) {
        assert_eq!(self.server.stop(), Some(0));
    }

    /// Ends PostgreSQL and the FTP server.
    pub(super) fn stop_surroundings(&mut self, how: Stop) {
        self.cluster.stop(how).expect("no PostgreSQL");
        self.receiver.kill();
    }

    /// Starts all again.
    pub(super) fn start_everything(&mut self, grace: Duration) {
        self.cluster.start_again().expect("a PostgreSQL");
        self.receiver.start_again();
        self.server.start_again();
        self.start_worker(grace);
    }

    /// Lets the solver begin and not end.
    pub(super) fn hold_solver(&self) -> Hold {
        Hold::begin(&self.folder.path().join(COMPUTING_HOLD), "")
    }

    /// How attempts of all jobs of an action ended that did not complete, oldest first.
    pub(super) fn ends_of(&self, action: &str) -> Vec<String> {
        let api = Api::new(&self.server.url());
        let mut jobs = jobs_of(&api, action);
        jobs.sort_by_key(|job| job["id"].to_string());
        let outcomes = jobs.iter().flat_map(|job| api.outcomes(job["id"].as_str().expect("an id")));
        outcomes.filter(|outcome| outcome != "completed").collect()
    }

    /// Waits until the server knows that a job of this action has started.
    #[track_caller]
    pub(super) fn await_running(&self, action: &str) {
        let api = Api::new(&self.server.url());
        eventually("the step runs", within(LEASE), || {
            let is_running = |job: &Value| job["status"] == "running";
            jobs_of(&api, action).iter().any(is_running).then_some(())
        });
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    pub(super) const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Opens a session beside the pipeline.
    pub(super) fn session(&self) -> Session {
        Session::open(&self.database).expect("a session")
    }

    /// Waits until PostgreSQL answers with this number.
    #[track_caller]
    pub(super) fn await_number(&self, sql: &str, number: i64) {
        let session = self.session();
        let mut last = 0;
        let bound = within(LEASE * 5);
        let found = poll(bound, || {
            last = session.number(sql).expect("a number");
            (last == number).then_some(())
        });
        assert!(found.is_some(), "{last} rather than {number} after {bound:?}: {sql}");
    }

    /// Compares everything that has arrived so far with what became of it.
    #[track_caller]
    pub(super) fn judge(&self, what: &str) {
        let session = self.session();
        let ask = |sql: &str| session.number(sql).expect("a number");
        let mut faults = Vec::new();
        for file in &self.arrivals {
            let name = file.name();
            let of_file = format!("where file = '{name}'");
            let rows = i64::try_from(file.rows()).expect("few");
            for table in ["reading", "displacement"] {
                let count = ask(&format!("select count(*) from ase.{table} {of_file}"));
                if count != rows {
                    faults.push(format!("{name}: {count} of {rows} rows in {table}"));
                }
            }
            let sum = ask(&format!(
                "select coalesce(sum(micrometres), 0)::bigint from ase.reading {of_file}"
            ));
            if sum != file.sum() {
                faults.push(format!("{name}: its readings are others"));
            }
        }
        let open = "where elaborated_at is null or sent_at is null";
        let unfinished = ask(&format!("select count(*) from ase.file {open}"));
        if unfinished != 0 {
            faults.push(format!("{unfinished} files are not done"));
        }
        // PostgreSQL may take a moment to see that a killed client has gone.
        let held = || ask(OPEN_TRANSACTIONS) + ask(LOCKS);
        if poll(within(LEASE), || (held() == 0).then_some(())).is_none() {
            faults.push(format!("{} locks and open transactions are left", held()));
        }
        let files = ask("select count(*) from ase.file");
        if files != i64::try_from(self.arrivals.len()).expect("few") {
            faults.push(format!("{files} of {} files are recorded", self.arrivals.len()));
        }
        faults.extend(self.receiver.faults());
        assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
    }

    /// Ends the watch over what is delivered.
    pub(super) fn finish(self) {
        self.receiver.finish();
    }

    fn incoming(&self) -> PathBuf {
        self.folder.path().join("incoming")
    }
}

const OPEN_TRANSACTIONS: &str = "select count(*) from pg_stat_activity \
                                 where backend_type = 'client backend' \
                                 and pid <> pg_backend_pid() and xact_start is not null";
const LOCKS: &str = "select count(*) from pg_locks l left join pg_class c on c.oid = l.relation \
                     where l.locktype = 'advisory' or c.relnamespace = 'ase'::regnamespace";

fn jobs_of(api: &Api, action: &str) -> Vec<Value> {
    let jobs = api.get("/api/v1/executions?limit=1000").expect(200)["data"].clone();
    let mut jobs = jobs.as_array().expect("a list").clone();
    jobs.retain(|job| job["action_ref"] == action);
    jobs
}

fn example(path: &str) -> PathBuf {
    Path::new(EXAMPLE).join(path)
}

/// The example's own configuration, with the addresses, folders and times of the test.
fn options(folder: &Path) -> ServerOptions {
    let text = fs::read_to_string(example("outlast.yaml")).expect("the configuration");
    let given: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut options = ServerOptions::default()
        .set("server.limits", given["limits"].clone())
        // Twice as long as in other tests: how attempts end is part of what is asserted.
        .set("worker.heartbeat_staleness_multiplier", json!(10));
    for key in ["pool", "queues", "environment"] {
        options = options.set(&format!("worker.{key}"), given["worker"][key].clone());
    }
    options.set("worker.secrets", json!(folder.join("secrets")))
}

/// The passwords, readable for the worker alone.
fn write_secrets(folder: &Path) {
    fs::create_dir(folder).expect("a folder");
    for (name, secret) in [("pg-password", "not-asked-for"), ("ftp-password", "delivery")] {
        let path = folder.join(name);
        fs::write(&path, secret).expect("a secret");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("its mode");
    }
}

/// The example's program, which waits before it begins as long as it is held.
fn write_computing(folder: &Path) {
    let hold = folder.join(COMPUTING_HOLD);
    let script = format!(
        "#!/bin/sh\nwhile [ -e '{}' ]; do sleep 0.02; done\nexec '{}'\n",
        hold.display(),
        example("solver/compute").display()
    );
    let path = folder.join(COMPUTING);
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
}
