//! `outlast doctor` beside a real server and real workers.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use outlast_cluster::{Database, Session};
use outlast_e2e::process::{Finished, run_to_end};
use outlast_e2e::wait::{LEASE, RECONNECT, eventually, within};
use outlast_e2e::{Run, Scene, WorkerOptions};
use serde_json::{Value, json};

fn doctor(scene: &Scene) -> (Finished, Value) {
    let url = scene.server().url();
    let arguments = ["doctor", "-o", "json", "--server", &url];
    let said = run_to_end(&arguments, Duration::from_secs(60));
    let report = serde_json::from_str(&said.stdout).expect("JSON on stdout");
    (said, report)
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn all_is_well_with_a_server_and_a_worker() {
    let scene = Scene::start();
    let _worker = scene.worker("one");
    let (said, report) = doctor(&scene);
    assert_eq!(said.code, Some(0), "{report}");
    for name in ["reach", "store durability", "queues", "version skew", "clock skew"] {
        assert_eq!(check(&report, name)["verdict"], "ok", "{report}");
    }
    if scene.server().database().starts_with("sqlite:") {
        // In memory it takes no time.
        let measured = |name| check(&report, name)["value"].as_f64();
        assert!(measured("store fsync").is_some_and(|it| it >= 0.0), "{report}");
        assert!(measured("store disk").is_some_and(|it| it > 0.0), "{report}");
    }
}

#[test]
fn work_that_no_worker_can_run_fails_with_the_reason_until_one_can() {
    let scene = Scene::start();
    let narrow = WorkerOptions::named("narrow").flag("--runtimes", "python");
    let _narrow = scene.worker_with(&narrow);
    let job = scene.run(Run::short());
    let (said, report) = doctor(&scene);
    assert_eq!(said.code, Some(1), "{report}");
    let queues = check(&report, "queues");
    assert_eq!(queues["verdict"], "fail", "{report}");
    let fact = queues["fact"].as_str().unwrap_or_default();
    assert!(fact.contains("ledger.run") && fact.contains("runtime shell"), "{fact}");
    let _able = scene.worker("able");
    scene.await_status(&job, "completed", within(LEASE));
    assert_eq!(check(&doctor(&scene).1, "queues")["verdict"], "ok");
    scene.judge();
}

#[test]
fn a_frozen_worker_is_named_and_does_not_fail() {
    let scene = Scene::start();
    // It is late for longer than doctor takes on a loaded machine.
    let slow = Duration::from_secs(2);
    let worker = scene.worker_with(&WorkerOptions::named("icy").heartbeat(slow));
    let _frozen = worker.freeze_engine();
    let (said, report) = eventually("doctor names the worker", within(slow * 3), || {
        let (said, report) = doctor(&scene);
        let named = check(&report, "workers")["fact"].as_str()?.contains("icy");
        let warned = check(&report, "workers")["verdict"] == "warn";
        (named && warned).then_some((said, report))
    });
    assert_eq!(said.code, Some(0), "{report}");
}

#[test]
fn isolated_jobs_that_wait_for_an_idle_worker_are_counted() {
    const LONG: Duration = Duration::from_secs(120);
    let scene = Scene::start();
    let job = scene.run(Run::holding(LONG));
    for epoch in 1..=2 {
        let mut doomed = scene.worker("doomed");
        scene.await_start(&job, epoch, within(LEASE));
        scene.await_status(&job, "running", within(LEASE));
        doomed.kill_whole();
        scene.await_status(&job, "requested", within(RECONNECT + LEASE));
    }
    // It would take the job before anything else while it is idle.
    let steer = |order: &str| {
        let path = format!("/ojs/v1/queues/default/{order}");
        let _answer = scene.api().post(&path, &json!({})).expect(200);
    };
    steer("pause");
    let _busy = scene.worker_with(&WorkerOptions::named("busy").flag("--queues", "default,other"));
    let beside = scene.run(Run::holding(LONG).with("queue", json!("other")));
    scene.await_status(&beside, "running", within(LEASE));
    steer("resume");
    let found = check(&doctor(&scene).1, "isolated").clone();
    assert_eq!((&found["verdict"], &found["value"]), (&json!("warn"), &json!(1.0)), "{found}");
    assert!(found["fact"].as_str().is_some_and(|fact| fact.contains(&job)), "{found}");
    scene.cancel(&beside);
    scene.await_status(&job, "running", within(LEASE));
    assert_eq!(check(&doctor(&scene).1, "isolated")["verdict"], "ok");
}

#[test]
fn a_dead_server_fails_the_reach_and_its_store_can_be_looked_at() {
    let mut scene = Scene::start();
    scene.server_mut().kill();
    let url = scene.server().url();
    let database = format!("sqlite:{}", scene.folder().join("outlast.db").display());
    let arguments = ["doctor", "-o", "json", "--server", &url, "--database", &database];
    let said = run_to_end(&arguments, Duration::from_secs(60));
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON on stdout");
    assert_eq!(said.code, Some(1), "{report}");
    assert_eq!(check(&report, "reach")["verdict"], "fail", "{report}");
    assert_eq!(check(&report, "local store")["verdict"], "ok", "{report}");
    assert_eq!(check(&report, "local files")["verdict"], "ok", "{report}");
    // As an older build made them.
    let file = scene.folder().join("outlast.db");
    let wide = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file, wide).expect("a mode");
    let said = run_to_end(&arguments, Duration::from_secs(60));
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON on stdout");
    let files = check(&report, "local files");
    assert_eq!(files["verdict"], "warn", "{report}");
    assert_eq!(files["fix"], format!("chmod 600 {}", file.display()), "{report}");
    // How quick it is, is the machine's to say.
    assert_ne!(check(&report, "local fsync")["verdict"], "skipped", "{report}");
}

/// No server is asked: the database is looked at from here.
fn look_at(database: &str) -> Value {
    let arguments =
        ["doctor", "-o", "json", "--server", "http://127.0.0.1:1", "--database", database];
    let said = run_to_end(&arguments, Duration::from_secs(60));
    serde_json::from_str(&said.stdout).expect("JSON on stdout")
}

#[test]
fn a_database_that_is_named_is_looked_at_before_and_after_it_is_migrated() {
    let database = Database::new().expect("PostgreSQL");
    let report = look_at(&database.url);
    assert_eq!(check(&report, "postgres migrations")["verdict"], "warn", "{report}");
    let migrated = run_to_end(&["migrate", "--database", &database.url], Duration::from_secs(60));
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let beside = Session::open(&database.url).expect("a session");
    beside.run("begin; select 1 from outlast.job_row").expect("an open transaction");
    let report = look_at(&database.url);
    for name in ["durability", "writes", "rights", "migrations", "clock", "vacuum", "bloat"] {
        assert_eq!(check(&report, &format!("postgres {name}"))["verdict"], "ok", "{report}");
    }
    assert!(
        check(&report, "postgres commit")["value"].as_f64().is_some_and(|it| it > 0.0),
        "{report}"
    );
    let open = check(&report, "postgres transactions")["fact"].as_str().unwrap_or_default();
    assert!(open.contains("idle in transaction"), "{report}");
    let away = look_at("postgres://me@127.0.0.1:1/none");
    assert_eq!(check(&away, "postgres")["verdict"], "fail", "{away}");
}
