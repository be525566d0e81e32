//! The plain case, in every runtime that is there: a job runs once and is seen through the API.

use std::time::Duration;

use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Run, Scene};
use serde_json::json;

#[test]
fn shell_and_python_jobs_run_once_and_their_output_is_the_result() {
    let scene = Scene::start();
    let worker = scene.worker("able");
    let jobs = [scene.run(Run::short()), scene.run(Run::action("ledger.python"))];
    for job in &jobs {
        let done = scene.await_status(job, "completed", within(LEASE * 3));
        assert!(done["result"].to_string().contains("epoch=1"), "{done}");
        assert_eq!(done["worker"], json!({"id": worker.id(), "name": "able"}), "{done}");
        assert_eq!((&done["attempt"], &done["epoch"]), (&json!(1), &json!(1)), "{done}");
    }
    scene.judge();
}

#[test]
fn a_failing_job_is_retried_and_the_failures_are_counted() {
    let scene = Scene::start();
    let _worker = scene.worker("able");
    let retry = json!({"max_attempts": 3, "initial_interval": "PT0.1S", "jitter": false});
    let run = Run::short().parameter("fail_before_epoch", json!(3)).with("retry", retry);
    let job = scene.run(run);
    let done = scene.await_status(&job, "completed", within(Duration::from_secs(3)));
    assert_eq!(scene.api().outcomes(&job), ["failed", "failed", "completed"]);
    assert_eq!((&done["failures"], &done["epoch"]), (&json!(2), &json!(3)), "{done}");
    assert_eq!(scene.api().attempts(&job)[0]["exit_code"], 7);
    scene.judge();
}
