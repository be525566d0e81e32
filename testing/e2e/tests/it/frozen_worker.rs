//! F6 and F7: an engine stands still, for less and for more than its lease.

use std::thread;
use std::time::{Duration, Instant};

use outlast_e2e::wait::{HEARTBEAT, KILL_AFTER, LEASE, SWEEP, eventually, stays, within};
use outlast_e2e::{Frozen, Run, Scene, ServerOptions, Worker, WorkerOptions};
use serde_json::json;

/// Longer than a second worker takes to start on a loaded machine.
const HOLD: Duration = Duration::from_secs(6);

#[test]
fn a_pause_shorter_than_the_lease_changes_nothing() {
    let scene = Scene::start();
    let worker = scene.worker("drowsy");
    let job = scene.run(Run::holding(HOLD));
    scene.await_start(&job, 1, within(LEASE));
    let _idle = scene.worker("idle");
    let frozen = worker.freeze_engine();
    // The pause is what is tested; nothing is awaited here.
    thread::sleep(HEARTBEAT * 2);
    drop(frozen);
    let done = scene.await_status(&job, "completed", within(LEASE * 2 + HOLD));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert_eq!((&done["epoch"], &done["losses"]), (&json!(1), &json!(0)), "{done}");
    assert_eq!(done["worker"]["id"], worker.id());
    scene.judge();
}

#[test]
fn the_late_report_of_a_worker_that_slept_through_its_lease_is_refused() {
    let scene = Scene::start();
    let sleeper = scene.worker("sleeper");
    let job = scene.run(Run::holding(HOLD));
    scene.await_start(&job, 1, within(LEASE));
    let heir = scene.worker("heir");
    let frozen = sleeper.freeze_engine();
    scene.await_start(&job, 2, within(LEASE + SWEEP));
    eventually("the stale attempt is done, untold", within(LEASE * 2 + HOLD), || {
        scene.ledger().of(&job)[0].ended.then_some(())
    });
    drop(frozen);
    let done = scene.await_status(&job, "completed", within(LEASE * 2 + HOLD));
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    assert_eq!(done["worker"]["id"], heir.id(), "{done}");
    assert!(done["result"].to_string().contains("epoch=2"), "{done}");
    scene.await_named_worker("sleeper", "running", within(HEARTBEAT));
    let after = scene.api().execution(&job);
    assert_eq!((&after["epoch"], &after["result"]), (&done["epoch"], &done["result"]));
    scene.judge();
}

#[test]
fn a_worker_that_wakes_after_its_lease_ends_its_stale_attempts() {
    let scene = Scene::start();
    let sleeper = scene.worker("sleeper");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    let frozen = sleeper.freeze_engine();
    scene.await_status(&job, "completed", within(LEASE + SWEEP));
    drop(frozen);
    // The judge finds the process of the first attempt if it goes on.
    scene.judge();
    assert!(!scene.ledger().of(&job)[0].ended);
}

#[test]
fn a_frozen_engine_does_not_keep_a_forbidden_overlap_alive() {
    let scene = Scene::start();
    let sleeper = scene.worker("sleeper");
    let run = Run::holding(HOLD).with("overlap", json!("forbidden"));
    let job = scene.run(run);
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    let frozen = sleeper.freeze_engine();
    scene.await_status(&job, "completed", within(LEASE + SWEEP + HOLD));
    drop(frozen);
    let traces = scene.ledger().of(&job);
    assert!(!traces[0].ended, "the shim's deadline ended the first attempt: {traces:?}");
    scene.judge();
}

/// Freezes a worker that runs a job which forbids overlap and a bystander, and wakes it: it must
/// go on as a process, and be of use at once.
fn goes_on_after(pause: Duration, freeze: fn(&Worker) -> Frozen) {
    let scene = Scene::start();
    let mut sleeper = scene.worker("sleeper");
    let forever = || Run::holding_once(HOLD * 20);
    let forbidden = scene.run(forever().with("overlap", json!("forbidden")));
    let jobs = [forbidden, scene.run(forever())];
    for job in &jobs {
        scene.await_status(job, "running", within(LEASE));
    }
    let frozen = freeze(&sleeper);
    // The pause is what is tested; nothing is awaited here.
    thread::sleep(pause);
    drop(frozen);
    scene.await_named_worker("sleeper", "running", within(LEASE));
    let after = scene.run(Run::short());
    scene.await_status(&after, "completed", within(LEASE));
    // Longer than a process that ends itself for want of anything better would take.
    stays("the worker lives", LEASE, || sleeper.guardian_mut().ended().map(|_| sleeper.log()));
    for job in &jobs {
        let shown = scene.api().execution(job);
        let (losses, failures) = (shown["losses"].as_u64(), shown["failures"].as_u64());
        assert!(losses <= Some(1) && failures == Some(0), "{shown}");
        if shown["status"] != "completed" {
            assert!(scene.cancel(job).is_success());
        }
    }
    scene.judge();
}

