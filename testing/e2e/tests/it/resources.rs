//! Limits on what attempts may use, as a user sees them (fault F19).

use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Run, Scene, WorkerOptions};
use serde_json::{Value, json};

fn attempt_of(scene: &Scene, id: &str) -> Value {
    let path = format!("/api/v1/executions/{id}/attempts");
    scene.api().get(&path).expect(200)["data"][0].clone()
}

/// The id in what `outlast run` prints.
fn id_in(printed: &str) -> String {
    let words = printed.split_whitespace();
    let mut ids = words.filter(|word| word.len() == 36 && word.matches('-').count() == 4);
    ids.next().unwrap_or_else(|| panic!("no id in {printed}")).to_owned()
}

#[test]
fn job_that_takes_too_much_memory_is_charged_and_nobody_else_is() {
    let scene = Scene::start();
    let worker = scene.worker_with(&WorkerOptions::named("limited"));
    let url = scene.server().url();
    let neighbour = scene.run(Run::holding(Duration::from_secs(3)));
    scene.await_start(&neighbour, 1, within(LEASE));
    let hog = run_against(&url, &["run", "ledger.hog", "-p", "mib=300", "--wait"]);
    assert_eq!(hog.code, Some(1), "{} {}", hog.stdout, hog.stderr);
    let id = id_in(&format!("{} {}", hog.stdout, hog.stderr));
    let job = scene.api().get(&format!("/api/v1/executions/{id}")).expect(200);
    assert_eq!(job["data"]["resources"], json!({"memory": 64 << 20}));
    assert_eq!((&job["data"]["failures"], &job["data"]["losses"]), (&json!(1), &json!(0)));
    let attempt = attempt_of(&scene, &id);
    assert_eq!(attempt["error"]["type"], "oom_killed", "{attempt}");
    assert_eq!(attempt["error"]["message"], "needed more than its limit of 64 MiB of memory");
    assert_eq!((&attempt["outcome"], &attempt["evidence_code"]), (&json!("failed"), &json!("oom")));
    assert!(attempt["peak_memory_bytes"].as_u64() > Some(30 << 20), "{attempt}");
    assert!(attempt["cpu_seconds"].is_f64(), "{attempt}");
    let shown = run_against(&url, &["jobs", "show", &id]).stdout;
    assert!(shown.contains("64 MiB of memory") && shown.contains("MEMORY"), "{shown}");
    // The worker was not ended, nor was what ran beside it.
    scene.await_status(&neighbour, "completed", within(LEASE + Duration::from_secs(3)));
    assert_eq!(scene.api().try_worker(worker.id()).unwrap()["state"], "running");
    scene.judge();
}

#[test]
fn limits_of_a_job_replace_those_of_its_action() {
    let scene = Scene::start();
    let _worker = scene.worker_with(&WorkerOptions::named("limited"));
    let url = scene.server().url();
    let line = ["run", "ledger.hog", "-p", "mib=100", "--memory", "400 MiB", "--processes", "20"];
    let run = run_against(&url, &[&line[..], &["--cpu", "1.5", "--wait"]].concat());
    assert_eq!(run.code, Some(0), "{} {}", run.stdout, run.stderr);
    let id = id_in(&format!("{} {}", run.stdout, run.stderr));
    let job = scene.api().get(&format!("/api/v1/executions/{id}")).expect(200);
    let limits = json!({"memory": 400 << 20, "cpu": 1.5, "processes": 20});
    assert_eq!(job["data"]["resources"], limits);
    assert!(attempt_of(&scene, &id)["peak_memory_bytes"].as_u64() > Some(90 << 20));
    // An Open Job Spec job of the same action.
    let body = json!({"type": "ledger.hog", "args": [{"mib": 20}],
                      "options": {"resources": {"memory": "80MiB"}}});
    let job = scene.api().post("/ojs/v1/jobs", &body).expect(201);
    let id = job["job"]["id"].as_str().unwrap().to_owned();
    let shown = scene.api().get(&format!("/api/v1/executions/{id}")).expect(200);
    assert_eq!(shown["data"]["resources"], json!({"memory": 80 << 20}));
}

#[test]
fn limits_that_cannot_be_kept_are_refused_with_what_would_be_right() {
    let scene = Scene::start();
    let url = scene.server().url();
    for (flags, part) in [
        (["--memory", "5"], "--memory, --cpu or --processes"),
        (["--cpu", "0"], "0.01 to 1000"),
        (["--processes", "0"], "whole number from 1"),
    ] {
        let line = [&["run", "ledger.hog", "-p", "mib=1"][..], &flags].concat();
        let refused = run_against(&url, &line);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    let body = json!({"type": "email.send", "args": [],
                      "options": {"resources": {"memory": "80MiB"}}});
    let refused = scene.api().post("/ojs/v1/jobs", &body).expect(422).to_string();
    assert!(refused.contains("jobs of actions only"), "{refused}");
}
