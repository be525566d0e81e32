//! Fetch, ack, nack, dead letters.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use serde_json::{Value, json};

use crate::api::Api;

fn failure(id: &str, rest: Value) -> Value {
    let mut body = json!({"job_id": id, "error": {"code": "handler_error", "message": "no"}});
    for (name, value) in rest.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_job_is_fetched_once_and_completed_once() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let job = api.fetch("w").await;
    assert_eq!(
        (&job["id"], &job["state"], &job["attempt"]),
        (&json!(id), &json!("active"), &json!(1))
    );
    assert!(job["started_at"].is_string());
    assert!(api.fetch("other").await.is_null());
    let body = api.ack(json!({"job_id": id, "result": {"ok": true}})).await.expect(200);
    assert_eq!((&body["acknowledged"], &body["state"]), (&json!(true), &json!("completed")));
    assert!(body["completed_at"].is_string());
    assert_eq!(api.job(&id).await["result"], json!({"ok": true}));
    api.ack(json!({"job_id": id})).await.refused(409, "conflict");
    api.nack(failure(&id, json!({}))).await.refused(409, "conflict");
}

#[tokio::test]
async fn a_report_by_another_worker_attempt_or_lease_changes_nothing() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let lease = api.fetch("w").await["lease"].clone();
    for foreign in [
        json!({"job_id": id, "worker_id": "other"}),
        json!({"job_id": id, "attempt": 2}),
        json!({"job_id": id, "lease": "99"}),
    ] {
        api.ack(foreign).await.refused(409, "conflict");
        assert_eq!(api.job(&id).await["state"], "active");
    }
    let own = json!({"job_id": id, "worker_id": "w", "attempt": 1, "lease": lease});
    api.ack(own).await.expect(200);
}

#[tokio::test]
async fn a_superseded_lease_is_refused() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let first = api.fetch("w").await["lease"].clone();
    api.nack(failure(&id, json!({"requeue": true}))).await.expect(200);
    api.fetch("w").await;
    api.ack(json!({"job_id": id, "lease": first})).await.refused(409, "conflict");
    assert_eq!(api.job(&id).await["state"], "active");
}

#[tokio::test]
async fn a_failure_is_retried_with_its_delay_and_kept_in_the_history() {
    let api = Api::start();
    let retry = json!({"max_attempts": 2, "initial_interval": "PT3S", "jitter": false});
    let id = api.enqueue(json!({"retry": retry})).await;
    api.fetch("w").await;
    let body = api.nack(failure(&id, json!({}))).await.expect(200);
    assert_eq!((&body["state"], &body["attempt"]), (&json!("retryable"), &json!(1)));
    assert_eq!((&body["retry_delay_ms"], &body["max_attempts"]), (&json!(3000), &json!(2)));
    assert!(body["next_attempt_at"].is_string());
    let job = api.job(&id).await;
    assert_eq!(job["errors"].as_array().map(Vec::len), Some(1), "{job}");
    assert_eq!(
        (&job["errors"][0]["code"], &job["errors"][0]["attempt"]),
        (&json!("handler_error"), &json!(1))
    );
    assert_eq!(
        (&job["error"]["type"], &job["error"]["message"]),
        (&json!("handler_error"), &json!("no"))
    );
}

#[tokio::test]
async fn a_shutdown_and_a_requeue_spend_no_attempt() {
    let api = Api::start();
    let id = api.enqueue(json!({"retry": {"max_attempts": 2}})).await;
    api.fetch("w").await;
    let shutdown = json!({"job_id": id, "error": {"code": "shutdown", "message": "bye"}});
    assert_eq!(api.nack(shutdown).await.expect(200)["state"], "available");
    assert_eq!(api.fetch("w").await["attempt"], 1);
    let requeue = json!({"job_id": id, "error": {"code": "c", "message": "", "retryable": false}, "requeue": true});
    assert_eq!(api.nack(requeue).await.expect(200)["state"], "available");
    assert_eq!(api.fetch("w").await["attempt"], 1);
}

