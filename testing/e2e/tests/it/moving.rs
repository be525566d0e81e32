//! A store is moved from SQLite to PostgreSQL and back: what was is there, what runs goes on,
//! what is to come comes. An import that is killed is finished by the same command.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use outlast_cluster::Database;
use outlast_e2e::process::{Finished, Process, run_to_end};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{HEARTBEAT, LEASE, SWEEP, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);
/// How far off what waits for its time is: longer than a move takes.
const FAR: Duration = Duration::from_secs(25);

fn outlast(arguments: &[&str]) -> Finished {
    run_to_end(arguments, PATIENCE)
}

#[track_caller]
fn well(said: &Finished) {
    assert_eq!(said.code, Some(0), "{said:?}");
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Stops the server, moves its store, and starts it on the other one at the same address.
fn move_to(scene: &mut Scene, database: &str, folder: &str) {
    assert_eq!(scene.server_mut().stop(), Some(0));
    let from = scene.server().database().to_owned();
    well(&outlast(&["export", "--database", &from, "--out", folder]));
    well(&outlast(&["import", "--database", database, folder]));
    well(&outlast(&["import", "--verify", "--database", database, folder]));
    scene.server_mut().start_again_on(database);
    await_ready(scene.api(), within(LEASE));
}

/// Everything that a server returns about a job.
fn story(api: &Api, job: &str) -> Value {
    let about = |what: &str| api.get(&format!("/api/v1/executions/{job}{what}")).expect(200);
    let mut job = about("")["data"].take();
    // It depends on the connected workers, which reconnect one by one.
    job["waiting_reason"].take();
    // Cursors say where an event is in this store.
    let mut events = about("/events")["data"].take();
    for event in events.as_array_mut().into_iter().flatten() {
        event.as_object_mut().map(|event| event.remove("id"));
    }
    json!({
        "job": job,
        "ojs": api.get(&format!("/ojs/v1/jobs/{}", job["id"].as_str().unwrap_or_default())).body,
        "attempts": about("/attempts")["data"].take(),
        "logs": about("/logs")["data"].take(),
        "events": events,
    })
}

fn stories<'a>(api: &Api, jobs: &[&'a str]) -> BTreeMap<&'a str, Value> {
    jobs.iter().map(|job| (*job, story(api, job))).collect()
}

fn letters(api: &Api) -> Value {
    api.get("/ojs/v1/dead-letter").expect(200)
}

#[test]
fn a_server_goes_on_in_postgresql_and_back_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::new().expect("PostgreSQL");
    let embedded = format!("sqlite:{}", path(&folder, "first.db"));
    let mut scene = Scene::with(ServerOptions::default().database(&embedded));
    let worker = WorkerOptions::named("steady").flag("--queues", "default,held");
    let worker = scene.worker_with(&worker);
    let far = FAR.as_secs();
    let done = scene.run(Run::short());
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let letter = scene.run(Run::action("core.fail").with("retry", retry));
    let retry =
        json!({"max_attempts": 2, "initial_interval": format!("PT{far}S"), "jitter": false});
    let again = Run::short().parameter("fail_before_epoch", json!(2)).with("retry", retry);
    let again = scene.run(again);
    let later = scene.run(Run::short().with("delay", json!(far)));
    well(&outlast(&["queues", "pause", "held", "--create", "--server", &scene.server().url()]));
    let held = scene.run(Run::short().with("queue", json!("held")));
    let running = scene.run(Run::holding(FAR));
    scene.await_status(&done, "completed", within(LEASE));
    scene.await_status(&letter, "failed", within(LEASE));
    scene.await_start(&running, 1, within(LEASE));
    scene.await_start(&again, 1, within(LEASE));
    eventually("it waits for its second attempt", within(LEASE), || {
        (scene.api().ojs_job(&again)["state"] == "retryable").then_some(())
    });
    let still = [&*done, &*letter, &*again, &*later, &*held];
    let (before, letters_before) = (stories(scene.api(), &still), letters(scene.api()));

    move_to(&mut scene, &database.url, &path(&folder, "there"));
    assert_eq!(stories(scene.api(), &still), before);
    assert_eq!(letters(scene.api()), letters_before);
    scene.await_worker(worker.id(), "running", within(HEARTBEAT + LEASE));

    // Back, while the same attempt still runs.
    let back = format!("sqlite:{}", path(&folder, "back.db"));
    move_to(&mut scene, &back, &path(&folder, "again"));
    assert_eq!(stories(scene.api(), &[&done, &letter, &held])[&*done], before[&*done]);
    assert_eq!(letters(scene.api()), letters_before);

    well(&outlast(&["queues", "resume", "held", "--server", &scene.server().url()]));
    let new = scene.run(Run::short());
    for job in [&new, &held, &running, &later, &again] {
        scene.await_status(job, "completed", within(FAR + SWEEP + LEASE));
    }
    assert_eq!(scene.api().outcomes(&running), ["completed"], "it was not run again");
    assert_eq!(scene.api().outcomes(&again), ["failed", "completed"]);
    scene.judge();
}

