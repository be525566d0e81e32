//! F30: a server is paused for longer than its lease on a duty, and then goes on as if nothing had
//! been.

use std::time::Duration;

use outlast_e2e::wait::{LEASE, eventually, stays, within};
use outlast_e2e::{Api, Run, Scene, Server, ServerOptions, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

use crate::letter_handlers::{dead_letter, handlers};

/// How long a server leads in the handling of dead letters, and some.
const DUTY: Duration = Duration::from_secs(15);

fn leads(server: &Server) -> usize {
    let log = server.process().log();
    let of_task =
        |line: &&str| line.contains("this server is the leader") && line.contains("dead_letters");
    log.lines().filter(of_task).count()
}

/// The job of a worker at another server runs all the while.
#[test]
fn server_that_was_paused_in_its_duty_gives_way_and_does_nothing_twice() {
    let options =
        || ServerOptions::default().set("server.dead_letters", json!([{"action": "core.noop"}]));
    let scene = Scene::with(options().postgres());
    let second = scene.another_server_with("second", options());
    let servers = [scene.server(), &second];
    let leader =
        eventually("one leads", within(DUTY), || servers.iter().position(|it| leads(it) > 0));
    let (paused, other) = (servers[leader], servers[1 - leader]);
    let api = Api::new(&other.url());
    let worker = scene.worker_with(&WorkerOptions::named("far").through(&other.url()));
    let job = scene.try_run_at(&api, &[], Run::holding(DUTY * 2)).expect("a job");
    eventually("it runs", within(LEASE), || {
        (api.execution(&job)["status"] == "running").then_some(())
    });
    let mut letters = 0;
    let mut die = |count: usize| {
        (0..count).for_each(|_| drop(dead_letter(&api, "mail")));
        letters += count;
        letters
    };
    let handled = |count: usize| {
        eventually("all are handled", within(DUTY * 2), || {
            (handlers(&api).len() == count).then_some(())
        });
    };

    die(3);
    paused.process().signal(Signal::STOP);
    let all = die(3);
    handled(all);
    assert_eq!(leads(other), 1, "{}", other.process().log());
    paused.process().signal(Signal::CONT);
    eventually("it gives way", within(DUTY), || {
        let log = paused.process().log();
        log.lines()
            .any(|it| it.contains("another server has become") && it.contains("dead_letters"))
            .then_some(())
    });
    let all = die(3);
    handled(all);
    let executions = || {
        let path = "/api/v1/executions?action_ref=core.noop";
        api.get(path).expect(200)["data"].as_array().map(Vec::len)
    };
    eventually("each starts its action", within(DUTY), || {
        (executions() == Some(all)).then_some(())
    });
    stays("nothing is done twice", Duration::from_secs(3), || {
        let counts = (handlers(&api).len(), executions());
        (counts != (all, Some(all))).then(|| format!("{counts:?}"))
    });
    assert_eq!(leads(paused), 1, "{}", paused.process().log());

    let done = scene.await_status(&job, "completed", within(DUTY * 2));
    assert_eq!((&done["epoch"], &done["losses"]), (&json!(1), &json!(0)), "{done}");
    assert_eq!(done["worker"]["id"], worker.id());
    let lapsed = api.get("/api/v1/events?stream=false&type=worker.lapsed").expect(200);
    assert_eq!(lapsed["data"], json!([]));
    scene.judge();
}
