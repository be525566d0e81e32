//! Workers, health, metrics, pages.

use http::Method;
use serde_json::json;

use crate::api::Api;

#[tokio::test]
async fn orders_move_a_worker_and_a_drain_goes_forward_only() {
    let api = Api::start();
    api.beat(json!({"worker_id": "w"})).await;
    let state = async |order: &str| {
        let path = format!("/api/v1/workers/w/{order}");
        api.post(&path, json!({})).await.expect(200)["data"]["state"].clone()
    };
    assert_eq!(state("quiet").await, "quiet");
    assert_eq!(state("resume").await, "running");
    assert_eq!(state("drain").await, "draining");
    api.post("/api/v1/workers/w/resume", json!({})).await.refused(409, "conflict");
    let shown = api.get("/api/v1/workers/w").await.expect(200)["data"].clone();
    assert_eq!((&shown["status"], &shown["state"]), (&json!("inactive"), &json!("draining")));
    assert!(shown["heartbeat_age_seconds"].is_number() && shown["evidence"].is_string(), "{shown}");
}

#[tokio::test]
async fn workers_are_listed_by_a_prefix_of_their_id() {
    let api = Api::start();
    for name in ["a", "b"] {
        api.beat(json!({"worker_id": name})).await;
    }
    let ids = async |prefix: &str| {
        let page = api.get(&format!("/api/v1/workers?id={prefix}")).await.expect(200);
        let workers = page["data"].as_array().expect("a list").clone();
        assert_eq!(page["pagination"]["total"], workers.len());
        workers.into_iter().map(|worker| worker["id"].clone()).collect::<Vec<_>>()
    };
    let all = api.get("/api/v1/workers").await.expect(200)["data"].clone();
    let one = all[1]["id"].as_str().expect("an id");
    assert_eq!(ids(&one[..4]).await, [all[0]["id"].clone(), all[1]["id"].clone()]);
    assert_eq!(ids(&one.replace('-', "").to_uppercase()).await, [json!(one)]);
    assert_eq!(ids("ffff").await, [] as [serde_json::Value; 0]);
    for wrong in ["123", "12g4", "+1234"] {
        let path = format!("/api/v1/workers?id={wrong}");
        api.get(&path).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn workers_that_live_are_listed_alone_and_others_say_how_they_ended() {
    let api = Api::start();
    for name in ["a", "b", "c"] {
        api.beat(json!({"worker_id": name})).await;
    }
    api.beat(json!({"worker_id": "b", "state": "terminated"})).await;
    let names = async |query: &str| {
        let page = api.get(&format!("/api/v1/workers?{query}")).await.expect(200);
        let workers = page["data"].as_array().expect("a list").clone();
        let of = |worker: &serde_json::Value| (worker["name"].clone(), worker["ended"].clone());
        (workers.iter().map(of).collect::<Vec<_>>(), page["pagination"].clone())
    };
    let null = serde_json::Value::Null;
    let (live, pages) = names("live=true").await;
    assert_eq!(live, [(json!("c"), null.clone()), (json!("a"), null.clone())]);
    assert_eq!(pages["total"], 2);
    let (first, pages) = names("live=true&limit=1").await;
    assert_eq!(first, [(json!("c"), null.clone())]);
    let next = pages["next_cursor"].as_str().expect("a cursor");
    let (rest, _) = names(&format!("live=true&limit=1&cursor={next}")).await;
    assert_eq!(rest, [(json!("a"), null)]);
    assert_eq!(names("live=true&name=b").await.0, []);
    let (all, _) = names("live=false").await;
    assert_eq!(all.len(), 3);
    assert!(all[1].1.is_string(), "{all:?}");
}

#[tokio::test]
async fn only_a_worker_that_left_is_forgotten() {
    let api = Api::start();
    api.beat(json!({"worker_id": "w"})).await;
    api.delete("/api/v1/workers/w").await.refused(409, "conflict");
    api.beat(json!({"worker_id": "w", "state": "terminated"})).await;
    let page = api.get("/api/v1/workers?limit=1").await.expect(200);
    assert_eq!(page["pagination"], json!({"limit": 1, "next_cursor": null, "total": 1}));
    api.get("/api/v1/workers?cursor=nothing").await.refused(400, "invalid_request");
    let inactive = api.get("/api/v1/workers?status=inactive").await.expect(200);
    assert_eq!(inactive["pagination"]["total"], 1);
    api.delete("/api/v1/workers/w").await.expect(200);
    api.get("/api/v1/workers/w").await.refused(404, "not_found");
}

#[tokio::test]
async fn health_and_metrics_answer_in_their_formats() {
    let api = Api::start();
    assert_eq!(api.get("/health/live").await.expect(200)["status"], "live");
    assert_eq!(api.get("/health/ready").await.expect(200)["ready"], true);
    assert_eq!(api.get("/ojs/v1/health").await.expect(200)["status"], "ok");
    assert_eq!(api.get("/ojs/manifest").await.expect(200)["conformance_level"], 3);
    let metrics = api.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), "text/plain");
    assert!(metrics.text.contains("outlast_jobs_enqueued_total"), "{}", metrics.text);
}

#[tokio::test]
async fn pages_escape_what_came_from_outside() {
    let api = Api::start();
    api.beat(json!({"worker_id": "<script>alert(1)</script>"})).await;
    let page = api.get("/workers").await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(
        page.text.contains("&lt;script&gt;alert") || page.text.contains("&#60;script&#62;alert"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("<script>alert"), "{}", page.text);
}

#[tokio::test]
async fn a_head_request_has_no_body() {
    let api = Api::start();
    let reply = api.ask(Method::HEAD, "/health/live", None).await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, ""));
}

/// PostgreSQL takes no text with one: the answer was 500 there.
#[tokio::test]
async fn a_null_character_in_a_name_finds_nothing() {
    let api = Api::start();
    for path in ["/api/v1/workers/a%00b", "/ojs/v1/workers/a%00b/health", "/api/v1/actions/a%00b"] {
        let error = api.get(path).await.refused(404, "not_found");
        let message = error["message"].as_str().expect("text");
        assert!(message.contains("a\u{fffd}b"), "{message}");
    }
    let none = api.get("/api/v1/workers?name=a%00b").await.expect(200);
    assert_eq!(none["data"], json!([]));
}
