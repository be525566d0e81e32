//! Fair queues with real workers: a tenant with many jobs does not hold up one with few.

use std::time::Duration;

use outlast_e2e::process::run_to_end;
use outlast_e2e::{Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

/// What many short jobs may take on a small, loaded machine.
const LONG: Duration = Duration::from_secs(60);

fn queues(scene: &Scene, words: &[&str]) -> Value {
    let url = scene.server().url();
    let words = [&["queues"], words, &["-o", "json", "--server", &url]].concat();
    let said = run_to_end(&words, Duration::from_secs(30));
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    serde_json::from_str(&said.stdout).expect("JSON")
}

fn enqueue(scene: &Scene, tenant: &str, count: usize) -> Vec<String> {
    let job = || Run::holding(Duration::from_millis(100)).with("keys", json!({"tenant": tenant}));
    (0..count).map(|_| scene.run(job())).collect()
}

fn few_jobs_do_not_wait_for_many(scene: &Scene) {
    let set = queues(scene, &["set", "default", "--fair-by", "tenant", "--weight", "tenant:c=3"]);
    assert_eq!((&set["fair_by"], &set["weights"]), (&json!("tenant"), &json!({"tenant:c": 3})));
    let many = enqueue(scene, "a", 60);
    let few = enqueue(scene, "b", 3);
    let weighty = enqueue(scene, "c", 9);
    let _worker = scene.worker_with(&WorkerOptions::named("one").concurrency(2));
    for job in few.iter().chain(&weighty) {
        scene.await_status(job, "completed", LONG);
    }
    let ended = |jobs: &[String]| {
        let is_done = |job: &&String| scene.api().execution(job)["status"] == "completed";
        jobs.iter().filter(is_done).count()
    };
    let of_many = ended(&many);
    assert!(of_many < 30, "{of_many} of 60 jobs went before a few of others");
    assert_eq!(queues(scene, &["show", "default"])["fair_by"], "tenant");
    for job in &many {
        scene.await_status(job, "completed", LONG);
    }
    scene.judge();
}

#[test]
fn few_jobs_do_not_wait_for_many_in_an_embedded_store() {
    few_jobs_do_not_wait_for_many(&Scene::start());
}

#[test]
fn few_jobs_do_not_wait_for_many_in_postgresql() {
    few_jobs_do_not_wait_for_many(&Scene::with(ServerOptions::default().postgres()));
}
