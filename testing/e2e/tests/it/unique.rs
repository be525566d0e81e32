//! Unique jobs under many producers, on several servers, over a crash, and beside a program that
//! keeps a transaction open.

use std::time::{Duration, Instant};

use outlast_cluster::Session;
use outlast_e2e::process::run_to_end;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Api, Reply, Run, Scene, ServerOptions};
use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(30);
const PRODUCERS: usize = 50;

fn job(key: &str, on_conflict: &str) -> Value {
    let unique = json!({"keys": ["args"], "on_conflict": on_conflict});
    json!({"type": "t", "args": [key], "options": {"unique": unique}})
}

/// Sends a job until the server says what becomes of it: on a slow machine it may take a server more
/// than a tenth of a second to get at a job that the other one replaces.
fn send(api: &Api, body: &Value) -> Reply {
    let end = Instant::now() + BOUND;
    loop {
        let reply = api.post("/ojs/v1/jobs", body);
        if reply.status != 503 || Instant::now() >= end {
            return reply;
        }
        assert_eq!(reply.headers["retry-after"], "1");
    }
}

/// Sends one job from each of many producers, to the servers in turn.
fn race(servers: &[&Api], body: &Value) -> Vec<Reply> {
    std::thread::scope(|threads| {
        let send = |n: usize| send(servers[n % servers.len()], body);
        let all: Vec<_> = (0..PRODUCERS).map(|n| threads.spawn(move || send(n))).collect();
        all.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

fn count(replies: &[Reply], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status == status).count()
}

fn available(api: &Api) -> Value {
    api.get("/ojs/v1/queues/default/stats").expect(200)["queue"]["available"].clone()
}

/// Brings a job of a key into a state and returns its id.
fn in_state(api: &Api, key: &str, state: &str) -> String {
    let mut body = job(key, "reject");
    match state {
        "scheduled" => body["options"]["delay_until"] = json!("+PT1H"),
        "pending" => body["options"]["pending"] = json!(true),
        "retryable" => body["options"]["retry"] = json!({"initial_interval_ms": 600_000}),
        "discarded" => body["options"]["retry"] = json!({"max_attempts": 1}),
        _ => {}
    }
    let queue = key.replace(' ', ".");
    body["options"]["queue"] = json!(queue);
    let id = api.post("/ojs/v1/jobs", &body).expect(201)["job"]["id"].as_str().unwrap().to_owned();
    if ["active", "completed", "retryable", "discarded"].contains(&state) {
        let held = api.ojs_fetch(&queue, "w", 1);
        assert_eq!(held[0]["id"], id.as_str());
    }
    let word = json!({"job_id": id, "error": {"code": "x", "message": "x"}, "result": 1});
    match state {
        "completed" => drop(api.post("/ojs/v1/workers/ack", &word).expect(200)),
        "retryable" | "discarded" => drop(api.post("/ojs/v1/workers/nack", &word).expect(200)),
        "cancelled" => drop(api.cancel(&id)),
        _ => {}
    }
    assert_eq!(api.ojs_job(&id)["state"], state);
    id
}

fn every_policy_in_every_state(scene: &Scene, servers: &[&Api]) {
    let states = [
        "scheduled",
        "available",
        "pending",
        "active",
        "completed",
        "retryable",
        "cancelled",
        "discarded",
    ];
    for policy in ["reject", "ignore", "replace", "replace_except_schedule"] {
        for state in states {
            let key = format!("{policy} {state}");
            let old = in_state(scene.api(), &key, state);
            let mut body = job(&key, policy);
            // The new ones count too: all but the first meet a job that is available.
            body["options"]["unique"]["states"] = json!([state, "available", "scheduled"]);
            body["options"]["queue"] = json!("new");
            let replies = race(servers, &body);
            let (new, ignored, refused) =
                (count(&replies, 201), count(&replies, 200), count(&replies, 409));
            let expected = match policy {
                "reject" => (0, 0, PRODUCERS),
                "ignore" => (0, PRODUCERS, 0),
                _ => (PRODUCERS, 0, 0),
            };
            assert_eq!((new, ignored, refused), expected, "{key}");
            let ended = ["completed", "cancelled", "discarded"].contains(&state);
            let now = scene.api().ojs_job(&old)["state"].clone();
            let replaced = policy.starts_with("replace") && !ended;
            assert_eq!(now, if replaced { "cancelled" } else { state }, "{key}");
        }
    }
    // Of each race of replacements one is left.
    let stats = scene.api().get("/ojs/v1/queues/new/stats").expect(200)["queue"].clone();
    let left = stats["available"].as_u64().unwrap() + stats["scheduled"].as_u64().unwrap();
    assert_eq!(left, 16, "{stats}");
}

#[test]
fn every_policy_meets_every_state_under_fifty_producers_on_sqlite() {
    let scene = Scene::start();
    every_policy_in_every_state(&scene, &[scene.api()]);
}

#[test]
fn every_policy_meets_every_state_under_fifty_producers_at_two_servers() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let there = Api::new(&other.url());
    every_policy_in_every_state(&scene, &[scene.api(), &there]);
}

#[test]
fn of_fifty_producers_at_two_servers_one_has_its_job() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let there = Api::new(&other.url());
    for (n, policy) in ["reject", "ignore", "replace", "replace_except_schedule"].iter().enumerate()
    {
        let replies = race(&[scene.api(), &there], &job(policy, policy));
        let expected = if n < 2 { 1 } else { PRODUCERS };
        assert_eq!(count(&replies, 201), expected, "{policy}");
        assert_eq!(available(scene.api()), n + 1, "{policy}");
    }
}

