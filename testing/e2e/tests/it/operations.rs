//! Operations on all jobs that match: at any server, while workers and producers go on, and when the
//! server that takes the steps is killed.

use std::time::{Duration, Instant};

use outlast_e2e::process::{Process, run_to_end};
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions};
use rustix::process::Signal;
use serde_json::{Value, json};

/// How long everything may take that many jobs are part of.
const LONG: Duration = Duration::from_secs(60);
const OPERATIONS: &str = "/api/v1/operations";

fn enqueue(api: &Api, queue: &str, count: usize) {
    let retry = json!({"max_attempts": 1});
    let job = json!({"type": "mail.send", "args": [], "options": {"queue": queue, "retry": retry}});
    let mut left = count;
    while left > 0 {
        let some: Vec<_> = std::iter::repeat_n(job.clone(), left.min(1_000)).collect();
        let _ = api.post("/ojs/v1/jobs/batch", &json!({"jobs": some})).expect(201);
        left -= some.len();
    }
}

/// Fails the next jobs of a queue.
fn fail(api: &Api, queue: &str, count: usize, message: &str) {
    let mut failed = 0;
    eventually("all have failed", LONG, || {
        for job in api.ojs_fetch(queue, "failer", 100) {
            let error = json!({"code": "handler_error", "message": message});
            let nack = json!({"job_id": job["id"], "error": error, "worker_id": "failer"});
            let _ = api.post("/ojs/v1/workers/nack", &nack).expect(200);
            failed += 1;
        }
        (failed >= count).then_some(())
    });
}

fn count(api: &Api, query: &str) -> u64 {
    let page = api.get(&format!("/api/v1/executions?limit=1&{query}")).expect(200);
    page["pagination"]["total"].as_u64().expect("a total")
}

fn begin(api: &Api, body: &Value) -> String {
    let begun = api.post(OPERATIONS, body).expect(201);
    begun["data"]["id"].as_str().expect("an id").to_owned()
}

fn read(api: &Api, id: &str) -> Option<Value> {
    let reply = api.try_get(&format!("{OPERATIONS}/{id}")).ok()?;
    reply.is_success().then(|| reply.body["data"].clone())
}

fn ended(api: &Api, id: &str) -> Value {
    eventually("the operation has ended", LONG, || {
        read(api, id).filter(|operation| operation["status"] != "running")
    })
}

fn counts(operation: &Value) -> [u64; 3] {
    ["matched", "changed", "skipped"].map(|name| operation[name].as_u64().expect("a count"))
}

/// The jobs that an operation changed, each as often as it did, by the events of the jobs.
fn changed_by(api: &Api, kind: &str, id: &str) -> Vec<String> {
    let by = format!("operation {id}: ");
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let query = format!("stream=false&type={kind}&limit=1000&cursor={cursor}");
        let page = api.get(&format!("/api/v1/events?{query}")).expect(200);
        for event in page["data"].as_array().expect("events") {
            if event["data"]["by"].as_str().is_some_and(|text| text.starts_with(&by)) {
                jobs.extend(event["data"]["job_id"].as_str().map(str::to_owned));
            }
        }
        let next = page["next_cursor"].as_str().expect("a cursor");
        if next == cursor {
            jobs.sort_unstable();
            return jobs;
        }
        next.clone_into(&mut cursor);
    }
}

#[test]
fn selection_is_frozen_on_the_embedded_store() {
    frozen(&Scene::start());
}

#[test]
fn selection_is_frozen_on_postgres() {
    frozen(&Scene::with(ServerOptions::default().postgres()));
}

/// Jobs are added, and retried ones fail again, while an operation is under way: it touches neither.
fn frozen(scene: &Scene) {
    let api = scene.api();
    enqueue(api, "mail", 3_000);
    let request = json!({"kind": "cancel", "filter": {"queue": "mail"}, "reason": "sent twice"});
    let mut dry = request.clone();
    dry["dry_run"] = json!(true);
    let would = api.post(OPERATIONS, &dry).expect(200)["data"].clone();
    assert_eq!((&would["matched"], &would["at_least"]), (&json!(3_000), &json!(false)), "{would}");
    let begun = Instant::now();
    let id = begin(api, &request);
    assert!(begun.elapsed() < within(Duration::from_secs(1)));
    let running = read(api, &id).expect("an operation");
    assert!(running["matched"].as_u64() < Some(3_000), "it must still run: {running}");
    enqueue(api, "mail", 500);
    let done = ended(api, &id);
    // What the dry run said is what was done.
    assert_eq!((&done["status"], counts(&done)), (&json!("done"), [3_000, 3_000, 0]), "{done}");
    assert_eq!(count(api, "queue=mail&status=cancelled"), 3_000);
    assert_eq!(count(api, "queue=mail&status=requested"), 500);
    let mut jobs = changed_by(api, "job.cancelled", &id);
    jobs.dedup();
    assert_eq!(jobs.len(), 3_000);

    enqueue(api, "bills", 400);
    fail(api, "bills", 400, "no paper");
    let retry = json!({"kind": "retry", "filter": {"queue": "bills", "error_contains": "PAPER"}});
    let id = begin(api, &retry);
    fail(api, "bills", 400, "no paper again");
    let done = ended(api, &id);
    assert_eq!(counts(&done), [400, 400, 0], "{done}");
    let mut jobs = changed_by(api, "job.replayed", &id);
    assert_eq!(jobs.len(), 400);
    jobs.dedup();
    assert_eq!(jobs.len(), 400, "each was retried once");
    let events = api.get("/api/v1/events?stream=false&type=operation.*").expect(200);
    let kinds: Vec<&str> = events["data"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|it| it["type"].as_str())
        .collect();
    let expected = ["operation.started", "operation.ended"].repeat(2);
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    assert!(kinds.iter().zip(expected).all(|(kind, name)| kind.ends_with(name)), "{kinds:?}");
    let words = events["data"][1]["data"]["evidence"].as_str().expect("evidence");
    let said = "cancel jobs of queue mail that have not ended (sent twice): done: 3000 cancelled";
    assert!(words.ends_with(said), "{words}");
    scene.judge();
}

