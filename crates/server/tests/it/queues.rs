//! Settings of queues over HTTP: setting, showing, listing, removing.

use axum::body::Body;
use http::{Method, Request};
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
    assert_eq!(same["data"], more["data"], "nothing is named, nothing changes");
    let list = api.get("/api/v1/queues").await.expect(200);
    assert_eq!(list["data"], json!([more["data"]]));
    assert!(list["age_seconds"].is_number() && list["counted_at"].is_string(), "{list}");
    assert_eq!((&list["totals"]["depth"], &list["waiting"]["groups"]), (&json!(0), &json!([])));
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
    assert!(message.contains("needs a fair queue; set `fair_by` to `tenant`"), "{message}");
    let contrary = json!({"fair_by": null, "weights": {"tenant:42": 3}});
    let message =
        set(&api, "mail", contrary).await.refused(422, "validation_error")["message"].to_string();
    assert!(message.contains("is for fair queues, and `fair_by` is null"), "{message}");
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

/// Sends a request with a key; without one if that is empty.
async fn keyed(api: &Api, path: &str, key: &str, body: &Value) -> Reply {
    let mut request = Request::post(path).header("content-type", "application/json");
    if !key.is_empty() {
        request = request.header("idempotency-key", key);
    }
    api.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

#[tokio::test]
async fn full_queue_refuses_at_every_door_and_says_how_many_wait() {
    let api = Api::start();
    let set = set(&api, "default", json!({"max_depth": 2})).await.expect(200);
    assert_eq!((&set["data"]["max_depth"], &set["data"]["depth"]), (&json!(2), &json!(0)));
    let first = keyed(&api, "/ojs/v1/jobs", "a", &json!({"type": "t", "args": []})).await;
    let first = first.expect(201);
    api.enqueue(json!({})).await;
    let one = json!({"type": "t", "args": []});
    let all = json!({"jobs": [one, one]});
    let echo = json!({"action_ref": "core.echo", "parameters": {"message": "x"}});
    for (path, body) in [
        ("/ojs/v1/jobs", &one),
        ("/ojs/v1/jobs/batch", &all),
        ("/api/v1/executions", &echo),
        ("/executions", &echo),
    ] {
        for key in ["", "b"] {
            let refused = keyed(&api, path, key, body).await;
            assert_eq!(refused.header("retry-after"), "1", "{path}");
            assert_eq!(refused.header("x-ojs-queue-depth"), "2", "{path}");
            assert_eq!(refused.header("x-ojs-queue-bound"), "2", "{path}");
            let error = refused.refused(429, "QUEUE_FULL");
            let said = "queue default is full: 2 jobs wait in it, at most 2 may";
            assert_eq!((&error["message"], &error["retryable"]), (&json!(said), &json!(true)));
            let details = json!({"queue": "default", "depth": 2, "max_depth": 2});
            assert_eq!(error["details"], details, "{path}");
        }
    }
    // A request that was answered before is answered again.
    let again = keyed(&api, "/ojs/v1/jobs", "a", &one).await.expect(201);
    assert_eq!(again["job"]["id"], first["job"]["id"]);
    let stats = api.get("/ojs/v1/queues/default/stats").await.expect(200)["stats"].clone();
    assert_eq!((&stats["depth"], &stats["max_depth"]), (&json!(2), &json!(2)));
    let page = api.get("/metrics").await.text;
    assert!(page.contains("ojs_backpressure_rejected_total{queue=\"default\"} 8\n"), "{page}");
    assert!(page.contains("outlast_queue_max_depth{queue=\"default\"} 2\n"), "{page}");
    // A worker makes room.
    api.fetch("w").await;
    let refused = keyed(&api, "/ojs/v1/jobs/batch", "", &all).await;
    let error = refused.refused(429, "QUEUE_FULL");
    let said = "queue default has no room for 2 more jobs: 1 waits in it, at most 2 may";
    assert_eq!(error["message"], said);
    api.enqueue(json!({})).await;
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

#[tokio::test]
async fn what_a_queue_asks_of_workers_is_set_shown_and_cleared_with_the_rest_left_alone() {
    let api = Api::start();
    let all = json!({"fair_by": "tenant", "weights": {"tenant:42": 3}, "max_depth": 7,
                     "requires": "zone in (b, a) ,gpu=true", "prefers": "!spot"});
    let before = set(&api, "mail", all).await.expect(200)["data"].clone();
    assert_eq!(before["requires"], "gpu=true,zone in (a,b)");
    assert_eq!(before["prefers"], "!spot");
    let mut expected = before.clone();
    for (change, field, after) in [
        (json!({"max_depth": 8}), "max_depth", json!(8)),
        (json!({"requires": "gpu"}), "requires", json!("gpu")),
        (json!({"prefers": ""}), "prefers", Value::Null),
        (json!({"requires": null}), "requires", Value::Null),
        (json!({"requires": "!spot"}), "requires", json!("!spot")),
        (json!({"fair_by": "account"}), "fair_by", json!("account")),
    ] {
        let mut now = set(&api, "mail", change.clone()).await.expect(200)["data"].clone();
        expected[field] = after;
        if field == "fair_by" {
            expected["weights"] = json!({});
        }
        now["set_at"] = expected["set_at"].clone();
        assert_eq!(now, expected, "{change}");
    }
    let wrong = set(&api, "mail", json!({"requires": "gpu true"})).await;
    let error = wrong.refused(400, "invalid_request");
    let why =
        "field `requires` is no selector: expected =, !=, in, notin or a comma at character 5";
    assert!(error["message"].as_str().is_some_and(|said| said.starts_with(why)), "{error}");
}

/// Clients that fetch have no labels, as with what jobs require themselves.
#[tokio::test]
async fn clients_that_fetch_get_nothing_of_a_queue_that_requires_a_label_until_it_does_not() {
    let api = Api::start();
    let job = api.enqueue(json!({})).await;
    set(&api, "default", json!({"requires": "gpu"})).await.expect(200);
    let fetch = json!({"queues": ["default"], "worker_id": "w", "count": 3});
    let fetched = api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
    assert_eq!(fetched["jobs"], json!([]));
    let path = format!("/api/v1/executions/{job}");
    let wanted = "clients that fetch from queue default have no labels";
    let said = async || {
        let shown = api.get(&path).await.expect(200);
        shown["data"]["waiting_reason"].as_str().is_some_and(|said| said.ends_with(wanted))
    };
    while !said().await {
        tokio::task::yield_now().await;
    }
    // One that waits gets the job once it may.
    let waiting = json!({"queues": ["default"], "worker_id": "w", "wait_ms": 30000});
    let (fetched, _set) = tokio::join!(
        api.post("/ojs/v1/workers/fetch", waiting),
        set(&api, "default", json!({"requires": ""}))
    );
    assert_eq!(fetched.expect(200)["jobs"][0]["id"], json!(job));
}
