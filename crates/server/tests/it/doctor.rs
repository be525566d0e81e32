//! What the server answers `outlast doctor`.

use serde_json::json;

use crate::api::Api;

#[tokio::test]
async fn jobs_that_nobody_can_run_are_named_with_the_reason() {
    let api = Api::start();
    let data = api.get("/api/v1/doctor").await.expect(200)["data"].clone();
    assert_eq!(data["untaken"], json!([]), "{data}");
    api.post("/api/v1/executions", json!({"action_ref": "core.noop"})).await.expect(201);
    let data = api.get("/api/v1/doctor").await.expect(200)["data"].clone();
    let class = &data["untaken"][0];
    assert_eq!((&class["queue"], &class["paused"]), (&json!("default"), &json!(false)), "{data}");
    assert!(class["reason"].as_str().unwrap().contains("no eligible worker"), "{data}");
    assert_eq!(class["lacks_action"], false, "there is no worker at all: {data}");
    assert_eq!(data["queues"][0]["available"], 1, "{data}");
}

#[tokio::test]
async fn a_paused_queue_is_said_to_be_paused() {
    let api = Api::start();
    api.enqueue(json!({"queue": "mail"})).await;
    api.post("/ojs/v1/queues/mail/pause", json!({})).await.expect(200);
    let data = api.get("/api/v1/doctor").await.expect(200)["data"].clone();
    assert_eq!(data["untaken"][0]["paused"], true, "{data}");
}

#[tokio::test]
async fn workers_are_told_with_the_interval_they_promised() {
    let api = Api::start();
    api.beat(json!({"worker_id": "w"})).await;
    let data = api.get("/api/v1/doctor").await.expect(200)["data"].clone();
    let worker = &data["workers"][0];
    assert_eq!((&worker["state"], &worker["holds_lease"]), (&json!("running"), &json!(true)));
    let (interval, lease) = (&worker["interval_seconds"], &worker["lease_seconds"]);
    assert_eq!(interval.as_f64().unwrap() * 3.0, lease.as_f64().unwrap(), "{data}");
    assert_eq!(data["store"]["kind"], "memory", "{data}");
}

/// The page and the command once had rules of their own, and other words for the same fact.
#[tokio::test]
async fn the_first_page_says_what_doctor_says() {
    let api = Api::start();
    let data = api.get("/api/v1/doctor").await.expect(200)["data"].clone();
    assert_eq!(data["findings"], json!([]), "{data}");
    assert!(api.get("/").await.text.contains("Nothing needs you"));
    api.post("/api/v1/executions", json!({"action_ref": "core.noop"})).await.expect(201);
    let data = api.get("/api/v1/doctor").await.expect(200)["data"].clone();
    let page = api.get("/").await.text;
    let findings = data["findings"].as_array().expect("findings");
    let rules: Vec<_> = findings.iter().map(|it| it["rule"].as_str().expect("a rule")).collect();
    assert_eq!(rules, ["OutlastNoWorkers", "OutlastNobodyEligible"], "{data}");
    for found in findings {
        assert_eq!(found["stands_still"], true, "{found}");
        for (field, around) in [
            ("rule", "data-finding=\"{}\""),
            ("what", "{}</h2>"),
            ("evidence", "<p>{}</p>"),
            ("fix", "</strong> {}</p>"),
            ("page", "<a href=\"{}\">Look at it</a>"),
        ] {
            let wanted = around.replace("{}", found[field].as_str().expect("text"));
            assert!(page.contains(&wanted), "{wanted}: {page}");
        }
    }
}
