//! One holder at a time: fetchers, late and foreign reports, one start where only one is allowed.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use outlast_e2e::wait::{KILL_AFTER, LEASE, RECONNECT, SWEEP, eventually, stays, within};
use outlast_e2e::{Run, Scene, WorkerOptions};
use serde_json::{Value, json};

const VISIBILITY_MS: u64 = 300;
const VISIBILITY: Duration = Duration::from_millis(VISIBILITY_MS);

fn ack(scene: &Scene, more: &Value) -> u16 {
    scene.api().post("/ojs/v1/workers/ack", more).status
}

#[test]
fn two_fetchers_never_get_the_same_job() {
    const JOBS: usize = 400;
    let scene = Scene::start();
    let jobs: Vec<_> = (0..JOBS).map(|n| json!({"type": "shared.work", "args": [n]})).collect();
    for slice in jobs.chunks(100) {
        let reply = scene.api().post("/ojs/v1/jobs/batch", &json!({"jobs": slice}));
        assert_eq!(reply.status, 201, "{}", reply.text);
    }
    let fetched: Vec<String> = thread::scope(|scope| {
        let fetcher = |n: u32| {
            let scene = &scene;
            move || {
                let mut mine = Vec::new();
                loop {
                    let found =
                        scene.api().ojs_fetch("default", &format!("fetcher-{n}"), n % 5 + 1);
                    if found.is_empty() {
                        return mine;
                    }
                    mine.extend(found.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
                }
            }
        };
        let fetchers: Vec<_> = (0..8).map(|n| scope.spawn(fetcher(n))).collect();
        fetchers.into_iter().flat_map(|fetcher| fetcher.join().unwrap()).collect()
    });
    let distinct: BTreeSet<&String> = fetched.iter().collect();
    assert_eq!((fetched.len(), distinct.len()), (JOBS, JOBS));
}

#[test]
fn a_foreign_report_is_refused_and_changes_nothing() {
    let scene = Scene::start();
    let id = scene.api().ojs_enqueue("plain.work", &json!({"queue": "foreign"}));
    let fetched = scene.api().ojs_fetch("foreign", "holder", 1);
    assert_eq!(fetched[0]["id"], json!(id));
    assert_eq!(ack(&scene, &json!({"job_id": id, "worker_id": "stranger"})), 409);
    assert_eq!(ack(&scene, &json!({"job_id": id, "worker_id": "holder", "attempt": 99})), 409);
    let nack = json!({
        "job_id": id, "worker_id": "stranger", "error": {"code": "handler_error", "message": "no"},
    });
    assert_eq!(scene.api().post("/ojs/v1/workers/nack", &nack).status, 409);
    let job = scene.api().ojs_job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("active"), &json!(1)), "{job}");
    let own = json!({"job_id": id, "worker_id": "holder", "attempt": fetched[0]["attempt"]});
    assert_eq!(ack(&scene, &own), 200);
    assert_eq!(ack(&scene, &own), 409, "a job ends once");
    assert_eq!(scene.api().ojs_job(&id)["state"], "completed");
}

#[test]
fn a_late_report_is_refused_after_the_job_has_moved_on() {
    let scene = Scene::start();
    let options = json!({"queue": "late", "visibility_timeout_ms": VISIBILITY_MS});
    let id = scene.api().ojs_enqueue("plain.work", &options);
    let first = scene.api().ojs_fetch("late", "first", 1);
    assert_eq!(first.len(), 1);
    let second = eventually("the job is offered again", within(VISIBILITY + SWEEP), || {
        scene.api().ojs_fetch("late", "second", 1).pop()
    });
    assert_eq!(second["id"], json!(id));
    let late = json!({"job_id": id, "worker_id": "first", "attempt": first[0]["attempt"]});
    assert_eq!(ack(&scene, &late), 409);
    let current = json!({"job_id": id, "worker_id": "second", "attempt": second["attempt"]});
    assert_eq!(ack(&scene, &current), 200);
    assert_eq!(scene.api().ojs_job(&id)["state"], "completed");
}

#[test]
fn one_allowed_attempt_is_not_started_again_after_its_visibility_ends() {
    let scene = Scene::start();
    let options = json!({
        "queue": "once", "visibility_timeout_ms": VISIBILITY_MS,
        "retry": {"max_attempts": 1},
    });
    let id = scene.api().ojs_enqueue("plain.work", &options);
    assert_eq!(scene.api().ojs_fetch("once", "gone", 1).len(), 1);
    eventually("it is discarded", within(VISIBILITY + SWEEP), || {
        (scene.api().ojs_job(&id)["state"] == "discarded").then_some(())
    });
    assert!(scene.api().ojs_fetch("once", "next", 1).is_empty());
}

#[test]
fn one_allowed_attempt_is_not_started_again_after_its_worker_died() {
    let scene = Scene::start();
    let mut doomed = scene.worker("doomed");
    let once = Run::holding(Duration::from_secs(120)).with("retry", json!({"max_attempts": 1}));
    let job = scene.run(once);
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    doomed.kill_whole();
    scene.await_status(&job, "abandoned", within(RECONNECT + SWEEP));
    stays("it is never started again", LEASE, || {
        let traces = scene.ledger().of(&job);
        (traces.len() > 1).then(|| format!("{traces:?}"))
    });
    assert_eq!(scene.api().outcomes(&job), ["lost"]);
    scene.judge();
}

#[test]
fn one_allowed_attempt_is_not_started_again_after_a_shutdown() {
    let scene = Scene::start();
    let grace = Duration::from_millis(200);
    let mut leaver = scene.worker_with(&WorkerOptions::named("leaver").shutdown_timeout(grace));
    let once = Run::holding(Duration::from_secs(120)).with("retry", json!({"max_attempts": 1}));
    let job = scene.run(once);
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    leaver.terminate();
    assert_eq!(leaver.await_end(within(grace + KILL_AFTER)), Some(0));
    let other = scene.run(Run::short());
    scene.await_status(&other, "completed", within(LEASE));
    assert_eq!(scene.ledger().of(&job).len(), 1);
    assert_eq!(scene.api().outcomes(&job), ["interrupted"]);
    scene.judge();
}
