//! F26 with real processes: the same races where one side is a program that runs.

use std::thread;
use std::time::Duration;

use outlast_e2e::wait::{KILL_AFTER, LEASE, RECONNECT, SWEEP, within};
use outlast_e2e::{Run, Scene, WorkerOptions};
use serde_json::{Value, json};

const JOBS: u32 = 16;
const STEP: Duration = Duration::from_millis(15);

fn once() -> Value {
    json!({"max_attempts": 1})
}

#[test]
fn cancelling_jobs_about_when_they_end_leaves_each_with_one_end() {
    let scene = Scene::start();
    let _worker = scene.worker_with(&WorkerOptions::named("busy").concurrency(8));
    thread::scope(|scope| {
        for n in 0..JOBS {
            let scene = &scene;
            scope.spawn(move || {
                let job = scene.run(Run::holding(Duration::from_millis(150)));
                // Spreads the cancellations over queueing, running and having ended.
                thread::sleep(STEP * (n * 3));
                let reply = scene.cancel(&job);
                match reply.status {
                    200..300 => scene.await_status(&job, "cancelled", within(LEASE)),
                    409 => scene.await_status(&job, "completed", within(LEASE)),
                    other => panic!("cancel answered {other}: {}", reply.text),
                };
            });
        }
    });
    scene.judge();
}

#[test]
fn jobs_that_end_about_at_their_time_limit_have_one_end() {
    let scene = Scene::start();
    let _worker = scene.worker_with(&WorkerOptions::named("busy").concurrency(8));
    let jobs: Vec<_> = (0..JOBS)
        .map(|n| {
            let run = Run::holding(Duration::from_millis(u64::from(n) * 50));
            scene.run(run.with("timeout", json!(0.4)).with("retry", once()))
        })
        .collect();
    scene.judge();
    let ends: Vec<_> =
        jobs.iter().map(|job| scene.api().execution(job)["status"].clone()).collect();
    assert!(ends.iter().all(|end| end == "completed" || end == "timeout"), "{ends:?}");
    assert!(ends.iter().any(|end| end == "completed"), "the shortest fit: {ends:?}");
    assert!(ends.iter().any(|end| end == "timeout"), "the longest do not: {ends:?}");
}

#[test]
fn cancelling_jobs_while_their_worker_is_being_lost_keeps_them_cancelled() {
    let scene = Scene::start();
    let mut doomed = scene.worker_with(&WorkerOptions::named("doomed").concurrency(JOBS));
    let jobs: Vec<_> = (0..8).map(|_| scene.run(Run::holding(Duration::from_secs(60)))).collect();
    for job in &jobs {
        scene.await_start(job, 1, within(LEASE));
    }
    doomed.kill_whole();
    let around_the_lapse = RECONNECT - STEP * 4;
    thread::scope(|scope| {
        for (n, job) in (0..).zip(&jobs) {
            let scene = &scene;
            scope.spawn(move || {
                thread::sleep(around_the_lapse + STEP * n);
                let reply = scene.cancel(job);
                assert!(reply.is_success(), "{} {}", reply.status, reply.text);
            });
        }
    });
    let _heir = scene.worker("heir");
    let other = scene.run(Run::short());
    scene.await_status(&other, "completed", within(LEASE + SWEEP));
    scene.judge();
}

#[test]
fn a_time_limit_about_at_the_loss_of_the_worker_gives_one_end() {
    let scene = Scene::start();
    let mut doomed = scene.worker_with(&WorkerOptions::named("doomed").concurrency(JOBS));
    let jobs: Vec<_> = (0..6)
        .map(|n| {
            let limit = 1.0 + 0.1 * f64::from(n);
            let run = Run::holding(Duration::from_secs(60));
            scene.run(run.with("timeout", json!(limit)).with("retry", once()))
        })
        .collect();
    for job in &jobs {
        scene.await_start(job, 1, within(LEASE));
    }
    doomed.kill_whole();
    let _heir = scene.worker("heir");
    scene.judge();
    for job in &jobs {
        let outcomes = scene.api().outcomes(job);
        assert!(outcomes == ["lost"] || outcomes == ["timeout"], "{outcomes:?}");
        assert_eq!(scene.ledger().of(job).len(), 1, "it never starts twice");
    }
}

#[test]
fn a_cancelled_job_ends_its_tree_even_if_it_ignores_sigterm() {
    let scene = Scene::start();
    let worker = WorkerOptions::named("patient").concurrency(1);
    let _worker = scene.worker_with(&worker);
    let stubborn = Run::holding(Duration::from_secs(60)).parameter("on_term", json!("ignore"));
    let job = scene.run(stubborn);
    scene.await_start(&job, 1, within(LEASE));
    let reply = scene.cancel(&job);
    assert!(reply.is_success(), "{}", reply.text);
    assert_eq!(scene.api().execution(&job)["status"], "cancelled", "at once");
    // The slot is held until the tree is empty, and free then.
    let next = scene.run(Run::short());
    scene.await_status(&next, "completed", within(KILL_AFTER));
    let (first, second) = (scene.ledger().of(&job), scene.ledger().of(&next));
    assert!(first[0].last <= second[0].first, "{first:?} {second:?}");
    assert_eq!(scene.cancel(&job).status, 409, "it ended already");
    scene.judge();
}
