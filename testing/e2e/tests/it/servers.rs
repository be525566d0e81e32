//! Several servers on one PostgreSQL: whatever door an order comes in by, the worker hears it,
//! and whatever server a worker loses, its work goes on.

use std::time::Duration;

use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, Server, ServerOptions, WorkerOptions};
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
