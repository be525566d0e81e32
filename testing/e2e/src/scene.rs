//! A scene: a server, workers, jobs, the ledger they write, and the judgement at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::api::{Api, Reply};
use crate::judge::{self, Accepted, Account, TERMINAL};
use crate::ledger::Ledger;
use crate::pack;
use crate::process_table;
use crate::server::{Server, ServerOptions};
use crate::wait::{KILL_AFTER, LEASE, eventually, poll, stays, within};
use crate::worker::{Worker, WorkerOptions};

/// One tick of a test job.
const TICK_MS: u128 = 50;

/// A server on a store of its own, and everything that happens to it.
#[derive(Debug)]
pub struct Scene {
    // Dropped in this order: the server before the folder it writes to.
    server: Server,
    api: Api,
    ledger: Ledger,
    accepted: Mutex<BTreeMap<String, Accepted>>,
    folder: TempDir,
}

/// A job that leaves a trace.
#[derive(Clone, Debug)]
pub struct Run {
    action: &'static str,
    parameters: Map<String, Value>,
    fields: Map<String, Value>,
}

impl Run {
    /// A job that ends at once.
    #[must_use]
    pub fn short() -> Self {
        Self::action("ledger.run")
    }

    /// A job that runs for at least this long.
    #[must_use]
    pub fn holding(time: Duration) -> Self {
        let ticks = u64::try_from(time.as_millis().div_ceil(TICK_MS)).unwrap_or(u64::MAX);
        Self::short().parameter("ticks", json!(ticks))
    }

    /// A job whose first attempt runs for at least this long, and later ones end at once.
    #[must_use]
    pub fn holding_once(time: Duration) -> Self {
        Self::holding(time).parameter("later_ticks", json!(0))
    }

    /// A job of another of the test actions.
    #[must_use]
    pub fn action(action: &'static str) -> Self {
        Self { action, parameters: Map::new(), fields: Map::new() }
    }

    /// Sets a parameter.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: Value) -> Self {
        self.parameters.insert(name.to_owned(), value);
        self
    }

    /// Sets a field of the request beside the parameters: `timeout`, `retry`, `overlap`, ….
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.to_owned(), value);
        self
    }
}

impl Scene {
    /// Starts a server with the times of the fault model.
    #[must_use]
    pub fn start() -> Self {
        Self::with(ServerOptions::default())
    }