/// Kills the server that takes the steps: another one goes on, and no job is left out or changed twice.
#[test]
fn operation_of_a_server_that_is_killed_goes_on_at_another() {
    let mut scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let there = Api::new(&other.url());
    let all = 12_000;
    enqueue(scene.api(), "mail", all);
    let id = begin(scene.api(), &json!({"kind": "cancel", "filter": {"queue": "mail"}}));
    eventually("it is under way", LONG, || {
        (read(&there, &id)?["changed"].as_u64() > Some(500)).then_some(())
    });
    scene.server_mut().kill();
    let left = read(&there, &id).expect("an operation");
    assert_eq!(left["status"], "running", "{left}");
    let late = there.ojs_enqueue("mail.send", &json!({"queue": "mail"}));
    let done = ended(&there, &id);
    let all = u64::try_from(all).expect("a count");
    assert_eq!((&done["status"], counts(&done)), (&json!("done"), [all, all, 0]), "{done}");
    assert_eq!(count(&there, "queue=mail&status=cancelled"), all);
    assert_eq!(there.ojs_job(&late)["state"], "available");
    let mut jobs = changed_by(&there, "job.cancelled", &id);
    assert_eq!(u64::try_from(jobs.len()), Ok(all));
    jobs.dedup();
    assert_eq!(u64::try_from(jobs.len()), Ok(all), "none was changed twice");
    scene.server_mut().start_again();
    scene.judge();
}

/// The same on the embedded store: the server goes on after its restart.
#[test]
fn operation_goes_on_after_a_restart() {
    let mut scene = Scene::start();
    enqueue(scene.api(), "mail", 8_000);
    let id = begin(scene.api(), &json!({"kind": "cancel", "filter": {"all": true}}));
    eventually("it is under way", LONG, || {
        (read(scene.api(), &id)?["changed"].as_u64() > Some(300)).then_some(())
    });
    scene.server_mut().kill();
    scene.server_mut().start_again();
    let done = ended(scene.api(), &id);
    assert_eq!(counts(&done), [8_000, 8_000, 0], "{done}");
    let mut jobs = changed_by(scene.api(), "job.cancelled", &id);
    jobs.dedup();
    assert_eq!(jobs.len(), 8_000);
    scene.judge();
}

#[test]
fn stopped_operation_changes_nothing_more() {
    let scene = Scene::start();
    let api = scene.api();
    enqueue(api, "mail", 20_000);
    let id = begin(api, &json!({"kind": "cancel", "filter": {"queue": "mail"}}));
    eventually("it is under way", LONG, || {
        (read(api, &id)?["changed"].as_u64() > Some(100)).then_some(())
    });
    let stopped = api.post(&format!("{OPERATIONS}/{id}/stop"), &json!({})).expect(200);
    let stopped = stopped["data"].clone();
    let changed = stopped["changed"].as_u64().expect("a count");
    assert!(stopped["status"] == "stopped" && changed < 20_000, "{stopped}");
    assert_eq!(count(api, "queue=mail&status=cancelled"), changed);
    // Others go on meanwhile, and nothing more is cancelled.
    let job = scene.run(Run::short());
    let _worker = scene.worker("one");
    scene.await_status(&job, "completed", within(LEASE));
    assert_eq!(count(api, "queue=mail&status=cancelled"), changed);
    assert_eq!(read(api, &id), Some(stopped));
    scene.judge();
}

