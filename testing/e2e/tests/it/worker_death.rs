//! F3 and F5: a whole worker is killed, and comes back under its old name.

use std::time::Duration;

use outlast_e2e::process;
use outlast_e2e::process_table::{self, since_boot};
use outlast_e2e::wait::{CLOSED, KILL_AFTER, LEASE, RECONNECT, SWEEP, eventually, stays, within};
use outlast_e2e::{Proxy, Run, Scene, ServerOptions, Weather, Worker, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

/// F27: what a cancelled job holds is free when its worker has lapsed.
#[test]
fn slot_and_unique_key_of_a_job_that_is_cancelled_while_its_worker_dies_become_free() {
    let scene = Scene::start();
    let mut doomed = scene.worker_with(&WorkerOptions::named("doomed").concurrency(1));
    let url = scene.server().url();
    let set = process::run_against(
        &url,
        &["limits", "set", "one", "--queue", "default", "--concurrency", "1"],
    );
    assert_eq!(set.code, Some(0), "{}", set.stderr);
    let unique = json!({"keys": ["type"]});
    let job = || Run::holding_once(Duration::from_secs(120)).with("unique", unique.clone());
    let first = scene.run(job());
    scene.await_start(&first, 1, within(LEASE));
    let _heir = scene.worker("heir");
    doomed.kill_whole();
    assert!(scene.cancel(&first).is_success());
    let ledger = scene.ledger().path().to_owned();
    let body = json!({
        "action_ref": "ledger.run", "parameters": {"ledger": ledger}, "unique": unique,
    });
    // As long as its processes may run, the job has its key.
    let second = eventually("the key is free", within(RECONNECT + SWEEP + LEASE), || {
        let reply = scene.api().post("/api/v1/executions", &body);
        assert!([201, 409].contains(&reply.status), "{reply:?}");
        reply.is_success().then(|| reply.body["data"]["id"].as_str().map(str::to_owned))?
    });
    scene.accept(&second);
    scene.await_status(&second, "completed", within(LEASE));
    assert_eq!(scene.api().execution(&first)["status"], "cancelled");
    scene.judge();
}

/// F8: the worker goes on, and the job ends by its own time limit.
#[test]
fn job_that_is_frozen_is_ended_at_its_timeout_while_its_worker_goes_on() {
    let scene = Scene::start();
    let worker = scene.worker("awake");
    let job = scene.run(
        Run::holding(Duration::from_secs(120)).with("timeout", json!(2)).with("retry", json!(1)),
    );
    scene.await_start(&job, 1, within(LEASE));
    let pids = process_table::of_jobs(&[job.clone()].into());
    assert!(!pids.is_empty(), "the job has processes");
    for (pid, _) in pids {
        process_table::signal(pid, Signal::STOP);
    }
    let done = scene.await_status(&job, "timeout", within(Duration::from_secs(2) + KILL_AFTER));
    assert_eq!(
        (&done["losses"], &done["worker"]["id"]),
        (&json!(0), &json!(worker.id())),
        "{done}"
    );
    scene.await_worker(worker.id(), "running", within(LEASE));
    scene.judge();
}

#[test]
fn jobs_of_a_killed_worker_run_again_elsewhere_with_a_higher_epoch() {
    let scene = Scene::start();
    let mut doomed = scene.worker("doomed");
    // Longer than an heir takes to start, on whatever machine.
    let first = || Run::holding_once(Duration::from_secs(120));
    let jobs = [scene.run(first()), scene.run(first())];
    for job in &jobs {
        scene.await_start(job, 1, within(LEASE));
    }
    let heir = scene.worker("heir");
    doomed.kill_whole();
    let killed = since_boot();
    for job in &jobs {
        let done = scene.await_status(job, "completed", within(RECONNECT + SWEEP + LEASE));
        assert_eq!(scene.api().outcomes(job), ["lost", "completed"]);
        assert_eq!(done["worker"]["id"], heir.id(), "{done}");
        assert_eq!((&done["losses"], &done["failures"]), (&json!(1), &json!(0)), "{done}");
        // The shim's pipe closed: its tree ended by itself, long before its work was done.
        let first = &scene.ledger().of(job)[0];
        assert!(
            !first.ended && first.last < killed + within(SWEEP),
            "{first:?}, killed {killed:?}"
        );
    }
    scene.judge();
}

#[test]
fn the_history_of_a_lost_attempt_names_its_worker_and_the_evidence() {
    let scene = Scene::start();
    let mut doomed = scene.worker("doomed");
    let job = scene.run(Run::holding_once(Duration::from_secs(60)));
    scene.await_start(&job, 1, within(LEASE));
    doomed.kill_whole();
    let lapsed = scene.await_worker(doomed.id(), "lapsed", within(LEASE + SWEEP));
    assert_eq!(lapsed["status"], "inactive");
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(LEASE));
    let lost = &scene.api().attempts(&job)[0];
    assert_eq!(lost["worker"]["name"], "doomed", "{lost}");
    assert!(lost["evidence"].as_str().is_some_and(|text| !text.is_empty()), "{lost}");
    scene.judge();
}

