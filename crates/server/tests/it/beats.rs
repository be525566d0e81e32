//! Heartbeats of plain workers.

use serde_json::json;

use crate::api::Api;

#[tokio::test]
async fn a_first_beat_makes_a_worker_known() {
    let api = Api::start();
    let body = api.beat(json!({"worker_id": "w", "active_jobs": []})).await;
    assert_eq!((&body["acknowledged"], &body["state"]), (&json!(true), &json!("running")));
    api.beat(json!({"worker_id": "w", "active_jobs": []})).await;
    let list = api.get("/api/v1/workers").await.expect(200);
    assert_eq!(list["pagination"]["total"], 1, "{list}");
    assert_eq!(
        (&list["data"][0]["worker_role"], &list["data"][0]["status"]),
        (&json!("ojs"), &json!("active"))
    );
    let health = api.get("/ojs/v1/workers/w/health").await.expect(200);
    assert_eq!(health["state"], "running");
}

/// The second one once lapsed when the beats came to the first server again, and the worker got
/// no jobs.
#[tokio::test]
async fn a_worker_that_beats_at_two_servers_is_one() {
    let here = Api::start();
    let there = here.another();
    // What there is when a server starts is known to it.
    there.beat(json!({"worker_id": "other"})).await;
    let first = here.beat(json!({"worker_id": "w"})).await["incarnation"].clone();
    let second = there.beat(json!({"worker_id": "w"})).await["incarnation"].clone();
    assert_eq!(first, second);
    let list = there.get("/api/v1/workers").await.expect(200);
    assert_eq!(list["pagination"]["total"], 2, "{list}");
}

#[tokio::test]
async fn series_are_left_out_while_the_store_does_not_answer() {
    let api = Api::start();
    api.enqueue(json!({})).await;
    let page = api.get("/metrics").await.text;
    assert!(page.contains("\nojs_job_enqueued_total{queue=\"default\",type=\"t\"} 1\n"), "{page}");
    api.engine.store().close().await.expect("a close");
    let page = api.get("/metrics").await.text;
    assert!(page.contains("\noutlast_store_up 0\n"), "{page}");
    assert!(!page.contains("_other") && !page.contains("ojs_job_enqueued_total{"), "{page}");
}

#[tokio::test]
async fn a_beat_says_which_jobs_it_prolonged_and_which_are_not_held() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let other = api.enqueue(json!({})).await;
    api.fetch("w").await;
    let body = api.beat(json!({"worker_id": "w", "active_jobs": [id, other]})).await;
    assert_eq!((&body["jobs_extended"], &body["stale_jobs"]), (&json!([id]), &json!([other])));
    let counted = api.beat(json!({"worker_id": "w", "active_jobs": 1})).await;
    assert_eq!(counted["jobs_extended"], json!([id]));
}

#[tokio::test]
async fn a_worker_that_drains_gets_no_new_jobs() {
    let api = Api::start();
    api.enqueue(json!({})).await;
    let body = api.post(
        "/ojs/v1/workers/beat",
        json!({"worker_id": "w", "state": "drain", "active_jobs": 2}),
    );
    assert_eq!(body.await.expect(200)["state"], "terminate");
    assert!(api.fetch("w").await.is_null());
    let health = api.get("/ojs/v1/workers/w/health").await.expect(503);
    assert_eq!(health["state"], "draining");
    assert!(!api.fetch("other").await.is_null());
}

#[tokio::test]
async fn a_worker_resumes_what_it_quieted_itself_and_not_what_an_operator_did() {
    let api = Api::start();
    api.beat(json!({"worker_id": "w", "state": "quiet"})).await;
    assert_eq!(api.beat(json!({"worker_id": "w"})).await["state"], "quiet");
    assert_eq!(api.beat(json!({"worker_id": "w", "state": "running"})).await["state"], "running");
    api.post("/api/v1/workers/w/quiet", json!({})).await.expect(200);
    assert_eq!(api.beat(json!({"worker_id": "w", "state": "running"})).await["state"], "quiet");
    api.post("/api/v1/workers/w/resume", json!({})).await.expect(200);
    assert_eq!(api.beat(json!({"worker_id": "w", "state": "running"})).await["state"], "running");
}