/// A worker takes the jobs that are about to be cancelled: what it has taken stays, and is named.
#[test]
fn jobs_that_begin_to_run_meanwhile_are_counted_by_name() {
    let scene = Scene::start();
    let api = scene.api();
    enqueue(api, "mail", 4_000);
    let filter = json!({"queue": "mail", "status": "requested"});
    let id = begin(api, &json!({"kind": "cancel", "filter": filter}));
    let mut taken = 0;
    let done = eventually("the operation has ended", LONG, || {
        taken += api.ojs_fetch("mail", "hungry", 20).len();
        read(api, &id).filter(|operation| operation["status"] != "running")
    });
    let [matched, changed, skipped] = counts(&done);
    assert_eq!(matched, changed + skipped, "{done}");
    let reasons = done["skipped_by_reason"].as_object().expect("reasons");
    let sum: u64 = reasons.values().filter_map(Value::as_u64).sum();
    assert_eq!(sum, skipped, "{done}");
    assert!(reasons.keys().all(|reason| reason == "already running"), "{done}");
    assert_eq!(count(api, "queue=mail&status=cancelled"), changed);
    let held = count(api, "queue=mail&status=scheduled,running");
    assert_eq!((held, changed + held), (u64::try_from(taken).expect("few"), 4_000), "{done}");
}

#[test]
fn command_line_begins_follows_and_stops_operations() {
    let scene = Scene::start();
    let api = scene.api();
    enqueue(api, "mail", 1_500);
    enqueue(api, "bills", 10);
    let url = scene.server().url();
    let say = |words: &[&str]| run_to_end(&[words, &["--server", &url]].concat(), LONG);
    let dry = say(&["jobs", "cancel", "--queue", "mail", "--type", "mail.send", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert_eq!(dry.stderr, "1500 jobs, of which 3 are shown; nothing was changed\n");
    assert_eq!(count(api, "queue=mail&status=requested"), 1_500);
    let said = say(&["jobs", "cancel", "--queue", "mail", "--reason", "sent twice"]);
    assert_eq!((said.code, &*said.stderr), (Some(0), "1500 cancelled\n"));
    assert_eq!(count(api, "queue=mail&status=cancelled"), 1_500);
    assert_eq!(count(api, "queue=bills&status=requested"), 10);
    let none = say(&["jobs", "retry", "--queue", "mail"]);
    assert_eq!((none.code, &*none.stderr), (Some(0), "0 retried\n"));
    let named = say(&["jobs", "cancel"]);
    assert_eq!(named.code, Some(2), "nothing is named: {}", named.stderr);
    let listed = say(&["operations", "list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert_eq!(listed[1]["reason"], "sent twice");

    enqueue(api, "mail", 20_000);
    let begun = say(&["jobs", "cancel", "--all", "--yes", "--detach"]);
    let id = begun.stdout.trim().to_owned();
    assert_eq!(begun.code, Some(0), "{}", begun.stderr);
    let stopped = say(&["operations", "stop", &id]);
    assert!(stopped.stdout.contains("stopped"), "{} {}", stopped.stdout, stopped.stderr);
    let shown = say(&["operations", "show", &id, "-o", "json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert!(shown["status"] == "stopped" && shown["changed"].as_u64() < Some(20_010), "{shown}");
    let again = say(&["operations", "stop", &id]);
    assert_eq!(again.code, Some(4), "{}", again.stderr);
}

/// An interrupt ends the command and not the operation.
#[test]
fn interrupted_command_leaves_its_operation_running() {
    let scene = Scene::start();
    enqueue(scene.api(), "mail", 20_000);
    let words = ["jobs", "cancel", "--queue", "mail", "--server", &scene.server().url()];
    let words = words.map(str::to_owned);
    let mut command = Process::start("follower", &words, scene.folder());
    let id = eventually("it is under way", LONG, || {
        let list = scene.api().get(OPERATIONS).body;
        let first = list["data"].as_array()?.first()?.clone();
        (first["changed"].as_u64() > Some(100)).then(|| first["id"].as_str().map(str::to_owned))?
    });
    command.signal(Signal::INT);
    assert_eq!(command.await_end(LONG), Some(124), "{}", command.log());
    let words = format!("`outlast operations stop {id}` stops it");
    assert!(command.log().contains(&words), "{}", command.log());
    assert_eq!(counts(&ended(scene.api(), &id)), [20_000, 20_000, 0]);
}

/// What others do is not held up by an operation on very many jobs.
#[test]
fn jobs_of_others_run_while_very_many_are_cancelled() {
    let scene = Scene::start();
    let api = scene.api();
    let _worker = scene.worker_with(&WorkerOptions::named("one").concurrency(4));
    enqueue(api, "mail", 20_000);
    let id = begin(api, &json!({"kind": "cancel", "filter": {"queue": "mail"}}));
    let mut ran = 0;
    while read(api, &id).is_some_and(|operation| operation["status"] == "running") {
        let job = scene.run(Run::short());
        scene.await_status(&job, "completed", within(LEASE));
        ran += 1;
    }
    assert!(ran > 3, "{ran} jobs ran meanwhile");
    assert_eq!(counts(&ended(api, &id)), [20_000, 20_000, 0]);
    scene.judge();
}
