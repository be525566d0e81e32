//! Workflows that a client starts and waits for.

use std::time::Duration;

use outlast_sdk::{Client, ClientError, WorkflowId};
use serde_json::{Value, json};

use crate::scripted_http::{Answer, ScriptedHttp};
use crate::support::within;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const RUNNING: &str = r#"{"data":{"id":"01890a5d-ac96-774b-bcce-b302099a8057","name":"night",
    "status":"running","form":"steps","created":"2026-01-02T03:04:05Z",
    "updated":"2026-01-02T03:04:05Z","retries":0,"steps":[{"name":"load","status":"running",
    "after":[],"total":1,"held":0,"running":1,"completed":0,"failed":0,
    "job_ids":["01890a5d-ac96-774b-bcce-b302099a8058"]}]}}"#;
const COMPLETED: &str = r#"{"data":{"id":"01890a5d-ac96-774b-bcce-b302099a8057",
    "status":"completed","created":"2026-01-02T03:04:05Z","finished":"2026-01-02T03:04:06Z",
    "result":[1,2]}}"#;
const CANCELLED: &str = r#"{"data":{"id":"01890a5d-ac96-774b-bcce-b302099a8057",
    "status":"cancelled","created":"2026-01-02T03:04:05Z","error":"cancelled by ada"}}"#;
const CONFLICT: &str = r#"{"error":{"code":"conflict","message":"it has ended"}}"#;
const BUSY: &str = r#"{"error":{"code":"unavailable","message":"store is busy"}}"#;

fn id() -> WorkflowId {
    ID.parse().unwrap()
}

fn says(status: u16, body: &'static str) -> Answer {
    Answer::Says(status, body, &[("retry-after", "0")])
}

#[tokio::test]
async fn a_workflow_is_started_under_one_key_and_waited_for() {
    let server = ScriptedHttp::start([
        Answer::HangsUp,
        says(201, RUNNING),
        says(200, RUNNING),
        Answer::HangsUp,
        says(503, BUSY),
        says(200, COMPLETED),
    ])
    .await;
    let client = Client::new(&server.url).unwrap();
    let flow = client.workflow().name("night").step("load").action("ase.load");
    let ended = within(flow.run(Duration::from_secs(20))).await.unwrap();
    assert_eq!((ended.id, ended.has_ended()), (id(), true));
    assert_eq!(ended.result::<Vec<u8>>().unwrap(), [1, 2]);
    assert!(ended.finished.is_some() && ended.completed().is_ok());
    let asked = server.asked();
    let key = asked[0].header("idempotency-key");
    assert!(key.is_some() && asked[1].header("idempotency-key") == key, "{asked:?}");
    let sent: Value = serde_json::from_str(&asked[1].body).unwrap();
    let steps = json!([{"name": "load", "action": "ase.load"}]);
    assert_eq!(sent, json!({"workflow": {"name": "night", "steps": steps}}));
    let lines: Vec<&str> = asked[1..].iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(lines[0], "POST /api/v1/workflows");
    assert_eq!(lines[1], format!("GET /api/v1/workflows/{ID}"));
    assert!(lines[2].contains("?wait=5000ms"), "half of what a request may take: {lines:?}");
}

#[tokio::test]
async fn a_workflow_is_read_with_its_steps() {
    let server = ScriptedHttp::start([says(200, RUNNING), says(404, CONFLICT)]).await;
    let client = Client::new(&server.url).unwrap();
    let read = within(client.workflow_status(id())).await.unwrap();
    let load = read.step("load").unwrap();
    assert_eq!((load.status.as_str(), load.total, load.job_ids.len()), ("running", 1, 1));
    assert_eq!(read.more["form"], "steps");
    assert!(read.step("send").is_none() && !read.has_ended());
    let unsuccessful = read.completed().unwrap_err();
    assert_eq!(unsuccessful.to_string(), format!("workflow {ID} ended as running"));
    assert!(within(client.workflow_status(id())).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_wait_that_is_over_says_how_the_workflow_was_seen_last() {
    let server = ScriptedHttp::start(std::iter::repeat_n(says(200, RUNNING), 100)).await;
    let client = Client::new(&server.url).unwrap();
    let waited = client.wait_for_workflow(id(), Duration::from_millis(300));
    let error = within(waited).await.unwrap_err();
    assert!(matches!(error, ClientError::WorkflowWaitTimedOut { .. }), "{error:?}");
    assert_eq!(error.to_string(), "workflow had not ended after 300ms; it is running");
    // A server that answers at once is not asked without a pause.
    assert!(server.asked().len() < 20, "{}", server.asked().len());
}

#[tokio::test]
async fn cancelling_twice_is_no_error_and_a_retry_is_sent_once() {
    let server = ScriptedHttp::start([
        says(409, CONFLICT),
        says(200, CANCELLED),
        says(409, CONFLICT),
        says(200, COMPLETED),
        says(200, RUNNING),
        Answer::HangsUp,
    ])
    .await;
    let client = Client::new(&server.url).unwrap();
    let cancelled = within(client.cancel_workflow(id())).await.unwrap();
    let why = cancelled.completed().unwrap_err();
    assert_eq!(why.to_string(), format!("workflow {ID} ended as cancelled: cancelled by ada"));
    assert!(within(client.cancel_workflow(id())).await.unwrap_err().is_conflict());
    assert_eq!(within(client.retry_workflow(id())).await.unwrap().status, "running");
    within(client.retry_workflow(id())).await.unwrap_err();
    let lines: Vec<String> = server.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert_eq!(lines[0], format!("POST /api/v1/workflows/{ID}/cancel"));
    assert_eq!(lines[5], format!("POST /api/v1/workflows/{ID}/retry"));
}

#[tokio::test]
async fn a_workflow_of_a_pack_is_started_by_its_reference() {
    let server = ScriptedHttp::start([says(201, RUNNING)]).await;
    let client = Client::new(&server.url).unwrap();
    let start = client.start_workflow("reports.nightly").parameter("day", 7).idempotency_key("d7");
    assert_eq!(within(start.start()).await.unwrap().name.as_deref(), Some("night"));
    let asked = &server.asked()[0];
    assert_eq!(asked.header("idempotency-key"), Some("d7"));
    let sent: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(sent, json!({"workflow_ref": "reports.nightly", "parameters": {"day": 7}}));
}
