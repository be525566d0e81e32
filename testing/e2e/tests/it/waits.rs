//! Waiting for a job's end: by a request, by a stream of its events, by a command.

use std::time::{Duration, Instant};

use outlast_e2e::process::Process;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Run, Scene};
use serde_json::json;

const BOUND: Duration = Duration::from_secs(30);

#[test]
fn a_request_that_waits_is_answered_when_the_job_has_ended() {
    let scene = Scene::start();
    let waiting = scene.run(Run::action("core.noop").with("delay", json!("1h")));
    let begun = Instant::now();
    let seen = scene.api().get(&format!("/api/v1/executions/{waiting}?wait=1")).expect(200);
    assert_eq!(seen["data"]["status"], "requested");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let _worker = scene.worker("one");
    let id = scene.run(Run::action("core.sleep").parameter("duration", json!(1)));
    let begun = Instant::now();
    let seen = scene.api().get(&format!("/api/v1/executions/{id}?wait=20s")).expect(200);
    assert_eq!(seen["data"]["status"], "completed", "{seen}");
    assert!(begun.elapsed() < Duration::from_secs(19), "{:?}", begun.elapsed());
}

#[test]
fn the_stream_of_a_job_ends_when_the_job_has_ended() {
    let scene = Scene::start();
    let id = scene.run(Run::action("core.sleep").parameter("duration", json!(1)));
    let path = format!("/api/v1/executions/{id}/events?stream=true");
    let response = scene.api().stream(&path, "");
    let _worker = scene.worker("one");
    // The end of the body: a stream that goes on would run into the client's time limit.
    let text = response.text().expect("the whole stream");
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    for name in ["job.enqueued", "job.claimed", "job.completed", "execution.completed"] {
        assert!(names.contains(&name), "{text}");
    }
    let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).expect("a cursor");
    assert_eq!(scene.api().stream(&path, last).status(), 204);
}

#[test]
fn a_command_that_waits_rides_through_a_restart_of_the_server() {
    let mut scene = Scene::start();
    let worker = scene.worker("one");
    let id = scene.run(Run::action("core.sleep").parameter("duration", json!(4)));
    scene.await_status(&id, "running", within(LEASE));
    let words = ["jobs", "wait", &id, "--server", &scene.server().url()].map(str::to_owned);
    let mut waiting = Process::start("wait", &words, scene.folder());
    let following = ["events", "--follow", "--job", &id, "--server", &scene.server().url()];
    let mut following = Process::start("follow", &following.map(str::to_owned), scene.folder());
    let _ = following.await_line("job.started", BOUND);
    scene.server_mut().kill();
    let _ = waiting.await_line("waiting for the server", BOUND);
    scene.server_mut().start_again();
    await_ready(scene.api(), BOUND);
    assert_eq!(waiting.await_end(within(LEASE)), Some(0), "{}", waiting.log());
    assert!(waiting.log().contains(&format!("job {id} completed")), "{}", waiting.log());
    assert_eq!(following.await_end(within(LEASE)), Some(0), "{}", following.log());
    assert!(following.log().contains("job.completed"), "{}", following.log());
    drop(worker);
}
