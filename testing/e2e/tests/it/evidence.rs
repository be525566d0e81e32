//! Every end is recorded with its true evidence and charged to the right budget.

use std::time::Duration;

use outlast_e2e::process_table::{children, with_argument};
use outlast_e2e::wait::{KILL_AFTER, LEASE, RECONNECT, SWEEP, stays, within};
use outlast_e2e::{Proxy, Run, Scene, ServerOptions, Weather, Worker, WorkerOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Runs a job on a worker, ends the worker in some way, and returns the first attempt and the
/// job as it ended elsewhere. What `end` returns is dropped before the processes are counted.
fn first_attempt_after<T>(
    options: &WorkerOptions,
    end: impl FnOnce(&mut Worker) -> T,
) -> (Value, Value) {
    let scene = Scene::start();
    let mut doomed = scene.worker_with(options);
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    let _heir = scene.worker("heir");
    let hold = end(&mut doomed);
    let bound = within(RECONNECT + SWEEP + LEASE + KILL_AFTER);
    let done = scene.await_status(&job, "completed", bound);
    let first = scene.api().attempts(&job)[0].clone();
    drop(hold);
    scene.judge();
    (first, done)
}

fn check(attempt: &Value, outcome: &str, code: &str) {
    assert_eq!((&attempt["outcome"], &attempt["evidence_code"]), (&json!(outcome), &json!(code)));
    assert!(attempt["evidence"].as_str().is_some_and(|text| !text.is_empty()), "{attempt}");
}

#[test]
fn a_killed_guardian_is_a_loss_and_no_shutdown() {
    let (first, done) = first_attempt_after(&WorkerOptions::named("doomed"), |worker| {
        worker.guardian_mut().kill();
    });
    check(&first, "lost", "guardian_killed");
    let text = first["evidence"].as_str().unwrap();
    assert!(text.contains("guardian was killed") && !text.contains("shutdown"), "{first}");
    assert_eq!(first["error"]["type"], "worker_death", "{first}");
    let spent = (&done["losses"], &done["interruptions"], &done["failures"]);
    assert_eq!(spent, (&json!(1), &json!(0), &json!(0)), "{done}");
}

#[test]
fn a_drain_is_an_interruption() {
    let options = WorkerOptions::named("doomed").shutdown_timeout(Duration::from_millis(200));
    let (first, done) = first_attempt_after(&options, |worker| worker.terminate());
    check(&first, "interrupted", "drained");
    assert_eq!((&done["losses"], &done["interruptions"]), (&json!(0), &json!(1)), "{done}");
}

#[test]
fn a_job_whose_shim_is_killed_is_interrupted_and_the_reason_has_a_code() {
    let scene = Scene::start();
    let worker = scene.worker("robbed");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    let shims = children(worker.engine());
    let shim = shims.into_iter().find(|pid| with_argument(&job).contains(pid)).expect("a shim");
    kill_process(Pid::from_raw(shim).expect("a pid"), Signal::KILL).unwrap();
    scene.await_status(&job, "completed", within(LEASE));
    check(&scene.api().attempts(&job)[0], "interrupted", "shim_lost");
    scene.judge();
}

#[test]
fn a_worker_that_is_killed_whole_is_told_from_one_that_stands_still() {
    // Its beats must be fresh when its connection closes, on a loaded machine too.
    let calm = WorkerOptions::named("doomed").heartbeat(Duration::from_secs(1));
    let (first, _) = first_attempt_after(&calm, Worker::kill_whole);
    check(&first, "lost", "worker_killed");
    let named = WorkerOptions::named("doomed");
    let (first, done) = first_attempt_after(&named, |worker| worker.freeze_engine());
    check(&first, "lost", "frozen");
    assert_eq!(done["losses"], 1, "{done}");
}

/// A worker whose lease would be over long after the end of its test.
fn with_a_long_lease() -> WorkerOptions {
    WorkerOptions::named("doomed").heartbeat(Duration::from_secs(20))
}

/// A job that is not handed out again on suspicion.
fn forbidding_overlap() -> Run {
    Run::holding_once(Duration::from_secs(120)).with("overlap", json!("forbidden"))
}

fn check_engine_killed(scene: &Scene, job: &str) {
    let done = scene.await_status(job, "completed", within(LEASE));
    let attempts = scene.api().attempts(job);
    check(&attempts[0], "lost", "engine_killed");
    assert_eq!(attempts[0]["error"]["type"], "worker_death", "{attempts:?}");
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    let spent = (&done["losses"], &done["interruptions"], &done["failures"]);
    assert_eq!(spent, (&json!(1), &json!(0), &json!(0)), "{done}");
}

#[test]
fn a_killed_engine_is_a_loss_at_once_whatever_the_lease() {
    let scene = Scene::start();
    let doomed = scene.worker_with(&with_a_long_lease());
    let job = scene.run(forbidding_overlap());
    scene.await_status(&job, "running", within(LEASE));
    let _heir = scene.worker("heir");
    doomed.kill_engine();
    scene.await_start(&job, 2, within(SWEEP));
    check_engine_killed(&scene, &job);
    let stopped = scene.await_worker(doomed.id(), "stopped", within(SWEEP));
    assert!(
        stopped["evidence"].as_str().is_some_and(|text| text.contains("signal 9")),
        "{stopped}"
    );
    scene.judge();
}

#[test]
fn a_death_is_reported_when_the_network_is_back() {
    // The server may see the connection end. With that alone it waits longer than this test.
    let scene = Scene::with(ServerOptions::default().set("worker.reconnect_window", json!(60)));
    let proxy = Proxy::to(&scene.server().url());
    let doomed = scene.worker_with(&with_a_long_lease().through(&proxy.url()));
    let job = scene.run(forbidding_overlap());
    scene.await_status(&job, "running", within(LEASE));
    let _heir = scene.worker("heir");
    proxy.set(Weather::Hold);
    doomed.kill_engine();
    stays("the job is not moved", Duration::from_secs(2), || {
        let shown = scene.api().execution(&job);
        (shown["epoch"] != 1 || shown["status"] != "running").then(|| shown.to_string())
    });
    proxy.set(Weather::Clear);
    check_engine_killed(&scene, &job);
    scene.judge();
}

#[test]
fn a_death_reported_after_the_reconnect_window_frees_what_must_not_overlap() {
    let scene = Scene::start();
    let doomed = scene.worker_with(&with_a_long_lease());
    let job = scene.run(forbidding_overlap());
    scene.await_status(&job, "running", within(LEASE));
    let _heir = scene.worker("heir");
    let late = doomed.freeze_guardian();
    doomed.kill_engine();
    scene.await_worker(doomed.id(), "lapsed", within(RECONNECT + SWEEP));
    assert_eq!(scene.api().execution(&job)["epoch"], 1);
    drop(late);
    check_engine_killed(&scene, &job);
    scene.await_worker(doomed.id(), "stopped", within(SWEEP));
    scene.judge();
}

#[test]
fn a_death_reported_after_the_lease_is_over_moves_no_job_again() {
    let scene = Scene::start();
    let doomed = scene.worker("doomed");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    let _heir = scene.worker("heir");
    let late = doomed.freeze_guardian();
    doomed.kill_engine();
    scene.await_status(&job, "completed", within(RECONNECT + SWEEP + LEASE));
    drop(late);
    scene.await_worker(doomed.id(), "stopped", within(KILL_AFTER));
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    check(&scene.api().attempts(&job)[0], "lost", "worker_killed");
    scene.judge();
}
