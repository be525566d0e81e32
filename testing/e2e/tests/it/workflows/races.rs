//! What happens at the same moment at two servers happens once.

use std::thread;

use outlast_e2e::{Api, ServerOptions};
use serde_json::{Value, json};

use super::{Site, id_of, step_of};

const ROUNDS: usize = 50;

/// Takes a job of a type by hand, at one of two servers.
pub(super) fn take(api: &Api, queue: &str) -> String {
    let jobs = outlast_e2e::wait::eventually("the job is there", super::PATIENCE, || {
        let jobs = api.ojs_fetch(queue, queue, 1);
        (!jobs.is_empty()).then_some(jobs)
    });
    jobs[0]["id"].as_str().expect("an id").to_owned()
}

pub(super) fn end(api: &Api, job: &str) {
    let body = json!({"job_id": job, "result": {"done": true}});
    let _ended = api.post("/ojs/v1/workers/ack", &body).expect(200);
}

#[test]
fn step_behind_two_that_end_at_once_at_two_servers_runs_once() {
    let site = Site::with(ServerOptions::default().postgres());
    let other = site.another_server("other");
    let apis = [site.scene.api().clone(), Api::new(&other.url())];
    let of_type = |name: &str, after: &Value| json!({"name": name, "type": "plain", "after": after, "options": {"queue": name}});
    let steps = [
        of_type("left", &json!([])),
        of_type("right", &json!([])),
        of_type("join", &json!(["left", "right"])),
    ];
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        let id = site.begin(&steps);
        let jobs = [take(&apis[0], "left"), take(&apis[1], "right")];
        thread::scope(|threads| {
            for (api, job) in apis.iter().zip(&jobs) {
                threads.spawn(move || end(api, job));
            }
        });
        let join = take(&apis[0], "join");
        end(&apis[1], &join);
        let ended = site.ended(&id);
        assert_eq!(ended["status"], "completed", "{ended:#}");
        assert_eq!(step_of(&ended, "join")["job_ids"], json!([join]), "{ended:#}");
        all.push(id);
    }
    for api in &apis {
        assert!(api.ojs_fetch("join", "join", 1).is_empty(), "a step ran twice");
    }
    let rows = site.rows(&["job_row", "finished", "workflow_end"]);
    let counts = [rows["job_row"].len(), rows["finished"].len(), rows["workflow_end"].len()];
    assert_eq!(counts, [ROUNDS * 3, ROUNDS * 3, 0]);
}

/// Many ask for the same at once: one of them is heard, and it happens once.
#[test]
fn retries_and_cancels_that_come_at_once_are_one() {
    let site = Site::with(ServerOptions::default().postgres());
    let other = site.another_server("other");
    let apis = [site.scene.api().clone(), Api::new(&other.url())];
    let _worker = site.worker("one");
    let needs = json!({"needs": site.path("missing")});
    let once = json!({"max_attempts": 1});
    let id = site.begin(&[
        site.step("it", &needs, &json!({"retry": once})),
        site.step("next", &json!({}), &json!({"after": "it"})),
    ]);
    assert_eq!(site.ended(&id)["status"], "failed");
    site.make("missing");
    let statuses: Vec<u16> = thread::scope(|threads| {
        let ask = |n: usize| {
            let path = format!("/api/v1/workflows/{id}/retry");
            apis[n % 2].post(&path, &json!({})).status
        };
        let asking: Vec<_> = (0..10).map(|n| threads.spawn(move || ask(n))).collect();
        asking.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let ended = site.ended(&id);
    assert_eq!(
        (&ended["status"], &ended["retries"]),
        (&json!("completed"), &json!(1)),
        "{ended:#}"
    );
    assert_eq!(["it", "next"].map(|step| site.begun(&id, step)), [2, 1]);
}

#[test]
fn key_that_comes_at_once_at_two_servers_begins_one_workflow() {
    let site = Site::with(ServerOptions::default().postgres());
    let other = site.another_server("other");
    let apis = [site.scene.api().clone(), Api::new(&other.url())];
    let request = json!({"workflow": {"steps": [{"name": "it", "type": "plain"}]}});
    for round in 0..10 {
        let key = format!("round-{round}");
        let ids: Vec<String> = thread::scope(|threads| {
            let ask = |n: usize| {
                let headers = [("Idempotency-Key", key.as_str())];
                let reply = apis[n % 2].post_with(super::WORKFLOWS, &headers, &request);
                assert!(reply.is_success(), "{reply:?}");
                id_of(&reply.body)
            };
            let asking: Vec<_> = (0..10).map(|n| threads.spawn(move || ask(n))).collect();
            asking.into_iter().map(|one| one.join().expect("an answer")).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
    assert_eq!([site.count("workflow"), site.count("job_row")], [10, 10]);
}
