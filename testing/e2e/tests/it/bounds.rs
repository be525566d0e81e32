//! Bounded queues under many producers, on one server and on several, with a worker that makes room.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Api, Reply, Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

const PRODUCERS: usize = 50;
const EACH: usize = 6;
const BOUND: u64 = 40;

fn set(scene: &Scene, max: &str) -> Value {
    let words = ["queues", "set", "default", "--max-depth", max, "-o", "json"];
    let said = run_against(&scene.server().url(), &words);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    serde_json::from_str(&said.stdout).expect("JSON")
}

fn depth(api: &Api) -> u64 {
    api.get("/api/v1/queues/default").expect(200)["data"]["depth"].as_u64().expect("a number")
}

/// Sends jobs from many producers, to the servers in turn and by different doors.
fn send(servers: &[&Api]) -> Vec<Reply> {
    let job = json!({"type": "t", "args": []});
    let batch = json!({"jobs": [job, job, job]});
    let echo = json!({"action_ref": "core.noop"});
    let send = |n: usize| {
        let api = servers[n % servers.len()];
        let one = |nth: usize| match (n + nth) % 4 {
            0 => api.post("/ojs/v1/jobs/batch", &batch),
            1 => api.post("/api/v1/executions", &echo),
            _ => api.post("/ojs/v1/jobs", &job),
        };
        (0..EACH).map(one).collect::<Vec<_>>()
    };
    std::thread::scope(|threads| {
        let all: Vec<_> = (0..PRODUCERS).map(|n| threads.spawn(move || send(n))).collect();
        all.into_iter().flat_map(|thread| thread.join().expect("answers")).collect()
    })
}

/// How many jobs an answer says were stored; none of a refusal that is as it must be.
fn stored(reply: &Reply) -> u64 {
    if reply.status == 429 {
        let error = &reply.body["error"];
        assert_eq!(error["code"], "QUEUE_FULL");
        assert_eq!(error["details"]["max_depth"], BOUND);
        assert_eq!(reply.headers["retry-after"], "1");
        assert_eq!(reply.headers["x-ojs-queue-bound"], BOUND.to_string());
        return 0;
    }
    let body = reply.clone().expect(201);
    body["jobs"].as_array().map_or(1, |jobs| jobs.len().try_into().expect("a number"))
}

fn nothing_exceeds_the_bound(scene: &Scene, servers: &[&Api]) {
    set(scene, &BOUND.to_string());
    let replies = send(servers);
    let refused = replies.iter().filter(|reply| reply.status == 429).count();
    let accepted = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(accepted + refused, PRODUCERS * EACH, "each is answered one way or the other");
    assert!(refused > 0);
    assert_eq!(replies.iter().map(stored).sum::<u64>(), BOUND, "filled up, and not further");
    assert_eq!(depth(servers[0]), BOUND);
    // No single job was refused while there was room.
    let single = replies.iter().filter(|reply| reply.status == 429);
    for error in single.map(|reply| reply.body["error"].clone()) {
        let is_batch = error["message"].as_str().is_some_and(|said| said.contains("for 3 more"));
        assert!(is_batch || error["details"]["depth"] == BOUND, "{error}");
    }
    // Now jobs are taken and come back meanwhile.
    let stop = AtomicBool::new(false);
    let job = json!({"type": "t", "args": []});
    std::thread::scope(|threads| {
        let consumer = threads.spawn(|| {
            let mut taken = 0;
            while !stop.load(Ordering::Relaxed) {
                for held in servers[taken % servers.len()].ojs_fetch("default", "w", 3) {
                    let report = json!({"job_id": held["id"], "result": 1});
                    let _acked = servers[0].post("/ojs/v1/workers/ack", &report).expect(200);
                    taken += 1;
                }
            }
            taken
        });
        let watcher = threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for api in servers {
                    let depth = depth(api);
                    assert!(depth <= BOUND, "{depth} jobs wait");
                }
            }
        });
        let replies = send(servers);
        stop.store(true, Ordering::Relaxed);
        watcher.join().expect("never too many");
        let taken = u64::try_from(consumer.join().expect("a count")).expect("a count");
        let more: u64 = replies.iter().map(stored).sum();
        assert_eq!(depth(servers[0]), BOUND + more - taken, "each is somewhere");
    });
    // Lowered below what waits, nothing is lost; removed, everything is taken.
    let before = depth(servers[0]);
    set(scene, "1");
    for api in servers {
        assert_eq!(api.post("/ojs/v1/jobs", &job).status, 429);
    }
    assert_eq!(depth(servers[0]), before);
    assert_eq!(set(scene, "none")["max_depth"], Value::Null);
    for api in servers {
        let _stored = api.post("/ojs/v1/jobs", &job).expect(201);
    }
}

#[test]
fn many_producers_never_exceed_a_bound_in_an_embedded_store() {
    let scene = Scene::start();
    nothing_exceeds_the_bound(&scene, &[scene.api()]);
}

#[test]
fn many_producers_at_two_servers_never_exceed_a_bound() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let other = Api::new(&other.url());
    await_ready(&other, within(LEASE));
    nothing_exceeds_the_bound(&scene, &[scene.api(), &other]);
}

#[test]
fn command_line_says_plainly_that_a_queue_is_full() {
    let scene = Scene::start();
    let url = scene.server().url();
    set(&scene, "1");
    let first = run_against(&url, &["run", "core.noop"]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let refused = run_against(&url, &["run", "core.noop"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let said = "error: queue default is full: 1 job waits in it, at most 1 may\nhint: ";
    assert!(refused.stderr.starts_with(said), "{}", refused.stderr);
    let shown = run_against(&url, &["queues", "show", "default"]).stdout;
    assert!(shown.contains("max depth  1\n"), "{shown}");
    let listed = run_against(&url, &["queues", "list"]).stdout;
    assert!(listed.contains("max 1"), "{listed}");
    // Wrong bounds are refused with what would be right.
    for wrong in ["0", "1000000001", "many"] {
        let said = run_against(&url, &["queues", "set", "default", "--max-depth", wrong]);
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        assert!(said.stderr.contains("from 1 to 1000000000; or `none`"), "{}", said.stderr);
    }
}

#[test]
fn jobs_of_a_dead_worker_come_back_to_a_full_queue() {
    let scene = Scene::start();
    set(&scene, "1");
    let mut worker = scene.worker_with(&WorkerOptions::named("one").concurrency(1));
    let first = scene.run(Run::holding(Duration::from_secs(2)));
    scene.await_start(&first, 1, within(LEASE));
    let second = scene.run(Run::short());
    worker.kill_whole();
    scene.await_status(&first, "requested", within(LEASE));
    let job = json!({"action_ref": "core.noop"});
    let refused = scene.api().post("/api/v1/executions", &job);
    assert_eq!((refused.status, &refused.body["error"]["details"]["depth"]), (429, &json!(2)));
    let _other = scene.worker_with(&WorkerOptions::named("other").concurrency(1));
    for job in [&first, &second] {
        scene.await_status(job, "completed", within(Duration::from_secs(20)));
    }
    let _stored = scene.api().post("/api/v1/executions", &job).expect(201);
}
