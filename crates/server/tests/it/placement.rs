//! Which workers a job wants: read at every door, refused with the reason, shown again.

use std::fs;
use std::sync::Arc;

use outlast_packs::PackSet;
use serde_json::json;

use crate::api::Api;

#[tokio::test]
async fn what_a_job_requires_and_prefers_is_shown_in_canonical_form_and_kept_by_a_copy() {
    let api = Api::start();
    let body = json!({"action_ref": "core.noop", "requires": "zone in (b, a) ,gpu=true",
                      "prefers": "!spot"});
    let new = api.post("/executions", body).await.expect(201);
    let id = new["data"]["id"].as_str().expect("an id");
    let shown = api.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(shown["data"]["requires"], "gpu=true,zone in (a,b)");
    assert_eq!(shown["data"]["prefers"], "!spot");
    let reason = &shown["data"]["waiting_reason"];
    assert_eq!(reason, "no eligible worker: no live worker has runtime shell");
    api.post(&format!("/api/v1/executions/{id}/cancel"), json!({})).await.expect(200);
    let copy = api.post(&format!("/api/v1/executions/{id}/rerun"), json!({})).await.expect(201);
    assert_eq!(copy["data"]["requires"], "gpu=true,zone in (a,b)");
    let none = api.post("/executions", json!({"action_ref": "core.noop"})).await.expect(201);
    assert_eq!((&none["data"]["requires"], &none["data"]["prefers"]), (&json!(""), &json!("")));
}

#[tokio::test]
async fn clients_that_fetch_get_only_jobs_that_need_no_label() {
    let api = Api::start();
    let jobs = json!({"jobs": [
        {"type": "mail", "args": [1], "options": {"requires": "gpu"}},
        {"type": "mail", "args": [2], "options": {"requires": "!spot", "prefers": "gpu"}},
        {"type": "mail", "args": [3]},
    ]});
    let batch = api.post("/ojs/v1/jobs/batch", jobs).await.expect(201);
    assert_eq!(batch["jobs"][0]["options"]["requires"], "gpu");
    let fetch = json!({"queues": ["default"], "worker_id": "w", "count": 3});
    let fetched = api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
    let args = fetched["jobs"].as_array().expect("jobs").iter().map(|job| job["args"][0].clone());
    assert_eq!(args.collect::<Vec<_>>(), [json!(2), json!(3)]);
    let id = batch["jobs"][0]["id"].as_str().expect("an id");
    let left = api.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    let reason = left["data"]["waiting_reason"].as_str().expect("a reason");
    assert!(reason.ends_with("clients that fetch from queue default have no labels"), "{reason}");
}

#[tokio::test]
async fn what_is_no_selector_is_refused_with_the_place_at_every_door() {
    let api = Api::start();
    for field in ["requires", "prefers"] {
        let why = format!(
            "field `{field}` is no selector: expected =, !=, in, notin or a comma at character 5"
        );
        let body = json!({"action_ref": "core.noop", field: "gpu true"});
        let error = api.post("/executions", body).await.refused(400, "invalid_request");
        assert!(error["message"].as_str().expect("text").starts_with(&why), "{error}");
        assert_eq!(error["details"]["field"], field, "{error}");
        let body = json!({"type": "mail", "args": [], "options": {field: "gpu true"}});
        let error = api.post("/ojs/v1/jobs", body).await.refused(400, "invalid_request");
        assert!(error["message"].as_str().expect("text").starts_with(&why), "{error}");
        let body = json!({"type": "mail", "args": [], "options": {field: {"gpu": true}}});
        let error = api.post("/ojs/v1/jobs", body).await.refused(400, "invalid_request");
        let why =
            format!("field `{field}` must be a text such as `gpu=true, zone in (a, b), !spot`");
        assert_eq!(error["message"], why);
    }
    let error = api.get("/api/v1/workers?selector=gpu%3D%3D%3D").await;
    let error = error.refused(400, "invalid_request");
    let message = error["message"].as_str().expect("text");
    assert!(message.starts_with("field `selector` is no selector"), "{error}");
    let long: Vec<String> = (0..15).map(|n| format!("a{n}={}", "v".repeat(60))).collect();
    let (one, other) = (long.join(","), long.join(",").replace('a', "b"));
    let body = json!({"action_ref": "core.noop", "requires": one, "prefers": other});
    let error = api.post("/executions", body).await.refused(422, "validation_error");
    let message = error["message"].as_str().expect("text");
    assert!(message.ends_with("at most 1536 are taken"), "{error}");
}

#[tokio::test]
async fn what_an_action_requires_adds_to_what_its_job_requires() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("actions")).expect("a folder");
    fs::write(folder.path().join("pack.yaml"), "ref: site\n").expect("a pack");
    fs::write(folder.path().join("actions/it.sh"), "#!/bin/sh\n").expect("a script");
    let action = "runner_type: shell\nentry_point: it.sh\nrequires: gpu=true, !spot\n\
                  prefers: zone=a\n";
    fs::write(folder.path().join("actions/it.yaml"), action).expect("an action");
    let packs = PackSet::load(&[folder.path().to_owned()]).expect("packs");
    assert_eq!(packs.faults().count(), 0);
    let api = Api::with(|settings| settings.packs = Arc::new(packs).into());
    let action = api.get("/api/v1/actions/site.it").await.expect(200);
    assert_eq!(action["data"]["requires"], "gpu=true,!spot");
    let body = json!({"action_ref": "site.it", "requires": "zone in (a, b)"});
    let new = api.post("/executions", body).await.expect(201);
    assert_eq!(new["data"]["requires"], "gpu=true,!spot,zone in (a,b)");
    assert_eq!(new["data"]["prefers"], "zone=a");
    let job = json!({"type": "site.it", "args": [{}], "options": {"prefers": "ssd"}});
    let new = api.post("/ojs/v1/jobs", job).await.expect(201);
    assert_eq!(
        (&new["job"]["requires"], &new["job"]["options"]["prefers"]),
        (&json!("gpu=true,!spot"), &json!("ssd,zone=a"))
    );
    let id = new["job"]["id"].as_str().expect("an id");
    assert_eq!(api.job(id).await["options"], new["job"]["options"]);
    let shown = api.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(shown["data"]["requires"], "gpu=true,!spot");
    assert_eq!(shown["data"]["prefers"], "ssd,zone=a");
}
