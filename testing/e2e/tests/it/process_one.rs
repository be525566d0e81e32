//! A worker that is process 1 of a PID namespace, as the main process of a container is.

use std::time::Duration;

use outlast_e2e::process_table::{self, ProcessId};
use outlast_e2e::wait::{KILL_AFTER, LEASE, SWEEP, eventually, within};
use outlast_e2e::{Run, Scene, Worker, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

/// Starts a worker as process 1. What `unshare` starts is killed with it.
fn contained(scene: &Scene, name: &str) -> Worker {
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    scene.worker_with(&WorkerOptions::named(name).below(&unshare))
}

/// The only child of `unshare`.
fn process_one(worker: &mut Worker) -> ProcessId {
    let unshare = worker.guardian_mut().pid();
    process_table::children(unshare)[0]
}

fn engine(worker: &mut Worker) -> ProcessId {
    let first = process_one(worker);
    eventually("it has an engine", within(SWEEP), || {
        let below = process_table::descendants(first);
        below.into_iter().find(|pid| process_table::with_argument("engine").contains(pid))
    })
}

#[test]
fn worker_as_process_one_drains_on_sigterm_and_leaves_nothing() {
    let scene = Scene::start();
    let mut worker = contained(&scene, "first");
    let job = scene.run(Run::holding(Duration::from_secs(2)));
    scene.await_status(&job, "running", within(LEASE));
    let first = process_one(&mut worker);
    assert!(process_table::descendants(first).len() >= 3, "guardian, engine and shim are below it");
    process_table::signal(first, Signal::TERM);
    assert_eq!(worker.await_end(within(KILL_AFTER + Duration::from_secs(2))), Some(0));
    let done = scene.await_status(&job, "completed", within(LEASE));
    assert_eq!((&done["epoch"], &done["interruptions"]), (&json!(1), &json!(0)), "{done}");
    scene.judge();
}

#[test]
fn worker_as_process_one_survives_the_death_of_its_engine_but_not_its_own() {
    let scene = Scene::start();
    let mut worker = contained(&scene, "first");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    process_table::signal(engine(&mut worker), Signal::KILL);
    let done = scene.await_status(&job, "completed", within(SWEEP + KILL_AFTER));
    assert_eq!((&done["losses"], &done["failures"]), (&json!(1), &json!(0)), "{done}");
    let again = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&again, "running", within(LEASE));
    // The kernel ends everything in the namespace with it, as when a container is killed.
    let first = process_one(&mut worker);
    let below = process_table::descendants(first);
    process_table::signal(first, Signal::KILL);
    eventually("nothing is left", within(SWEEP), || {
        below.iter().all(|pid| !process_table::is_alive(*pid)).then_some(())
    });
    let _heir = scene.worker("heir");
    scene.await_status(&again, "completed", within(LEASE + SWEEP));
    scene.judge();
}
