//! Enqueue, look, cancel, queues, events.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::api::Api;

fn as_tenant(method: &str, path: &str, tenant: &str, body: &Value) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("x-ojs-tenant", tenant)
        .body(Body::from(body.to_string()))
        .expect("a request")
}

#[tokio::test]
async fn a_job_is_answered_with_its_whole_envelope() {
    let api = Api::start();
    let job = json!({"type": "email.send", "args": ["a", null, {"b": [1]}], "meta": {"m": 1},
        "x_custom": {"deep": true}, "options": {"tags": ["t"], "timeout_ms": 5}});
    let reply = api.post("/ojs/v1/jobs", job).await;
    assert_eq!(reply.header("content-type"), "application/openjobspec+json");
    assert_eq!(reply.header("ojs-version"), "1.0");
    let body = reply.expect(201);
    let job = &body["job"];
    assert_eq!(job["state"], "available");
    assert_eq!(job["args"], json!(["a", null, {"b": [1]}]));
    assert_eq!((&job["meta"]["m"], &job["attempt"]), (&json!(1), &json!(0)));
    assert_eq!((&job["tags"], &job["timeout_ms"]), (&json!(["t"]), &json!(5)));
    assert_eq!(job["x_custom"]["deep"], true);
    for absent in ["started_at", "completed_at", "error", "result"] {
        assert!(job.get(absent).is_none(), "{absent} in {job}");
    }
    let shown = api.get(&format!("/ojs/v1/jobs/{}", job["id"].as_str().expect("an id"))).await;
    let shown = shown.expect(200);
    assert_eq!(&shown["job"], job, "what is shown later is what was answered");
    assert_eq!(shown["id"], job["id"], "the fields are at the root too");
}

#[tokio::test]
async fn a_known_id_is_a_duplicate() {
    let api = Api::start();
    let job = json!({"type": "t", "args": [], "id": "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f"});
    api.post("/ojs/v1/jobs", job.clone()).await.expect(201);
    api.post("/ojs/v1/jobs", job).await.refused(409, "duplicate");
}

#[tokio::test]
async fn a_retry_policy_against_the_rules_is_refused_by_field() {
    let api = Api::start();
    let job = json!({"type": "t", "args": [], "options": {"retry": {"max_attempts": -1}}});
    let error = api.post("/ojs/v1/jobs", job).await.refused(422, "validation_error");
    assert_eq!(error["type"], "validation_error");
    assert!(error["message"].as_str().expect("text").contains("max_attempts"), "{error}");
}

#[tokio::test]
async fn a_job_for_the_future_is_not_fetched() {
    let api = Api::start();
    let id = api.enqueue(json!({"scheduled_at": "+PT5S"})).await;
    assert_eq!(api.job(&id).await["state"], "scheduled");
    assert!(api.fetch("w").await.is_null());
    let past = api.enqueue(json!({"delay_until": "2020-01-01T00:00:00Z"})).await;
    assert_eq!(api.fetch("w").await["id"], past.as_str());
}

#[tokio::test]
async fn a_bulk_is_stored_whole_or_not_at_all() {
    let api = Api::start();
    let good = json!({"type": "t", "args": []});
    let bad = json!({"jobs": [good, {"args": []}]});
    let error = api.post("/ojs/v1/jobs/batch", bad).await.refused(400, "invalid_request");
    assert!(error["message"].as_str().expect("text").contains("jobs[1]"), "{error}");
    assert!(api.fetch("w").await.is_null());
    let body = api.post("/ojs/v1/jobs/batch", json!({"jobs": [good, good]})).await.expect(201);
    assert_eq!((&body["count"], body["jobs"].as_array().map(Vec::len)), (&json!(2), Some(2)));
}

