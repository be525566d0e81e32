//! Limits over HTTP: setting, what they hold back and why, who holds them, removing.

use http::Method;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_wire::limit::rate;
use serde_json::{Value, json};

use crate::api::{Api, Reply};

async fn set(api: &Api, name: &str, limit: Value) -> Reply {
    api.ask(Method::PUT, &format!("/api/v1/limits/{name}"), Some(&limit)).await
}

async fn show(api: &Api, name: &str) -> Value {
    api.get(&format!("/api/v1/limits/{name}")).await.expect(200)["data"].clone()
}

async fn reason(api: &Api, job: &str) -> Value {
    let path = format!("/api/v1/executions/{job}");
    api.get(&path).await.expect(200)["data"]["waiting_reason"].clone()
}

async fn done(api: &Api, job: &Value) {
    api.ack(json!({"job_id": job["id"], "worker_id": "w", "result": {}})).await.expect(200);
}

#[tokio::test]
async fn limit_is_set_shown_replaced_and_removed() {
    let api = Api::start();
    let limit = json!({"scope": "key", "of": "tenant", "concurrency": 5, "rate": "100/60s"});
    let created = set(&api, "tenant", limit).await.expect(201);
    let shown = show(&api, "tenant").await;
    assert_eq!(created["data"], shown);
    assert!(shown["set_by"].as_str().is_some_and(|by| by.starts_with("api: ")), "{shown}");
    let at = &shown["set_at"];
    let expected = json!({"name": "tenant", "scope": "key", "of": "tenant", "concurrency": 5,
        "rate": "100/1m", "configured": false, "set_by": shown["set_by"], "set_at": at,
        "in_use": [], "more": false});
    assert_eq!(shown, expected);
    let limit = json!({"scope": "queue", "of": "mail", "concurrency": 0});
    let replaced = set(&api, "tenant", limit).await.expect(200);
    assert_eq!(replaced["data"]["concurrency"], 0);
    assert_eq!(replaced["data"]["rate"], Value::Null);
    set(&api, "a", json!({"scope": "type", "of": "t", "rate": "1/1s"})).await.expect(201);
    let list = api.get("/api/v1/limits").await.expect(200);
    let names: Vec<&Value> =
        list["data"].as_array().expect("a list").iter().map(|limit| &limit["name"]).collect();
    assert_eq!(names, ["a", "tenant"]);
    let gone = api.delete("/api/v1/limits/tenant").await.expect(200);
    assert_eq!(gone, json!({"data": {"name": "tenant", "removed": true}}));
    for reply in [api.get("/api/v1/limits/tenant").await, api.delete("/api/v1/limits/tenant").await]
    {
        let error = reply.refused(404, "not_found");
        assert_eq!(error["message"], "limit tenant is not known");
        assert_eq!(error["hint"], "GET /api/v1/limits lists all limits");
    }
}

#[tokio::test]
async fn limit_on_another_key_shows_nothing_of_the_one_before() {
    let api = Api::start();
    let on = |key: &str| json!({"scope": "key", "of": key, "concurrency": 5});
    set(&api, "busy", on("tenant")).await.expect(201);
    let job = api.enqueue(json!({"keys": {"tenant": "42", "account": "7"}})).await;
    assert_eq!(api.fetch("w").await["id"], json!(job));
    let used = show(&api, "busy").await["in_use"].clone();
    assert_eq!((&used[0]["value"], &used[0]["in_flight"]), (&json!("42"), &json!(1)));
    set(&api, "busy", on("account")).await.expect(200);
    assert_eq!(show(&api, "busy").await["in_use"], json!([]));
}

#[tokio::test]
async fn who_set_and_removed_a_limit_is_recorded() {
    let api = Api::start();
    set(&api, "a", json!({"scope": "type", "of": "t", "rate": "1/1s"})).await.expect(201);
    api.delete("/api/v1/limits/a").await.expect(200);
    let events = api.get("/api/v1/events?stream=false&type=limit.*").await.expect(200);
    let events = events["data"].as_array().expect("events");
    let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["limit.set", "limit.removed"], "{events:?}");
    for event in events {
        assert!(event["data"]["by"].as_str().is_some_and(|by| by.starts_with("api: ")), "{event}");
        assert!(event["data"]["evidence"].as_str().is_some_and(|it| it.contains('a')), "{event}");
    }
}

