//! Keys of the YAML file that no other test sets: each is seen to have its effect.

use std::time::Duration;

use outlast_e2e::process::{Process, command};
use outlast_e2e::wait::{LEASE, SWEEP, eventually, stays, within};
use outlast_e2e::{Run, Scene, ServerOptions, WorkerOptions};
use serde_json::json;

#[test]
fn a_body_over_the_limit_is_refused() {
    let scene = Scene::with(ServerOptions::default().set("server.max_body", json!("2 KiB")));
    let job = |size: usize| json!({"type": "t", "args": ["x".repeat(size)]});
    let answer = |size| scene.api().post("/ojs/v1/jobs", &job(size)).status;
    assert_eq!((answer(100), answer(4096)), (201, 413));
}

#[test]
fn what_ended_is_kept_as_long_as_retention_says() {
    let options = ServerOptions::default()
        .set("retention.finished", json!("500ms"))
        .set("retention.workers", json!("500ms"));
    let scene = Scene::with(options);
    let mut worker = scene.worker("one");
    let job = scene.api().post("/api/v1/executions", &json!({"action_ref": "core.noop"}));
    let job = job.expect(201)["data"]["id"].as_str().expect("an id").to_owned();
    eventually("the job is deleted", within(LEASE), || {
        scene.api().try_execution(&job).is_none().then_some(())
    });
    worker.terminate();
    assert_eq!(worker.await_end(within(LEASE)), Some(0));
    eventually("the worker is deleted", within(LEASE), || {
        scene.api().try_worker(worker.id()).is_none().then_some(())
    });
}

#[test]
fn without_the_timeout_monitor_nothing_fails_for_lack_of_a_worker() {
    let options = ServerOptions::default()
        .set("executor.enable_timeout_monitor", json!(false))
        .set("executor.scheduled_timeout", json!(0.2));
    let scene = Scene::with(options);
    let job = scene.run(Run::short());
    stays("it waits", SWEEP * 10 + Duration::from_millis(500), || {
        let shown = scene.api().execution(&job);
        (shown["status"] != "requested").then(|| shown.to_string())
    });
    let _worker = scene.worker("late");
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn a_plain_fetch_is_visible_again_after_the_configured_visibility() {
    let scene = Scene::with(ServerOptions::default().set("ojs.visibility", json!("500ms")));
    let job = scene.api().ojs_enqueue("plain", &json!({}));
    assert_eq!(scene.api().ojs_fetch("default", "w", 1).len(), 1);
    eventually("it is fetched again", within(LEASE), || {
        let again = scene.api().ojs_fetch("default", "v", 1);
        again.first().filter(|found| found["id"] == job.as_str()).map(|_| ())
    });
}

/// Seen with four client libraries: a job with a long visibility stayed with a dead worker.
#[test]
fn a_plain_worker_that_beat_and_fell_silent_loses_its_job_long_before_the_visibility_ends() {
    let scene = Scene::with(ServerOptions::default().set("ojs.lease", json!("1s")));
    let api = scene.api();
    let ask = |worker: &str| {
        let job = api.ojs_enqueue("plain", &json!({"visibility_timeout_ms": 600_000}));
        assert_eq!(api.ojs_fetch("default", worker, 1)[0]["id"], job.as_str());
        job
    };
    let never_beat = ask("quiet-one");
    let beat = api.post("/ojs/v1/workers/heartbeat", &json!({"worker_id": "w"})).expect(200);
    assert_eq!(beat["state"], "running");
    let job = ask("w");
    let found = eventually("it is available again", within(LEASE), || {
        Some(api.ojs_job(&job)).filter(|job| job["state"] == "available")
    });
    assert!(found.to_string().contains("worker_death"), "{found}");
    assert_eq!(api.ojs_job(&never_beat)["state"], "active");
}

#[test]
fn charged_interruptions_spend_the_retries() {
    let options = ServerOptions::default().set("executor.interruptions", json!("charge"));
    let scene = Scene::with(options);
    let brief = WorkerOptions::named("brief").shutdown_timeout(Duration::from_millis(200));
    let mut worker = scene.worker_with(&brief);
    let run = Run::holding(Duration::from_secs(60)).with("retry", json!({"max_attempts": 1}));
    let job = scene.run(run);
    scene.await_start(&job, 1, within(LEASE));
    worker.terminate();
    assert_eq!(worker.await_end(within(Duration::from_secs(10))), Some(0));
    let shown = eventually("the job has ended", within(LEASE), || {
        Some(scene.api().execution(&job)).filter(|shown| shown["state"] == "discarded")
    });
    assert_eq!(shown["interruptions"], 1, "{shown}");
}

#[test]
fn the_workers_own_keys_are_what_it_registers_with() {
    let options = ServerOptions::default()
        .set("worker.queues", json!(["mail", "bills"]))
        .set("worker.labels", json!({"zone": "a"}))
        .set("worker.runtimes", json!(["shell"]))
        .set("worker.containment", json!("subreaper"));
    let scene = Scene::with(options);
    let worker = scene.worker("one");
    let shown = scene.api().try_worker(worker.id()).expect("it is registered");
    assert_eq!(shown["queues"], json!(["mail", "bills"]), "{shown}");
    let labels = ["zone", "containment", "runtime/shell"].map(|name| &shown["labels"][name]);
    assert_eq!(labels, ["a", "subreaper", "true"], "{shown}");
    assert_eq!(shown["runtimes"], json!(["shell"]), "{shown}");
    assert_eq!(shown["about"]["containment"], "subreaper", "{shown}");
    let job = scene.run(Run::short().with("queue", json!("bills")));
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

/// The parent of a server reads its address from its log.
#[test]
fn dev_starts_whatever_is_to_be_logged() {
    for filter in ["off", "warn"] {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data").display().to_string();
        let arguments = ["dev", "--listen", "127.0.0.1:0", "--data", &data];
        let mut command = command(&arguments.map(str::to_owned));
        command.env("OUTLAST_LOG", filter);
        let mut dev = Process::spawn("dev", command, folder.path());
        let _announced = dev.await_line("Outlast is at http://", within(LEASE));
        dev.signal(rustix::process::Signal::TERM);
        assert_eq!(dev.await_end(within(LEASE)), Some(0), "{}", dev.log());
    }
}
