//! Bearer tokens: which clients are admitted, with which role, and how others are refused.

use std::time::Duration;

use outlast_e2e::process::{Finished, run_to_end};
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, Worker, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

const BOUND: Duration = Duration::from_secs(30);
const ADMIN: &str = "an-admin-token-for-tests";
const PRODUCER: &str = "a-producer-token-for-tests";
const WORKER: &str = "a-worker-token-for-tests";
const VIEWER: &str = "a-viewer-token-for-tests";
/// The SHA-256 of `VIEWER`, as `sha256sum` prints it.
const VIEWER_SHA256: &str = "878b617ba67e13f601a72f7289e9ee11817aa041a40d5972b3141f8d108bb39f";

fn options() -> ServerOptions {
    let tokens = json!([
        {"name": "root", "role": "admin", "token": ADMIN},
        {"name": "shop", "role": "producer", "token": PRODUCER},
        {"name": "fleet", "role": "worker", "token": WORKER},
        {"name": "board", "role": "viewer", "sha256": VIEWER_SHA256},
    ]);
    ServerOptions::default().set("server.tokens", tokens)
}

fn as_(scene: &Scene, token: &str) -> Api {
    Api::new(scene.api().url()).with_token(token)
}

fn turned_away(scene: &Scene, flags: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut options = WorkerOptions::named("stranger");
    for (flag, value) in flags {
        options = options.flag(flag, value);
    }
    let packs = scene.folder().join("packs");
    let mut worker =
        Worker::start_unregistered(&options, scene.api().url(), &packs, scene.folder());
    (worker.await_end(BOUND), worker.log())
}

#[test]
fn a_job_goes_its_way_with_a_token_for_each_role() {
    let scene = Scene::with(options().set("worker.token", json!(WORKER))).acting_as(ADMIN);
    let _worker = scene.worker("fleet-1");
    let id = scene.run(Run::short());
    scene.await_status(&id, "completed", within(BOUND));
    let reader = as_(&scene, VIEWER);
    assert_eq!(reader.execution(&id)["status"], "completed");
    let order = json!({"action_ref": "core.noop"});
    let refused = reader.post("/executions", &order);
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("producer, operator or admin"), "{}", refused.text);
    assert_eq!(as_(&scene, PRODUCER).post("/executions", &order).status, 201);
    let events = scene.api().get(&format!("/api/v1/executions/{id}/events")).text;
    assert!(!events.contains(ADMIN), "no token is written down: {events}");
    scene.judge();
}

#[test]
fn without_a_token_only_the_probes_answer() {
    let scene = Scene::with(options());
    for probe in ["/health/live", "/health/ready"] {
        assert_eq!(scene.api().get(probe).status, 200, "{probe}");
    }
    for path in ["/metrics", "/", "/api/v1/workers", "/ojs/v1/queues", "/nonsense"] {
        let reply = scene.api().get(path);
        assert_eq!(reply.status, 401, "{path}: {}", reply.text);
        assert_eq!(reply.headers["www-authenticate"], "Bearer", "{path}");
        assert_eq!(reply.body["error"]["code"], "unauthenticated", "{path}: {}", reply.text);
        let reply = as_(&scene, "not-a-token-that-is-known").get(path);
        assert_eq!(reply.status, 401, "{path}: {}", reply.text);
    }
    assert_eq!(as_(&scene, VIEWER).get("/metrics").status, 200);
}

#[test]
fn a_worker_that_is_not_let_in_says_so_and_ends_with_code_five() {
    let scene = Scene::with(options());
    let (code, log) = turned_away(&scene, &[]);
    assert_eq!(code, Some(5), "{log}");
    assert!(log.contains("requires a bearer token"), "{log}");
    let (code, log) = turned_away(&scene, &[("--token", "a-token-that-is-not-known")]);
    assert_eq!(code, Some(5), "{log}");
    assert!(log.contains("not known"), "{log}");
    let (code, log) = turned_away(&scene, &[("--token", VIEWER)]);
    assert_eq!(code, Some(5), "{log}");
    assert!(log.contains("worker or admin"), "{log}");
}

