//! A retry avoids the worker that has failed the job, and costs nothing where there is no other.

use std::time::Duration;

use jiff::Timestamp;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

/// A job whose first attempts fail.
fn failing(attempts: u64) -> Run {
    let retry = json!({"max_attempts": attempts + 1, "initial_interval": "300ms",
                       "backoff_coefficient": 1, "jitter": false});
    Run::short().parameter("fail_before_epoch", json!(attempts + 1)).with("retry", retry)
}

fn names(attempts: &[Value]) -> Vec<String> {
    attempts.iter().map(|it| it["worker"]["name"].as_str().unwrap_or_default().into()).collect()
}

#[track_caller]
fn assert_alternates(scene: &Scene, job: &str) {
    scene.await_status(job, "completed", within(LEASE));
    let attempts = scene.api().attempts(job);
    let names = names(&attempts);
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{attempts:#?}");
}

#[test]
fn each_attempt_of_a_failing_job_is_on_another_worker_than_the_one_before() {
    let scene = Scene::start();
    let _one = scene.worker("one");
    let _other = scene.worker("other");
    for _ in 0..3 {
        let job = scene.run(failing(4));
        assert_alternates(&scene, &job);
    }
    scene.judge();
}

/// Each worker has failed some of the jobs that are due together: it gets those of the other.
#[test]
fn retries_of_many_jobs_at_a_time_go_to_other_workers() {
    for options in [ServerOptions::default(), ServerOptions::default().postgres()] {
        let scene = Scene::with(options);
        let _one = scene.worker_with(&WorkerOptions::named("one").concurrency(20));
        let _other = scene.worker_with(&WorkerOptions::named("other").concurrency(20));
        let jobs: Vec<String> = (0..10).map(|_| scene.run(failing(2))).collect();
        for job in &jobs {
            assert_alternates(&scene, job);
        }
        scene.judge();
    }
}

#[test]
fn a_retry_goes_to_a_worker_of_another_server() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let another = scene.another_server("another");
    let _near = scene.worker("near");
    let _far = scene.worker_with(&WorkerOptions::named("far").through(&another.url()));
    // On a loaded machine, another server may be too slow to take each of them in time.
    let moved = (0..3).map(|_| {
        let job = scene.run(failing(4));
        scene.await_status(&job, "completed", within(LEASE));
        let names = names(&scene.api().attempts(&job));
        names.windows(2).filter(|pair| pair[0] != pair[1]).count()
    });
    let moved: usize = moved.sum();
    assert!(moved >= 6, "{moved} of 12 went to the other worker");
    scene.judge();
}

#[test]
fn a_retry_waits_for_no_other_worker_if_none_has_a_free_slot() {
    let scene = Scene::start();
    let _one = scene.worker("one");
    let alone = scene.run(failing(3));
    scene.await_status(&alone, "completed", within(LEASE));
    let full = scene.worker_with(&WorkerOptions::named("full").concurrency(1));
    let quiet = format!("/api/v1/workers/{}/quiet", full.id());
    let _said = scene.api().post(&quiet, &json!({})).expect(200);
    let beside = scene.run(failing(3));
    scene.await_status(&beside, "completed", within(LEASE));
    for job in [alone, beside] {
        let attempts = scene.api().attempts(&job);
        assert!(names(&attempts).iter().all(|name| name == "one"), "{attempts:#?}");
        let time = |at: &Value| at.as_str().unwrap().parse::<Timestamp>().unwrap();
        for pair in attempts.windows(2) {
            let waited = time(&pair[1]["claimed"]).duration_since(time(&pair[0]["finished"]));
            let most = Duration::from_millis(800);
            assert!(waited.unsigned_abs() < most, "{waited:?}: {attempts:#?}");
        }
    }
    scene.judge();
}