#[test]
fn a_worker_with_a_forbidden_overlap_goes_on_after_its_engine_was_frozen() {
    goes_on_after(LEASE * 7 / 10, Worker::freeze_engine);
    goes_on_after(LEASE * 2, Worker::freeze_engine);
}

#[test]
fn a_worker_with_a_forbidden_overlap_goes_on_after_all_of_it_was_frozen() {
    goes_on_after(LEASE * 7 / 10, Worker::freeze_whole);
    goes_on_after(LEASE * 2, Worker::freeze_whole);
}

/// docs/reference/guarantees.md: the lease less 1.1 heartbeat intervals and a second.
const PROMISED: Duration = Duration::from_millis(2800);

/// Freezes a worker for a little less than promised, twice. Returns false if the machine was so
/// busy that its next heartbeat was not stored within the promised time: it might as well have been
/// frozen for longer, and nothing was promised.
fn survives_what_is_promised() -> bool {
    const INTERVAL: Duration = Duration::from_secs(2);
    const FREEZE: Duration = Duration::from_millis(2500);
    let options =
        ServerOptions::default().set("worker.heartbeat_interval", json!(INTERVAL.as_secs_f64()));
    let options = options.set("worker.heartbeat_staleness_multiplier", json!(3));
    let scene = Scene::with(options);
    let worker = scene.worker_with(&WorkerOptions::named("drowsy").heartbeat(INTERVAL));
    let jobs: Vec<_> = (0..3)
        .map(|_| scene.run(Run::holding(FREEZE * 4).with("overlap", json!("forbidden"))))
        .collect();
    for job in &jobs {
        scene.await_start(job, 1, within(LEASE));
    }
    let beat = || scene.api().try_worker(worker.id()).map(|shown| shown["last_heartbeat"].clone());
    for _ in 0..2 {
        let began = Instant::now();
        let frozen = worker.freeze_whole();
        // The pause is what is tested; nothing is awaited here.
        thread::sleep(FREEZE);
        let before = beat();
        drop(frozen);
        eventually("it is heard again", within(LEASE), || (beat() != before).then_some(()));
        // Some of it is for the answer.
        if began.elapsed() > PROMISED - Duration::from_millis(50) {
            return false;
        }
        thread::sleep(INTERVAL * 3 / 4);
    }
    for job in &jobs {
        scene.await_status(job, "completed", within(FREEZE * 4));
        assert_eq!(scene.api().outcomes(job), ["completed"]);
    }
    scene.judge();
    true
}

#[test]
fn a_freeze_within_the_promised_time_ends_nothing_that_must_not_overlap() {
    assert!((0..10).any(|_| survives_what_is_promised()), "the machine is too busy to tell");
}

#[test]
fn a_frozen_guardian_changes_nothing() {
    let scene = Scene::start();
    let worker = scene.worker("watched");
    let job = scene.run(Run::holding(LEASE * 2).with("overlap", json!("forbidden")));
    scene.await_start(&job, 1, within(LEASE));
    let frozen = worker.freeze_guardian();
    let done = scene.await_status(&job, "completed", within(LEASE * 3));
    drop(frozen);
    assert_eq!((&done["epoch"], &done["worker"]["id"]), (&json!(1), &json!(worker.id())), "{done}");
    scene.judge();
}

/// It went on forever once, whatever signals came.
#[test]
fn worker_whose_engine_hangs_ends_all_the_same_when_it_is_asked_to() {
    let scene = Scene::start();
    let options = WorkerOptions::named("hung").shutdown_timeout(Duration::from_secs(1));
    let mut hung = scene.worker_with(&options);
    let beside = scene.worker("beside");
    let frozen = hung.freeze_engine();
    let of_hung = hung.health(&[], within(KILL_AFTER));
    assert_eq!(of_hung.code, Some(1), "{of_hung:?}");
    assert!(of_hung.stderr.contains("worker hung does not answer: it is stuck"), "{of_hung:?}");
    // It says nothing about others.
    assert_eq!(beside.health(&[], within(KILL_AFTER)).code, Some(0));
    hung.terminate();
    assert_eq!(hung.await_end(within(Duration::from_secs(11))), Some(1));
    assert!(hung.log().contains("engine does not end: killing it"), "{}", hung.log());
    drop(frozen);
}