fn cli(scene: &Scene, arguments: &[&str]) -> Finished {
    let mut all = arguments.to_vec();
    all.extend(["--server", scene.api().url()]);
    run_to_end(&all, BOUND)
}

#[test]
fn the_command_line_ends_with_code_five_and_names_what_is_missing() {
    let scene = Scene::with(options());
    let refused = cli(&scene, &["jobs", "list"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("OUTLAST_TOKEN"), "{}", refused.stderr);
    let refused = cli(&scene, &["run", "core.noop", "--token", VIEWER]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("producer"), "{}", refused.stderr);
    let listed = cli(&scene, &["jobs", "list", "--token", VIEWER]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
}

#[test]
fn a_new_token_opens_the_server_that_is_given_its_hash() {
    let made = run_to_end(&["token", "new", "--role", "viewer", "--name", "a board"], BOUND);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let hash = made.stderr.split("sha256: ").nth(1).and_then(|rest| rest.split('}').next());
    let tokens = json!([{"role": "viewer", "sha256": hash.expect("a hash")}]);
    let scene = Scene::with(ServerOptions::default().set("server.tokens", tokens));
    assert_eq!(as_(&scene, made.stdout.trim()).get("/api/v1/workers").status, 200);
    assert_eq!(scene.api().get("/api/v1/workers").status, 401);
}

/// A server that comes back with other tokens is waited for no longer than the lease: what
/// the worker ran has moved by then.
#[test]
fn a_worker_whose_token_was_taken_away_gives_up_when_its_lease_is_over() {
    let mut scene = Scene::with(options().set("worker.token", json!(WORKER))).acting_as(ADMIN);
    let mut worker = scene.worker("fleet-1");
    let job = scene.run(Run::holding_once(BOUND * 4));
    scene.await_status(&job, "running", within(LEASE));
    let _ = scene.server_mut().stop();
    let config = scene.folder().join("outlast.yaml");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    let changed =
        text.replace(&format!("\"token\": \"{WORKER}\""), "\"token\": \"another-one-for-tests\"");
    assert_ne!(changed, text);
    std::fs::write(&config, changed).expect("writing the configuration");
    scene.server_mut().start_again();
    assert_eq!(worker.await_end(BOUND), Some(5), "{}", worker.log());
    let first = eventually("its attempt is over", within(LEASE), || {
        let attempts = scene.api().attempts(&job);
        attempts.into_iter().next().filter(|attempt| !attempt["outcome"].is_null())
    });
    assert_eq!((&first["outcome"], &first["evidence_code"]), (&json!("lost"), &json!("lease")));
}

// Its worker went on with the old one, and ended for good after a lease.
#[test]
fn a_token_that_is_rotated_while_a_worker_runs_is_read_again_by_it() {
    let scene = Scene::with(options()).acting_as(ADMIN);
    let file = scene.folder().join("worker.token");
    let write = |token: &str| {
        let new = scene.folder().join("worker.token.new");
        std::fs::write(&new, format!("{token}\n")).expect("a token");
        std::fs::rename(&new, &file).expect("the token's place");
    };
    write(WORKER);
    let flags = WorkerOptions::named("fleet-1").flag("--token-file", &file.display().to_string());
    let mut worker = scene.worker_with(&flags);
    let job = scene.run(Run::holding(LEASE * 3));
    scene.await_start(&job, 1, within(LEASE));
    let rotated = "another-worker-token-for-tests";
    let tokens = json!([
        {"name": "root", "role": "admin", "token": ADMIN},
        {"name": "fleet", "role": "worker", "token": rotated},
    ]);
    options().set("server.tokens", tokens).write(&scene.folder().join("outlast.yaml"));
    write(rotated);
    scene.server().process().signal(Signal::HUP);
    eventually("the old token is refused", within(BOUND), || {
        (as_(&scene, WORKER).get("/api/v1/workers").status == 401).then_some(())
    });
    scene.await_status(&job, "completed", within(BOUND));
    let later = scene.run(Run::short());
    let done = scene.await_status(&later, "completed", within(BOUND));
    assert_eq!(done["worker"]["id"], worker.id(), "{done}");
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    worker.terminate();
    assert_eq!(worker.await_end(within(LEASE)), Some(0));
    scene.judge();
}
