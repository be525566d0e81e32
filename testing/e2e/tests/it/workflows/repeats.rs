//! `Idempotency-Key`: a request that is sent again begins nothing new.

use std::thread;

use outlast_e2e::proxy::{Proxy, Weather};
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Api, Reply};
use serde_json::{Value, json};

use super::{SOON, Site, WORKFLOWS, id_of, revive};

const ROUNDS: usize = 5;

fn request(name: &str) -> Value {
    json!({"workflow": {"name": name, "steps": [{"name": "it", "type": "plain"}]}})
}

fn send(api: &Api, key: &str, request: &Value) -> Reply {
    api.post_with(WORKFLOWS, &[("Idempotency-Key", key)], request)
}

fn replayed(reply: &Reply) -> bool {
    reply.headers.get("idempotency-replayed").is_some_and(|word| word == "true")
}

#[test]
fn same_key_is_the_same_workflow_and_another_body_a_conflict() {
    let site = Site::start();
    let api = site.scene.api();
    let first = send(api, "one", &request("a"));
    let id = id_of(&first.clone().expect(201));
    assert!(!replayed(&first), "{first:?}");
    let again = send(api, "one", &request("a"));
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!((id_of(&again.body), replayed(&again)), (id, true));
    let other = send(api, "one", &request("b"));
    assert_eq!(other.status, 409, "{other:?}");
    assert!(other.text.contains("idempotency key"), "{other:?}");
    assert_ne!(id_of(&send(api, "two", &request("a")).expect(201)), id_of(&first.body));
    assert_eq!([site.count("workflow"), site.count("job_row")], [2, 2]);
}

/// It is still the same workflow once that has ended, and after a restart.
#[test]
fn key_is_known_after_a_restart_and_after_the_end() {
    let mut site = Site::start();
    let _worker = site.worker("one");
    let step = site.step("it", &json!({}), &json!({}));
    let request = json!({"workflow": {"name": "a", "steps": [step]}});
    let id = id_of(&send(site.scene.api(), "one", &request).expect(201));
    assert_eq!(site.ended(&id)["status"], "completed");
    site.scene.server_mut().kill();
    revive(site.scene.server_mut());
    let again = send(site.scene.api(), "one", &request).expect(200);
    assert_eq!((id_of(&again), &again["data"]["status"]), (id.clone(), &json!("completed")));
    assert_eq!(site.begun(&id, "it"), 1);
}

/// The server stores the workflow, its answer is lost, and it is killed.
#[test]
fn request_that_a_server_dies_over_begins_one_workflow() {
    let mut site = Site::start();
    let proxy = Proxy::to(&site.scene.server().url());
    let through = Api::new(&proxy.url());
    for round in 0..ROUNDS {
        let key = format!("round-{round}");
        proxy.set(Weather::DropReplies);
        thread::scope(|threads| {
            let headers = [("Idempotency-Key", key.as_str())];
            let (through, request) = (&through, request("a"));
            let lost = threads.spawn(move || through.try_post_with(WORKFLOWS, &headers, &request));
            eventually("it is stored", within(SOON), || {
                let list = site.scene.api().try_get(WORKFLOWS).ok()?;
                (list.body["data"].as_array()?.len() > round).then_some(())
            });
            site.scene.server_mut().kill();
            proxy.set(Weather::Cut);
            assert!(lost.join().expect("no panic").is_err(), "its answer was lost");
        });
        revive(site.scene.server_mut());
        proxy.set(Weather::Clear);
        let again = send(site.scene.api(), &key, &request("a")).expect(200);
        assert_eq!(again["data"]["status"], "running", "{again}");
    }
    assert_eq!([site.count("workflow"), site.count("job_row")], [ROUNDS, ROUNDS]);
}
