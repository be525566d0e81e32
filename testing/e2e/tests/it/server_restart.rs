//! F14: the server dies and returns while leases are held.

use std::thread;
use std::time::Duration;

use outlast_cluster::{Database, Session};
use outlast_e2e::process::{Process, run_to_end};
use outlast_e2e::process_table::with_argument;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{HEARTBEAT, LEASE, SWEEP, eventually, within};
use outlast_e2e::{Run, Scene, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

const READY: Duration = Duration::from_secs(2);

#[test]
fn a_server_outage_longer_than_the_lease_re_runs_nothing() {
    let mut scene = Scene::start();
    let workers = [scene.worker("one"), scene.worker("two")];
    let short = scene.run(Run::holding(Duration::from_millis(800)));
    let long: Vec<_> = (0..3).map(|_| scene.run(Run::holding(Duration::from_secs(4)))).collect();
    for job in long.iter().chain([&short]) {
        scene.await_start(job, 1, within(LEASE));
    }
    scene.server_mut().kill();
    eventually("the short job ends during the outage", within(LEASE), || {
        scene.ledger().of(&short)[0].ended.then_some(())
    });
    // The outage is what is tested; nothing is awaited here.
    thread::sleep(LEASE * 2);
    scene.server_mut().start_again();
    await_ready(scene.api(), within(READY));
    for job in long.iter().chain([&short]) {
        let done = scene.await_status(job, "completed", within(READY + HEARTBEAT + LEASE * 4));
        assert_eq!(scene.api().outcomes(job), ["completed"], "{done}");
        assert_eq!((&done["epoch"], &done["losses"]), (&json!(1), &json!(0)), "{done}");
        assert_starts_once(&scene, job);
    }
    for worker in &workers {
        scene.await_worker(worker.id(), "running", within(READY + HEARTBEAT));
    }
    scene.judge();
}

/// Four such outages once made a healthy job a poison suspect: each counted as a loss.
#[test]
fn an_outage_that_ends_what_must_not_overlap_charges_nothing() {
    let mut scene = Scene::start();
    let _worker = scene.worker("alone");
    let job = scene.run(Run::holding_once(LEASE * 100).with("overlap", json!("forbidden")));
    scene.await_start(&job, 1, within(LEASE));
    scene.server_mut().kill();
    eventually("the worker ends the attempt by itself", within(LEASE * 2), || {
        with_argument(&job).is_empty().then_some(())
    });
    scene.server_mut().start_again();
    await_ready(scene.api(), within(READY));
    let done = scene.await_status(&job, "completed", within(READY + HEARTBEAT + LEASE));
    let spent = (&done["losses"], &done["interruptions"], &done["failures"]);
    assert_eq!(spent, (&json!(0), &json!(0), &json!(0)), "{done}");
    let first = scene.api().attempts(&job)[0].clone();
    assert_eq!(
        (&first["outcome"], &first["evidence_code"]),
        (&json!("interrupted"), &json!("lease"))
    );
    assert_eq!(first["error"]["type"], "lease_not_renewed", "{first}");
    scene.judge();
}

/// Workers that attach again say again what they have started.
#[track_caller]
fn assert_starts_once(scene: &Scene, job: &str) {
    let events = scene.api().get(&format!("/api/v1/executions/{job}/events")).expect(200);
    let all = events["data"].as_array().expect("events");
    let starts = all.iter().filter(|event| event["type"] == "job.started").count();
    assert!(starts <= 1, "{events}");
}

#[test]
fn a_worker_that_dies_while_the_server_is_away_is_found_out_afterwards() {
    let mut scene = Scene::start();
    let mut doomed = scene.worker("doomed");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    scene.server_mut().kill();
    doomed.kill_whole();
    scene.server_mut().start_again();
    await_ready(scene.api(), within(READY));
    scene.await_status(&job, "completed", within(READY + LEASE + SWEEP));
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    scene.judge();
}

#[test]
fn a_server_that_crashes_again_and_again_lapses_no_live_worker() {
    let mut scene = Scene::start();
    let worker = scene.worker("steady");
    let job = scene.run(Run::holding(Duration::from_secs(4)));
    scene.await_start(&job, 1, within(LEASE));
    for _ in 0..4 {
        scene.server_mut().kill();
        scene.server_mut().start_again();
        await_ready(scene.api(), within(READY));
    }
    scene.await_status(&job, "completed", within(READY + LEASE * 4));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert_eq!(scene.api().execution(&job)["worker"]["id"], worker.id());
    scene.judge();
}

#[test]
fn a_server_asked_to_stop_ends_with_code_zero_and_keeps_everything() {
    let mut scene = Scene::start();
    let job = scene.run(Run::short());
    assert_eq!(scene.server_mut().stop(), Some(0));
    scene.server_mut().start_again();
    await_ready(scene.api(), within(READY));
    let _worker = scene.worker("late");
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

// It ended with 0, and said only that some output was dropped.
#[test]
fn a_worker_that_stops_while_its_server_is_away_says_that_a_result_is_lost_and_ends_with_one() {
    let mut scene = Scene::start();
    let grace = Duration::from_millis(300);
    let mut worker = scene.worker_with(&WorkerOptions::named("alone").shutdown_timeout(grace));
    let job =
        scene.run(Run::holding_once(Duration::from_secs(1)).parameter("later_ticks", json!(0)));
    scene.await_start(&job, 1, within(LEASE));
    scene.server_mut().kill();
    eventually("the job has ended", within(LEASE), || {
        scene.ledger().of(&job)[0].ended.then_some(())
    });
    worker.terminate();
    assert_eq!(worker.await_end(within(LEASE)), Some(1), "{}", worker.log());
    assert!(worker.log().contains("results are thrown away"), "{}", worker.log());
    scene.server_mut().start_again();
    await_ready(scene.api(), within(READY));
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(READY + LEASE));
}

/// As a server that starts again because its store lost commits.
#[test]
fn a_server_that_starts_again_ends_when_it_is_stopped_and_when_no_wait_can_help() {
    let database = Database::new().expect("PostgreSQL");
    let migrated = run_to_end(&["migrate", "--database", &database.url], Duration::from_secs(60));
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let session = Session::open(&database.url).expect("a session");
    let folder = tempfile::tempdir().expect("a folder");
    let start = || {
        let words = ["server", "--again", "--listen", "127.0.0.1:0", "--database", &database.url];
        Process::start("again", &words.map(str::to_owned), folder.path())
    };
    session.run("alter table queue rename to queue_away").expect("a statement");
    let mut server = start();
    for _ in 0..2 {
        let retried = server.log().matches("cannot start again, retrying").count();
        eventually("it is tried", within(LEASE), || {
            (server.log().matches("cannot start again, retrying").count() > retried).then_some(())
        });
    }
    server.signal(Signal::TERM);
    assert_eq!(server.await_end(Duration::from_secs(3)), Some(0), "{}", server.tail());
    let newer = "insert into outlast.migration (version, digest)
        select max(version) + 1, 'x' from outlast.migration";
    session.run(newer).expect("a statement");
    let mut server = start();
    assert_eq!(server.await_end(Duration::from_secs(10)), Some(1), "{}", server.tail());
    assert!(server.log().contains("made by a newer outlast"), "{}", server.tail());
}
