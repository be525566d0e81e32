//! Requests that wait for the end of an execution.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::Api;

/// Far above what an answer takes, and far below what is waited for.
const SOON: Duration = Duration::from_secs(20);

async fn waited(api: &Api, id: &str, wait: &str) -> Value {
    api.get(&format!("/api/v1/executions/{id}?wait={wait}")).await.expect(200)["data"].clone()
}

#[tokio::test]
async fn a_wait_is_answered_when_the_execution_has_ended() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let other = api.another();
    let begun = Instant::now();
    let end = async {
        assert_eq!(other.fetch("w").await["id"], json!(id));
        other.ack(json!({"job_id": id, "result": {"n": 7}})).await.expect(200);
    };
    let (here, there, ()) = tokio::join!(waited(&api, &id, "60s"), waited(&other, &id, "60"), end);
    for seen in [here, there] {
        assert_eq!((&seen["status"], &seen["result"]["n"]), (&json!("completed"), &json!(7)));
    }
    assert_eq!(waited(&api, &id, "60s").await["status"], "completed", "it had ended before");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_answered_when_its_time_is_over() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    for (wait, least) in [("0", 0), ("1500ms", 1_500), ("60", 60_000)] {
        let begun = Instant::now();
        assert_eq!(waited(&api, &id, wait).await["status"], "requested");
        let took = begun.elapsed().as_millis();
        assert!((least..least + 100).contains(&took), "{wait}: {took} ms");
    }
}

#[tokio::test]
async fn a_wait_is_answered_when_the_server_stops() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let begun = Instant::now();
    let stop = async {
        tokio::task::yield_now().await;
        api.stop();
    };
    let (seen, ()) = tokio::join!(waited(&api, &id, "60s"), stop);
    assert_eq!(seen["status"], "requested");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_wait_that_is_too_long_or_for_nothing_is_refused() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    for wait in ["61s", "2m", "-1", "soon", "1h"] {
        let path = format!("/api/v1/executions/{id}?wait={wait}");
        let error = api.get(&path).await.refused(400, "invalid_request");
        assert_eq!(error["details"]["field"], "wait");
        assert!(error["message"].as_str().expect("text").contains("`60s`"), "{error}");
    }
    let unknown = "/api/v1/executions/01890a5d-ac96-774b-bcce-b302099a8057?wait=60s";
    api.get(unknown).await.refused(404, "not_found");
}
