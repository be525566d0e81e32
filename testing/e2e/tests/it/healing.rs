//! F1: a worker whose engine is killed starts another one, which follows the same orders.

use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::wait::{HEARTBEAT, KILL_AFTER, LEASE, SWEEP, eventually, stays, within};
use outlast_e2e::{Run, Scene, Worker, WorkerOptions};
use serde_json::{Value, json};

/// Of a guardian, before it starts an engine again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Waits until the worker serves under another identity, in this state.
fn await_next(scene: &Scene, before: &Worker, state: &str) -> Value {
    eventually(&format!("the next engine is {state}"), within(SWEEP), || {
        let listed = scene.api().get("/api/v1/workers").expect(200);
        let is_next = |worker: &&Value| {
            worker["name"] == before.name()
                && worker["id"] != before.id()
                && worker["state"] == state
        };
        listed["data"].as_array()?.iter().find(is_next).cloned()
    })
}

fn order(scene: &Scene, id: &str, verb: &str) {
    let _ = scene.api().post(&format!("/api/v1/workers/{id}/{verb}"), &json!({})).expect(200);
}

/// Waits until the engine says that it follows an order. The server knows of the order a little
/// earlier, and the guardian just before the engine says so.
fn await_own_stage(worker: &Worker, stage: &str) {
    eventually(&format!("the engine is {stage}"), within(HEARTBEAT), || {
        let said: Value =
            serde_json::from_str(&worker.health(&["-o", "json"], within(HEARTBEAT)).stdout).ok()?;
        (said["stage"] == stage).then_some(())
    });
}

#[test]
fn a_job_runs_again_on_the_only_worker_whose_engine_was_killed() {
    let scene = Scene::start();
    let mut worker = scene.worker("only");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    worker.kill_engine();
    let done = scene.await_status(&job, "completed", within(SWEEP + KILL_AFTER));
    let spent = (&done["losses"], &done["interruptions"], &done["failures"]);
    assert_eq!(spent, (&json!(1), &json!(0), &json!(0)), "{done}");
    let first = scene.api().attempts(&job)[0].clone();
    assert_eq!(first["evidence_code"], "engine_killed", "{first}");
    let next = await_next(&scene, &worker, "running");
    assert_eq!(done["worker"]["id"], next["id"], "{done}");
    // It drains as its predecessor would have.
    worker.terminate();
    assert_eq!(worker.await_end(within(KILL_AFTER)), Some(0));
    scene.await_worker(next["id"].as_str().unwrap(), "stopped", within(SWEEP));
    scene.judge();
}

#[test]
fn a_worker_that_was_ordered_quiet_stays_so_until_it_is_resumed() {
    let scene = Scene::start();
    let worker = scene.worker("quiet");
    order(&scene, worker.id(), "quiet");
    // At once: whether or not the engine has heard of it.
    worker.kill_engine();
    let next = await_next(&scene, &worker, "quiet");
    let job = scene.run(Run::short());
    stays("it takes nothing", HEARTBEAT * 3, || {
        let status = scene.api().execution(&job)["status"].clone();
        (status != "requested").then(|| status.to_string())
    });
    order(&scene, next["id"].as_str().unwrap(), "resume");
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

/// A drain that the store had, and the engine not yet, was lost with the engine, and `--wait` said that
/// the worker had drained.
#[test]
fn a_drain_ordered_just_before_the_engine_dies_is_followed_by_the_next_one() {
    let scene = Scene::start();
    let mut worker = scene.worker("leaving");
    order(&scene, worker.id(), "drain");
    worker.kill_engine();
    assert_eq!(worker.await_end(within(SWEEP + KILL_AFTER)), Some(0));
    scene.judge();
}

#[test]
fn an_order_given_while_there_is_no_engine_holds_for_the_next_one() {
    let scene = Scene::start();
    let worker = scene.worker("between");
    order(&scene, worker.id(), "quiet");
    await_own_stage(&worker, "quiet");
    // The fourth pause is the longest.
    let mut latest = worker.id().to_owned();
    for nth in 1..=4 {
        worker.kill_engine();
        scene.await_worker(&latest, "stopped", within(SWEEP));
        if nth < 4 {
            let next = await_next(&scene, &worker, "quiet");
            next["id"].as_str().unwrap().clone_into(&mut latest);
        }
    }
    order(&scene, &latest, "resume");
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE + LONGEST_PAUSE));
    scene.judge();
}

#[test]
fn a_worker_that_was_ordered_to_drain_ends_when_its_engine_is_killed() {
    let scene = Scene::start();
    let options = WorkerOptions::named("leaving").shutdown_timeout(Duration::from_secs(120));
    let mut worker = scene.worker_with(&options);
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    order(&scene, worker.id(), "drain");
    await_own_stage(&worker, "draining");
    worker.kill_engine();
    assert_eq!(worker.await_end(within(SWEEP)), Some(0));
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

/// `--wait` took the death of an engine for the end of the worker, and said that it had vanished or
/// that there was no worker to wait for.
#[test]
fn a_drain_that_is_waited_for_goes_on_with_the_engine_that_follows() {
    let scene = Scene::start();
    let mut worker = scene.worker("leaving");
    let first = worker.id().to_owned();
    worker.kill_engine();
    scene.await_worker(&first, "stopped", within(SWEEP));
    let drain = ["workers", "drain", &first, "--wait", "--timeout", "30s"];
    let drained = run_against(&scene.server().url(), &drain);
    assert_eq!(drained.code, Some(0), "{} {}", drained.stdout, drained.stderr);
    assert_eq!(worker.await_end(within(SWEEP + KILL_AFTER)), Some(0));
    scene.judge();
}

#[test]
fn a_drain_that_is_waited_for_again_says_which_worker_was_killed_under_it() {
    let scene = Scene::start();
    let mut worker = scene.worker_with(&WorkerOptions::named("killed").flag("--pool", "web"));
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    let url = scene.server().url();
    assert_eq!(run_against(&url, &["workers", "drain", "--pool", "web"]).code, Some(0));
    worker.kill_whole();
    scene.await_worker(worker.id(), "lapsed", within(LEASE + SWEEP));
    let again = run_against(&url, &["workers", "drain", "--pool", "web", "--wait"]);
    assert_eq!(again.code, Some(1), "{} {}", again.stdout, again.stderr);
    for words in ["1 of 1 worker vanished", "killed: lapsed"] {
        assert!(again.stderr.contains(words), "{}", again.stderr);
    }
}
