//! Several servers on one PostgreSQL: whatever door an order comes in by, the worker hears it,
//! and whatever server a worker loses, its work goes on.

use std::time::Duration;

use outlast_cluster::{Cluster, Stop};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Proxy, Run, Scene, Server, ServerOptions, WorkerOptions};
use serde_json::json;

fn scene() -> Scene {
    Scene::with(ServerOptions::default().postgres())
}

fn at(server: &Server) -> Api {
    Api::new(&server.url())
}

#[test]
fn job_that_comes_in_at_one_server_runs_on_a_worker_of_another() {
    let scene = scene();
    let other = scene.another_server("other");
    let options = WorkerOptions::named("far").through(&other.url());
    let _worker = scene.worker_with(&options);
    let jobs: Vec<String> = (0..20).map(|_| scene.run(Run::short())).collect();
    for job in &jobs {
        scene.await_status(job, "completed", within(LEASE));
    }
    scene.judge();
}

#[test]
fn cancel_at_one_server_stops_the_job_on_a_worker_of_another() {
    let scene = scene();
    let other = scene.another_server("other");
    let options = WorkerOptions::named("far").through(&other.url());
    let worker = scene.worker_with(&options);
    let job = scene.run(Run::holding(Duration::from_secs(600)));
    scene.await_start(&job, 1, within(LEASE));
    scene.cancel(&job);
    scene.await_status(&job, "cancelled", within(LEASE));
    // The process tree was ended, and the worker said so.
    eventually("the worker holds nothing", within(LEASE), || {
        (at(&other).try_worker(worker.id())?["in_flight"] == 0).then_some(())
    });
    scene.judge();
}

#[test]
fn orders_at_one_server_reach_a_worker_of_another() {
    let scene = scene();
    let other = scene.another_server("other");
    let options = WorkerOptions::named("far").through(&other.url());
    let worker = scene.worker_with(&options);
    for (order, state, stage) in [("quiet", "quiet", "Quiet"), ("resume", "running", "Running")] {
        let path = format!("/api/v1/workers/{}/{order}", worker.id());
        let _worker = scene.api().post(&path, &json!({})).expect(200);
        scene.await_worker(worker.id(), state, within(LEASE));
        eventually("the worker has heard it", within(LEASE), || {
            let log = worker.log();
            let last = log.lines().rfind(|line| line.contains("worker changes its phase"))?;
            last.contains(&format!("to={stage}")).then_some(())
        });
    }
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

/// Behind a load balancer, a worker is led to whichever server is there.
#[test]
fn worker_of_a_server_that_dies_goes_on_at_another_with_what_it_runs() {
    let mut scene = scene();
    let other = scene.another_server("other");
    let balancer = Proxy::to(&scene.server().url());
    let options = WorkerOptions::named("wandering").through(&balancer.url());
    let worker = scene.worker_with(&options);
    let job = scene.run(Run::holding(Duration::from_secs(4)));
    scene.await_start(&job, 1, within(LEASE));
    balancer.lead_to(&other.url());
    scene.server_mut().kill();
    let there = at(&other);
    eventually("the job has ended", within(LEASE * 6), || {
        (there.try_execution(&job)?["status"] == "completed").then_some(())
    });
    assert_eq!(there.outcomes(&job), ["completed"]);
    assert_eq!(there.execution(&job)["worker"]["id"], worker.id());
    scene.server_mut().start_again();
    scene.judge();
}

/// F15: PostgreSQL goes away in every way it can, for longer than a lease.
#[test]
fn postgresql_that_goes_away_and_returns_costs_no_job_and_no_attempt() {
    let mut cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let scene = Scene::with(ServerOptions::default().database(&database));
    let _worker = scene.worker("patient");
    for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        let job = scene.run(Run::holding(Duration::from_secs(2)));
        scene.await_start(&job, 1, within(LEASE));
        cluster.stop(how).expect("stopping PostgreSQL");
        eventually("the server is not ready", within(LEASE), || {
            (scene.api().get("/health/ready").status == 503).then_some(())
        });
        let refused = scene.api().post("/executions", &json!({ "action_ref": "core.noop" }));
        assert_eq!(refused.status, 503, "{refused:?}");
        // The outage is what is tested; nothing is awaited here.
        std::thread::sleep(LEASE * 2);
        cluster.start_again().expect("starting PostgreSQL");
        await_ready(scene.api(), within(LEASE * 5));
        scene.await_status(&job, "completed", within(LEASE * 6));
        assert_eq!(scene.api().outcomes(&job), ["completed"], "after {how:?}");
    }
    scene.judge();
}
