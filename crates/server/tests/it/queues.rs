//! Settings of queues over HTTP: setting, showing, listing, removing.

use http::Method;
use serde_json::{Value, json};

use crate::api::{Api, Reply};

async fn set(api: &Api, queue: &str, settings: Value) -> Reply {
    api.ask(Method::PUT, &format!("/api/v1/queues/{queue}"), Some(&settings)).await
}

#[tokio::test]
async fn settings_are_set_one_by_one_shown_and_removed() {
    let api = Api::start();
    let fair = json!({"fair_by": "tenant", "weights": {"tenant:42": 3}});
    let queue = set(&api, "mail", fair).await.expect(200)["data"].clone();
    assert_eq!(queue, api.get("/api/v1/queues/mail").await.expect(200)["data"]);
    assert_eq!(queue["name"], "mail");
    assert_eq!((&queue["paused"], &queue["available"]), (&json!(false), &json!(0)));
    assert_eq!(queue["fair_by"], "tenant");
    assert_eq!(queue["weights"], json!({"tenant:42": 3}));
    assert!(queue["set_by"].as_str().is_some_and(|by| by.starts_with("api: ")), "{queue}");
    let more = set(&api, "mail", json!({"weights": {"tenant:7": 2}})).await.expect(200);
    assert_eq!(more["data"]["weights"], json!({"tenant:42": 3, "tenant:7": 2}));
    let same = set(&api, "mail", json!({})).await.expect(200);
    assert_eq!(same, more, "nothing is named, nothing changes");
    let list = api.get("/api/v1/queues").await.expect(200);
    assert_eq!(list["data"], json!([more["data"]]));
    let none = set(&api, "mail", json!({"fair_by": null})).await.expect(200);
    assert_eq!((&none["data"]["fair_by"], &none["data"]["weights"]), (&Value::Null, &json!({})));
    let events = api.get("/api/v1/events?stream=false&type=queue.set").await.expect(200);
    let said: Vec<&Value> = events["data"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| &event["data"]["evidence"])
        .collect();
    let expected = [
        "fair_by tenant, weight tenant:42=3",
        "fair_by tenant, weight tenant:42=3, weight tenant:7=2",
        "nothing set",
    ];
    assert_eq!(said, expected);
}

/// It was answered with 404 once, after it had been carried out.
#[tokio::test]
async fn queue_that_no_job_was_in_and_of_which_nothing_is_set_is_shown_all_the_same() {
    let api = Api::start();
    for settings in [json!({}), json!({"fair_by": null})] {
        let queue = set(&api, "new", settings).await.expect(200)["data"].clone();
        assert_eq!((&queue["name"], &queue["fair_by"]), (&json!("new"), &Value::Null));
    }
    api.get("/api/v1/queues/new").await.refused(404, "not_found");
}

#[tokio::test]
async fn settings_that_are_wrong_say_what_would_be_right() {
    let api = Api::start();
    let refused = set(&api, "mail", json!({"weights": {"tenant:42": 3}})).await;
    let message = refused.refused(422, "validation_error")["message"].to_string();
    assert!(message.contains("need `fair_by`"), "{message}");
    set(&api, "mail", json!({"fair_by": "account"})).await.expect(200);
    let refused = set(&api, "mail", json!({"weights": {"tenant:42": 3}})).await;
    let message = refused.refused(422, "validation_error")["message"].to_string();
    assert!(message.contains("the queue is fair by `account`"), "{message}");
    let refused = set(&api, "mail", json!({"fairby": "tenant"})).await;
    let message = refused.refused(400, "invalid_request")["message"].to_string();
    assert!(message.contains("did you mean `fair_by`?"), "{message}");
    let error = api.get("/api/v1/queues/nosuch").await.refused(404, "not_found");
    assert_eq!(error["message"], "queue nosuch is not known");
}

#[tokio::test]
async fn tenants_take_turns_and_a_job_says_how_many_go_before_it() {
    let api = Api::start();
    set(&api, "default", json!({"fair_by": "tenant"})).await.expect(200);
    let mut jobs = Vec::new();
    for tenant in ["a", "a", "a", "a", "b"] {
        jobs.push(api.enqueue(json!({"keys": {"tenant": tenant}})).await);
    }
    let first = api.fetch("w").await;
    assert_eq!(first["id"], json!(jobs[0]));
    let reason = async |job: &str| {
        let path = format!("/api/v1/executions/{job}");
        api.get(&path).await.expect(200)["data"]["waiting_reason"].clone()
    };
    assert_eq!(reason(&jobs[3]).await, "its turn: 2 before it in its share");
    assert_eq!(reason(&jobs[4]).await, "its turn: first in its share");
    assert_eq!(api.fetch("w").await["id"], json!(jobs[4]), "its tenant has had nothing yet");
}
