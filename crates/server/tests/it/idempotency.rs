//! `Idempotency-Key`: a repeated request is answered as before, and stores nothing.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use outlast_server::access::{Access, KnownToken, Role, TokenHash};
use serde_json::{Value, json};

use crate::api::{Api, Reply};

async fn send(api: &Api, path: &str, keys: &[&str], body: &Value) -> Reply {
    let mut request = Request::post(path);
    for key in keys {
        request = request.header("Idempotency-Key", *key);
    }
    api.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

async fn total(api: &Api) -> Value {
    api.get("/api/v1/executions").await.expect(200)["pagination"]["total"].clone()
}

fn echo(message: &str) -> Value {
    json!({"action_ref": "core.echo", "parameters": {"message": message}})
}

fn keyed(tenant: &str) -> Value {
    json!({"action_ref": "core.noop", "keys": {"tenant": tenant}})
}

fn job(kind: &str) -> Value {
    json!({"type": kind, "args": [1], "meta": {"a": "b"}, "options": {"delay_until": "+PT1H"}})
}

fn held_back(kind: &str) -> Value {
    json!({"type": kind, "args": [], "options": {"pending": true}})
}

fn batch(kind: &str) -> Value {
    json!({"jobs": [{"type": kind, "args": []}, {"type": "core.echo", "args": [{"message": "x"}]}]})
}

#[tokio::test]
async fn a_repeated_request_gets_the_very_same_answer_and_stores_nothing() {
    for (path, body, other, stored) in [
        ("/executions", echo("a"), echo("b"), 1),
        ("/executions", keyed("a"), keyed("b"), 1),
        ("/ojs/v1/jobs", job("a"), job("b"), 1),
        ("/ojs/v1/jobs", held_back("a"), held_back("b"), 1),
        ("/ojs/v1/jobs/batch", batch("a"), batch("b"), 2),
    ] {
        let api = Api::start();
        let first = send(&api, path, &["k"], &body).await;
        first.expect(201);
        assert_eq!(first.header("idempotency-replayed"), "", "{path}");
        let again = send(&api, path, &["k"], &body).await;
        again.expect(201);
        assert_eq!(again.text, first.text, "{path}");
        assert_eq!(again.header("idempotency-replayed"), "true", "{path}");
        assert_eq!(again.header("content-type"), first.header("content-type"));
        assert_eq!(total(&api).await, stored, "{path}");
        let error = send(&api, path, &["k"], &other).await.refused(409, "conflict");
        let message = error["message"].as_str().expect("text");
        assert!(message.starts_with("Idempotency-Key \"k\" was used"), "{message}");
        let hint = error["hint"].as_str().expect("text");
        assert!(hint.contains("choose another key"), "{hint}");
        assert_eq!(total(&api).await, stored, "{path}");
        send(&api, path, &["another"], &other).await.expect(201);
    }
}

/// What has become of the job meanwhile is not told by a replay.
#[tokio::test]
async fn a_replay_does_not_depend_on_what_became_of_the_job() {
    let api = Api::start();
    let first = send(&api, "/executions", &["k"], &echo("a")).await;
    let id = first.expect(201)["data"]["id"].as_str().expect("an id").to_owned();
    api.post(&format!("/executions/{id}/cancel"), json!({})).await.expect(200);
    let again = send(&api, "/api/v1/executions", &["k"], &echo("a")).await;
    assert_eq!((again.status.as_u16(), again.text), (201, first.text));
}

#[tokio::test]
async fn a_keyed_answer_says_what_one_without_a_key_does() {
    let api = Api::start();
    let mut later = job("a");
    later["options"]["delay_until"] = json!("2030-01-01T00:00:00Z");
    for (path, body, root) in [("/executions", echo("a"), "data"), ("/ojs/v1/jobs", later, "job")] {
        let mut with = send(&api, path, &[path], &body).await.expect(201);
        let mut without = send(&api, path, &[], &body).await.expect(201);
        for answer in [&mut with, &mut without] {
            for own in ["id", "attempts_url", "waiting_reason"] {
                answer[root].as_object_mut().expect("an object").remove(own);
            }
        }
        assert_eq!(with, without, "{path}");
    }
}

#[tokio::test]
async fn a_refused_request_may_be_mended_under_the_same_key() {
    let api = Api::start();
    send(&api, "/executions", &["k"], &json!({"action_ref": "core.nonsense"}))
        .await
        .refused(404, "not_found");
    send(&api, "/executions", &["k"], &echo("a")).await.expect(201);
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let api = Api::start();
    let long = "x".repeat(256);
    for keys in [&[""][..], &["  "], &[&long], &["a", "b"], &["é"]] {
        let error =
            send(&api, "/executions", keys, &echo("a")).await.refused(400, "invalid_request");
        assert_eq!(error["details"]["field"], "Idempotency-Key");
    }
    assert_eq!(total(&api).await, 0);
    send(&api, "/executions", &[&long[..255]], &echo("a")).await.expect(201);
}

#[tokio::test]
async fn a_key_is_its_tokens_own() {
    let token = |name: &str| KnownToken {
        name: name.to_owned(),
        role: Role::Producer,
        hash: TokenHash::of(name),
    };
    let access = Access::new(vec![token("one"), token("two")], Vec::new());
    let api = Api::with(|settings| settings.access = Arc::new(access));
    let send = async |token: &str, message: &str| {
        let request = Request::post("/executions")
            .header("authorization", format!("Bearer {token}"))
            .header("idempotency-key", "k");
        api.send(request.body(Body::from(echo(message).to_string())).expect("a request")).await
    };
    let (one, two) = (send("one", "a").await, send("two", "b").await);
    assert_ne!(one.expect(201)["data"]["id"], two.expect(201)["data"]["id"]);
    assert_eq!(send("one", "a").await.text, one.text);
}

#[tokio::test]
async fn requests_with_one_key_at_the_same_time_are_one() {
    let api = Api::start();
    let body = echo("a");
    let all = (0..20).map(|_| send(&api, "/executions", &["k"], &body));
    let replies = futures_util::future::join_all(all).await;
    let new = replies.iter().filter(|reply| reply.header("idempotency-replayed").is_empty());
    assert_eq!(new.count(), 1);
    assert!(replies.iter().all(|reply| reply.status == 201 && reply.text == replies[0].text));
    assert_eq!(total(&api).await, 1);
}

/// Such a job was once said to be available.
#[tokio::test]
async fn a_job_that_is_held_back_is_pending_in_the_answer_with_a_key_as_without() {
    let api = Api::start();
    for keys in [&[][..], &["k"], &["k"]] {
        let answer = send(&api, "/ojs/v1/jobs", keys, &held_back("t")).await.expect(201);
        assert_eq!(answer["job"]["state"], "pending", "{keys:?}");
        let id = answer["job"]["id"].as_str().expect("an id");
        if !keys.is_empty() {
            api.post(&format!("/ojs/v1/jobs/{id}/activate"), json!({})).await;
        }
    }
}