#[tokio::test]
async fn request_that_is_wrong_says_what_would_be_right() {
    let api = Api::start();
    for (body, expected) in [
        (json!({"scope": "key", "of": "tenant"}), "a limit has at least one of them"),
        (json!({"scope": "key", "of": "tenant", "rate": "fast"}), "such as `100/1m`"),
        (json!({"scope": "key", "of": "tenant", "max": 5}), "known fields are scope, of,"),
        (json!({"scope": "key", "of": "tenant", "concurrencyy": 5}), "mean `concurrency`?"),
    ] {
        let error = set(&api, "tenant", body).await.refused(400, "invalid_request");
        assert!(error["message"].as_str().is_some_and(|it| it.contains(expected)), "{error}");
    }
    let limit = json!({"scope": "key", "of": "tenant", "concurrency": 5});
    let error = set(&api, "Tenant", limit).await.refused(400, "invalid_request");
    assert!(error["message"].as_str().is_some_and(|it| it.contains("`name` must have 1 to 64")));
    assert_eq!(api.get("/api/v1/limits").await.expect(200), json!({"data": []}));
}

#[tokio::test]
async fn limit_of_the_configuration_is_refused_to_the_api() {
    let api = Api::start();
    let limit = |name: &str, concurrency| Limit {
        name: LimitName::new(name).expect("a name"),
        scope: Scope::Key("tenant".into()),
        concurrency: Some(concurrency),
        rate: rate("100/1m"),
    };
    // One that the API set before is taken over.
    let own = json!({"scope": "key", "of": "tenant", "concurrency": 1});
    set(&api, "tenant", own.clone()).await.expect(201);
    set(&api, "free", own.clone()).await.expect(201);
    api.engine.configure_limits(&[limit("tenant", 5), limit("other", 6)]).await.expect("in force");
    let shown = show(&api, "tenant").await;
    assert_eq!((&shown["configured"], &shown["concurrency"]), (&json!(true), &json!(5)));
    for reply in [set(&api, "tenant", own.clone()).await, api.delete("/api/v1/limits/tenant").await]
    {
        let error = reply.refused(409, "conflict");
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with("limit tenant is set by the server's configuration"));
    }
    // What it no longer lists is gone; what it never listed stays.
    api.engine.configure_limits(&[limit("other", 7)]).await.expect("in force");
    let list = api.get("/api/v1/limits").await.expect(200);
    let shown: Vec<_> = list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|limit| (limit["name"].clone(), limit["concurrency"].clone()))
        .collect();
    assert_eq!(shown, [(json!("free"), json!(1)), (json!("other"), json!(7))]);
    set(&api, "tenant", own).await.expect(201);
}