    /// Starts a server with these options.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn with(options: ServerOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("outlast-e2e-").tempdir().expect("a folder");
        let packs = pack::write(folder.path());
        let server = Server::start(folder.path(), &packs, &options);
        let api = Api::new(&server.url());
        let ledger = Ledger::at(folder.path().join("ledger"));
        Self { server, api, ledger, accepted: Mutex::default(), folder }
    }

    /// Starts another server on the same store.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn another_server(&self, name: &str) -> Server {
        self.another_server_with(name, ServerOptions::default())
    }

    /// Starts another server on the same store, with options of its own.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn another_server_with(&self, name: &str, options: ServerOptions) -> Server {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let options = options.database(self.server.database());
        Server::start(&folder, &self.folder.path().join("packs"), &options)
    }

    /// Returns the server, to kill it or to start it again.
    pub const fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Returns the server.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the client.
    #[must_use]
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the ledger.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Shows this bearer token to the server from now on.
    #[must_use]
    pub fn acting_as(mut self, token: &str) -> Self {
        self.api = self.api.clone().with_token(token);
        self
    }

    /// Connects with this trust.
    #[must_use]
    pub fn trusting(mut self, tls: rustls::ClientConfig) -> Self {
        self.api = self.api.clone().trusting(tls);
        self
    }

    /// Returns the folder of everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a worker of this name and waits until it is registered.
    #[must_use]
    pub fn worker(&self, name: &str) -> Worker {
        self.worker_with(&WorkerOptions::named(name))
    }

    /// Starts a worker and waits until it is registered.
    #[must_use]
    pub fn worker_with(&self, options: &WorkerOptions) -> Worker {
        let packs = self.folder.path().join("packs");
        Worker::start(options, &self.server.url(), &packs, self.folder.path())
    }

    /// Accepts a job into the scene and returns its id.
    #[track_caller]
    pub fn run(&self, run: Run) -> String {
        self.try_run(run).expect("the server answers")
    }

    /// Accepts a job into the scene; `None` when the server does not answer.
    ///
    /// # Panics
    ///
    /// When the server refuses the job.
    #[track_caller]
    pub fn try_run(&self, run: Run) -> Option<String> {
        self.try_run_at(&self.api, &[], run)
    }

    /// Accepts a job into the scene by way of any of its servers, with headers; `None` when
    /// that server does not answer, or answers that it cannot now.
    ///
    /// # Panics
    ///
    /// When the server refuses the job.
    #[track_caller]
    pub fn try_run_at(&self, api: &Api, headers: &[(&str, &str)], run: Run) -> Option<String> {
        let mut parameters = run.parameters;
        let leaves_trace =
            run.action.starts_with("ledger.") && !run.action.starts_with("ledger.deaf");
        if leaves_trace {
            parameters.insert("ledger".to_owned(), json!(self.ledger.path()));
        }
        let mut body = run.fields;
        body.insert("action_ref".to_owned(), json!(run.action));
        body.insert("parameters".to_owned(), Value::Object(parameters));
        let never_overlaps = body.get("overlap").is_some_and(|overlap| overlap == "forbidden");
        let body = Value::Object(body);
        let reply = api.try_post_with("/api/v1/executions", headers, &body).ok()?;
        if reply.status == 503 {
            return None;
        }
        let body = reply.expect(201);
        let id = body["data"]["id"].as_str().expect("an id").to_owned();
        // A flood writes no end: its output is its trace.
        let leaves_trace = leaves_trace && !["ledger.flood", "ledger.pry"].contains(&run.action);
        let accepted = Accepted { never_overlaps, leaves_trace, cancelled_at_epoch: None };
        self.accepted().insert(id.clone(), accepted);
        Some(id)
    }

    /// Takes responsibility for a job of `ledger.run` that came in by another door.
    pub fn accept(&self, id: &str) {
        let accepted =
            Accepted { never_overlaps: false, leaves_trace: true, cancelled_at_epoch: None };
        self.accepted().insert(id.to_owned(), accepted);
    }

    /// Asks to cancel a job, and holds the server to it if it says yes.
    #[track_caller]
    pub fn cancel(&self, id: &str) -> Reply {
        let reply = self.api.cancel(id);
        if reply.is_success() {
            let epoch = self.api.execution(id)["epoch"].as_u64().unwrap_or_default();
            if let Some(accepted) = self.accepted().get_mut(id) {
                accepted.cancelled_at_epoch = Some(epoch);
            }
        }
        reply
    }

    /// Waits until an execution has this status and returns it.
    #[track_caller]
    pub fn await_status(&self, id: &str, status: &str, bound: Duration) -> Value {
        let mut last = Value::Null;
        let found = poll(bound, || {
            last = self.api.try_execution(id)?;
            (last["status"] == status).then(|| last.clone())
        });
        match found {
            Some(execution) => execution,
            None => panic!("waited {bound:?} in vain for {status}: {}", self.story(id, &last)),
        }
    }

    /// Watches for some time that a job does not start.
    #[track_caller]
    pub fn stays_waiting(&self, id: &str, period: Duration) {
        stays("the job waits", period, || {
            let status = self.api.execution(id)["status"].clone();
            (status == "running" || status == "completed").then(|| status.to_string())
        });
    }

    /// Waits until a job has completed, and returns which worker ran it.
    #[track_caller]
    pub fn worker_of(&self, id: &str) -> String {
        let ended = self.await_status(id, "completed", within(LEASE));
        ended["worker"]["name"].as_str().expect("a name").to_owned()
    }

    /// Waits until the ledger shows that an attempt began.
    #[track_caller]
    pub fn await_start(&self, id: &str, epoch: u64, bound: Duration) {
        let found = poll(bound, || self.ledger.has_started(id, epoch).then_some(()));
        if found.is_none() {
            let execution = self.api.try_execution(id).unwrap_or_default();
            panic!("epoch {epoch} did not begin in {bound:?}: {}", self.story(id, &execution));
        }
    }

    /// Waits until a worker is in this state, and returns it.
    #[track_caller]
    pub fn await_worker(&self, worker: &str, state: &str, bound: Duration) -> Value {
        let mut last = None;
        let found = poll(bound, || {
            last = self.api.try_worker(worker);
            last.clone().filter(|worker| worker["state"] == state)
        });
        found.unwrap_or_else(|| panic!("waited {bound:?} in vain for state {state}: {last:?}"))
    }

    /// Waits until every accepted job has ended, then compares API, ledger and process table.
    ///
    /// # Panics
    ///
    /// When anything is wrong; the message names all of it.
    #[track_caller]
    pub fn judge(&self) {
        let accepted = self.accepted().clone();
        let accounts = self.accounts(&accepted, within(KILL_AFTER));
        let jobs: BTreeSet<String> = accepted.keys().cloned().collect();
        let mut wrong = judge::survivors(&jobs);
        wrong.extend(judge::discrepancies(&accepted, &accounts, &self.ledger.traces()));
        // What has ended stays as it ended, now that all its processes are gone as well.
        for (id, account) in &accounts {
            let (before, after) = (&account.execution, self.api.execution(id));
            if before["status"] != after["status"] || before["epoch"] != after["epoch"] {
                wrong.push(format!("{id}: a terminal state changed: {before} became {after}"));
            }
        }
        assert!(wrong.is_empty(), "{}", judge::verdict(&wrong));
    }

    /// Waits until a worker of this name, whatever its id, is in this state.
    #[track_caller]
    pub fn await_named_worker(&self, name: &str, state: &str, bound: Duration) -> Value {
        eventually(&format!("a worker named {name} is {state}"), bound, || {
            let reply = self.api.try_get("/api/v1/workers").ok()?;
            let workers = reply.body["data"].as_array()?;
            let found = workers.iter().find(|w| w["name"] == name && w["state"] == state);
            found.cloned()
        })
    }

    fn accounts(
        &self,
        accepted: &BTreeMap<String, Accepted>,
        bound: Duration,
    ) -> BTreeMap<String, Account> {
        let mut accounts = BTreeMap::new();
        for id in accepted.keys() {
            let ended = poll(bound, || {
                let execution = self.api.try_execution(id)?;
                let status = execution["status"].as_str().unwrap_or_default();
                let attempts = self.api.attempts(id);
                // A cancelled attempt is closed when its tree is reported empty.
                let open = attempts.iter().any(|attempt| attempt["outcome"].is_null());
                let over = TERMINAL.contains(&status) && !open;
                over.then_some(Account { execution, attempts })
            });
            let account = ended.or_else(|| {
                let execution = self.api.try_execution(id)?;
                Some(Account { execution, attempts: self.api.attempts(id) })
            });
            accounts.extend(account.map(|account| (id.clone(), account)));
        }
        accounts
    }

    fn story(&self, id: &str, execution: &Value) -> String {
        let attempts = self.api.try_get(&format!("/api/v1/executions/{id}/attempts"));
        let attempts = attempts.map_or_else(|error| error.to_string(), |reply| reply.text);
        let traces = self.ledger.of(id);
        format!("{execution}\nattempts: {attempts}\nledger: {traces:?}")
    }

    fn accepted(&self) -> MutexGuard<'_, BTreeMap<String, Accepted>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let jobs: BTreeSet<String> = self.accepted().keys().cloned().collect();
        let find = || process_table::of_jobs(&jobs).into_iter().map(|(pid, _)| pid).collect();
        let left = process_table::kill_all(find);
        if !left.is_empty() {
            eprintln!("processes of jobs that would not end: {left:?}");
        }
    }
}

/// Waits until a server that was just started answers.
#[track_caller]
pub fn await_ready(api: &Api, bound: Duration) {
    eventually("the server is ready", bound, || {
        api.try_get("/health/ready").ok().filter(Reply::is_success).map(|_| ())
    });
}
