//! F34: jobs that no worker can run.

use std::time::Duration;

use outlast_e2e::wait::{HEARTBEAT, LEASE, SWEEP, eventually, stays, within};
use outlast_e2e::{Run, Scene, ServerOptions, WorkerOptions};
use serde_json::json;

#[test]
fn work_waits_visibly_while_every_worker_is_stopped_and_runs_when_one_returns() {
    let scene = Scene::start();
    let mut workers = [scene.worker("one"), scene.worker("two")];
    for worker in &mut workers {
        worker.terminate();
        assert_eq!(worker.await_end(within(LEASE)), Some(0));
    }
    let jobs: Vec<_> = (0..3).map(|_| scene.run(Run::short())).collect();
    let doomed = scene.run(Run::short().with("scheduled_timeout", json!(1)));
    for job in &jobs {
        eventually("the reason is shown", within(LEASE), || {
            let shown = scene.api().execution(job);
            let reason = shown["waiting_reason"].as_str()?;
            let names_the_lack = reason.contains("no eligible worker") && reason.contains("shell");
            (shown["status"] == "requested" && names_the_lack).then_some(())
        });
    }
    scene.await_status(&doomed, "failed", within(Duration::from_secs(1) + SWEEP));
    let _back = scene.worker("back");
    for job in &jobs {
        scene.await_status(job, "completed", within(LEASE));
    }
    scene.judge();
}

#[test]
fn a_scheduled_timeout_fails_with_the_documented_result() {
    let options = ServerOptions::default().set("executor.scheduled_timeout", json!(1));
    let scene = Scene::with(options);
    let job = scene.run(Run::short());
    let failed = scene.await_status(&job, "failed", within(Duration::from_secs(1) + SWEEP));
    let result = &failed["result"];
    let age = result["age_seconds"].as_u64().unwrap_or_else(|| panic!("an age in {failed}"));
    let error = format!(
        "Execution timeout: worker did not pick up task within 1 seconds \
         (scheduled for {age} seconds)"
    );
    assert_eq!(result["error"], json!(error), "{failed}");
    assert_eq!(result["failed_by"], "execution_timeout_monitor", "{failed}");
    assert_eq!(result["timeout_seconds"], 1, "{failed}");
    assert_eq!(result["original_status"], "requested", "{failed}");
    assert!(age >= 1, "{failed}");
    assert!(result["reason"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
    let events = scene.api().get(&format!("/api/v1/executions/{job}/events")).expect(200);
    let completed = |event: &serde_json::Value| event["type"] == "execution.completed";
    assert!(events["data"].as_array().is_some_and(|all| all.iter().any(completed)), "{events}");
    // A worker that comes too late does not find it.
    let _late = scene.worker("late");
    let other = scene.run(Run::short());
    scene.await_status(&other, "completed", within(LEASE));
    assert!(scene.ledger().of(&job).is_empty());
    scene.judge();
}

#[test]
fn a_queue_behind_a_busy_worker_is_no_reason_to_fail() {
    let options = ServerOptions::default().set("executor.scheduled_timeout", json!(1));
    let scene = Scene::with(options);
    let _worker = scene.worker_with(&WorkerOptions::named("busy").concurrency(1));
    let first = scene.run(Run::holding(Duration::from_secs(3)));
    scene.await_start(&first, 1, within(LEASE));
    let second = scene.run(Run::short());
    stays("a job behind a backlog waits", Duration::from_secs(2), || {
        let shown = scene.api().execution(&second);
        (shown["status"] == "failed").then(|| shown.to_string())
    });
    scene.await_status(&second, "completed", within(Duration::from_secs(3)));
    scene.judge();
}

#[test]
fn the_reason_names_workers_that_were_considered_and_why_none_is_eligible() {
    let scene = Scene::start();
    let mut dead = scene.worker("dead");
    dead.kill_whole();
    scene.await_worker(dead.id(), "lapsed", within(LEASE + SWEEP));
    let narrow = WorkerOptions::named("narrow").flag("--runtimes", "python");
    let narrow = scene.worker_with(&narrow);
    let job = scene.run(Run::short());
    let reason = eventually("the reason is shown", within(HEARTBEAT), || {
        let shown = scene.api().execution(&job);
        let reason = shown["waiting_reason"].as_str()?.to_owned();
        reason.contains("no eligible worker").then_some(reason)
    });
    assert!(reason.contains("runtime") && reason.contains("inactive"), "{reason}");
    drop(narrow);
    let _able = scene.worker("able");
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn a_worker_that_has_only_just_come_is_considered() {
    // The list of workers is read from the store once a minute: only its session tells of it.
    let options = ServerOptions::default()
        .set("executor.timeout_check_interval", json!(60))
        .set("worker.heartbeat_interval", json!(20));
    let scene = Scene::with(options);
    let elsewhere = WorkerOptions::named("elsewhere").heartbeat(Duration::from_secs(20));
    let _worker = scene.worker_with(&elsewhere.flag("--queues", "mail"));
    let job = scene.run(Run::short());
    let reason = eventually("the worker is named", Duration::from_secs(10), || {
        let reason = scene.api().execution(&job)["waiting_reason"].as_str()?.to_owned();
        reason.contains("1 not serving queue default").then_some(reason)
    });
    assert!(reason.starts_with("no eligible worker"), "{reason}");
    assert!(scene.cancel(&job).is_success());
    scene.judge();
}