#[tokio::test]
async fn job_behind_a_full_limit_waits_says_so_and_starts_when_there_is_room() {
    let api = Api::start();
    let limit = json!({"scope": "type", "of": "t", "concurrency": 1});
    set(&api, "one", limit).await.expect(201);
    let first = api.enqueue(json!({})).await;
    let second = api.enqueue(json!({})).await;
    let taken = api.fetch("w").await;
    assert_eq!(taken["id"], json!(first));
    assert_eq!(api.fetch("w").await, Value::Null);
    assert_eq!(reason(&api, &second).await, "limit one is 1/1 (held by 1 worker)");
    let list = api.get("/api/v1/executions?status=requested").await.expect(200);
    assert_eq!(list["data"][0]["waiting_reason"], "limit one is 1/1 (held by 1 worker)");
    let used = show(&api, "one").await["in_use"].clone();
    let holder = &used[0]["holders"][0];
    assert_eq!((&used[0]["in_flight"], &used[0]["concurrency"]), (&json!(1), &json!(1)));
    assert_eq!((&holder["job"], &holder["worker"]["name"]), (&json!(first), &json!("w")));
    assert_eq!(api.get("/api/v1/limits").await.expect(200)["data"][0]["in_flight"], 1);
    let metrics = api.get("/metrics").await.text;
    for line in ["outlast_limit_in_flight{limit=\"one\"} 1", "outlast_limit_max{limit=\"one\"} 1"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(api.get("/limits").await.text.contains(">1 of 1<"));
    done(&api, &taken).await;
    assert_eq!(show(&api, "one").await["in_use"][0]["in_flight"], 0);
    assert_eq!(api.fetch("w").await["id"], json!(second));
}

#[tokio::test]
async fn change_of_a_limit_acts_at_once_on_stored_jobs() {
    let api = Api::start();
    for _ in 0..3 {
        api.enqueue(json!({})).await;
    }
    let limit = |most: u32| json!({"scope": "queue", "of": "default", "concurrency": most});
    set(&api, "stop", limit(0)).await.expect(201);
    assert_eq!(api.fetch("w").await, Value::Null);
    let waiting = api.get("/api/v1/executions").await.expect(200)["data"][0].clone();
    assert_eq!(waiting["waiting_reason"], "limit stop is 0/0");
    set(&api, "stop", limit(1)).await.expect(200);
    assert_ne!(api.fetch("w").await, Value::Null);
    assert_eq!(api.fetch("w").await, Value::Null);
    api.delete("/api/v1/limits/stop").await.expect(200);
    assert_ne!(api.fetch("w").await, Value::Null);
}

#[tokio::test]
async fn rate_says_when_it_opens() {
    let api = Api::start();
    set(&api, "slow", json!({"scope": "type", "of": "t", "rate": "1/1m"})).await.expect(201);
    let _first = api.enqueue(json!({})).await;
    let second = api.enqueue(json!({})).await;
    let taken = api.fetch("w").await;
    assert_eq!(api.fetch("w").await, Value::Null);
    assert_eq!(reason(&api, &second).await, "rate slow opens in 60 s");
    let used = show(&api, "slow").await["in_use"][0].clone();
    assert_eq!(used["rate_opens"], "2027-01-15T08:01:00Z", "{used}");
    // An end gives nothing back to a rate.
    done(&api, &taken).await;
    assert_eq!(api.fetch("w").await, Value::Null);
}

#[tokio::test]
async fn limit_on_a_key_counts_each_value_for_itself() {
    let api = Api::start();
    let limit = json!({"scope": "key", "of": "tenant", "concurrency": 1});
    set(&api, "tenant", limit).await.expect(201);
    let mut jobs = Vec::new();
    for tenant in ["42", "42", "43"] {
        jobs.push(api.enqueue(json!({"keys": {"tenant": tenant}})).await);
    }
    assert_eq!(api.fetch("w").await["id"], json!(jobs[0]));
    assert_eq!(api.fetch("w").await["id"], json!(jobs[2]));
    assert_eq!(api.fetch("w").await, Value::Null);
    assert_eq!(reason(&api, &jobs[1]).await, "limit tenant:42 is 1/1 (held by 1 worker)");
    let used = show(&api, "tenant").await["in_use"].clone();
    let mut values: Vec<&str> = used
        .as_array()
        .expect("gates")
        .iter()
        .map(|gate| gate["value"].as_str().expect("a value"))
        .collect();
    values.sort_unstable();
    assert_eq!(values, ["42", "43"]);
    let one = api.get("/api/v1/limits/tenant?value=42").await.expect(200);
    assert_eq!(one["data"]["in_use"][0]["holders"][0]["job"], json!(jobs[0]));
    let unused = api.get("/api/v1/limits/tenant?value=99").await.expect(200);
    assert_eq!(unused["data"]["in_use"][0]["in_flight"], 0);
}

#[tokio::test]
async fn more_values_than_are_shown_are_not_left_out_silently() {
    let api = Api::start();
    let limit = json!({"scope": "key", "of": "tenant", "concurrency": 1});
    set(&api, "tenant", limit).await.expect(201);
    for tenant in 0..=100 {
        api.enqueue(json!({"keys": {"tenant": tenant.to_string()}})).await;
        if tenant == 100 {
            assert_eq!(show(&api, "tenant").await["more"], false);
        }
        api.fetch("w").await;
    }
    let shown = show(&api, "tenant").await;
    assert_eq!(shown["in_use"].as_array().map(Vec::len), Some(100));
    assert_eq!(shown["more"], true);
}

#[tokio::test]
async fn value_goes_with_a_limit_on_a_key() {
    let api = Api::start();
    set(&api, "mail", json!({"scope": "queue", "of": "mail", "concurrency": 1})).await.expect(201);
    let refused = api.get("/api/v1/limits/mail?value=42").await.refused(422, "validation_error");
    let message = refused["message"].to_string();
    assert!(message.contains("goes with a limit on a key; mail is on queue mail"), "{message}");
}
