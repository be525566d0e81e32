//! F21: SIGTERM to a worker that is idle, has short jobs, has long jobs.

use std::time::Duration;

use outlast_e2e::wait::{HEARTBEAT, KILL_AFTER, LEASE, eventually, within};
use outlast_e2e::{Run, Scene, WorkerOptions};
use serde_json::{Value, json};

const EXIT: Duration = Duration::from_secs(2);

#[test]
fn an_idle_worker_leaves_with_code_zero_and_is_shown_as_stopped() {
    let scene = Scene::start();
    let mut worker = scene.worker("idle");
    worker.terminate();
    assert_eq!(worker.await_end(within(EXIT)), Some(0));
    let shown = scene.await_worker(worker.id(), "stopped", within(HEARTBEAT));
    assert_eq!(shown["status"], "inactive", "{shown}");
    scene.judge();
}

#[test]
fn a_draining_worker_takes_nothing_new_and_finishes_what_it_has() {
    let scene = Scene::start();
    let mut worker = scene.worker("leaver");
    let running: Vec<_> = (0..2).map(|_| scene.run(Run::holding(Duration::from_secs(3)))).collect();
    for job in &running {
        scene.await_start(job, 1, within(LEASE));
    }
    worker.terminate();
    let shown = scene.await_worker(worker.id(), "draining", within(HEARTBEAT));
    assert_eq!(shown["status"], "inactive", "{shown}");
    let late = scene.run(Run::short());
    assert_eq!(worker.await_end(within(Duration::from_secs(3))), Some(0));
    for job in &running {
        assert_eq!(scene.api().outcomes(job), ["completed"]);
    }
    let waiting = scene.api().execution(&late);
    assert_eq!(waiting["status"], "requested", "{waiting}");
    assert!(scene.ledger().of(&late).is_empty(), "nothing is claimed after SIGTERM");
    let _next = scene.worker("next");
    scene.await_status(&late, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn heartbeats_go_on_through_the_whole_drain() {
    let scene = Scene::start();
    let mut worker = scene.worker("leaver");
    let job = scene.run(Run::holding(LEASE * 3));
    scene.await_start(&job, 1, within(LEASE));
    worker.terminate();
    scene.await_worker(worker.id(), "draining", within(HEARTBEAT));
    let mut seen: Vec<Value> = Vec::new();
    eventually("three more beats while it drains", within(LEASE), || {
        let shown = scene.api().try_worker(worker.id())?;
        let beat = (shown["state"] == "draining").then(|| shown["last_heartbeat"].clone())?;
        if !seen.contains(&beat) {
            seen.push(beat);
        }
        (seen.len() > 3).then_some(())
    });
    assert_eq!(worker.await_end(within(LEASE * 3)), Some(0));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    scene.judge();
}

#[test]
fn a_job_longer_than_the_grace_period_is_handed_back_and_spends_no_retry() {
    let scene = Scene::start();
    let grace = Duration::from_millis(500);
    let mut worker = scene.worker_with(&WorkerOptions::named("leaver").shutdown_timeout(grace));
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_start(&job, 1, within(LEASE));
    let heir = scene.worker("heir");
    worker.terminate();
    assert_eq!(worker.await_end(within(grace + KILL_AFTER)), Some(0));
    let done = scene.await_status(&job, "completed", within(LEASE));
    assert_eq!(scene.api().outcomes(&job), ["interrupted", "completed"]);
    let spent = (&done["failures"], &done["losses"], &done["interruptions"]);
    assert_eq!(spent, (&json!(0), &json!(0), &json!(1)), "{done}");
    assert_eq!((&done["epoch"], &done["worker"]["id"]), (&json!(2), &json!(heir.id())));
    let interrupted = scene.api().attempts(&job)[0].to_string();
    assert!(interrupted.contains("shutdown"), "{interrupted}");
    scene.judge();
}

#[test]
fn a_job_that_ignores_sigterm_is_killed_when_grace_and_patience_are_over() {
    let scene = Scene::start();
    let grace = Duration::from_millis(300);
    let mut worker = scene.worker_with(&WorkerOptions::named("leaver").shutdown_timeout(grace));
    let stubborn =
        Run::holding_once(Duration::from_secs(120)).parameter("on_term", json!("ignore"));
    let job = scene.run(stubborn);
    scene.await_start(&job, 1, within(LEASE));
    worker.terminate();
    assert_eq!(worker.await_end(within(grace + KILL_AFTER)), Some(0));
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(LEASE));
    assert_eq!(scene.api().outcomes(&job), ["interrupted", "completed"]);
    scene.judge();
}

fn that_traps_sigterm(how: &str) -> Run {
    Run::holding_once(Duration::from_secs(120)).parameter("on_term", json!(how))
}

// It ran again, and with one attempt it was a dead letter.
#[test]
fn a_program_that_finishes_after_sigterm_has_completed_and_one_that_exits_with_75_runs_again() {
    let scene = Scene::start();
    let grace = Duration::from_millis(300);
    let mut worker = scene.worker_with(&WorkerOptions::named("leaver").shutdown_timeout(grace));
    let finished =
        scene.run(that_traps_sigterm("finish").with("retry", json!({"max_attempts": 1})));
    let later = scene.run(that_traps_sigterm("later"));
    scene.await_start(&finished, 1, within(LEASE));
    scene.await_start(&later, 1, within(LEASE));
    worker.terminate();
    assert_eq!(worker.await_end(within(grace + KILL_AFTER)), Some(0));
    let done = scene.await_status(&finished, "completed", within(LEASE));
    assert!(done["result"].to_string().contains("epoch=1"), "{done}");
    assert_eq!(scene.api().outcomes(&finished), ["completed"]);
    let _heir = scene.worker("heir");
    let again = scene.await_status(&later, "completed", within(LEASE));
    assert_eq!(scene.api().outcomes(&later), ["interrupted", "completed"]);
    assert_eq!(scene.api().attempts(&later)[0]["exit_code"], 75, "{again}");
    scene.judge();
}

#[test]
fn exit_code_zero_after_sigterm_undoes_neither_a_cancel_nor_a_timeout() {
    let scene = Scene::start();
    let _worker = scene.worker("plain");
    let cancelled = scene.run(that_traps_sigterm("finish"));
    scene.await_start(&cancelled, 1, within(LEASE));
    scene.cancel(&cancelled);
    let once = json!({"max_attempts": 1});
    let late = that_traps_sigterm("finish").with("timeout", json!(1)).with("retry", once);
    let late = scene.run(late);
    scene.await_status(&late, "timeout", within(LEASE));
    scene.await_status(&cancelled, "cancelled", within(LEASE));
    scene.judge();
    assert_eq!(scene.api().outcomes(&cancelled), ["cancelled"]);
}

#[test]
fn a_drain_ordered_through_the_api_ends_the_worker_in_the_same_way() {
    let scene = Scene::start();
    let mut worker = scene.worker("ordered");
    let job = scene.run(Run::holding(Duration::from_secs(1)));
    scene.await_start(&job, 1, within(LEASE));
    let path = format!("/api/v1/workers/{}/drain", worker.id());
    assert!(scene.api().post(&path, &json!({})).is_success());
    assert_eq!(worker.await_end(within(LEASE * 2)), Some(0));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    scene.await_worker(worker.id(), "stopped", within(HEARTBEAT));
    scene.judge();
}
