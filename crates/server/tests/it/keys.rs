//! Keys of jobs: what a request gives is shown again, by both APIs, and kept by a copy.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use outlast_packs::PackSet;
use serde_json::{Value, json};

use crate::api::Api;

async fn execution(api: &Api, keys: &Value) -> Value {
    let body = json!({"action_ref": "core.noop", "keys": keys});
    api.post("/executions", body).await.expect(201)["data"].clone()
}

#[tokio::test]
async fn keys_of_an_execution_are_shown_by_both_apis_and_lists() {
    let api = Api::start();
    let keys = json!({"account": "acme", "tenant": "42"});
    let new = execution(&api, &json!({"tenant": 42, "account": "acme"})).await;
    assert_eq!(new["keys"], keys);
    let id = new["id"].as_str().expect("an id");
    let shown = api.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(shown["data"]["keys"], keys);
    let list = api.get("/api/v1/executions").await.expect(200);
    assert_eq!(list["data"][0]["keys"], keys);
    let job = api.get(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
    assert_eq!((&job["job"]["options"]["keys"], &job["job"]["keys"]), (&keys, &keys));
    for (query, count) in [
        ("key=tenant%3D42", 1),
        ("key=tenant%3D42&key=account%3Dacme", 1),
        ("key=tenant%3D42&key=account%3Dother", 0),
        ("key=tenant%3D4", 0),
    ] {
        let list = api.get(&format!("/api/v1/executions?{query}")).await.expect(200);
        assert_eq!(list["data"].as_array().map(Vec::len), Some(count), "{query}: {list}");
    }
    let none = execution(&api, &Value::Null).await;
    assert_eq!(none["keys"], json!({}));
}

#[tokio::test]
async fn keys_of_ojs_jobs_are_shown_by_both_apis_and_to_who_fetches_them() {
    let api = Api::start();
    let keys = json!({"tenant": "42"});
    let body = json!({"type": "mail", "args": [], "options": {"keys": keys}});
    let new = api.post("/ojs/v1/jobs", body).await.expect(201)["job"].clone();
    assert_eq!((&new["options"]["keys"], &new["keys"]), (&keys, &keys));
    let path = format!("/api/v1/executions/{}", new["id"].as_str().expect("an id"));
    assert_eq!(api.get(&path).await.expect(200)["data"]["keys"], keys);
    let batch = json!({"jobs": [
        {"type": "mail", "args": [], "options": {"keys": {"tenant": "a"}}},
        {"type": "mail", "args": []},
    ]});
    let batch = api.post("/ojs/v1/jobs/batch", batch).await.expect(201);
    assert_eq!(batch["jobs"][0]["keys"], json!({"tenant": "a"}));
    assert_eq!(
        (&batch["jobs"][1]["keys"], &batch["jobs"][1]["options"]),
        (&Value::Null, &Value::Null)
    );
    let fetch = json!({"queues": ["default"], "worker_id": "w", "count": 3});
    let fetched = api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
    assert_eq!(fetched["jobs"][0]["keys"], keys);
    assert_eq!(fetched["jobs"][1]["options"]["keys"], json!({"tenant": "a"}));
}

#[tokio::test]
async fn wrong_keys_are_refused_in_the_words_of_each_api() {
    let api = Api::start();
    let keys = json!({"Tenant": "42"});
    let body = json!({"action_ref": "core.noop", "keys": keys});
    let error = api.post("/executions", body).await.refused(400, "invalid_request");
    assert_eq!(error["details"]["field"], "keys", "{error}");
    let body = json!({"type": "mail", "args": [], "options": {"keys": keys}});
    let error = api.post("/ojs/v1/jobs", body).await.refused(400, "invalid_request");
    let message = error["message"].as_str().expect("text");
    assert!(
        message.starts_with("field `keys` names a key `Tenant`; a name has 1 to 64"),
        "{error}"
    );
}

#[tokio::test]
async fn a_copy_keeps_the_keys() {
    let api = Api::start();
    let new = execution(&api, &json!({"tenant": "42"})).await;
    let id = new["id"].as_str().expect("an id");
    api.post(&format!("/api/v1/executions/{id}/cancel"), json!({})).await.expect(200);
    let copy = api.post(&format!("/api/v1/executions/{id}/rerun"), json!({})).await.expect(201);
    assert_eq!(copy["data"]["keys"], json!({"tenant": "42"}));
}

/// Packs with the action `site.it`, whose file has these lines.
fn action(folder: &Path, lines: &str) -> PackSet {
    fs::create_dir_all(folder.join("actions")).expect("a folder");
    fs::write(folder.join("pack.yaml"), "ref: site\n").expect("a pack");
    fs::write(folder.join("actions/it.sh"), "#!/bin/sh\n").expect("a script");
    let action = format!("runner_type: shell\nentry_point: it.sh\n{lines}");
    fs::write(folder.join("actions/it.yaml"), action).expect("an action");
    let packs = PackSet::load(&[folder.to_owned()]).expect("packs");
    assert_eq!(packs.faults().count(), 0);
    packs
}

fn with_action(folder: &Path, lines: &str) -> Api {
    let packs = action(folder, lines);
    Api::with(|settings| settings.packs = Arc::new(packs).into())
}

#[tokio::test]
async fn keys_of_an_action_are_made_of_the_parameters_whichever_api_the_job_came_by() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = "parameters: {tenant: {default: none}}\nkeys: {tenant: '{{tenant}}', team: core}\n";
    let api = with_action(folder.path(), lines);
    let action = api.get("/api/v1/actions/site.it").await.expect(200);
    assert_eq!(action["data"]["keys"], json!({"team": "core", "tenant": "{{tenant}}"}));

    let body = json!({"action_ref": "site.it", "parameters": {"tenant": 42}});
    let new = api.post("/executions", body).await.expect(201);
    assert_eq!(new["data"]["keys"], json!({"team": "core", "tenant": "42"}));
    let given = json!({"team": "ops", "x": "1"});
    let body = json!({"action_ref": "site.it", "keys": given});
    let new = api.post("/executions", body).await.expect(201);
    assert_eq!(new["data"]["keys"], json!({"team": "ops", "tenant": "none", "x": "1"}));
    let job = json!({"type": "site.it", "args": [{"tenant": "a"}], "options": {"keys": given}});
    let keys = json!({"team": "ops", "tenant": "a", "x": "1"});
    let new = api.post("/ojs/v1/jobs", job).await.expect(201)["job"].clone();
    assert_eq!((&new["options"]["keys"], &new["keys"]), (&keys, &keys));
    let stored = api.job(new["id"].as_str().expect("an id")).await;
    assert_eq!((&stored["options"]["keys"], &stored["keys"]), (&keys, &keys));
}

