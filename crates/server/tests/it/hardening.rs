//! What clients must not be able to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, Request};
use outlast_core::limits::BODY_BYTES_MAX;
use serde_json::json;

use crate::api::Api;

#[tokio::test]
async fn an_oversize_body_is_refused() {
    let api = Api::start();
    let body = format!(r#"{{"type":"t","args":["{}"]}}"#, "x".repeat(BODY_BYTES_MAX));
    api.raw("/ojs/v1/jobs", body).await.refused(413, "payload_too_large");
    let api = Api::with(|settings| settings.max_body = 100);
    api.raw("/executions", "y".repeat(101)).await.refused(413, "payload_too_large");
}

/// A client that is still sending does not read the answer: it saw its connection break, and sent it all
/// again, forever.
#[tokio::test]
async fn oversize_body_is_taken_to_its_end_before_it_is_refused() {
    let api = Api::start();
    let taken = Arc::new(AtomicUsize::new(0));
    let piece = {
        let taken = Arc::clone(&taken);
        move |_| {
            taken.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20]))
        }
    };
    let body = Body::from_stream(stream::iter(0..20).map(piece));
    api.raw("/ojs/v1/jobs", body).await.refused(413, "payload_too_large");
    assert_eq!(taken.load(Ordering::Relaxed), 20);
}