#[tokio::test]
async fn a_cancelled_job_is_never_fetched_and_not_cancelled_twice() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let path = format!("/ojs/v1/jobs/{id}");
    let body = api.delete(&path).await.expect(200);
    assert_eq!(body["job"]["state"], "cancelled");
    assert!(body["job"]["cancelled_at"].is_string() && body["job"].get("completed_at").is_none());
    api.delete(&path).await.refused(409, "conflict");
    assert!(api.fetch("w").await.is_null());
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let api = Api::start();
    for path in [
        "/ojs/v1/jobs/019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
        "/ojs/v1/jobs/no-id-at-all",
        "/ojs/v1/queues/nowhere/stats",
        "/ojs/v1/workers/nobody/health",
        "/ojs/v1/dead-letter/019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
        "/executions/019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
        "/api/v1/actions/core.nothing",
        "/api/v1/workers/nobody",
        "/nowhere",
    ] {
        api.get(path).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn a_paused_queue_takes_jobs_and_gives_none() {
    let api = Api::start();
    let body = api.post("/ojs/v1/queues/default/pause", json!({})).await.expect(200);
    assert_eq!(body["queue"]["paused"], true);
    let id = api.enqueue(json!({})).await;
    assert!(api.fetch("w").await.is_null());
    let stats = api.get("/ojs/v1/queues/default/stats").await.expect(200);
    assert_eq!((&stats["queue"]["available"], &stats["status"]), (&json!(1), &json!("paused")));
    api.post("/ojs/v1/queues/default/resume", json!({})).await.expect(200);
    assert_eq!(api.fetch("w").await["id"], id.as_str());
}

#[tokio::test]
async fn tenants_see_and_cancel_their_own_jobs_only() {
    let api = Api::start();
    let job = json!({"type": "t", "args": []});
    let stored = api.send(as_tenant("POST", "/ojs/v1/jobs", "a", &job)).await.expect(201);
    assert_eq!(stored["job"]["meta"]["tenant_id"], "a");
    let path = format!("/ojs/v1/jobs/{}", stored["job"]["id"].as_str().expect("an id"));
    for method in ["GET", "DELETE"] {
        api.send(as_tenant(method, &path, "b", &Value::Null)).await.refused(404, "not_found");
    }
    let fetch = json!({"queues": ["default"]});
    let of_b = api.send(as_tenant("POST", "/ojs/v1/workers/fetch", "b", &fetch)).await.expect(200);
    assert_eq!(of_b["jobs"], json!([]));
    let of_a = api.send(as_tenant("POST", "/ojs/v1/workers/fetch", "a", &fetch)).await.expect(200);
    assert_eq!(of_a["jobs"][0]["id"], stored["job"]["id"]);
}

#[tokio::test]
async fn a_pending_job_waits_for_its_activation() {
    let api = Api::start();
    let job = json!({"type": "t", "args": [], "options": {"pending": true}});
    let stored = api.post("/ojs/v1/jobs", job).await.expect(201)["job"].clone();
    assert_eq!(stored["state"], "pending");
    assert!(api.fetch("w").await.is_null());
    let path = format!("/ojs/v1/jobs/{}/activate", stored["id"].as_str().expect("an id"));
    let activated = api.post(&path, json!({})).await.expect(200)["job"].clone();
    assert_eq!(
        (&activated["state"], &activated["previous_state"]),
        (&json!("available"), &json!("pending"))
    );
    assert!(activated["activated_at"].is_string(), "{activated}");
    api.post(&path, json!({})).await.refused(409, "conflict");
    assert_eq!(api.fetch("w").await["id"], stored["id"]);
    let unknown = "/ojs/v1/jobs/019414d4-0000-7000-8000-000000000000/activate";
    api.post(unknown, json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_pending_job_names_no_time_and_says_yes_or_no() {
    let api = Api::start();
    let with = |options: Value| json!({"type": "t", "args": [], "options": options});
    let timed = with(json!({"pending": true, "delay_until": "2030-01-01T00:00:00Z"}));
    api.post("/ojs/v1/jobs", timed).await.refused(422, "validation_error");
    let word = with(json!({"pending": "yes"}));
    api.post("/ojs/v1/jobs", word).await.refused(400, "invalid_request");
    let no = api.post("/ojs/v1/jobs", with(json!({"pending": false}))).await.expect(201);
    assert_eq!(no["job"]["state"], "available");
}

#[tokio::test]
async fn what_is_not_served_yet_is_refused_or_named() {
    let api = Api::start();
    let with = |options: Value| json!({"type": "t", "args": [], "options": options});
    let limited = with(json!({"rate_limit": {"key": "k", "concurrency": 1}}));
    let error = api.post("/ojs/v1/jobs", limited.clone()).await.refused(422, "unsupported");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("rate_limit")), "{error}");
    let bulk = json!({"jobs": [with(json!({})), limited]});
    api.post("/ojs/v1/jobs/batch", bulk).await.refused(422, "unsupported");
    let manifest = api.get("/ojs/manifest").await.expect(200);
    assert_eq!(manifest["extensions"], json!(["graceful-shutdown"]));
    assert_eq!(manifest["capabilities"]["unique_jobs"], true);
    assert_eq!(manifest["capabilities"]["unique_jobs_strength"], "strong");
}

#[tokio::test]
async fn queue_statistics_name_the_queue_as_the_client_reads_it() {
    let api = Api::start();
    api.enqueue(json!({})).await;
    let path = "/ojs/v1/queues/default/stats";
    assert_eq!(api.get(path).await.expect(200)["queue"]["name"], "default");
    let versioned = Request::get(path)
        .header("ojs-version", "1.0")
        .header("user-agent", "node")
        .body(Body::empty())
        .expect("a request");
    assert_eq!(api.send(versioned).await.expect(200)["queue"], "default");
}

#[tokio::test]
async fn events_are_found_by_type_and_queue() {
    let api = Api::start();
    let id = api.enqueue(json!({"queue": "other"})).await;
    api.enqueue(json!({})).await;
    let path = "/ojs/v1/events?types=job.enqueued&queues=other&limit=10";
    let body = api.get(path).await.expect(200);
    assert_eq!(body["events"].as_array().map(Vec::len), Some(1), "{body}");
    assert_eq!(body["events"][0]["type"], "job.enqueued");
    assert_eq!(body["events"][0]["data"]["job_id"], id.as_str());
    let after = body["next_cursor"].as_str().expect("a cursor").replace('=', "%3D");
    let rest = api.get(&format!("{path}&after={after}")).await.expect(200);
    assert_eq!(rest["events"], json!([]));
}

#[tokio::test]
async fn the_reset_exists_in_conformance_runs_only() {
    let api = Api::start();
    api.post("/ojs/v1/admin/reset", json!({})).await.refused(404, "not_found");
    let api = Api::with(|settings| settings.conformance = true);
    let id = api.enqueue(json!({})).await;
    api.post("/ojs/v1/admin/reset", json!({})).await.expect(200);
    api.get(&format!("/ojs/v1/jobs/{id}")).await.refused(404, "not_found");
}
