//! F42: servers and workers of two builds side by side on one PostgreSQL, while the newer one migrates it.
//!
//! The older build comes from `OUTLAST_OLD_BINARY`; `.ci/nightly` makes it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use outlast_cluster::Database;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, Worker, WorkerOptions};

/// How long jobs flow between two steps of an upgrade.
const CALM: Duration = Duration::from_secs(1);
/// A producer's pause.
const PACE: Duration = Duration::from_millis(60);

fn old_build() -> PathBuf {
    let path = std::env::var_os("OUTLAST_OLD_BINARY").expect("OUTLAST_OLD_BINARY names a build");
    PathBuf::from(path)
}

/// What is replaced first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Servers,
    Workers,
}

/// Stores jobs through all servers until it is to stop; returns how many.
fn produce(scene: &Scene, servers: &[Api], stop: &AtomicBool) -> usize {
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = format!("upgrade-{made}");
        let headers = [("idempotency-key", key.as_str())];
        let run = || Run::holding(Duration::from_millis(if made % 5 == 0 { 900 } else { 50 }));
        let mut turn = made;
        while scene.try_run_at(&servers[turn % servers.len()], &headers, run()).is_none() {
            turn += 1;
            thread::sleep(PACE);
        }
        made += 1;
        thread::sleep(PACE);
    }
    made
}

/// Ends a worker as a deploy does.
fn drain(mut worker: Worker) {
    worker.terminate();
    assert_eq!(worker.await_end(within(Duration::from_secs(12))), Some(0));
}

fn upgrade(first: First) {
    let (old, database) = (old_build(), Database::new().expect("PostgreSQL"));
    let options = || ServerOptions::default().program(&old);
    let mut scene = Scene::with(options().database(&database.url));
    let mut other = scene.another_server_with("other", options());
    let servers = [scene.api().clone(), Api::new(&other.url())];
    let named = |name: &str, api: &Api| WorkerOptions::named(name).through(api.url());
    let old_workers =
        [0, 1].map(|n| scene.worker_with(&named(&format!("old-{n}"), &servers[n]).program(&old)));
    let new_workers =
        || [0, 1].map(|n| scene.worker_with(&named(&format!("new-{n}"), &servers[n])));
    let stop = AtomicBool::new(false);
    let (made, kept) = thread::scope(|threads| {
        let producer = threads.spawn(|| produce(&scene, &servers, &stop));
        thread::sleep(CALM);
        let mut kept = Vec::new();
        if first == First::Workers {
            kept.extend(new_workers());
            old_workers.into_iter().for_each(drain);
            thread::sleep(CALM);
            replace(&mut other, &servers[1]);
        } else {
            replace(&mut other, &servers[1]);
            thread::sleep(CALM);
            kept.extend(new_workers());
            old_workers.into_iter().for_each(drain);
        }
        thread::sleep(CALM);
        stop.store(true, Ordering::Relaxed);
        (producer.join().expect("a producer"), kept)
    });
    assert!(made > 20, "{made} jobs");
    replace(scene.server_mut(), &servers[0]);
    for worker in &kept {
        scene.await_named_worker(worker.name(), "running", within(LEASE * 3));
    }
    scene.judge();
    let all = scene.api().get("/api/v1/executions?limit=500").expect(200);
    for execution in all["data"].as_array().expect("executions") {
        let id = execution["id"].as_str().expect("an id");
        assert_eq!(scene.api().outcomes(id), ["completed"], "{execution}");
    }
}

/// Stops a server in order, and starts this build in its place.
fn replace(server: &mut outlast_e2e::Server, api: &Api) {
    assert_eq!(server.stop(), Some(0));
    server.start_again_as_this_build();
    await_ready(api, within(Duration::from_secs(10)));
    eventually("it is of this build", within(Duration::from_secs(1)), || {
        api.try_get("/api/v1/packs").ok().filter(outlast_e2e::Reply::is_success).map(drop)
    });
}

#[test]
#[ignore = "needs an older build: .ci/nightly makes one"]
fn servers_are_replaced_before_workers_and_nothing_is_lost_or_run_again() {
    upgrade(First::Servers);
}

#[test]
#[ignore = "needs an older build: .ci/nightly makes one"]
fn workers_are_replaced_before_servers_and_nothing_is_lost_or_run_again() {
    upgrade(First::Workers);
}
