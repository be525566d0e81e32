//! The programs of docs/use/languages.md, as they stand there: what becomes of the jobs of a worker
//! that is drained, killed or cut off from its server.

use std::fs;
use std::process::Command;
use std::time::Duration;

use outlast_e2e::document::{Block, blocks};
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Process, Scene, ServerOptions, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../docs/use/languages.md");
/// `ojs.lease`. Workers stop their jobs after seven tenths of it without a server.
const LEASE: Duration = Duration::from_secs(6);
/// Longer than any test waits for a handler: such a job ends only when its worker stops it.
const ENDLESS: u32 = 100_000;

/// The programs of one language.
#[derive(Clone, Copy)]
struct Language {
    program: &'static str,
    package: &'static str,
    worker: &'static str,
    producer: &'static str,
}

const PYTHON: Language = Language {
    program: "python3",
    package: "python3",
    worker: "worker.py",
    producer: "producer.py",
};
const NODE: Language =
    Language { program: "node", package: "nodejs", worker: "worker.mjs", producer: "producer.mjs" };

/// A server and a folder with the programs of the page.
struct Site {
    scene: Scene,
    language: Language,
}

impl Site {
    /// Starts a server; `None` where the language is missing and that is allowed.
    fn of(language: Language) -> Option<Self> {
        if !skip::has(language.program, language.package) {
            return None;
        }
        let scene = Scene::with(ServerOptions::bare().set("ojs.lease", json!(LEASE.as_secs())));
        for block in blocks(PAGE) {
            if let Block::File { path, text } = block {
                fs::write(scene.folder().join(path), text).expect("a program");
            }
        }
        Some(Self { scene, language })
    }

    fn command(&self, file: &str) -> Command {
        let mut command = Command::new(self.language.program);
        command.arg(file).current_dir(self.scene.folder());
        command.env_remove("OUTLAST_TOKEN").env("no_proxy", "127.0.0.1");
        command.env("OUTLAST_SERVER", self.scene.api().url());
        command
    }

    /// Starts a worker that goes on for `grace` when it is drained.
    fn worker(&self, grace: Duration) -> Process {
        let mut command = self.command(self.language.worker);
        command.env("LEASE", LEASE.as_secs().to_string());
        command.env("GRACE", grace.as_secs_f64().to_string());
        let mut worker = Process::spawn("worker", command, self.scene.folder());
        let _line = worker.await_line("takes jobs from letters", within(LEASE));
        worker
    }

    /// Enqueues a job that runs for as many tenths of a second.
    fn report(&self, pages: u32) -> String {
        self.enqueue("report.build", &json!({ "pages": pages }))
    }

    fn enqueue(&self, kind: &str, arg: &Value) -> String {
        let options = json!({ "queue": "letters", "retry": { "max_attempts": 2 } });
        let body = json!({ "type": kind, "args": [arg], "options": options });
        let reply = self.scene.api().post("/ojs/v1/jobs", &body).expect(201);
        reply["job"]["id"].as_str().expect("an id").to_owned()
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
}

fn letters_and_errors(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let _worker = site.worker(Duration::ZERO);
    let mut producer = site.command(language.producer);
    let said = producer.args(["ada@example.com", "Dear  Ada"]).output().expect("a producer");
    assert!(said.status.success(), "{said:?}");
    let sent = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    assert_eq!(site.awaited(&sent, "completed")["result"], json!({ "words": 2 }));

    let wrong = site.enqueue("letter.send", &json!({ "to": "ada", "text": "" }));
    let unknown = site.enqueue("letter.burn", &json!({}));
    let error = site.awaited(&wrong, "discarded")["error"]["message"].clone();
    assert_eq!(error, "not an address: ada");
    let error = site.awaited(&unknown, "discarded")["error"]["message"].clone();
    assert_eq!(error, "no handler for letter.burn");
}

/// The worker hears of it with a heartbeat, and then has a free slot again.
fn cancel(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let mut worker = site.worker(Duration::ZERO);
    let jobs: Vec<String> = (0..4).map(|_| site.report(ENDLESS)).collect();
    for job in &jobs {
        let _job = site.awaited(job, "active");
        let _cancelled = site.scene.api().delete(&format!("/ojs/v1/jobs/{job}")).expect(200);
    }
    for job in &jobs {
        let _line = worker.await_line(&format!("job {job}: nack"), within(LEASE));
        assert_eq!(site.scene.api().ojs_job(job)["state"], "cancelled");
    }
    site.ended_well(&site.report(1), &["completed"]);
}

fn kill_and_outage(language: Language) {
    let Some(mut site) = Site::of(language) else { return };
    let mut killed = site.worker(Duration::ZERO);
    let job = site.report(30);
    let _job = site.awaited(&job, "active");
    killed.kill();
    let mut worker = site.worker(Duration::ZERO);
    site.ended_well(&job, &["lost", "completed"]);

    let job = site.report(80);
    let _job = site.awaited(&job, "active");
    site.scene.server_mut().kill();
    let _line = worker.await_line("stopped for want of a server", within(LEASE));
    site.scene.server_mut().start_again();
    site.ended_well(&job, &["interrupted", "completed"]);
}

fn drain(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let mut patient = site.worker(Duration::from_secs(60));
    let job = site.report(20);
    let _job = site.awaited(&job, "active");
    patient.signal(Signal::TERM);
    let _line = patient.await_line("draining", within(LEASE));
    assert_eq!(patient.await_end(within(LEASE)), Some(0));
    site.ended_well(&job, &["completed"]);

    let job = site.report(ENDLESS);
    let mut hasty = site.worker(Duration::from_millis(100));
    let _job = site.awaited(&job, "active");
    hasty.signal(Signal::TERM);
    assert_eq!(hasty.await_end(within(LEASE)), Some(0));
    assert_eq!(site.awaited(&job, "available")["attempt"], 0, "it uses up no retry");
    assert_eq!(site.scene.api().outcomes(&job), ["interrupted"]);

    let mut doomed = site.worker(Duration::from_secs(60));
    let _job = site.awaited(&job, "active");
    doomed.signal_taken(Signal::TERM);
    let _line = doomed.await_line("draining", within(LEASE));
    doomed.signal(Signal::TERM);
    assert_eq!(doomed.await_end(within(LEASE)), Some(1), "a second signal ends it at once");
}

#[test]
fn a_worker_in_python_reports_results_and_errors() {
    letters_and_errors(PYTHON);
}

#[test]
fn a_worker_in_node_reports_results_and_errors() {
    letters_and_errors(NODE);
}

#[test]
fn a_worker_in_python_stops_cancelled_jobs() {
    cancel(PYTHON);
}

#[test]
fn a_worker_in_node_stops_cancelled_jobs() {
    cancel(NODE);
}

#[test]
fn jobs_of_a_worker_in_python_survive_a_kill_and_an_outage() {
    kill_and_outage(PYTHON);
}

#[test]
fn jobs_of_a_worker_in_node_survive_a_kill_and_an_outage() {
    kill_and_outage(NODE);
}

#[test]
fn a_worker_in_python_drains() {
    drain(PYTHON);
}

#[test]
fn a_worker_in_node_drains() {
    drain(NODE);
}
