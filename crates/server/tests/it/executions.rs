//! The executions API.

use std::sync::Arc;

use outlast_packs::PackSet;
use outlast_server::Settings;
use serde_json::{Value, json};

use crate::api::Api;

async fn create(api: &Api, body: Value) -> String {
    let body = api.post("/executions", body).await.expect(201);
    body["data"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn an_execution_is_accepted_while_no_worker_lives() {
    let api = Api::start();
    let body = json!({"action_ref": "core.echo", "parameters": {"message": "test"}});
    let reply = api.post("/executions", body).await;
    assert_eq!(reply.header("content-type"), "application/json");
    let data = reply.expect(201)["data"].clone();
    assert_eq!((&data["action_ref"], &data["status"]), (&json!("core.echo"), &json!("requested")));
    assert_eq!(
        (&data["attempt"], &data["epoch"], &data["worker"]),
        (&json!(0), &json!(0), &Value::Null)
    );
    assert!(data["waiting_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{data}");
    let id = data["id"].as_str().expect("an id");
    assert_eq!(data["attempts_url"], format!("/api/v1/executions/{id}/attempts"));
    let shown = api.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(shown["data"]["parameters"], json!({"message": "test"}));
}

#[tokio::test]
async fn a_wrong_request_is_refused_by_name() {
    let api = Api::start();
    let unknown = api.post("/executions", json!({"action_ref": "no.such"})).await;
    let error = unknown.refused(404, "not_found");
    assert!(error["message"].as_str().expect("text").contains("no.such"), "{error}");
    let wrong = json!({"action_ref": "core.echo", "parameters": {"message": []}});
    let error = api.post("/executions", wrong).await.refused(422, "validation_error");
    assert_eq!(error["details"]["violations"][0]["path"], "/message", "{error}");
    let slip = json!({"action_ref": "core.noop", "priorty": 3});
    let error = api.post("/executions", slip).await.refused(400, "invalid_request");
    assert_eq!(error["details"]["field"], "priorty");
    api.post("/executions", json!({"parameters": {}})).await.refused(400, "invalid_request");
    let list = api.get("/executions").await.expect(200);
    assert_eq!(list["pagination"]["total"], 0, "nothing was stored");
}

/// A slip in a filter once listed everything.
#[tokio::test]
async fn parameter_of_a_query_that_is_not_known_is_refused_by_name() {
    let api = Api::start();
    for (path, slip) in [
        ("/api/v1/executions?statsu=running", "statsu"),
        ("/executions?status=running&lmit=3", "lmit"),
        ("/api/v1/events?stream=false&tpye=job.*", "tpye"),
        ("/api/v1/workers?stat%65s=running", "states"),
        ("/api/v1/actions?pac=core", "pac"),
    ] {
        let error = api.get(path).await.refused(400, "invalid_request");
        assert_eq!(error["details"]["field"], slip, "{error}");
    }
    // The standard lets its clients send what a server does not know.
    api.get("/ojs/v1/events?unknown=1").await.expect(200);
    api.get("/health/live?probe=1").await.expect(200);
}

/// An unset variable in a script (`?queue=$Q`) once meant every queue.
#[tokio::test]
async fn empty_filter_is_refused_and_is_no_filter_of_everything() {
    let api = Api::start();
    for (path, field) in [
        ("/api/v1/executions?queue=", "queue"),
        ("/executions?status=requested&worker", "worker"),
        ("/api/v1/events?stream=false&queue=,%20,", "queue"),
        ("/api/v1/workers?name=", "name"),
        ("/api/v1/actions?pack=", "pack"),
    ] {
        let error = api.get(path).await.refused(422, "validation_error");
        assert_eq!(error["details"]["field"], field, "{error}");
    }
    // Where a page begins is no filter; the standard's clients may send what is empty.
    api.get("/api/v1/executions?cursor=&limit=").await.expect(200);
    api.get("/ojs/v1/events?queue=").await.expect(200);
}

#[tokio::test]
async fn options_of_an_execution_take_effect() {
    let api = Api::start();
    let id = create(
        &api,
        json!({"action_ref": "core.noop", "queue": "q", "priority": 9,
        "timeout": "1.5", "scheduled_timeout": 60, "retry": {"max_attempts": 7},
        "labels": {"zone": "a"}, "overlap": "forbidden", "delay": 30}),
    )
    .await;
    let data = api.get(&format!("/executions/{id}")).await.expect(200)["data"].clone();
    assert_eq!((&data["queue"], &data["priority"]), (&json!("q"), &json!(9)));
    assert_eq!((&data["timeout"], &data["scheduled_timeout"]), (&json!(1.5), &json!(60)));
    assert_eq!((&data["max_attempts"], &data["overlap"]), (&json!(7), &json!("forbidden")));
    assert_eq!((&data["labels"]["zone"], &data["state"]), (&json!("a"), &json!("scheduled")));
}

/// Every producer once had to know the queue: a job without `queue` was in `default`.
#[tokio::test]
async fn queue_and_priority_are_the_actions_unless_the_job_has_its_own_at_every_door() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join("demo").join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, text).expect("a file");
    };
    file("pack.yaml", "ref: demo\n");
    file(
        "actions/report.yaml",
        "runner_type: shell\nentry_point: report.sh\nqueue: reports\npriority: -7\n",
    );
    file("actions/report.sh", "true\n");
    let packs = PackSet::load(&[folder.path().to_owned()]).expect("sound packs");
    let api = Api::with(|settings| *settings = Settings::with_packs(Arc::new(packs)));
    let shown = api.get("/api/v1/actions/demo.report").await.expect(200);
    assert_eq!(
        (&shown["data"]["queue"], &shown["data"]["priority"]),
        (&json!("reports"), &json!(-7))
    );
    let own = json!({"queue": "urgent", "priority": 9});
    for (options, queue, priority) in [(json!({}), "reports", -7), (own, "urgent", 9)] {
        let mut body = options.clone();
        body["action_ref"] = json!("demo.report");
        let id = create(&api, body).await;
        let job = json!({"type": "demo.report", "args": [{}], "options": options});
        let ojs = api.post("/ojs/v1/jobs", job.clone()).await.expect(201);
        assert_eq!(
            (&ojs["job"]["queue"], &ojs["job"]["priority"]),
            (&json!(queue), &json!(priority))
        );
        let batch = api.post("/ojs/v1/jobs/batch", json!({"jobs": [job]})).await.expect(201);
        assert_eq!(batch["jobs"][0]["queue"], queue);
        for id in [&json!(id), &ojs["job"]["id"], &batch["jobs"][0]["id"]] {
            let id = id.as_str().expect("an id");
            let stored = api.job(id).await;
            assert_eq!((&stored["queue"], &stored["priority"]), (&json!(queue), &json!(priority)));
        }
    }
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let api = Api::start();
    let first = create(&api, json!({"action_ref": "core.noop"})).await;
    let second =
        create(&api, json!({"action_ref": "core.echo", "parameters": {"message": "m"}})).await;
    api.post(&format!("/executions/{first}/cancel"), json!({})).await.expect(200);
    let ids = async |path: &str| {
        let list = api.get(path).await.expect(200);
        let ids = list["data"].as_array().expect("a list").iter().map(|one| one["id"].clone());
        (ids.collect::<Vec<_>>(), list["pagination"].clone())
    };
    assert_eq!(ids("/executions?status=cancelled").await.0, [json!(first)]);
    assert_eq!(ids("/executions?status=requested").await.0, [json!(second)]);
    assert_eq!(ids("/executions?action_ref=core.noop").await.0, [json!(first)]);
    assert_eq!(ids("/executions?status=running").await.0, [] as [Value; 0]);
    let (page, pagination) = ids("/executions?limit=1").await;
    assert_eq!((page, &pagination["total"]), (vec![json!(second)], &json!(2)));
    let cursor = pagination["next_cursor"].as_str().expect("a cursor");
    assert_eq!(ids(&format!("/executions?limit=1&cursor={cursor}")).await.0, [json!(first)]);
    assert_eq!(
        ids("/executions?status=cancelled,requested").await.0,
        [json!(second), json!(first)]
    );
    assert_eq!(ids("/executions?status=failed,running").await.0, [] as [Value; 0]);
    let end = &first[first.len() - 8..];
    assert_eq!(ids(&format!("/executions?id_suffix={end}")).await.0, [json!(first)]);
    for wrong in
        ["status=done", "status=failed,done", "id_suffix=12g4", "key=tenant", "key=a=1&key=a=2"]
    {
        api.get(&format!("/executions?{wrong}")).await.refused(400, "invalid_request");
    }
    api.get("/executions?limit=0").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_cancelled_execution_stays_cancelled() {
    let api = Api::start();
    let id = create(&api, json!({"action_ref": "core.noop"})).await;
    let cancel = format!("/api/v1/executions/{id}/cancel");
    let body = api.post(&cancel, json!({})).await.expect(200);
    assert_eq!(body["data"]["status"], "cancelled");
    api.post(&cancel, json!({})).await.refused(409, "conflict");
    api.post(&format!("/executions/{id}/retry"), json!({})).await.refused(409, "conflict");
}

#[tokio::test]
async fn an_order_for_one_status_is_refused_in_another() {
    let api = Api::start();
    let id = create(&api, json!({"action_ref": "core.noop"})).await;
    let order = async |verb: &str, status: &str| {
        api.post(&format!("/api/v1/executions/{id}/{verb}?if_status={status}"), json!({})).await
    };
    let error = order("cancel", "running").await.refused(409, "conflict");
    let expected = format!("execution {id} is requested, not running; nothing was changed");
    assert_eq!(error["message"], expected);
    order("cancel", "done").await.refused(400, "invalid_request");
    order("cancel", "").await.refused(422, "validation_error");
    order("retry", "failed").await.refused(409, "conflict");
    assert_eq!(order("cancel", "requested").await.expect(200)["data"]["status"], "cancelled");
    order("cancel", "requested").await.refused(409, "conflict");
}

#[tokio::test]
async fn events_attempts_and_logs_of_an_execution_are_lists() {
    let api = Api::start();
    let id = create(&api, json!({"action_ref": "core.noop"})).await;
    let events = api.get(&format!("/executions/{id}/events")).await.expect(200);
    assert_eq!(events["data"][0]["type"], "job.enqueued", "{events}");
    let attempts = api.get(&format!("/executions/{id}/attempts")).await.expect(200);
    assert_eq!(attempts["data"], json!([]));
    let logs = api.get(&format!("/executions/{id}/logs")).await.expect(200);
    assert_eq!(logs["data"], json!([]));
    assert_eq!(api.get(&format!("/executions/{id}/logs?format=text")).await.text, "");
}

#[tokio::test]
async fn actions_and_packs_are_listed() {
    let api = Api::start();
    let action = api.get("/api/v1/actions/core.echo").await.expect(200)["data"].clone();
    assert_eq!((&action["ref"], &action["pack"]), (&json!("core.echo"), &json!("core")));
    assert!(action["parameters"]["properties"]["message"].is_object(), "{action}");
    let actions = api.get("/api/v1/actions").await.expect(200);
    assert!(actions["data"].as_array().is_some_and(|list| list.len() >= 5), "{actions}");
    let packs = api.get("/api/v1/packs").await.expect(200);
    assert_eq!(
        (&packs["data"][0]["ref"], &packs["data"][0]["built_in"]),
        (&json!("core"), &json!(true))
    );
}
