//! F9 to F12, F31: partitions, loss in one direction, half-open connections, slow links, lost
//! replies. A proxy between worker and server makes them.

use std::thread;
use std::time::Duration;

use outlast_e2e::wait::{HEARTBEAT, LEASE, RECONNECT, SWEEP, eventually, stays, within};
use outlast_e2e::{Api, Proxy, Run, Scene, ServerOptions, Weather, Worker, WorkerOptions};
use serde_json::json;

/// Longer than any of these tests waits for anything but its end.
const LONG: Duration = Duration::from_secs(120);

/// A worker behind a proxy, and the proxy.
fn behind_a_proxy(scene: &Scene) -> (Proxy, Worker) {
    let proxy = Proxy::to(&scene.server().url());
    let worker = scene.worker_with(&WorkerOptions::named("far").through(&proxy.url()));
    (proxy, worker)
}

/// Longer than a second worker takes to start on a loaded machine.
const HOLD: Duration = Duration::from_secs(6);

#[test]
fn a_partition_shorter_than_the_lease_moves_nothing() {
    let scene = Scene::start();
    let (proxy, far) = behind_a_proxy(&scene);
    let job = scene.run(Run::holding(HOLD));
    scene.await_start(&job, 1, within(LEASE));
    let _idle = scene.worker("idle");
    proxy.set(Weather::Hold);
    // The pause is what is tested; nothing is awaited here.
    thread::sleep(HEARTBEAT * 2);
    proxy.set(Weather::Clear);
    let done = scene.await_status(&job, "completed", within(LEASE * 2 + HOLD));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert_eq!(done["worker"]["id"], far.id());
    scene.judge();
}

/// Cuts a worker off for longer than its job runs, and heals it when both attempts are done.
#[track_caller]
fn moves_on_and_refuses_the_late_report(weather: Weather) {
    let scene = Scene::start();
    let (proxy, _far) = behind_a_proxy(&scene);
    let job = scene.run(Run::holding(HOLD));
    scene.await_start(&job, 1, within(LEASE));
    let heir = scene.worker("heir");
    proxy.set(weather);
    scene.await_start(&job, 2, within(LEASE + SWEEP));
    let done = scene.await_status(&job, "completed", within(LEASE * 2 + HOLD));
    assert_eq!(done["worker"]["id"], heir.id(), "{done}");
    eventually("the attempt that is cut off goes on to its end", within(LEASE * 2 + HOLD), || {
        scene.ledger().of(&job)[0].ended.then_some(())
    });
    proxy.set(Weather::Clear);
    scene.await_named_worker("far", "running", within(LEASE));
    let after = scene.api().execution(&job);
    assert_eq!((&after["epoch"], &after["result"]), (&done["epoch"], &done["result"]));
    assert_eq!(scene.api().outcomes(&job), ["lost", "completed"]);
    scene.judge();
}

#[test]
fn a_worker_behind_a_partition_is_replaced_and_its_late_report_refused() {
    moves_on_and_refuses_the_late_report(Weather::Hold);
}

#[test]
fn a_worker_behind_a_black_hole_is_replaced_and_its_late_report_refused() {
    moves_on_and_refuses_the_late_report(Weather::BlackHole);
}

#[test]
fn a_worker_that_is_not_heard_is_replaced_and_its_late_report_refused() {
    moves_on_and_refuses_the_late_report(Weather::DropRequests);
}

/// Cuts a worker off under a job whose attempts must not overlap; the judge compares intervals.
#[track_caller]
fn never_overlaps(weather: Weather) {
    let scene = Scene::start();
    let (proxy, _far) = behind_a_proxy(&scene);
    let job = scene.run(Run::holding_once(LONG).with("overlap", json!("forbidden")));
    scene.await_start(&job, 1, within(LEASE));
    let heir = scene.worker("heir");
    proxy.set(weather);
    // A lease until renewals stop, where only the worker's ears are gone, and one to lapse.
    let done = scene.await_status(&job, "completed", within(LEASE * 2 + SWEEP));
    assert_eq!(done["worker"]["id"], heir.id(), "{done}");
    assert!(!scene.ledger().of(&job)[0].ended);
    proxy.set(Weather::Clear);
    scene.judge();
}

#[test]
fn a_partitioned_worker_ends_what_must_not_overlap_before_it_runs_elsewhere() {
    never_overlaps(Weather::Hold);
}

#[test]
fn a_worker_that_is_not_heard_ends_what_must_not_overlap_before_it_runs_elsewhere() {
    never_overlaps(Weather::DropRequests);
}

#[test]
fn a_worker_that_hears_nothing_ends_what_must_not_overlap_before_it_runs_elsewhere() {
    never_overlaps(Weather::DropReplies);
}

