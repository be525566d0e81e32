//! Several servers on one PostgreSQL: whatever door an order comes in by, the worker hears it,
//! and whatever server a worker loses, its work goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outlast_cluster::{Cluster, Stop};
use outlast_e2e::process::run_against;
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
    for (order, state, stage) in [("quiet", "quiet", "quiet"), ("resume", "running", "running")] {
        let path = format!("/api/v1/workers/{}/{order}", worker.id());
        let _worker = scene.api().post(&path, &json!({})).expect(200);
        scene.await_worker(worker.id(), state, within(LEASE));
        eventually("the worker has heard it", within(LEASE), || {
            let log = worker.log();
            let last = log.lines().rfind(|line| line.contains("worker phase changed"))?;
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

/// Without a balancer: the worker knows several servers, and moves on from one that is away.
#[test]
fn worker_that_knows_two_servers_goes_on_at_the_other_one() {
    let mut scene = scene();
    let mut other = scene.another_server("other");
    let both = format!("{},{}", scene.server().url(), other.url());
    let worker = scene.worker_with(&WorkerOptions::named("wandering").through(&both));
    let job = scene.run(Run::holding(Duration::from_secs(6)));
    scene.await_start(&job, 1, within(LEASE));
    // Whichever it works for, it loses that one now or then.
    scene.server_mut().kill();
    let asked = run_against(&both, &["workers", "list"]);
    assert!(asked.stdout.contains("wandering"), "{} {}", asked.stdout, asked.stderr);
    let there = at(&other);
    eventually("it is known to live", within(LEASE), || {
        (there.try_worker(worker.id())?["state"] == "running").then_some(())
    });
    scene.server_mut().start_again();
    await_ready(scene.api(), within(LEASE));
    other.kill();
    eventually("the job has ended", within(LEASE * 6), || {
        (scene.api().try_execution(&job)?["status"] == "completed").then_some(())
    });
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert_eq!(scene.api().execution(&job)["worker"]["id"], worker.id());
    let next = scene.run(Run::short());
    scene.await_status(&next, "completed", within(LEASE));
    scene.judge();
}

/// A server once failed what another server's only worker was busy working through. Both are
/// restarted meanwhile, one after the other.
#[test]
fn a_queue_behind_a_busy_worker_of_another_server_is_no_reason_to_fail() {
    let mut scene = scene();
    let mut other = scene.another_server("other");
    let balancer = Proxy::to(&other.url());
    let options = WorkerOptions::named("busy").concurrency(1).through(&balancer.url());
    let worker = scene.worker_with(&options);
    let first = scene.run(Run::holding(Duration::from_secs(6)));
    scene.await_start(&first, 1, within(LEASE));
    let second = scene.run(Run::short().with("scheduled_timeout", json!(1)));
    for api in [scene.api(), &at(&other)] {
        eventually("both servers give the same reason", within(LEASE), || {
            (api.execution(&second)["waiting_reason"] == "waits for its turn").then_some(())
        });
    }
    balancer.lead_to(&scene.server().url());
    assert_eq!(other.stop(), Some(0));
    scene.await_worker(worker.id(), "running", within(LEASE));
    other.start_again();
    balancer.lead_to(&other.url());
    assert_eq!(scene.server_mut().stop(), Some(0));
    scene.server_mut().start_again();
    scene.await_status(&second, "completed", within(Duration::from_secs(6) + LEASE));
    assert_eq!(scene.api().outcomes(&first), ["completed"]);
    // A type that no worker has is another matter, whichever server is asked.
    let nowhere = Run::short().with("scheduled_timeout", json!(1)).with("queue", json!("nowhere"));
    let nowhere = scene.run(nowhere);
    for api in [scene.api(), &at(&other)] {
        eventually("both servers name the lack", within(LEASE), || {
            let shown = api.execution(&nowhere);
            let reason = "no eligible worker: 1 not serving queue nowhere";
            (shown["waiting_reason"] == reason || shown["status"] == "failed").then_some(())
        });
    }
    scene.await_status(&nowhere, "failed", within(LEASE * 2));
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

/// How long servers and workers are killed at random.
const STORM: Duration = Duration::from_secs(60);
/// A producer's pause: what two cores run beside all the rest.
const PACE: Duration = Duration::from_millis(160);

/// Producers repeat with the same key until some server has answered, as an SDK does.
fn produce(scene: &Scene, servers: &[Api], over: &AtomicBool) -> usize {
    let mut made = 0;
    while !over.load(Ordering::Relaxed) {
        let key = format!("storm-{:?}-{made}", std::thread::current().id());
        let mut turn = made;
        let run = || Run::holding(Duration::from_millis(if made % 10 == 0 { 1500 } else { 50 }));
        loop {
            let server = &servers[turn % servers.len()];
            let headers = [("idempotency-key", key.as_str())];
            if scene.try_run_at(server, &headers, run()).is_some() {
                break;
            }
            turn += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        made += 1;
        std::thread::sleep(PACE);
    }
    made
}

/// The scene's own server only looks on: it is asked at the end.
#[test]
fn three_servers_and_six_workers_killed_at_random_lose_nothing_and_double_nothing() {
    let scene = scene();
    let mut servers = ["first", "second", "third"].map(|name| scene.another_server(name));
    let apis = [at(&servers[0]), at(&servers[1]), at(&servers[2])];
    let balancers: Vec<Proxy> = (0..6).map(|n| Proxy::to(apis[n % 3].url())).collect();
    let start = |n: usize, life: usize| {
        let name = format!("w{n}-{life}");
        scene.worker_with(&WorkerOptions::named(&name).through(&balancers[n].url()))
    };
    let mut workers: Vec<_> = (0..6).map(|n| start(n, 0)).collect();
    let over = AtomicBool::new(false);
    let end = Instant::now() + STORM;
    let mut dice = Dice(1);
    let made: usize = std::thread::scope(|threads| {
        let producers: Vec<_> =
            (0..2).map(|_| threads.spawn(|| produce(&scene, &apis, &over))).collect();
        for life in 1.. {
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_millis(1500));
            if dice.roll(2) == 0 {
                let down = dice.roll(3);
                for (n, balancer) in balancers.iter().enumerate() {
                    balancer.lead_to(apis[(down + 1 + n % 2) % 3].url());
                }
                servers[down].kill();
                std::thread::sleep(Duration::from_millis(300));
                servers[down].start_again();
            } else {
                let n = dice.roll(6);
                workers[n].kill_whole();
                workers[n] = start(n, life);
            }
        }
        over.store(true, Ordering::Relaxed);
        producers.into_iter().map(|it| it.join().expect("a producer")).sum()
    });
    assert!(made > 100, "{made} jobs came in");
    scene.judge();
}

/// A fixed sequence: what fails can be repeated (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }
}

/// Twice the retention of the test, and the 5 s that the leader's lease outlasts two intervals by.
const DUTY_LEASE: Duration = Duration::from_secs(6);

/// What only one server does is done by another when that one is killed.
#[test]
fn what_is_old_is_deleted_though_the_server_that_did_so_is_killed() {
    let brief = |options: ServerOptions| options.set("retention.finished", json!("500ms"));
    let mut scene = Scene::with(brief(ServerOptions::default().postgres()));
    let ended = |api: &Api| {
        let job = api.ojs_enqueue("default", &json!({}));
        let _cancelled = api.delete(&format!("/ojs/v1/jobs/{job}")).expect(200);
        job
    };
    let await_gone = |api: &Api, job: &str| {
        eventually("the job is deleted", within(DUTY_LEASE), || {
            (api.get(&format!("/ojs/v1/jobs/{job}")).status == 404).then_some(())
        });
    };
    let job = ended(scene.api());
    await_gone(scene.api(), &job);
    let other = scene.another_server_with("other", brief(ServerOptions::default()));
    scene.server_mut().kill();
    let job = ended(&at(&other));
    await_gone(&at(&other), &job);
}
