//! F3 and F5: a whole worker is killed, and comes back under its old name.

use std::time::Duration;

use outlast_e2e::process_table::since_boot;
use outlast_e2e::wait::{LEASE, RECONNECT, SWEEP, eventually, within};
use outlast_e2e::{Run, Scene};
use serde_json::json;

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