#[tokio::test]
async fn a_deeply_nested_body_is_refused() {
    let api = Api::start();
    let deep = format!(r#"{{"type":"t","args":{}{}}}"#, "[".repeat(50_000), "]".repeat(50_000));
    api.raw("/ojs/v1/jobs", deep.clone()).await.refused(400, "invalid_payload");
    api.raw("/executions", deep).await.refused(400, "invalid_payload");
}

#[tokio::test]
async fn malformed_json_is_told_with_line_and_column() {
    let api = Api::start();
    for path in ["/ojs/v1/jobs", "/ojs/v1/workers/fetch", "/ojs/v1/workers/ack", "/executions"] {
        let error = api.raw(path, "{\n  oops }").await.refused(400, "invalid_payload");
        let message = error["message"].as_str().expect("text");
        assert!(message.contains("line 2, column 3"), "{path}: {message}");
        api.raw(path, Body::empty()).await.refused(400, "invalid_payload");
    }
}

/// They were stored, and then no client could read a page that held them.
#[tokio::test]
async fn json_that_strict_readers_refuse_is_refused_with_its_place() {
    let api = Api::start();
    for (value, at) in [(r#""\ud800""#, 1), ("1e400", 0)] {
        for (path, before, after) in [
            ("/ojs/v1/jobs", r#"{"type":"t","args":["#, "]}"),
            ("/ojs/v1/jobs", r#"{"type":"t","args":[],"meta":{"m":"#, "}}"),
            ("/ojs/v1/jobs", r#"{"type":"t","args":[],"other":"#, "}"),
            ("/ojs/v1/jobs/batch", r#"{"jobs":[{"type":"t","args":["#, "]}]}"),
            ("/executions", r#"{"action_ref":"core.echo","parameters":{"message":"#, "}}"),
            ("/ojs/v1/workers/ack", r#"{"job_id":"x","result":"#, "}"),
            ("/ojs/v1/workers/nack", r#"{"job_id":"x","error":{"message":"#, "}}"),
        ] {
            let body = format!("{before}{value}{after}");
            let error = api.raw(path, body).await.refused(400, "invalid_payload");
            let message = error["message"].as_str().expect("text");
            let place = format!("line 1, column {}:", before.len() + 1 + at);
            assert!(message.contains(&place), "{path}: {message}, not at {place}");
        }
    }
}

#[tokio::test]
async fn a_parameter_that_would_become_another_number_is_refused() {
    let api = Api::start();
    for number in ["123456789012345678901", "0.12345678901234567891"] {
        let given =
            format!(r#"{{"action_ref":"core.echo","parameters":{{"message":"m","n":{number}}}}}"#);
        let error = api.raw("/executions", given).await.refused(422, "validation_error");
        let message = error["message"].as_str().expect("text").to_owned();
        assert!(message.contains(number) && message.contains("send it as a string"), "{message}");
        let job = format!(r#"{{"type":"core.echo","args":[{{"message":"m","n":{number}}}]}}"#);
        api.raw("/ojs/v1/jobs", job).await.refused(422, "validation_error");
        // Plain jobs are passed on as they are.
        let plain = format!(r#"{{"type":"t","args":[{number}]}}"#);
        let reply = api.raw("/ojs/v1/jobs", plain).await;
        assert!(reply.status == 201 && reply.text.contains(number), "{}", reply.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let api = Api::start();
    let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    api.raw("/ojs/v1/jobs", never).await.refused(408, "request_timeout");
}

#[tokio::test]
async fn unknown_methods_are_answered_and_the_known_ones_listed() {
    let api = Api::start();
    let reply = api.ask(Method::PATCH, "/ojs/v1/jobs", None).await;
    reply.refused(405, "method_not_allowed");
    assert!(reply.header("allow").contains("POST"), "{:?}", reply.headers);
    let strange = Method::from_bytes(b"BREW").expect("a method");
    api.ask(strange, "/executions", None).await.refused(405, "method_not_allowed");
}

#[tokio::test]
async fn an_error_is_told_in_the_flavour_of_its_api_with_the_callers_request_id() {
    let api = Api::start();
    let request = Request::get("/ojs/v1/jobs/x").header("x-request-id", "my-id");
    let reply = api.send(request.body(Body::empty()).expect("a request")).await;
    assert_eq!(reply.header("content-type"), "application/openjobspec+json");
    assert_eq!(reply.header("x-request-id"), "my-id");
    assert_eq!(reply.refused(404, "not_found")["request_id"], "my-id");
    assert_eq!(api.get("/api/v1/nowhere").await.header("content-type"), "application/json");
}

#[tokio::test]
async fn another_major_version_of_the_standard_is_refused() {
    let api = Api::start();
    let ask = |version: &str| {
        let request = Request::get("/ojs/manifest").header("ojs-version", version);
        request.body(Body::empty()).expect("a request")
    };
    api.send(ask("1.7")).await.expect(200);
    api.send(ask("2.0")).await.refused(422, "unsupported");
}

#[tokio::test]
async fn a_stopped_engine_is_told_as_unavailable() {
    let api = Api::start();
    api.engine.store().close().await.expect("it closes");
    let reply = api.post("/ojs/v1/jobs", json!({"type": "t", "args": []})).await;
    reply.refused(503, "unavailable");
    assert_eq!(reply.header("retry-after"), "1");
    api.get("/health/ready").await.expect(503);
}

/// Anybody may ask for it, as often as they like: it once waited for the writer each time.
#[tokio::test]
async fn readiness_is_told_from_what_is_known_and_asks_nothing_of_the_store() {
    let api = Api::start();
    let batches = async || {
        let page = api.get("/metrics").await.text;
        let line = page.lines().find(|line| line.starts_with("outlast_store_batches_total "));
        line.expect("a counter").to_owned()
    };
    let before = batches().await;
    api.engine.store().close().await.expect("it closes");
    for path in ["/health/ready", "/health", "/health/live"] {
        api.get(path).await.expect(200);
    }
    assert_eq!(batches().await, before);
}

#[tokio::test]
async fn a_body_that_says_to_be_no_json_is_refused() {
    let api = Api::start();
    let ask = |path: &str, kind: &str| {
        let request = Request::post(path).header("content-type", kind);
        request.body(Body::from(r#"{"type":"t","args":[]}"#)).expect("a request")
    };
    for kind in
        ["text/plain", "text/plain; charset=utf-8", "multipart/form-data", "application/xml"]
    {
        for path in ["/ojs/v1/jobs", "/ojs/v1/workers/fetch", "/executions"] {
            let error = api.send(ask(path, kind)).await.refused(400, "invalid_payload");
            let message = error["message"].as_str().expect("text");
            assert!(message.contains("application/json"), "{message}");
        }
    }
    for kind in ["application/openjobspec+json", "Application/JSON; charset=utf-8"] {
        api.send(ask("/ojs/v1/jobs", kind)).await.expect(201);
    }
}

#[tokio::test]
async fn meta_is_limited_to_64_kib() {
    let api = Api::start();
    let job = |length: usize| json!({"type": "t", "args": [], "meta": {"x": "y".repeat(length)}});
    api.post("/ojs/v1/jobs", job(65_000)).await.expect(201);
    let error = api.post("/ojs/v1/jobs", job(66_000)).await.refused(413, "payload_too_large");
    assert_eq!(error["details"]["field"], "meta", "{error}");
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_what_was_made_says_where_it_is() {
    let api = Api::start();
    let made = api.post("/ojs/v1/jobs", json!({"type": "t", "args": []})).await;
    assert!(!made.header("x-request-id").is_empty());
    let at = made.header("location").to_owned();
    let id = made.expect(201)["job"]["id"].clone();
    assert_eq!(at, format!("/ojs/v1/jobs/{}", id.as_str().expect("an id")));
    assert_eq!(api.get(&at).await.expect(200)["job"]["id"], id);
    let made = api.post("/executions", json!({"action_ref": "core.noop"})).await;
    let at = made.header("location").to_owned();
    assert_eq!(api.get(&at).await.expect(200)["data"]["id"], made.expect(201)["data"]["id"]);
    let request = Request::get("/health/live").header("x-request-id", "mine");
    let reply = api.send(request.body(Body::empty()).expect("a request")).await;
    assert_eq!(reply.header("x-request-id"), "mine");
    assert!(!api.get("/health/live").await.header("x-request-id").is_empty());
}
