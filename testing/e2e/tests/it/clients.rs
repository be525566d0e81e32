//! The clients of `clients/`, built, installed and run as by their users: what becomes of the jobs of
//! workers that are drained, killed, frozen or cut off. The handlers write a ledger, and a judge
//! compares it with what the server says.

mod orders;
mod roll;
mod survival;

use std::process::Command;
use std::time::Duration;

use outlast_e2e::clients::{self, Installed};
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Process, Scene, ServerOptions, process};
use serde_json::{Value, json};

/// `ojs.lease`. Workers stop their jobs after seven tenths of it without a server.
const LEASE: Duration = Duration::from_secs(6);
/// Longer than any test waits for a handler: such a job ends only when its worker stops it.
const ENDLESS: f64 = 1000.0;

/// A language, and its handlers that stop when they are asked to.
#[derive(Clone, Copy)]
struct Language {
    install: fn() -> Option<Installed>,
    app: &'static str,
    producer: &'static str,
    kinds: &'static [&'static str],
}

const PYTHON: Language = Language {
    install: clients::python,
    app: "tasks:app",
    producer: "producer.py",
    kinds: &["work", "work.process", "work.async"],
};
const NODE: Language = Language {
    install: clients::node,
    app: "tasks.mjs",
    producer: "producer.mjs",
    kinds: &["work"],
};

/// A server, and a folder with the programs of the tests from which the package can be used.
struct Site {
    scene: Scene,
    language: Language,
    installed: Installed,
}

impl Site {
    /// Starts a server; `None` where the language is missing and that is allowed.
    fn of(language: Language) -> Option<Self> {
        Self::with(language, LEASE)
    }

    fn with(language: Language, lease: Duration) -> Option<Self> {
        let installed = (language.install)()?;
        let options = ServerOptions::bare()
            .set("ojs.lease", json!(lease.as_secs()))
            .set("executor.timeout_check_interval", json!(0.1));
        let scene = Scene::with(options);
        installed.prepare(scene.folder());
        Some(Self { scene, language, installed })
    }

    fn command(&self, program: &std::path::Path, arguments: &[&str]) -> Command {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let mut command = process::command_of(program, &arguments);
        command.current_dir(self.scene.folder()).env("LEDGER", self.scene.ledger().path());
        command.env("OUTLAST_SERVER", self.scene.api().url());
        command
    }

    /// Starts a worker that goes on for `grace` when it is drained.
    fn worker(&self, grace: Duration) -> Process {
        self.worker_with(grace, &["--lease", &LEASE.as_secs().to_string()])
    }

    fn worker_with(&self, grace: Duration, more: &[&str]) -> Process {
        let grace = grace.as_secs_f64().to_string();
        let arguments = [self.language.app, "--stop-window", "1.5", "-c", "8", "--grace", &grace];
        let command = self.command(&self.installed.worker, &[&arguments, more].concat());
        let mut worker = Process::spawn("worker", command, self.scene.folder());
        let _line = worker.await_line("takes jobs from tests", within(LEASE));
        worker
    }

    /// Enqueues a job that runs for so many seconds.
    fn job(&self, kind: &str, seconds: f64) -> String {
        let options = json!({ "queue": "tests", "retry": { "max_attempts": 10 } });
        let body = json!({ "type": kind, "args": [seconds], "options": options });
        let reply = self.scene.api().post("/ojs/v1/jobs", &body).expect(201);
        reply["job"]["id"].as_str().expect("an id").to_owned()
    }

    /// Enqueues endless jobs, one of each kind, and waits until they run.
    #[track_caller]
    fn running(&self, kinds: &[&str]) -> Vec<String> {
        let jobs: Vec<String> = kinds.iter().map(|kind| self.job(kind, ENDLESS)).collect();
        for job in &jobs {
            self.has_started(job, 1);
        }
        jobs
    }

    /// Waits until as many attempts have started.
    #[track_caller]
    fn has_started(&self, job: &str, attempts: usize) {
        eventually(&format!("{job} starts"), within(LEASE * 2), || {
            (self.scene.ledger().of(job).len() >= attempts).then_some(())
        });
    }

    #[track_caller]
    fn awaited(&self, job: &str, state: &str) -> Value {
        eventually(&format!("{job} is {state}"), within(LEASE * 2), || {
            let job = self.scene.api().ojs_job(job);
            (job["state"] == state).then_some(job)
        })
    }

    #[track_caller]
    fn ended_well(&self, job: &str, outcomes: &[&str]) {
        let _job = self.awaited(job, "completed");
        assert_eq!(self.scene.api().outcomes(job), outcomes);
    }

    /// The job was handed back without a charge, and whatever came of it later cost nothing either.
    #[track_caller]
    fn was_handed_back(&self, job: &str) {
        let shown = self.awaited(job, "available");
        assert_eq!(shown["attempt"], 0, "it uses up no retry: {shown}");
        let outcomes = self.scene.api().outcomes(job);
        assert_eq!(outcomes.first().map(String::as_str), Some("interrupted"), "{outcomes:?}");
        // A worker that drains gives back at once what it gets.
        assert!(outcomes.iter().skip(1).all(|outcome| outcome == "requeued"), "{outcomes:?}");
        assert_eq!(self.scene.ledger().of(job).len(), 1, "{outcomes:?}");
    }
}

/// Every part of a producer, and handlers that call it.
fn producer(language: Language) {
    let Some(site) = Site::of(language) else { return };
    // Another worker that may know the type of a job is not waited for.
    let lease = LEASE.as_secs().to_string();
    let options = ["--lease", &lease, "--no-handler-window", "0"];
    let _worker = site.worker_with(Duration::ZERO, &options);
    let program = site.installed.program.clone();
    let said = site.command(&program, &[language.producer]).output().expect("a producer");
    let error = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{error}");
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let expected = json!({
        "result": { "words": 4, "trace": trace },
        "inner_trace": trace,
        "error": ["discarded", "bad_address", "not an address: ada"],
        "untyped": 3,
        "unknown": "no_handler",
        "batch": ["completed", 20],
        "same_key": true,
        "other_body": 409,
        "unique": [true, true, "scheduled"],
        "waited": "scheduled",
        "cancelled": ["cancelled", "cancelled"],
        "missing": "not_found",
        "followed": "job.completed",
        "events": ["job.enqueued", "job.claimed", "job.started", "job.completed"],
        "resumed": "job.claimed",
        "chain": "completed",
        "callback": "completed",
        "graph": "two",
        "failed": "failed",
        "schedule": "T01:00:00Z",
        "paused": [false, true],
        "schedules": 0,
        "away": ["Unreachable", true],
    });
    assert_eq!(said, expected);
}

#[test]
fn the_python_package_enqueues_waits_follows_and_schedules() {
    producer(PYTHON);
}

#[test]
fn the_node_package_enqueues_waits_follows_and_schedules() {
    producer(NODE);
}

#[test]
fn a_python_worker_that_cannot_work_says_why() {
    cannot_work(PYTHON, &["nowhere:app"], "there is no module 'nowhere'");
}

#[test]
fn a_node_worker_that_cannot_work_says_why() {
    cannot_work(NODE, &["tasks.mjs", "--grace", "soon"], "is a number of seconds");
}

fn cannot_work(language: Language, arguments: &[&str], why: &str) {
    let Some(site) = Site::of(language) else { return };
    let mut command = site.command(&site.installed.worker, arguments);
    let ended = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{error}");
    assert!(error.contains(why), "{error}");
}
