//! F24: an order to all workers of a kind holds for those that start later, and none is lost while
//! its worker is away.

use std::time::Duration;

use outlast_e2e::process::{Finished, run_against};
use outlast_e2e::proxy::{Proxy, Weather};
use outlast_e2e::wait::{HEARTBEAT, LEASE, SWEEP, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

fn workers(url: &str, words: &[&str]) -> Finished {
    let said = run_against(url, &[&["workers"], words].concat());
    assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
    said
}

fn of_pool(name: &str, pool: &str) -> WorkerOptions {
    WorkerOptions::named(name).flag("--pool", pool)
}

fn orders(api: &Api) -> Value {
    api.get("/api/v1/workers/orders").expect(200)["data"].clone()
}

/// A worker that starts under the order, at another server and after a restart of both, waits until
/// the order is lifted at either.
fn order_by_pool_holds(options: &dyn Fn() -> ServerOptions, is_shared: bool) {
    let mut scene = Scene::with(options());
    let other = is_shared.then(|| scene.another_server_with("other", options()));
    let url = other.as_ref().map_or_else(|| scene.server().url(), |other| other.url());
    let there = Api::new(&url);
    let mut first = scene.worker_with(&of_pool("first", "batch"));
    let drained =
        workers(&scene.server().url(), &["drain", "--pool", "batch", "--wait", "--timeout", "60s"]);
    assert!(drained.stderr.contains("workers resume --selector \"pool=batch\""), "{drained:?}");
    assert_eq!(first.await_end(within(LEASE)), Some(0));
    let stands = orders(&there);
    let shown = (&stands[0]["order"], &stands[0]["selector"], &stands[0]["workers"]);
    assert_eq!(shown, (&json!("drain"), &json!("pool=batch"), &json!(0)), "{stands}");

    let second = scene.worker_with(&of_pool("second", "batch").through(&url));
    scene.await_worker(second.id(), "quiet", within(HEARTBEAT));
    let job = scene.run(Run::short().with("requires", json!("pool=batch")));
    eventually("the job says why it waits", within(HEARTBEAT * 2), || {
        let why = scene.api().execution(&job)["waiting_reason"].clone();
        why.as_str().is_some_and(|why| why.contains("quiet")).then_some(())
    });
    scene.server_mut().kill();
    scene.server_mut().start_again();
    let third = scene.worker_with(&of_pool("third", "batch"));
    for worker in [&second, &third] {
        scene.await_worker(worker.id(), "quiet", within(LEASE));
    }
    scene.stays_waiting(&job, HEARTBEAT * 2);

    workers(&url, &["resume", "--pool", "batch"]);
    scene.await_status(&job, "completed", within(LEASE));
    for worker in [&second, &third] {
        scene.await_worker(worker.id(), "running", within(HEARTBEAT));
    }
    let fourth = scene.worker_with(&of_pool("fourth", "batch"));
    scene.await_worker(fourth.id(), "running", within(HEARTBEAT));
    assert_eq!(orders(scene.api()), json!([]));
    scene.judge();
}

#[test]
fn order_by_pool_holds_for_workers_that_start_later() {
    order_by_pool_holds(&ServerOptions::default, false);
}

#[test]
fn order_by_pool_holds_for_workers_that_start_later_at_two_servers() {
    order_by_pool_holds(&|| ServerOptions::default().postgres(), true);
}

/// An order to a worker that was cut off ended with its lease once: it came back, and ran.
#[test]
fn order_to_a_worker_that_lapses_holds_when_it_comes_back() {
    let scene = Scene::start();
    let proxy = Proxy::to(&scene.server().url());
    let away = scene.worker_with(&WorkerOptions::named("away").through(&proxy.url()));
    let lapsed = away.id().to_owned();
    proxy.set(Weather::BlackHole);
    workers(&scene.server().url(), &["quiet", &lapsed]);
    scene.await_worker(&lapsed, "lapsed", within(LEASE + SWEEP));
    proxy.set(Weather::Clear);
    let back = scene.await_named_worker("away", "quiet", within(LEASE * 2));
    assert_ne!(back["id"], json!(lapsed));
    workers(&scene.server().url(), &["resume", "away"]);
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
}

/// It came back quiet once, though no order stood any more.
#[test]
fn worker_that_is_resumed_while_it_is_away_takes_jobs_when_it_is_back() {
    let options = ServerOptions::default().set("worker.reconnect_window", json!(60));
    let scene = Scene::with(options);
    let url = scene.server().url();
    let proxy = Proxy::to(&url);
    let away = scene.worker_with(&of_pool("absentee", "batch").through(&proxy.url()));
    workers(&url, &["quiet", "--pool", "batch"]);
    scene.await_worker(away.id(), "quiet", within(HEARTBEAT));
    eventually("the worker knows", within(HEARTBEAT), || {
        away.health(&[], within(LEASE)).stdout.contains("quiet").then_some(())
    });
    proxy.set(Weather::Cut);
    scene.await_worker(away.id(), "suspect", within(HEARTBEAT));
    workers(&url, &["resume", "--pool", "batch"]);
    proxy.set(Weather::Clear);
    scene.await_worker(away.id(), "running", within(LEASE));
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
}

/// A plain client reads the order in the directive of its heartbeats.
#[test]
fn plain_clients_that_start_later_read_the_order_too() {
    let scene = Scene::start();
    let beat = |name: &str| {
        let said = json!({"worker_id": name, "state": "running", "queues": ["default"]});
        scene.api().post("/ojs/v1/workers/heartbeat", &said).expect(200)["state"].clone()
    };
    assert_eq!(beat("early"), "running");
    workers(&scene.server().url(), &["quiet", "--selector", "!spot"]);
    assert_eq!((beat("early"), beat("late")), (json!("quiet"), json!("quiet")));
    workers(&scene.server().url(), &["resume", "--all", "--yes"]);
    eventually("both run", Duration::from_secs(5), || {
        (beat("early") == "running" && beat("late") == "running").then_some(())
    });
}
