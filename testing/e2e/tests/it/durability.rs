//! A 2xx on enqueue means that the job is stored, whatever happens to the server next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Api, Scene, ServerOptions};
use serde_json::{Value, json};

const ROUNDS: usize = 30;
const PRODUCERS: usize = 16;
const READY: Duration = Duration::from_secs(2);

/// Ids that were answered with 2xx, by the door they came in by.
#[derive(Default)]
struct Acknowledged {
    plain: Mutex<BTreeSet<String>>,
    executions: Mutex<BTreeSet<String>>,
    count: AtomicUsize,
}

impl Acknowledged {
    fn add(&self, set: &Mutex<BTreeSet<String>>, ids: impl IntoIterator<Item = String>) {
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            assert!(set.insert(id.clone()), "id {id} was given to two jobs");
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Enqueues until the server is gone.
fn produce(api: &Api, producer: usize, acknowledged: &Acknowledged) {
    let plain = json!({"type": "load.work", "args": [producer]});
    let batch = json!({"jobs": vec![plain.clone(); 10]});
    let execution = json!({"action_ref": "core.noop", "parameters": {}});
    loop {
        let (path, body) = match producer % 4 {
            0 => ("/ojs/v1/jobs/batch", &batch),
            1 => ("/api/v1/executions", &execution),
            _ => ("/ojs/v1/jobs", &plain),
        };
        let Ok(reply) = api.try_post(path, body) else { return };
        let body = match reply.status {
            201 => reply.body,
            // A server that is shutting down may refuse instead.
            503 => return,
            _ => panic!("POST {path}: {} {}", reply.status, reply.text),
        };
        let id = |job: &Value| job["id"].as_str().expect("an id").to_owned();
        match producer % 4 {
            0 => acknowledged
                .add(&acknowledged.plain, body["jobs"].as_array().unwrap().iter().map(id)),
            1 => acknowledged.add(&acknowledged.executions, [id(&body["data"])]),
            _ => acknowledged.add(&acknowledged.plain, [id(&body["job"])]),
        }
    }
}

#[test]
fn every_acknowledged_job_survives_thirty_kills_of_the_server_under_load() {
    let mut scene = Scene::start();
    let acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        let api = Api::new(&scene.server().url());
        let enough = acknowledged.count.load(Ordering::Relaxed) + 20 + 7 * round;
        thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let (api, acknowledged) = (&api, &acknowledged);
                scope.spawn(move || produce(api, producer, acknowledged));
            }
            eventually("the load is on", within(READY), || {
                (acknowledged.count.load(Ordering::Relaxed) >= enough).then_some(())
            });
            scene.server_mut().kill();
        });
        scene.server_mut().start_again();
        await_ready(scene.api(), within(READY));
    }
    let executions = acknowledged.executions.into_inner().unwrap();
    for id in &executions {
        let execution = scene.api().execution(id);
        assert_eq!(execution["status"], "requested", "{execution}");
    }
    let plain = acknowledged.plain.into_inner().unwrap();
    let fetched = drain(scene.api());
    let lost: Vec<&String> = plain.iter().filter(|id| !fetched.contains_key(*id)).collect();
    assert!(lost.is_empty(), "{} of {} lost: {lost:?}", lost.len(), plain.len());
    let twice: Vec<_> = fetched.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "handed out more than once: {twice:?}");
    for id in plain.iter().step_by(50) {
        assert_eq!(scene.api().ojs_job(id)["state"], "completed");
    }
}

/// Fetches and completes everything; returns how often each job was handed out.
fn drain(api: &Api) -> BTreeMap<String, usize> {
    let fetched = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for n in 0..4 {
            let fetched = &fetched;
            scope.spawn(move || {
                let worker = format!("drain-{n}");
                loop {
                    let jobs = api.ojs_fetch("default", &worker, 50);
                    if jobs.is_empty() {
                        return;
                    }
                    for job in jobs {
                        let id = job["id"].as_str().unwrap().to_owned();
                        let ack = json!({"job_id": id, "worker_id": worker});
                        assert_eq!(api.post("/ojs/v1/workers/ack", &ack).status, 200);
                        *fetched.lock().unwrap().entry(id).or_insert(0) += 1;
                    }
                }
            });
        }
    });
    fetched.into_inner().unwrap()
}

#[test]
fn a_completed_job_stays_completed_through_a_kill_of_the_server() {
    let mut scene = Scene::start();
    let ids: Vec<String> =
        (0..20).map(|_| scene.api().ojs_enqueue("load.work", &json!({}))).collect();
    assert_eq!(drain(scene.api()).len(), ids.len());
    scene.server_mut().kill();
    scene.server_mut().start_again();
    await_ready(scene.api(), within(READY));
    for id in &ids {
        assert_eq!(scene.api().ojs_job(id)["state"], "completed");
    }
    assert!(scene.api().ojs_fetch("default", "nobody", 10).is_empty());
}

/// A server without durability says so in its log, its API and its diagnostics.
#[test]
fn server_without_fsync_says_so_everywhere_and_only_if_it_was_asked_for() {
    let sound = Scene::start();
    assert_eq!(sound.api().get("/health").body["durable"], true);
    assert!(!sound.api().get("/").text.contains("no-fsync"));
    let cluster = outlast_cluster::Cluster::start(&["fsync=off"]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let embedded = ServerOptions::default().argument("--unsafe-no-fsync");
    let shared = embedded.clone().database(&database);
    for options in [embedded, shared] {
        let scene = Scene::with(options);
        let health = scene.api().get("/health").expect(200);
        assert_eq!(health["durable"], false, "{health}");
        assert!(scene.api().get("/").text.contains("--unsafe-no-fsync"));
        assert!(scene.server().process().log().contains("LOSES ACCEPTED JOBS"));
        let url = scene.server().url();
        let said = outlast_e2e::process::run_to_end(
            &["doctor", "--server", &url],
            Duration::from_secs(60),
        );
        assert_eq!(said.code, Some(1), "{said:?}");
    }
    let refused = outlast_e2e::process::run_to_end(
        &["server", "--listen", "127.0.0.1:0", "--database", &database],
        Duration::from_secs(60),
    );
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("fsync = off"), "{refused:?}");
}