#[test]
fn a_job_that_forbids_overlap_waits_until_its_first_attempt_is_certainly_dead() {
    let scene = Scene::start();
    let mut doomed = scene.worker("doomed");
    let job =
        scene.run(Run::holding_once(Duration::from_secs(120)).with("overlap", json!("forbidden")));
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    doomed.kill_whole();
    scene.await_status(&job, "completed", within(LEASE + SWEEP + LEASE));
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    scene.judge();
}

#[test]
fn a_worker_restarted_under_its_old_name_does_not_inherit_its_predecessors_work() {
    let scene = Scene::start();
    let mut old = scene.worker("same");
    let job = scene.run(Run::holding_once(Duration::from_secs(60)));
    // A start is stored when it has lasted 50 ms: before that the attempt counts as handed over.
    scene.await_status(&job, "running", within(LEASE));
    old.kill_whole();
    let new = scene.worker("same");
    assert_ne!(old.id(), new.id());
    let done = scene.await_status(&job, "completed", within(LEASE + SWEEP));
    let attempts = scene.api().attempts(&job);
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    assert_eq!(attempts[0]["worker"]["id"], old.id(), "{attempts:?}");
    assert_eq!(attempts[1]["worker"]["id"], new.id(), "{attempts:?}");
    assert_eq!(done["epoch"], 2);
    eventually("the old incarnation is shown as lapsed", within(LEASE + SWEEP), || {
        let shown = scene.api().try_worker(old.id())?;
        (shown["state"] == "lapsed" && shown["in_flight"] == 0).then_some(())
    });
    scene.judge();
}

/// All others wait for this: nothing else may move the jobs.
const LONG: Duration = Duration::from_secs(60);

fn with_a_long_window() -> Scene {
    Scene::with(ServerOptions::default().set("worker.reconnect_window", json!(LONG.as_secs())))
}

/// A container that is killed has no guardian left to prove its death.
#[test]
fn a_worker_that_is_killed_whole_is_known_by_its_connections() {
    let scene = with_a_long_window();
    let lease = Duration::from_secs(20);
    let options = WorkerOptions::named("doomed").heartbeat(lease);
    let mut doomed = scene.worker_with(&options);
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    let _heir = scene.worker("heir");
    doomed.kill_whole();
    scene.await_start(&job, 2, within(CLOSED + SWEEP));
    scene.await_status(&job, "completed", within(LEASE));
    let first = scene.api().attempts(&job)[0].clone();
    assert_eq!(first["evidence_code"], "worker_killed", "{first}");
    let text = first["evidence"].as_str().unwrap_or_default();
    assert!(text.contains("closed all its connections at once"), "{first}");
    scene.judge();
}

#[test]
fn a_worker_that_is_killed_whole_keeps_what_must_not_overlap_for_its_lease() {
    let scene = with_a_long_window();
    let mut doomed = scene.worker_with(&WorkerOptions::named("doomed").heartbeat(CLOSED));
    let run = Run::holding_once(Duration::from_secs(120)).with("overlap", json!("forbidden"));
    let job = scene.run(run);
    scene.await_status(&job, "running", within(LEASE));
    doomed.kill_whole();
    scene.await_worker(doomed.id(), "lapsed", within(CLOSED + SWEEP));
    assert_eq!(scene.api().execution(&job)["epoch"], 1, "its lease is 3 s");
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(CLOSED * 3 + LEASE));
    scene.judge();
}

#[test]
fn a_proxy_that_drops_many_workers_for_a_while_moves_no_job() {
    let scene = with_a_long_window();
    let proxy = Proxy::to(&scene.server().url());
    let start = |number| {
        let options = WorkerOptions::named(&format!("w{number}")).concurrency(1);
        scene.worker_with(&options.heartbeat(CLOSED * 10).through(&proxy.url()))
    };
    let workers: Vec<Worker> = (0..6).map(start).collect();
    let jobs: Vec<String> = workers.iter().map(|_| scene.run(Run::holding(CLOSED * 6))).collect();
    for job in &jobs {
        scene.await_status(job, "running", within(LEASE));
    }
    proxy.set(Weather::Cut);
    for worker in &workers {
        scene.await_worker(worker.id(), "suspect", within(LEASE));
    }
    stays("no job is moved", CLOSED * 2, || {
        let moved = jobs.iter().find(|job| scene.api().execution(job)["epoch"] != 1)?;
        Some(moved.clone())
    });
    proxy.set(Weather::Clear);
    for job in &jobs {
        scene.await_status(job, "completed", within(CLOSED * 6));
        assert_eq!(scene.api().outcomes(job), ["completed"]);
    }
    scene.judge();
}
