//! Unique jobs over HTTP: policies, answers, and many producers at once.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::api::{Api, Reply};

const POLICIES: [&str; 4] = ["reject", "ignore", "replace", "replace_except_schedule"];

fn job(args: Value, unique: Value) -> Value {
    json!({"type": "report.make", "args": args, "options": {"unique": unique}})
}

fn execution(message: &str, unique: Value) -> Value {
    json!({"action_ref": "core.echo", "parameters": {"message": message}, "unique": unique})
}

fn id_of(reply: &Value) -> String {
    reply["job"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn policies_answer_as_the_standard_says() {
    let api = Api::start();
    let send = async |on_conflict: &str| {
        let unique = json!({"keys": ["type", "args"], "on_conflict": on_conflict});
        api.post("/ojs/v1/jobs", job(json!([1]), unique)).await
    };
    let first = id_of(&send("reject").await.expect(201));
    let error = send("reject").await.refused(409, "duplicate");
    assert_eq!(error["details"]["existing_job_id"], first.as_str());
    assert_eq!(error["details"]["existing_job_state"], "available");
    assert_eq!(error["retryable"], false);
    let ignored = send("ignore").await.expect(200);
    assert_eq!((id_of(&ignored), &ignored["deduplicated"]), (first.clone(), &json!(true)));
    assert_eq!(ignored["job"]["unique"]["on_conflict"], "reject", "it is the other job");
    let second = send("replace").await.expect(201);
    assert_eq!(
        (second["job"]["state"].as_str(), &second["deduplicated"]),
        (Some("available"), &Value::Null)
    );
    assert_eq!(api.job(&first).await["state"], "cancelled");
    let other = job(json!([2]), json!({"keys": ["args"]}));
    api.post("/ojs/v1/jobs", other).await.expect(201);
}

#[tokio::test]
async fn refused_batch_names_the_job_at_fault() {
    let api = Api::start();
    let taken = id_of(&api.post("/ojs/v1/jobs", job(json!([1]), json!({}))).await.expect(201));
    let other = |n: u64| json!({"type": "a.b", "args": [n]});
    let batch = |job: Value| json!({"jobs": [other(1), job]});
    let at = "/ojs/v1/jobs/batch";
    let refused = api.post(at, batch(job(json!([2]), json!({})))).await.refused(409, "duplicate");
    let message = format!("jobs[1]: job {taken}, which is available, has the same unique key");
    assert_eq!(refused["message"], message);
    assert_eq!(refused["details"]["field"], "jobs[1]");
    assert_eq!(refused["details"]["existing_job_id"], taken.as_str());
    let twice = job(json!([2]), json!({"keys": ["args"]}));
    let refused = api.post(at, json!({"jobs": [twice, twice]})).await;
    let expected = "jobs[1]: it has the same unique key as a job before it in the request";
    assert_eq!(refused.refused(422, "validation_error")["message"], expected);
    let wrong = json!({"type": "core.sleep", "args": [{"duration": "long"}]});
    let refused = api.post(at, batch(wrong)).await.refused(422, "validation_error");
    assert!(refused["message"].as_str().unwrap().starts_with("jobs[1]: "), "{refused}");
    assert_eq!(refused["details"]["field"], "jobs[1]");
}

#[tokio::test]
async fn executions_are_unique_by_their_parameters() {
    let api = Api::start();
    let unique = |on_conflict: &str| json!({"keys": ["args"], "on_conflict": on_conflict});
    let first = api.post("/executions", execution("a", unique("reject"))).await.expect(201);
    let id = first["data"]["id"].clone();
    let error = api.post("/executions", execution("a", unique("reject"))).await;
    let error = error.refused(409, "duplicate");
    let expected = json!({"existing_job_id": id, "existing_job_status": "requested"});
    assert_eq!(error["details"], expected);
    let message =
        format!("execution {}, which is requested, has the same unique key", id.as_str().unwrap());
    assert_eq!(error["message"], message);
    let ignored = api.post("/executions", execution("a", unique("ignore"))).await.expect(200);
    assert_eq!((&ignored["data"]["id"], &ignored["deduplicated"]), (&id, &json!(true)));
    api.post("/executions", execution("b", unique("reject"))).await.expect(201);
    let slip = api.post("/executions", execution("c", json!({"key": ["args"]}))).await;
    let message = slip.refused(400, "invalid_request")["message"].to_string();
    assert!(message.contains("unique.key"), "{message}");
}

#[tokio::test]
async fn a_scheduled_job_gives_its_time_to_the_one_that_replaces_it() {
    let api = Api::start();
    let at = |time: &str, on_conflict: &str| {
        let unique = json!({"on_conflict": on_conflict});
        json!({"type": "t", "args": [], "options": {"scheduled_at": time, "unique": unique}})
    };
    let first = at("2030-01-01T09:00:00Z", "reject");
    let first = api.post("/ojs/v1/jobs", first).await.expect(201)["job"]["scheduled_at"].clone();
    let second = at("2031-01-01T09:00:00Z", "replace_except_schedule");
    let second = api.post("/ojs/v1/jobs", second).await.expect(201);
    assert_eq!(second["job"]["scheduled_at"], first);
}

#[tokio::test]
async fn policies_with_slips_are_refused_and_nothing_is_stored() {
    let api = Api::start();
    for policy in [
        json!("type"),
        json!({"keys": ["argz"]}),
        json!({"keys": ["meta"]}),
        json!({"keys": ["args"], "args_keys": ["user"]}),
        json!({"states": ["running"]}),
        json!({"period": "soon"}),
        json!({"on_conflict": "merge"}),
    ] {
        let error = api.post("/ojs/v1/jobs", job(json!([{}]), policy.clone())).await;
        error.refused(400, "invalid_request");
        let bulk = json!({"jobs": [{"type": "t", "args": []}, job(json!([{}]), policy)]});
        api.post("/ojs/v1/jobs/batch", bulk).await.refused(400, "invalid_request");
    }
    let all = api.get("/api/v1/executions").await.expect(200);
    assert_eq!(all["pagination"]["total"], 0);
}

#[tokio::test]
async fn jobs_of_other_tenants_are_in_the_way_of_none() {
    let api = Api::start();
    let send = async |tenant: &str| {
        let body = job(json!([]), json!({})).to_string();
        let request = Request::post("/ojs/v1/jobs").header("X-OJS-Tenant", tenant);
        api.send(request.body(Body::from(body)).expect("a request")).await
    };
    send("acme").await.expect(201);
    send("globex").await.expect(201);
    send("acme").await.refused(409, "duplicate");
}

#[tokio::test]
async fn a_request_of_several_jobs_is_stored_whole_or_not_at_all() {
    let api = Api::start();
    let of = |n: u32, on_conflict: &str| {
        job(json!([n]), json!({"keys": ["args"], "on_conflict": on_conflict}))
    };
    let send = async |jobs: Value| api.post("/ojs/v1/jobs/batch", json!({"jobs": jobs})).await;
    send(json!([of(1, "reject"), of(2, "reject")])).await.expect(201);
    let refused = send(json!([of(3, "reject"), of(2, "reject")])).await;
    refused.refused(409, "duplicate");
    send(json!([of(3, "reject"), of(3, "ignore")])).await.refused(422, "validation_error");
    let mixed = send(json!([of(1, "ignore"), of(3, "ignore")])).await.expect(201);
    let old = |at: usize| &mixed["jobs"][at]["deduplicated"];
    assert_eq!((&mixed["count"], old(0), old(1)), (&json!(2), &json!(true), &Value::Null));
    send(json!([of(1, "ignore"), of(3, "ignore")])).await.expect(200);
    let request = Request::post("/ojs/v1/jobs/batch").header("Idempotency-Key", "k");
    let body = Body::from(json!({"jobs": [of(9, "ignore")]}).to_string());
    let keyed = api.send(request.body(body).expect("a request")).await;
    keyed.refused(422, "validation_error");
}

#[tokio::test]
async fn an_idempotency_key_gives_the_first_answer_and_not_the_other_job() {
    let api = Api::start();
    let send = async |path: &str, body: &Value| -> Reply {
        let request = Request::post(path).header("Idempotency-Key", "k");
        api.send(request.body(Body::from(body.to_string())).expect("a request")).await
    };
    let body = job(json!([]), json!({"on_conflict": "reject"}));
    let first = send("/ojs/v1/jobs", &body).await;
    first.expect(201);
    let again = send("/ojs/v1/jobs", &body).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    let mine = api.post("/executions", execution("x", json!({"keys": ["args"]}))).await.expect(201);
    let body = execution("x", json!({"keys": ["args"], "on_conflict": "ignore"}));
    let request = Request::post("/executions").header("Idempotency-Key", "other");
    let found = api.send(request.body(Body::from(body.to_string())).expect("a request")).await;
    assert_eq!(found.expect(200)["data"]["id"], mine["data"]["id"]);
}

#[tokio::test]
async fn of_fifty_producers_at_once_one_has_its_job() {
    for on_conflict in POLICIES {
        let api = Api::start();
        let unique = json!({"keys": ["type"], "on_conflict": on_conflict});
        let requests = (0..50).map(|n| api.post("/ojs/v1/jobs", job(json!([n]), unique.clone())));
        let replies = futures_util::future::join_all(requests).await;
        let count = |status: u16| replies.iter().filter(|it| it.status.as_u16() == status).count();
        let expected = match on_conflict {
            "reject" => (1, 0, 49),
            "ignore" => (1, 49, 0),
            _ => (50, 0, 0),
        };
        assert_eq!((count(201), count(200), count(409)), expected, "{on_conflict}");
        let stats = api.get("/ojs/v1/queues/default/stats").await.expect(200);
        assert_eq!(stats["queue"]["available"], 1, "{stats}");
    }
}

#[tokio::test]
async fn a_unique_job_is_handed_out_at_once() {
    let api = Api::start();
    let fetch = json!({"queues": ["default"], "worker_id": "w", "wait_ms": 20_000});
    let fetching = api.post("/ojs/v1/workers/fetch", fetch);
    let enqueued = api.post("/ojs/v1/jobs", job(json!([1]), json!({})));
    let (fetched, enqueued) = tokio::join!(fetching, enqueued);
    assert_eq!(fetched.expect(200)["jobs"][0]["id"], enqueued.expect(201)["job"]["id"]);
}
