//! Dispatch across servers: no job waits because of where it was enqueued, which server it reached,
//! what another session locks, or whether servers hear each other.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_cluster::Session;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, Server, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

use crate::limits::{LONG, await_all, limits};

/// Each slot is freed at one server while jobs that want it are enqueued at the other, for workers
/// that are attached there. Without signals, a server looks at the store.
#[test]
fn freed_slot_reaches_the_jobs_of_another_server_that_hears_nothing() {
    // A job that lapses starts again while its lost attempt may still run.
    let slow = || ServerOptions::default().set("worker.heartbeat_interval", json!(1));
    let scene = Scene::with(slow().postgres());
    let beside = Session::open(scene.server().database()).expect("a session");
    beside
        .run(
            "create table public.unheard (said text);
             alter function pg_catalog.pg_notify(text, text) rename to pg_notify_once;
             create function pg_catalog.pg_notify(text, text) returns void
             language sql as 'insert into public.unheard values ($2)'",
        )
        .expect("a deaf database");
    let other = scene.another_server_with("other", slow());
    let there = Api::new(&other.url());
    limits(&scene, &["set", "one", "--type", "ledger.run", "--concurrency", "1"]);
    let _near = scene.worker_with(&WorkerOptions::named("near").flag("--labels", "zone=a"));
    let far = WorkerOptions::named("far").flag("--labels", "zone=b").through(&other.url());
    let _far = scene.worker_with(&far);
    let jobs: Vec<String> = (0..12)
        .map(|n| {
            let (api, zone) = if n % 2 == 0 { (scene.api(), "zone=b") } else { (&there, "zone=a") };
            let run = Run::holding(Duration::from_millis(100)).with("requires", json!(zone));
            scene.try_run_at(api, &[], run).expect("an answer")
        })
        .collect();
    await_all(&scene, &jobs);
    assert_eq!(scene.ledger().most_at_a_time(|_| true), 1);
    let workers: BTreeSet<String> = jobs.iter().map(|job| scene.worker_of(job)).collect();
    assert_eq!(workers.len(), 2, "{workers:?}");
    assert!(beside.number("select count(*) from public.unheard").expect("a count") > 0);
    scene.judge();
}

/// Waits until as many jobs run as there are slots.
fn await_full(scene: &Scene, slots: u64) {
    eventually("every slot is taken", LONG, || {
        let running = scene.api().get("/api/v1/executions?status=running&limit=100").expect(200);
        (running["data"].as_array()?.len() as u64 >= slots).then_some(())
    });
}

/// Jobs that were stored before the servers started, and at another server than their worker's.
#[test]
fn backlog_fills_every_slot_of_every_server_after_a_restart() {
    const SLOTS: u32 = 4;
    let mut scene = Scene::with(ServerOptions::default().postgres());
    let mut other: Server = scene.another_server("other");
    // All are enqueued at one server, in several queues, before there is a worker.
    let jobs: Vec<String> = (0..32)
        .map(|n| {
            let queue = json!(format!("q{}", n % 5));
            scene.run(Run::holding(Duration::from_secs(2)).with("queue", queue))
        })
        .collect();
    scene.server_mut().kill();
    other.kill();
    scene.server_mut().start_again();
    other.start_again();
    await_ready(scene.api(), within(LEASE));
    await_ready(&Api::new(&other.url()), within(LEASE));
    let named = |name: &str| {
        WorkerOptions::named(name).concurrency(SLOTS).flag("--queues", "q0,q1,q2,q3,q4")
    };
    let _near = scene.worker_with(&named("near"));
    let _far = scene.worker_with(&named("far").through(&other.url()));
    await_full(&scene, u64::from(SLOTS) * 2);
    await_all(&scene, &jobs);
    scene.judge();
}

/// The row of a limit that somebody's psql holds stops the starts that the limit counts, at every
/// server, and nothing else: not their ends, not what is enqueued, not other jobs.
#[test]
fn limit_that_another_session_holds_stops_only_the_starts_that_it_counts() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let there = Api::new(&other.url());
    limits(&scene, &["set", "tenant", "--key", "tenant", "--concurrency", "2"]);
    let _near = scene.worker("near");
    let _far = scene.worker_with(&WorkerOptions::named("far").through(&other.url()));
    let of = |tenant: &str, run: Run| run.with("keys", json!({ "tenant": tenant }));
    let first = scene.run(of("a", Run::holding(Duration::from_secs(5))));
    scene.await_start(&first, 1, within(LEASE));

    let holder = Session::open(scene.server().database()).expect("a session");
    holder.run("begin; select * from outlast.gate where value = 'a' for update").expect("a lock");
    let status = scene.api().execution(&first)["status"].clone();
    assert_ne!(status, "completed", "it ends under the lock");
    let held = [scene.api(), &there]
        .map(|api| scene.try_run_at(api, &[], of("a", Run::short())).expect("an answer"));
    let free: Vec<String> = [scene.api(), &there]
        .into_iter()
        .flat_map(|api| [(api, Run::short()), (api, of("b", Run::short()))])
        .map(|(api, run)| scene.try_run_at(api, &[], run).expect("an answer"))
        .collect();
    await_all(&scene, &free);
    await_all(&scene, &[first]);
    for api in [scene.api(), &there] {
        assert_eq!(api.get("/health/ready").status, 200);
        for job in &held {
            let waits: Value = api.execution(job);
            assert_eq!(waits["epoch"], 0, "{waits}");
        }
    }
    drop(holder);
    await_all(&scene, &held);
    scene.judge();
}