fn enqueue_many(api: &Api, batches: usize) {
    let jobs: Vec<Value> = (0..5_000).map(|n| json!({"type": "work", "args": [n]})).collect();
    for _ in 0..batches {
        let _stored = api.post("/ojs/v1/jobs/batch", &json!({"jobs": jobs})).expect(201);
    }
}

/// Kills an import in the middle, and returns what a server says to the store.
fn kill_import(database: &str, export: &str, folder: &Path) -> Finished {
    let words = ["import", "--database", database, export].map(str::to_owned);
    let mut import = Process::start("import", &words, folder);
    let _line = import.await_line("storing rows", PATIENCE);
    import.kill();
    outlast(&["server", "--listen", "127.0.0.1:0", "--database", database])
}

#[test]
fn an_import_that_is_killed_is_finished_by_the_same_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let postgres = Database::new().expect("PostgreSQL");
    let from = format!("sqlite:{}", path(&folder, "from.db"));
    let mut scene = Scene::with(ServerOptions::default().database(&from));
    enqueue_many(scene.api(), 4);
    scene.server_mut().kill();
    let export = path(&folder, "export");
    well(&outlast(&["export", "--database", &from, "--out", &export]));
    let embedded = format!("sqlite:{}", path(&folder, "to.db"));
    for database in [&postgres.url, &embedded] {
        let refused = kill_import(database, &export, folder.path());
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("half imported"), "{refused:?}");
        assert!(
            refused.stderr.contains("run `outlast import` with the same folder"),
            "{refused:?}"
        );
        well(&outlast(&["import", "--database", database, &export]));
        let verified = outlast(&["import", "--verify", "--database", database, &export]);
        well(&verified);
        assert!(verified.stdout.contains("job_row          20000"), "{verified:?}");
    }
}

#[test]
fn what_cannot_be_moved_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = format!("sqlite:{}", path(&folder, "from.db"));
    let mut scene = Scene::with(ServerOptions::default().database(&from));
    enqueue_many(scene.api(), 1);
    let export = path(&folder, "export");
    // A copy is made while the server runs; a store that is served is no target.
    well(&outlast(&["export", "--database", &from, "--out", &export]));
    let check = |arguments: &[&str], code: i32, words: &str| {
        let said = outlast(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.stderr.contains(words), "{arguments:?}: {said:?}");
    };
    let again = ["export", "--database", &from, "--out", &export];
    check(&again, 4, "already holds an export");
    check(&["import", "--database", &from, &export], 4, "in use");
    assert_eq!(scene.server_mut().stop(), Some(0));
    check(&["import", "--database", &from, &export], 4, "not empty: it has rows in class, job_row");
    let nowhere = path(&folder, "nowhere");
    check(&["import", "--verify", &nowhere], 3, "nowhere");
    check(&["import", "--verify", &path(&folder, ".")], 3, "no whole export");
    check(&["export", "--database", "sqlite:/nowhere/x.db", "--out", &nowhere], 1, "cannot open");
    let jobs = folder.path().join("export/job_row.jsonl");
    let text = std::fs::read_to_string(&jobs).expect("a file");
    std::fs::write(&jobs, text.replacen("[2500]", "[2501]", 1)).expect("a file");
    let empty = format!("sqlite:{}", path(&folder, "empty.db"));
    check(&["import", "--database", &empty, &export], 1, "job_row.jsonl is damaged at line 2501: ");
    check(&["import", "--verify", &export], 1, "job_row.jsonl is damaged at line 2501: ");
}