#[tokio::test]
async fn parameters_that_make_no_key_and_too_many_keys_are_refused_before_anything_is_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = with_action(folder.path(), "keys: {tenant: '{{tenant}}', a: 1, b: 1}\n");
    let body = json!({"action_ref": "site.it"});
    let error = api.post("/executions", body).await.refused(422, "validation_error");
    assert_eq!(error["details"]["violations"][0]["path"], "/tenant", "{error}");
    let message = "is missing; key `tenant` of the action is made of it";
    assert_eq!(error["details"]["violations"][0]["message"], message);
    let long = "v".repeat(300);
    let job = json!({"type": "site.it", "args": [{ "tenant": long }]});
    let error = api.post("/ojs/v1/jobs", job).await.refused(422, "validation_error");
    assert!(error["message"].as_str().expect("text").ends_with("at most 256 are taken"), "{error}");
    let body = json!({"action_ref": "site.it", "parameters": {"tenant": 1},
                      "keys": {"c": "1", "d": "1"}});
    let error = api.post("/executions", body).await.refused(422, "validation_error");
    let message = "field `keys` holds 5 keys, those of the action included; at most 4 are taken";
    assert_eq!(error["message"], message);
    let list = api.get("/executions").await.expect(200);
    assert_eq!(list["pagination"]["total"], 0, "nothing was stored");
}

#[tokio::test]
async fn a_copy_does_not_take_the_keys_that_its_action_has_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = with_action(folder.path(), "keys: {team: core}\n");
    let body = json!({"action_ref": "site.it", "keys": {"tenant": "42"}});
    let new = api.post("/executions", body).await.expect(201);
    let path = format!("/api/v1/executions/{}", new["data"]["id"].as_str().expect("an id"));
    api.post(&format!("{path}/cancel"), json!({})).await.expect(200);
    let changed = action(folder.path(), "keys: {team: ops, region: '{{region}}'}\n");
    api.engine.settings().packs.replace(changed);
    let copy = api.post(&format!("{path}/rerun"), json!({})).await.expect(201);
    assert_eq!(copy["data"]["keys"], json!({"team": "core", "tenant": "42"}));
}