#[test]
fn a_unique_key_outlives_a_killed_server_and_goes_with_its_job() {
    let mut scene = Scene::start();
    let first = scene.api().post("/ojs/v1/jobs", &job("k", "reject")).expect(201);
    scene.server_mut().kill();
    scene.server_mut().start_again();
    await_ready(scene.api(), BOUND);
    let again = scene.api().post("/ojs/v1/jobs", &job("k", "ignore")).expect(200);
    assert_eq!(again["job"]["id"], first["job"]["id"]);
    let _cancelled = scene.api().cancel(first["job"]["id"].as_str().unwrap());
    let _stored = scene.api().post("/ojs/v1/jobs", &job("k", "reject")).expect(201);
}

#[test]
fn a_running_job_that_is_replaced_is_stopped() {
    let scene = Scene::start();
    let _worker = scene.worker("w");
    let unique = json!({"keys": ["args"], "args_keys": ["ledger"], "on_conflict": "replace"});
    let first = scene.run(Run::holding(Duration::from_secs(600)).with("unique", unique.clone()));
    scene.await_start(&first, 1, within(LEASE));
    let second = scene.run(Run::short().with("unique", unique));
    scene.await_status(&first, "cancelled", within(LEASE));
    scene.await_status(&second, "completed", within(LEASE));
    assert_eq!(scene.api().outcomes(&first), ["cancelled"]);
}

/// A session that holds rows by hand delays only the requests that need them.
#[test]
fn an_open_transaction_delays_no_other_enqueue() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let api = scene.api();
    let _stored = api.post("/ojs/v1/jobs", &job("k", "reject")).expect(201);
    let program = Session::open(scene.server().database()).unwrap();
    let open = "begin; select 1 from outlast.ready for update; \
                select outlast.enqueue('t', '[\"other\"]')";
    program.run(open).unwrap();
    let plain = json!({"type": "t", "args": []});
    let (refused, slowest) = std::thread::scope(|threads| {
        let replacing = threads.spawn(|| api.post("/ojs/v1/jobs", &job("k", "replace")));
        let mut slowest = Duration::ZERO;
        for _ in 0..100 {
            let begun = Instant::now();
            let _stored = api.post("/ojs/v1/jobs", &plain).expect(201);
            slowest = slowest.max(begun.elapsed());
        }
        (replacing.join().expect("an answer"), slowest)
    });
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.headers["retry-after"], "1");
    println!("the slowest of 100 other enqueues took {slowest:?}");
    // What a program stores by SQL takes no key.
    let _stored = api.post("/ojs/v1/jobs", &job("other", "reject")).expect(201);
    program.run("rollback").unwrap();
    let _stored = api.post("/ojs/v1/jobs", &job("k", "replace")).expect(201);
}

#[test]
fn the_command_line_says_that_a_job_was_there_before() {
    let scene = Scene::start();
    let url = scene.server().url();
    let run = |policy: &str| {
        let words = ["run", "core.echo", "-p", "message=hi", "--delay", "1h", "--unique", policy];
        run_to_end(&[&words[..], &["--server", &url]].concat(), BOUND)
    };
    assert_eq!(run("keys=args").code, Some(0));
    let found = run("keys=args,on_conflict=ignore");
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("was there before"), "{}", found.stderr);
    let refused = run("args_keys=message");
    assert_eq!(refused.code, Some(0), "another part is another key: {}", refused.stderr);
    let slip = run("keys=argz");
    assert!(slip.stderr.contains("--unique"), "{}", slip.stderr);
}
