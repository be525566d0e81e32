//! `examples/ase-pipeline` as it stands there, with a real PostgreSQL and a real FTP server: each kind of
//! kill in the middle of each step. What became of the files is judged from SQL and from the folder that
//! the FTP server serves.

mod arrivals;
mod receiver;
mod site;

use std::any::Any;
use std::time::Duration;

use outlast_cluster::Stop;
use outlast_e2e::process::run_to_end;
use serde_json::{Value, json};

use self::arrivals::Arrival;
use self::site::Site;

/// How long a run of the whole pipeline may take, kills included, on a loaded machine.
const RUN: Duration = Duration::from_secs(120);
/// What a drain waits for; longer than any step of these files.
const GRACE: Duration = Duration::from_secs(30);

/// What happens in the middle of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// SIGTERM to the worker: what runs ends within the grace period.
    Drain,
    /// SIGTERM to the worker, and the grace period is over before the step is.
    Interruption,
    /// `kill -9` of the worker.
    Worker,
    /// `kill -9` of the server.
    Server,
    /// `kill -9` of both.
    Both,
    /// SIGTERM to all of it, as when the host is shut down: worker, server and PostgreSQL, and no FTP
    /// server any more.
    Stop,
    /// `kill -9` of everything: worker, server, PostgreSQL and the FTP server.
    Everything,
}

impl Kill {
    const fn grace(self) -> Duration {
        match self {
            Self::Interruption | Self::Stop => Duration::from_millis(100),
            Self::Drain | Self::Worker | Self::Server | Self::Both | Self::Everything => GRACE,
        }
    }

    /// How attempts of the step ended that did not complete; `None` where chance decides.
    const fn ends(self, step: Step) -> Option<&'static [&'static str]> {
        match (self, step) {
            (Self::Drain, _) | (Self::Interruption, Step::Elaborate) => Some(&[]),
            (Self::Interruption, Step::Load | Step::Send) => Some(&["interrupted"]),
            (Self::Worker | Self::Both | Self::Everything, _) => Some(&["lost"]),
            (Self::Server, Step::Load | Step::Elaborate) => Some(&[]),
            // The worker ends what must not overlap, if the server is away for as long as a lease.
            (Self::Server, Step::Send) => None,
            // The server may be gone before the worker can report.
            (Self::Stop, _) => None,
        }
    }
}

/// A step of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Load,
    Elaborate,
    Send,
}

const STEPS: [Step; 3] = [Step::Load, Step::Elaborate, Step::Send];

impl Step {
    const fn action(self) -> &'static str {
        match self {
            Self::Load => "ase.load",
            Self::Elaborate => "ase.elaborate",
            Self::Send => "ase.send",
        }
    }
}

/// What keeps a step in its middle until it is dropped: a session with a lock, say.
type Hold = Box<dyn Any>;

#[test]
fn pipeline_survives_kills_of_the_worker() {
    check(&[Kill::Drain, Kill::Interruption, Kill::Worker]);
}

#[test]
fn pipeline_survives_kills_of_the_server_and_of_everything() {
    check(&[Kill::Server, Kill::Both, Kill::Everything]);
}

#[test]
fn pipeline_survives_a_stop_of_everything() {
    check(&[Kill::Stop]);
}

/// An attempt that dies between the rename and its report has delivered: it is not done again, unless the
/// receiver has something else under that name.
#[test]
fn delivery_that_is_there_is_recognised_by_its_bytes() {
    let Some(mut site) = Site::start("ase-again") else { return };
    let files = site.arrive("again");
    site.start_worker(GRACE);
    site.begin(run_pipeline).join().expect("the pipeline finishes");
    site.judge("undisturbed");
    let forget = "update ase.file set sent_at = null";
    site.session().run(forget).expect("no record of deliveries");
    let [same, shorter, other] = &files[..] else { panic!("three files") };
    site.receiver().damage(shorter.name(), |bytes| bytes.truncate(5000));
    site.receiver().damage(other.name(), |bytes| bytes[30] ^= 1);
    let was_there = |file: &Arrival| send(&site.url(), file.name())["was_there"].clone();
    let found = [same, shorter, other].map(was_there);
    assert_eq!(found, [true, false, false].map(Value::from));
    for file in [shorter, other] {
        site.receiver().expect(file.name(), file.results());
    }
    site.judge("sent again");
    site.finish();
}

/// Runs the pipeline once for each kind of kill, with that kill in the middle of each step.
fn check(kills: &[Kill]) {
    let Some(mut site) = Site::start(&format!("ase-{:?}", kills[0])) else { return };
    for kill in kills {
        let before = STEPS.map(|step| site.ends_of(step.action()).len());
        run_with(&mut site, *kill);
        for (step, before) in STEPS.into_iter().zip(before) {
            if let Some(ends) = kill.ends(step) {
                let ended = site.ends_of(step.action());
                assert_eq!(ended[before..], *ends, "{kill:?} during {step:?}");
            }
        }
    }
    site.finish();
}

