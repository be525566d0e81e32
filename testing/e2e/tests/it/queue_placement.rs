//! What queues ask of workers: with workers at two servers, jobs that are stored already, and changes
//! at one server while the other hands out jobs.

use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions};
use reqwest::Method;
use serde_json::{Value, json};

fn set(url: &str, words: &[&str]) -> Value {
    let said = run_against(url, &[&["queues", "set", "default", "-o", "json"], words].concat());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    serde_json::from_str(&said.stdout).expect("JSON")
}

fn gpu(name: &str) -> WorkerOptions {
    WorkerOptions::named(name).flag("--labels", "gpu=true")
}

#[test]
fn stored_jobs_follow_what_their_queue_requires_at_every_server() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let api = Api::new(&other.url());
    await_ready(&api, within(LEASE));
    let job = scene.run(Run::short().with("scheduled_timeout", json!("never")));
    let shown = set(&scene.server().url(), &["--requires", "gpu=true", "--max-depth", "9"]);
    assert_eq!((&shown["requires"], &shown["max_depth"]), (&json!("gpu=true"), &json!(9)));
    let _near = scene.worker("near");
    let _far = scene.worker_with(&WorkerOptions::named("far").through(&other.url()));
    let reason =
        "no eligible worker: 2 live workers, neither has gpu=true (required by queue default)";
    scene.api().await_reason(&job, reason);
    api.await_reason(&job, reason);
    let held = scene.run(Run::short().with("requires", json!("zone=a")));
    let _gpu = scene.worker_with(&gpu("gpu").through(&other.url()));
    assert_eq!(scene.worker_of(&job), "gpu");
    // Without it, only what the job requires itself is asked for.
    let shown = set(&other.url(), &["--requires", ""]);
    assert_eq!((&shown["requires"], &shown["max_depth"]), (&Value::Null, &json!(9)));
    let reason = "no eligible worker: 3 live workers, none has zone=a";
    scene.api().await_reason(&held, reason);
    api.await_reason(&held, reason);
    let options = WorkerOptions::named("zone").flag("--labels", "zone=a");
    let _zone = scene.worker_with(&options);
    assert_eq!(scene.worker_of(&held), "zone");
    scene.judge();
}

fn require(api: &Api, requires: &str) {
    let body = json!({"requires": requires}).to_string().into_bytes();
    let path = "/api/v1/queues/default";
    let reply = api.try_send(Method::PUT, path, "application/json", Some(body));
    assert_eq!(reply.expect("an answer").expect(200)["data"]["requires"], requires);
}

/// No job that comes after a change was answered is handed out by what was set before, though
/// another server may not have heard of it yet.
fn changes_hold_at_once(scene: &Scene, servers: &[&Api]) {
    let mut workers = Vec::new();
    for (n, api) in servers.iter().enumerate() {
        for options in [gpu(&format!("gpu-{n}")), WorkerOptions::named(&format!("plain-{n}"))] {
            workers.push(scene.worker_with(&options.through(api.url())));
        }
    }
    for worker in &workers {
        scene.await_worker(worker.id(), "running", within(LEASE));
    }
    for round in 0..24 {
        let (requires, kind) = if round % 2 == 0 { ("gpu", "gpu-") } else { ("!gpu", "plain-") };
        require(servers[round / 2 % servers.len()], requires);
        let at = |n: usize| servers[n % servers.len()];
        let run = |n: usize| scene.try_run_at(at(n), &[], Run::short()).expect("it is accepted");
        let jobs: Vec<String> = (0..6).map(run).collect();
        for job in jobs {
            let name = scene.worker_of(&job);
            assert!(name.starts_with(kind), "round {round}: {name}");
        }
    }
    scene.judge();
}

#[test]
fn changes_hold_at_once_on_one_server() {
    let scene = Scene::start();
    changes_hold_at_once(&scene, &[scene.api()]);
}

#[test]
fn changes_hold_at_once_at_the_other_server_too() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let other = Api::new(&other.url());
    await_ready(&other, within(LEASE));
    changes_hold_at_once(&scene, &[scene.api(), &other]);
}

/// What a job prefers itself counts first.
#[test]
fn preferred_workers_of_a_queue_come_first_and_no_job_waits_for_them() {
    let scene = Scene::start();
    let _plain = scene.worker("plain");
    let _gpu = scene.worker_with(&gpu("gpu").concurrency(1));
    set(&scene.server().url(), &["--prefers", "gpu"]);
    for _ in 0..3 {
        let job = scene.run(Run::short());
        assert_eq!(scene.worker_of(&job), "gpu");
        let job = scene.run(Run::short().with("prefers", json!("!gpu")));
        assert_eq!(scene.worker_of(&job), "plain");
    }
    let long = scene.run(Run::holding(Duration::from_secs(4)));
    scene.await_start(&long, 1, within(LEASE));
    assert_eq!(scene.worker_of(&scene.run(Run::short())), "plain");
    assert_eq!(scene.worker_of(&long), "gpu");
    scene.judge();
}

#[test]
fn job_whose_queue_no_worker_matches_fails_after_its_time_and_says_which_queue() {
    let scene = Scene::start();
    let _plain = scene.worker("plain");
    set(&scene.server().url(), &["--requires", "gpu=true, !spot"]);
    let job = scene.run(Run::short().with("scheduled_timeout", json!(1)));
    let ended = scene.await_status(&job, "failed", within(LEASE));
    let error = ended["error"].to_string();
    let why = "1 live worker without gpu=true (required by queue default)";
    assert!(error.contains(why), "{ended}");
    let url = scene.server().url();
    let shown = run_against(&url, &["queues", "show", "default"]).stdout;
    assert!(shown.contains("requires  gpu=true,!spot\n"), "{shown}");
    let listed = run_against(&url, &["queues", "list"]).stdout;
    assert!(listed.contains("requires gpu=true,!spot\n"), "{listed}");
    let wrong = run_against(&url, &["queues", "set", "default", "--requires", "gpu true"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("--requires"), "{}", wrong.stderr);
    scene.judge();
}
