//! `Idempotency-Key` over a crash: a producer that never heard the answer asks again.

use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::scene::await_ready;
use outlast_e2e::{Reply, Scene};
use serde_json::json;

const BOUND: Duration = Duration::from_secs(30);

fn send(scene: &Scene, path: &str, key: &str) -> Reply {
    let body = match path {
        "/executions" => json!({"action_ref": "core.noop"}),
        "/ojs/v1/jobs" => json!({"type": "t", "args": []}),
        _ => json!({"jobs": [{"type": "t", "args": [1]}, {"type": "t", "args": [2]}]}),
    };
    scene.api().post_with(path, &[("Idempotency-Key", key)], &body)
}

#[test]
fn a_key_outlives_a_killed_server() {
    let mut scene = Scene::start();
    let paths = ["/executions", "/ojs/v1/jobs", "/ojs/v1/jobs/batch"];
    let first = paths.map(|path| send(&scene, path, path));
    scene.server_mut().kill();
    scene.server_mut().start_again();
    await_ready(scene.api(), BOUND);
    for (path, first) in paths.iter().zip(first) {
        let again = send(&scene, path, path);
        assert_eq!((again.status, first.status), (201, 201), "{}", again.text);
        assert_eq!(again.headers["idempotency-replayed"], "true");
        assert_eq!(again.text, first.text);
    }
    let list = scene.api().get("/api/v1/executions").expect(200);
    assert_eq!(list["pagination"]["total"], 4);
}

#[test]
fn producers_that_race_with_one_key_make_one_job() {
    let scene = Scene::start();
    let replies: Vec<Reply> = std::thread::scope(|threads| {
        let all: Vec<_> =
            (0..16).map(|_| threads.spawn(|| send(&scene, "/executions", "race"))).collect();
        all.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let new = replies.iter().filter(|reply| !reply.headers.contains_key("idempotency-replayed"));
    assert_eq!(new.count(), 1);
    assert!(replies.iter().all(|reply| reply.status == 201 && reply.text == replies[0].text));
    let list = scene.api().get("/api/v1/executions").expect(200);
    assert_eq!(list["pagination"]["total"], 1);
}

/// A key that was used for something else was once answered with how to write parameters.
#[test]
fn a_command_that_reuses_a_key_is_told_about_the_key() {
    let scene = Scene::start();
    let run = |message: &str| {
        let parameter = format!("message={message}");
        let words = ["run", "core.echo", "-p", &parameter, "--idempotency-key", "order-17"];
        run_against(&scene.server().url(), &words)
    };
    assert_eq!(run("one").code, Some(0));
    assert_eq!(run("one").code, Some(0));
    let refused = run("two");
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let said = &refused.stderr;
    assert!(said.contains("--idempotency-key") && !said.contains("name=value"), "{said}");
}