#[tokio::test]
async fn an_exhausted_job_waits_as_a_dead_letter_and_is_replayed() {
    let api = Api::start();
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let id = api.enqueue(json!({"retry": retry})).await;
    api.fetch("w").await;
    let body = api.nack(failure(&id, json!({}))).await.expect(200);
    assert_eq!(body["state"], "discarded");
    assert!(body["discarded_at"].is_string() && body["completed_at"].is_string());
    let listed = api.get("/ojs/v1/dead-letter").await.expect(200);
    assert_eq!(listed["jobs"][0]["id"], id.as_str());
    assert_eq!(listed["jobs"][0]["errors"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["pagination"]["total"], 1);
    let none = api.get("/ojs/v1/dead-letter?queue=other").await.expect(200);
    assert_eq!((&none["jobs"], &none["pagination"]["total"]), (&json!([]), &json!(0)));
    let own = api.get("/ojs/v1/dead-letter?queue=default").await.expect(200);
    assert_eq!(own["pagination"]["total"], 1);
    let replayed =
        api.post(&format!("/ojs/v1/dead-letter/{id}/retry"), json!({})).await.expect(200);
    assert_eq!(
        (&replayed["job"]["state"], &replayed["job"]["attempt"]),
        (&json!("available"), &json!(0))
    );
    assert_eq!(api.fetch("w").await["attempt"], 1);
}

#[tokio::test]
async fn a_forgotten_dead_letter_is_gone_from_the_list() {
    let api = Api::start();
    let id =
        api.enqueue(json!({"retry": {"max_attempts": 1, "on_exhaustion": "dead_letter"}})).await;
    api.fetch("w").await;
    api.nack(failure(&id, json!({}))).await.expect(200);
    let path = format!("/ojs/v1/dead-letter/{id}");
    let body = api.delete(&path).await.expect(200);
    assert_eq!((&body["deleted"], &body["job_id"]), (&json!(true), &json!(id)));
    assert_eq!(api.get("/ojs/v1/dead-letter").await.expect(200)["jobs"], json!([]));
    api.delete(&path).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_report_about_a_job_cancelled_under_it_is_answered_and_changes_nothing() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    api.fetch("w").await;
    api.delete(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
    let late = api.ack(json!({"job_id": id})).await.expect(200);
    assert_eq!((&late["acknowledged"], &late["state"]), (&json!(false), &json!("cancelled")));
    let late = api.nack(failure(&id, json!({}))).await.expect(200);
    assert_eq!(late["acknowledged"], json!(false));
    assert_eq!(api.job(&id).await["state"], "cancelled");
    // It was never claimed.
    let id = api.enqueue(json!({})).await;
    api.delete(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
    api.ack(json!({"job_id": id})).await.refused(409, "conflict");
}

#[tokio::test]
async fn a_python_workers_grace_that_is_over_is_an_interruption() {
    let api = Api::start();
    let id = api.enqueue(json!({"retry": {"max_attempts": 2}})).await;
    api.fetch("w").await;
    let error = json!({"code": "cancelled", "retryable": true,
        "message": "Job execution was cancelled during worker shutdown"});
    let nacked = api.nack(json!({"job_id": id, "error": error})).await.expect(200);
    assert_eq!(nacked["state"], "available", "{nacked}");
    assert_eq!(api.fetch("other").await["attempt"], 1);
    let attempts = api.get(&format!("/api/v1/executions/{id}/attempts")).await.expect(200);
    let first = &attempts["data"][0];
    assert_eq!(
        (&first["outcome"], &first["evidence_code"]),
        (&json!("interrupted"), &json!("drained"))
    );
}

#[tokio::test]
async fn a_long_poll_is_answered_as_soon_as_there_is_a_job() {
    let api = Api::start();
    let fetch = json!({"queues": ["default"], "wait_ms": 20000});
    let (fetched, id) = tokio::join!(api.post("/ojs/v1/workers/fetch", fetch), async {
        tokio::task::yield_now().await;
        api.enqueue(json!({})).await
    });
    assert_eq!(fetched.expect(200)["jobs"][0]["id"], id.as_str());
}

/// A body without a length took the room of the longest one until its request was answered: 32
/// waiting fetches turned all other reports of workers away.
#[tokio::test]
async fn fetches_that_wait_take_no_room_from_other_requests() {
    let api = Arc::new(Api::start());
    let chunked = |body: &Value| {
        let parts = vec![Ok::<_, std::io::Error>(bytes::Bytes::from(body.to_string()))];
        Body::from_stream(futures_util::stream::iter(parts))
    };
    let waiting = json!({"queues": ["default"], "wait_ms": 20_000});
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (api, body) = (Arc::clone(&api), chunked(&waiting));
        polls.spawn(async move { api.raw("/ojs/v1/workers/fetch", body).await });
    }
    // Each has come to wait before the next question is answered.
    for _ in 0..40 {
        let sent = api.raw("/ojs/v1/workers/fetch", chunked(&json!({"queues": ["default"]})));
        let answer = tokio::time::timeout(Duration::from_secs(5), sent).await.expect("room");
        answer.expect(200);
    }
    assert!(polls.try_join_next().is_none(), "all wait");
}

#[tokio::test]
async fn a_plain_fetch_never_gets_an_actions_job() {
    let api = Api::start();
    let job = json!({"type": "core.echo", "args": [{"message": "m"}]});
    api.post("/ojs/v1/jobs", job).await.expect(201);
    assert!(api.fetch("w").await.is_null());
    let wrong = json!({"type": "core.echo", "args": [{"message": {"no": "text"}}]});
    api.post("/ojs/v1/jobs", wrong).await.refused(422, "validation_error");
}

/// Letters that the page of the store held beyond those that were asked for were once passed over.
#[tokio::test]
async fn dead_letters_of_a_queue_are_listed_page_by_page_and_none_is_missing() {
    let api = Api::start();
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let mut mail = Vec::new();
    for n in 0..9 {
        let queue = if n % 3 == 0 { "other" } else { "mail" };
        let options = json!({"queue": queue, "retry": retry});
        let job = json!({"type": "t", "args": [], "options": options});
        let body = api.post("/ojs/v1/jobs", job).await.expect(201);
        let id = body["job"]["id"].as_str().expect("an id").to_owned();
        let fetch = json!({"queues": [queue], "worker_id": "w"});
        api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
        api.nack(failure(&id, json!({}))).await.expect(200);
        if queue == "mail" {
            mail.insert(0, id);
        }
    }
    for (offset, limit) in [(0, 1), (0, 2), (0, 4), (0, 5), (1, 2), (3, 3)] {
        let mut path = format!("/ojs/v1/dead-letter?queue=mail&limit={limit}&offset={offset}");
        let mut listed: Vec<String> = Vec::new();
        loop {
            let page = api.get(&path).await.expect(200);
            let jobs = page["jobs"].as_array().expect("a list");
            listed.extend(jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()));
            let pagination = &page["pagination"];
            assert_eq!(pagination["total"], 6);
            let Some(cursor) = pagination["next_cursor"].as_str() else {
                assert_eq!(pagination["has_more"], false);
                break;
            };
            path = format!("/ojs/v1/dead-letter?queue=mail&limit={limit}&cursor={cursor}");
        }
        assert_eq!(listed, mail[offset..], "from {offset} by {limit}");
    }
}
