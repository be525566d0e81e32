//! Which workers jobs run on, by pools and labels: with workers at two servers, on both stores, and
//! after crashes.

use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

fn postgres() -> Scene {
    Scene::with(ServerOptions::default().postgres())
}

fn requiring(selector: &str) -> Run {
    Run::short().with("requires", json!(selector))
}

#[test]
fn a_job_runs_on_the_worker_at_another_server_that_has_what_it_requires() {
    let scene = postgres();
    let other = scene.another_server("other");
    let near = WorkerOptions::named("near").flag("--labels", "zone=a");
    let far = WorkerOptions::named("far").flag("--labels", "zone=b").flag("--pool", "gpu");
    let _near = scene.worker_with(&near);
    let _far = scene.worker_with(&far.through(&other.url()));
    let anywhere: Vec<String> = (0..4).map(|_| scene.run(Run::short())).collect();
    for selector in ["pool=gpu", "zone notin (a), outlast_version", "zone in (b, c), runtime/shell"]
    {
        let job = scene.run(requiring(selector));
        assert_eq!(scene.worker_of(&job), "far", "{selector}");
    }
    let job = scene.run(requiring("!pool"));
    assert_eq!(scene.worker_of(&job), "near");
    for job in anywhere {
        scene.worker_of(&job);
    }
    scene.judge();
}

#[test]
fn every_server_says_what_no_worker_has_and_the_job_runs_once_one_has_it() {
    let scene = postgres();
    let other = scene.another_server("other");
    let _near = scene.worker("near");
    let far = WorkerOptions::named("far").through(&other.url());
    let _far = scene.worker_with(&far);
    let job = scene.run(requiring("gpu=true").with("scheduled_timeout", json!("never")));
    for api in [scene.api(), &Api::new(&other.url())] {
        let reason = "no eligible worker: 2 live workers, neither has gpu=true";
        api.await_reason(&job, reason);
    }
    let options = WorkerOptions::named("gpu").flag("--labels", "gpu=true").through(&other.url());
    let _gpu = scene.worker_with(&options);
    assert_eq!(scene.worker_of(&job), "gpu");
    scene.judge();
}

/// The worker comes back to a server that was killed, and keeps what it is chosen by.
#[test]
fn what_jobs_require_and_workers_carry_outlasts_a_killed_server() {
    let mut scene = Scene::start();
    let _plain = scene.worker("plain");
    let options = WorkerOptions::named("gpu").concurrency(1).flag("--labels", "gpu=true");
    let gpu = scene.worker_with(&options);
    let first = scene.run(Run::holding(Duration::from_secs(3)).with("requires", json!("gpu")));
    scene.await_start(&first, 1, within(LEASE));
    let second = scene.run(requiring("gpu=true"));
    scene.server_mut().kill();
    scene.server_mut().start_again();
    await_ready(scene.api(), within(LEASE));
    for job in [first, second] {
        assert_eq!(scene.worker_of(&job), "gpu");
        assert_eq!(scene.api().outcomes(&job), ["completed"]);
    }
    let shown = scene.api().try_worker(gpu.id()).expect("it is registered");
    assert_eq!(shown["labels"]["gpu"], "true", "{shown}");
    scene.judge();
}

#[test]
fn a_job_that_no_live_worker_matches_fails_after_its_time_and_says_why() {
    let scene = Scene::start();
    let _plain = scene.worker("plain");
    let job = scene.run(requiring("gpu=true").with("scheduled_timeout", json!(1)));
    let ended = scene.await_status(&job, "failed", within(LEASE));
    let error = ended["error"].to_string();
    assert!(error.contains("1 live worker without gpu=true"), "{ended}");
    scene.judge();
}

#[test]
fn a_preferred_worker_comes_first_and_no_job_waits_for_it() {
    let scene = Scene::start();
    let _plain = scene.worker("plain");
    let options = WorkerOptions::named("ssd").concurrency(1).flag("--labels", "disk=ssd");
    let _ssd = scene.worker_with(&options);
    let preferring = |run: Run| run.with("prefers", json!("disk=ssd"));
    for _ in 0..3 {
        let job = scene.run(preferring(Run::short()));
        assert_eq!(scene.worker_of(&job), "ssd");
    }
    let long = scene.run(preferring(Run::holding(Duration::from_secs(4))));
    scene.await_start(&long, 1, within(LEASE));
    let next = scene.run(preferring(Run::short()));
    assert_eq!(scene.worker_of(&next), "plain");
    assert_eq!(scene.worker_of(&long), "ssd");
    scene.judge();
}