fn run_with(site: &mut Site, kill: Kill) {
    let files = site.arrive(&format!("{kill:?}").to_lowercase());
    let second = files[1].name();
    // The second file is not loaded before the table is locked, so that the first one is there.
    let gate = site.session();
    let record = format!("insert into ase.file (name, digest) values ('{second}', '')");
    gate.run(&format!("begin; {record}")).expect("a row");
    let solver = site.hold_solver();
    let upload = site.receiver().hold(second);
    site.start_worker(kill.grace());
    let run = site.begin(run_pipeline);

    let waiting = "select count(*) from pg_locks where not granted and locktype";
    site.await_number(&format!("{waiting} = 'transactionid'"), 1);
    let table = site.session();
    table.run("begin; lock table ase.reading in share mode").expect("a lock");
    drop(gate);
    site.await_number(&format!("{waiting} = 'relation'"), 1);
    site.await_running(Step::Load.action());
    strike(site, kill, Box::new(table));

    let computing = "select count(*) from pg_stat_activity \
                     where application_name = 'ase-solver' and query like 'COPY%'";
    site.await_number(computing, 1);
    site.await_running(Step::Elaborate.action());
    strike(site, kill, Box::new(solver));

    site.receiver().await_half(second, RUN);
    site.await_running(Step::Send.action());
    strike(site, kill, Box::new(upload));

    run.join().unwrap_or_else(|_| panic!("{kill:?}: the pipeline does not finish"));
    site.judge(&format!("{kill:?} in the middle of each step"));
}

/// Kills, and starts again what was killed. Nothing else is done: it has to finish by itself.
fn strike(site: &mut Site, kill: Kill, hold: Hold) {
    match kill {
        Kill::Drain => {
            site.worker().terminate();
            site.await_drain();
            drop(hold);
            assert_eq!(site.end_of_worker(), Some(0));
            site.start_worker(kill.grace());
        }
        Kill::Interruption => {
            site.worker().terminate();
            site.await_stopping();
            drop(hold);
            assert_eq!(site.end_of_worker(), Some(0));
            site.start_worker(kill.grace());
        }
        Kill::Worker => {
            site.kill_worker();
            drop(hold);
            site.start_worker(kill.grace());
        }
        Kill::Server => {
            site.kill_server();
            drop(hold);
            site.start_server();
        }
        Kill::Both => {
            site.kill_server();
            site.kill_worker();
            drop(hold);
            site.start_server();
            site.start_worker(kill.grace());
        }
        Kill::Stop => {
            site.worker().terminate();
            site.stop_server();
            site.stop_surroundings(Stop::Fast);
            drop(hold);
            // With 1 if there was no server to take its reports.
            assert!(matches!(site.end_of_worker(), Some(0 | 1)));
            site.start_everything(kill.grace());
        }
        Kill::Everything => {
            site.kill_server();
            site.kill_worker();
            site.stop_surroundings(Stop::Kill);
            drop(hold);
            site.start_everything(kill.grace());
        }
    }
}

/// Starts `workflows/nightly.yaml` and waits for its end.
fn run_pipeline(server: &str, folder: &str) {
    let parameter = format!("folder={folder}");
    let words = ["workflows", "run", "ase.nightly", "-p", &parameter, "--wait", "-o", "json"];
    let ended = run_to_end(&[&words[..], &["--server", server]].concat(), RUN);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let workflow: Value = serde_json::from_str(&ended.stdout).expect("a workflow as JSON");
    let steps = workflow["steps"].as_array().expect("its steps");
    let names: Vec<_> = steps.iter().map(|step| (&step["name"], &step["status"])).collect();
    let completed = ["load", "elaborate", "send", "report"];
    assert!(names.iter().all(|(_, status)| *status == "completed"), "{workflow:#}");
    assert!(names.iter().map(|(name, _)| *name).eq(completed), "{workflow:#}");
    assert_eq!(steps[0]["result"]["refused"], json!([]), "{workflow:#}");
}

/// Sends a file, and returns what its job gives.
fn send(server: &str, file: &str) -> Value {
    let parameter = format!("file={file}");
    let words = ["run", "ase.send", "-p", &parameter, "--wait", "-o", "json", "--server", server];
    let ended = run_to_end(&words, RUN);
    assert_eq!(ended.code, Some(0), "{file}: {}", ended.stderr);
    let job: Value = serde_json::from_str(&ended.stdout).expect("a job as JSON");
    job["result"].clone()
}
