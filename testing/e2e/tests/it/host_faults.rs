//! Faults of a worker and its host are never a job's, and a worker comes back by itself.

use std::process::{Command, Stdio};
use std::time::Duration;

use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Run, Scene, WorkerOptions, binary};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

#[test]
fn a_worker_without_descriptors_is_quiet_and_charges_nothing_until_it_has_some_again() {
    let scene = Scene::start();
    let worker = scene.worker("starved");
    let warm = scene.run(Run::short());
    scene.await_status(&warm, "completed", within(LEASE));
    let engine = Pid::from_raw(worker.engine());
    // What is open stays open.
    let starved = Rlimit { current: Some(8), maximum: Some(4096) };
    prlimit(engine, Resource::Nofile, starved).unwrap();
    let job = scene.run(Run::short());
    let quiet = scene.await_worker(worker.id(), "quiet", within(LEASE));
    let why = quiet["evidence"].as_str().unwrap_or_default();
    assert!(why.contains("fault of the worker") && why.contains("open files"), "{quiet}");
    let waiting = scene.api().execution(&job);
    assert_eq!((&waiting["failures"], &waiting["losses"]), (&json!(0), &json!(0)), "{waiting}");

    let enough = Rlimit { current: Some(1024), maximum: Some(4096) };
    prlimit(engine, Resource::Nofile, enough).unwrap();

    let recovery = within(Duration::from_secs(8));
    let done = scene.await_status(&job, "completed", recovery);
    assert_eq!((&done["failures"], &done["losses"]), (&json!(0), &json!(0)), "{done}");
    let attempts = scene.api().attempts(&job);
    let first = &attempts[0];
    let told = (&first["outcome"], &first["evidence_code"]);
    assert_eq!(told, (&json!("undelivered"), &json!("host")), "{first}");
    scene.await_worker(worker.id(), "running", recovery);
    scene.judge();
}

#[test]
fn a_limit_on_open_files_that_is_too_low_for_the_slots_is_refused_with_the_numbers() {
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 200 && exec \"$0\" worker --concurrency 1000 --server http://127.0.0.1:9",
        ])
        .arg(binary::outlast())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("12096 open files") && said.contains("may open 200"), "{said}");
}

#[test]
fn a_worker_takes_as_many_large_jobs_as_it_has_slots() {
    const JOBS: u32 = 90;
    let scene = Scene::start();
    let load = "x".repeat(1_000_000);
    let large = || Run::action("ledger.deaf").parameter("load", json!(load));
    // They are there before the worker is: all of them are handed over at once.
    let jobs: Vec<String> = (0..JOBS).map(|_| scene.run(large())).collect();
    let _worker = scene.worker_with(&WorkerOptions::named("wide").concurrency(JOBS));
    for job in &jobs {
        let done = scene.await_status(job, "completed", within(Duration::from_secs(20)));
        assert_eq!(done["epoch"], 1, "{done}");
    }
    scene.judge();
}