/// The order reaches workers of every server, and only those of the pool.
#[test]
fn a_pool_is_drained_and_the_others_work_on() {
    let scene = postgres();
    let other = scene.another_server("other");
    let gpu = |name: &str| WorkerOptions::named(name).flag("--pool", "gpu");
    let mut near = scene.worker_with(&gpu("near"));
    let mut far = scene.worker_with(&gpu("far").through(&other.url()));
    let plain = scene.worker("plain");
    let held = scene.run(Run::holding(Duration::from_secs(2)).with("requires", json!("pool=gpu")));
    scene.await_start(&held, 1, within(LEASE));
    let would =
        run_against(&scene.server().url(), &["workers", "drain", "--pool", "gpu", "--dry-run"]);
    assert_eq!(would.code, Some(0), "{}", would.stderr);
    assert!(would.stderr.contains("2 workers; nothing was changed"), "{}", would.stderr);
    assert!(
        would.stderr.contains("would also hold for workers that start later"),
        "{}",
        would.stderr
    );
    for worker in [&near, &far] {
        assert_eq!(scene.api().try_worker(worker.id()).expect("it lives")["state"], "running");
    }
    let drained = run_against(&scene.server().url(), &["workers", "drain", "--pool", "gpu"]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    assert_eq!(drained.stdout.matches("draining").count(), 2, "{}", drained.stdout);
    for worker in [&mut near, &mut far] {
        assert_eq!(worker.await_end(within(LEASE)), Some(0), "{}", worker.name());
    }
    assert_eq!(scene.api().outcomes(&held), ["completed"]);
    assert_eq!(scene.api().try_worker(plain.id()).expect("it lives")["state"], "running");
    let next = scene.run(Run::short());
    assert_eq!(scene.worker_of(&next), "plain");
    let none = run_against(&scene.server().url(), &["workers", "drain", "--pool", "gpus"]);
    assert_eq!(none.code, Some(0), "{}", none.stderr);
    assert!(none.stderr.contains("no live worker matches pool=gpus\n"), "{}", none.stderr);
    assert!(none.stderr.contains("workers that start later"), "{}", none.stderr);
    scene.judge();
}

#[test]
fn workers_that_a_selector_chooses_are_quiet_until_they_are_resumed() {
    let scene = Scene::start();
    let _plain = scene.worker("plain");
    let spot = WorkerOptions::named("spot").flag("--labels", "spot=true,zone=a");
    let spot = scene.worker_with(&spot);
    let order = |verb: &str| {
        let said = run_against(
            &scene.server().url(),
            &["workers", verb, "--selector", "spot, zone in (a, b)"],
        );
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert_eq!(said.stdout.lines().count(), 2, "{}", said.stdout);
    };
    order("quiet");
    scene.await_worker(spot.id(), "quiet", within(LEASE));
    let waits = scene.run(requiring("spot"));
    eventually("the reason is given", within(LEASE), || {
        let shown = scene.api().execution(&waits);
        let reason = shown["waiting_reason"].as_str().unwrap_or_default();
        reason.starts_with("no eligible worker: 1 worker has runtime shell, quiet").then_some(())
    });
    let others = scene.run(Run::short());
    assert_eq!(scene.worker_of(&others), "plain");
    order("resume");
    assert_eq!(scene.worker_of(&waits), "spot");
    scene.judge();
}

#[test]
fn workers_are_listed_by_selector_and_reserved_labels_are_refused() {
    let scene = Scene::start();
    let _plain = scene.worker("plain");
    let gpu = WorkerOptions::named("gpu").flag("--pool", "gpu").flag("--labels", "zone=a");
    let _gpu = scene.worker_with(&gpu);
    let names = |selector: &str| {
        let words = ["workers", "list", "--selector", selector, "-o", "json"];
        let listed = run_against(&scene.server().url(), &words);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
        let workers = listed.as_array().expect("a list").clone();
        workers.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("pool=gpu, zone in (a, b)"), ["gpu"]);
    assert_eq!(names("!pool"), ["plain"]);
    assert_eq!(names("pool=cpu"), Vec::<String>::new());
    let table = run_against(&scene.server().url(), &["workers", "list"]).stdout;
    assert!(table.lines().next().is_some_and(|line| line.contains("POOL")), "{table}");
    let refused =
        run_against(&scene.server().url(), &["workers", "list", "--selector", "gpu true"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--selector is no selector: expected ="), "{}", refused.stderr);
    let refused =
        run_against(&scene.server().url(), &["run", "core.noop", "--requires", "gpu true"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--requires is no selector: expected ="), "{}", refused.stderr);
    for (flag, value, why) in [
        ("--labels", "pool=gpu", "label `pool` is reserved"),
        ("--labels", "runtime/node=true", "are reserved labels"),
        ("--labels", "zone=eu west", "letters, digits"),
        ("--pool", "a b", "the name of a pool"),
    ] {
        let refused = run_against(&scene.server().url(), &["worker", flag, value]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}