#[test]
fn work_of_a_healed_worker_that_was_replaced_ends() {
    let scene = Scene::start();
    let (proxy, _far) = behind_a_proxy(&scene);
    let job = scene.run(Run::holding_once(LONG));
    scene.await_start(&job, 1, within(LEASE));
    let _heir = scene.worker("heir");
    proxy.set(Weather::Hold);
    scene.await_status(&job, "completed", within(LEASE + SWEEP));
    proxy.set(Weather::Clear);
    // The judge finds the process of the first attempt if it goes on.
    scene.judge();
    assert!(!scene.ledger().of(&job)[0].ended, "it was asked to stop");
}

#[test]
fn a_half_open_connection_is_noticed_by_the_worker_and_left() {
    let scene = Scene::start();
    let (proxy, far) = behind_a_proxy(&scene);
    proxy.set(Weather::HalfOpen);
    scene.await_worker(far.id(), "suspect", within(HEARTBEAT));
    proxy.set(Weather::Clear);
    // The end that still holds the old connection never gets this job.
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE + RECONNECT));
    scene.judge();
}

#[test]
fn a_worker_that_starts_before_a_black_hole_registers_once_it_is_gone() {
    let scene = Scene::start();
    let proxy = Proxy::to(&scene.server().url());
    proxy.set(Weather::BlackHole);
    let options = WorkerOptions::named("early").through(&proxy.url());
    let packs = scene.folder().join("packs");
    let mut worker =
        Worker::start_unregistered(&options, &scene.server().url(), &packs, scene.folder());
    let _line = worker.guardian_mut().await_line("cannot", within(LEASE));
    proxy.set(Weather::Clear);
    scene.await_named_worker("early", "running", within(LEASE));
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn a_slow_link_that_is_reset_now_and_then_loses_no_worker() {
    // There and back, as 2 s are to the default interval of 5 s.
    const INTERVAL: Duration = Duration::from_secs(1);
    const ONE_WAY: Duration = Duration::from_millis(200);
    // Longer than a busy machine keeps a worker from connecting. One that never gets through a
    // slow link is missed all the same: this test waits for it.
    let options = ServerOptions::default()
        .set("worker.heartbeat_interval", json!(INTERVAL.as_secs_f64()))
        .set("worker.heartbeat_staleness_multiplier", json!(30))
        .set("worker.reconnect_window", json!(30));
    let scene = Scene::with(options);
    let proxy = Proxy::to(&scene.server().url());
    let options = WorkerOptions::named("far").through(&proxy.url()).heartbeat(INTERVAL);
    let far = scene.worker_with(&options);
    proxy.set(Weather::Delay(ONE_WAY));
    let job = scene.run(Run::holding(INTERVAL * 6));
    scene.await_start(&job, 1, within(INTERVAL));
    for _ in 0..2 {
        stays("the worker is not given up", INTERVAL * 2, || {
            let worker = scene.api().try_worker(far.id())?;
            (worker["state"] == "lapsed").then(|| worker.to_string())
        });
        proxy.set(Weather::Cut);
        scene.await_worker(far.id(), "suspect", within(INTERVAL));
        proxy.set(Weather::Delay(ONE_WAY));
        scene.await_worker(far.id(), "running", within(INTERVAL));
    }
    let done = scene.await_status(&job, "completed", within(INTERVAL * 6));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert_eq!(done["worker"]["id"], far.id());
    scene.judge();
}

#[test]
fn an_enqueue_whose_reply_was_lost_is_stored_once_and_answered_the_second_time() {
    let scene = Scene::start();
    let proxy = Proxy::to(&scene.server().url());
    let producer = Api::new(&proxy.url());
    let key = [("Idempotency-Key", "order-17"), ("Content-Type", "application/json")];
    let body = json!({"action_ref": "core.noop"});
    let stored = || {
        let page = scene.api().get("/api/v1/executions").expect(200);
        page["data"].as_array().unwrap().iter().map(|job| job["id"].clone()).collect::<Vec<_>>()
    };
    proxy.set(Weather::DropReplies);
    let first = thread::scope(|scope| {
        let asking = scope.spawn(|| producer.try_post_with("/api/v1/executions", &key, &body));
        eventually("it is stored", within(SWEEP), || (!stored().is_empty()).then_some(()));
        proxy.set(Weather::Cut);
        asking.join().unwrap()
    });
    assert!(first.is_err(), "its reply was lost: {first:?}");
    proxy.set(Weather::Clear);
    let again = producer.post_with("/api/v1/executions", &key, &body).expect(201);
    assert_eq!(stored(), [again["data"]["id"].clone()]);
}

#[test]
fn an_end_whose_answer_was_lost_is_told_again_and_counts_once() {
    let scene = Scene::start();
    let (proxy, far) = behind_a_proxy(&scene);
    let job = scene.run(Run::holding(HEARTBEAT));
    scene.await_start(&job, 1, within(LEASE));
    proxy.set(Weather::DropReplies);
    scene.await_status(&job, "completed", within(HEARTBEAT));
    proxy.set(Weather::Cut);
    proxy.set(Weather::Clear);
    let next = scene.run(Run::short());
    scene.await_status(&next, "completed", within(LEASE + RECONNECT));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert!(scene.api().try_worker(far.id()).is_some());
    scene.judge();
}