#[tokio::test]
async fn a_worker_that_said_goodbye_and_comes_back_is_another() {
    let api = Api::start();
    let first = api.beat(json!({"worker_id": "w"})).await["incarnation"].clone();
    api.beat(json!({"worker_id": "w", "state": "terminated"})).await;
    let second = api.beat(json!({"worker_id": "w"})).await;
    assert_ne!(second["incarnation"], first);
    assert_eq!(second["state"], "running");
    let id = api.enqueue(json!({})).await;
    assert_eq!(api.fetch("w").await["id"], id.as_str());
}

/// Its old incarnation gets no jobs, wherever it is that it fetches.
#[tokio::test]
async fn a_worker_that_said_goodbye_comes_back_by_a_fetch_from_another_server() {
    let here = Api::start();
    let there = here.another();
    let first = here.beat(json!({"worker_id": "w"})).await["incarnation"].clone();
    here.beat(json!({"worker_id": "w", "state": "terminated"})).await;
    let id = here.enqueue(json!({})).await;
    assert_eq!(there.fetch("w").await["id"], id.as_str());
    let list = there.get("/api/v1/workers").await.expect(200);
    assert_eq!(list["pagination"]["total"], 2, "{list}");
    assert_ne!(there.beat(json!({"worker_id": "w"})).await["incarnation"], first);
    // A client that sends no heartbeats is no worker.
    for _ in 0..2 {
        there.fetch("stranger").await;
    }
    let list = there.get("/api/v1/workers").await.expect(200);
    assert_eq!(list["pagination"]["total"], 2, "{list}");
}

/// What it held once stayed its own until its silence was judged.
#[tokio::test]
async fn a_worker_that_says_it_is_terminated_gives_its_jobs_back_at_no_cost() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    api.beat(json!({"worker_id": "w"})).await;
    assert_eq!(api.fetch("w").await["attempt"], 1);
    let said = json!({"worker_id": "w", "state": "terminated", "active_jobs": [id]});
    let body = api.beat(said).await;
    assert_eq!((&body["state"], &body["stale_jobs"]), (&json!("terminate"), &json!([id])));
    let again = api.fetch("other").await;
    assert_eq!((&again["id"], &again["attempt"]), (&json!(id), &json!(1)));
}

#[tokio::test]
async fn a_test_directive_counts_in_conformance_runs_only() {
    for (conformance, expected) in [(false, "running"), (true, "terminate")] {
        let api = Api::with(|settings| settings.conformance = conformance);
        let id = api.enqueue(json!({"metadata": {"test_directive": "terminate"}})).await;
        api.fetch("w").await;
        let body = api.beat(json!({"worker_id": "w", "active_jobs": [id]})).await;
        assert_eq!(body["state"], expected);
    }
}

/// The Go SDK repeats the state that it was last told until the next answer tells it another.
#[tokio::test]
async fn a_resume_outlives_the_echo_of_the_quiet_before_it() {
    let api = Api::start();
    api.beat(json!({"worker_id": "w", "state": "running"})).await;
    api.post("/api/v1/workers/w/quiet", json!({})).await.expect(200);
    let said = json!({"worker_id": "w", "state": "running"});
    assert_eq!(api.beat(said).await["state"], "quiet");
    let echo = json!({"worker_id": "w", "state": "quiet"});
    assert_eq!(api.beat(echo.clone()).await["state"], "quiet");
    api.post("/api/v1/workers/w/resume", json!({})).await.expect(200);
    assert_eq!(api.beat(echo).await["state"], "running");
    assert_eq!(api.beat(json!({"worker_id": "w", "state": "running"})).await["state"], "running");
    // Its own word still counts once it has been running.
    assert_eq!(api.beat(json!({"worker_id": "w", "state": "quiet"})).await["state"], "quiet");
}

#[tokio::test]
async fn beats_of_plain_workers_are_counted() {
    let api = Api::start();
    for _ in 0..3 {
        api.beat(json!({"worker_id": "w"})).await;
    }
    let page = api.get("/metrics").await.text;
    assert!(page.contains("\noutlast_heartbeats_total 3\n"), "{page}");
    assert!(!page.contains("worker="), "{page}");
}
