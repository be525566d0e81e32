//! F4: an engine is killed between a claim and the spawn, between an exit and the report, and between
//! a report and its answer.

use std::fs;
use std::time::Duration;

use outlast_e2e::proxy::{Proxy, Weather};
use outlast_e2e::wait::{KILL_AFTER, LEASE, SWEEP, stays, within};
use outlast_e2e::{Run, Scene, ServerOptions, Worker, WorkerOptions};
use serde_json::json;

/// Starts a worker whose first engine is killed at this place.
fn doomed_at(place: &str, scene: &Scene) -> Worker {
    let file = scene.folder().join("not-yet");
    fs::write(&file, "").expect("a file");
    let variable = format!("OUTLAST_CRASH_POINT={place}:{}", file.display());
    scene.worker_with(&WorkerOptions::named("doomed").below(&["env", &variable]))
}

fn was_reached(scene: &Scene) -> bool {
    !scene.folder().join("not-yet").exists()
}

#[test]
fn a_job_whose_engine_dies_between_claim_and_spawn_runs_once() {
    let scene = Scene::start();
    let _worker = doomed_at("claimed", &scene);
    let job = scene.run(Run::short());
    let done = scene.await_status(&job, "completed", within(SWEEP + KILL_AFTER));
    assert!(was_reached(&scene));
    assert_eq!(scene.ledger().of(&job).len(), 1, "nothing was started before the kill");
    assert_eq!(done["epoch"], 2, "{done}");
    assert_eq!(done["failures"], 0, "{done}");
    scene.judge();
}

#[test]
fn a_job_whose_engine_dies_between_exit_and_report_runs_again() {
    let scene = Scene::start();
    let _worker = doomed_at("exited", &scene);
    // Long enough for its start to be stored.
    let job = scene.run(Run::holding(Duration::from_millis(500)));
    let done = scene.await_status(&job, "completed", within(SWEEP + KILL_AFTER));
    assert!(was_reached(&scene));
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    assert_eq!(scene.ledger().of(&job).len(), 2, "its end was not known");
    assert_eq!((&done["losses"], &done["failures"]), (&json!(1), &json!(0)), "{done}");
    scene.judge();
}

#[test]
fn a_job_that_may_start_once_is_not_run_again_after_an_unreported_exit() {
    let scene = Scene::start();
    let _worker = doomed_at("exited", &scene);
    let job = scene.run(Run::short().with("retry", json!({ "max_attempts": 1 })));
    let ended = scene.await_status(&job, "abandoned", within(SWEEP + KILL_AFTER));
    assert!(was_reached(&scene));
    assert_eq!(scene.ledger().of(&job).len(), 1, "{ended}");
    scene.judge();
}

#[test]
fn a_job_whose_report_was_stored_is_not_run_again_when_the_engine_dies_before_the_answer() {
    // The server must not take the silence of the proxy for the worker's end.
    let scene = Scene::with(ServerOptions::default().set("worker.reconnect_window", json!(60)));
    let proxy = Proxy::to(&scene.server().url());
    let worker = scene.worker_with(&WorkerOptions::named("doomed").through(&proxy.url()));
    let job = scene.run(Run::holding(Duration::from_millis(500)));
    scene.await_status(&job, "running", within(LEASE));
    proxy.set(Weather::DropReplies);
    scene.await_status(&job, "completed", within(LEASE));
    worker.kill_engine();
    proxy.set(Weather::Clear);
    scene.await_worker(worker.id(), "stopped", within(SWEEP + KILL_AFTER));
    scene.await_named_worker("doomed", "running", within(SWEEP + KILL_AFTER));
    stays("it has ended once", LEASE, || {
        let outcomes = scene.api().outcomes(&job);
        (outcomes != ["completed"]).then(|| format!("{outcomes:?}"))
    });
    assert_eq!(scene.ledger().of(&job).len(), 1);
    scene.judge();
}
