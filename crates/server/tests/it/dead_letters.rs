//! Dead letters that filters select: listed, retried and removed together.

use serde_json::{Value, json};

use crate::api::Api;

/// Makes a dead letter of this queue and type, with this error; returns its id.
async fn letter(api: &Api, queue: &str, job_type: &str, message: &str) -> String {
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let options = json!({"queue": queue, "retry": retry});
    let job = json!({"type": job_type, "args": [], "options": options});
    let body = api.post("/ojs/v1/jobs", job).await.expect(201);
    let id = body["job"]["id"].as_str().expect("an id").to_owned();
    api.post("/ojs/v1/workers/fetch", json!({"queues": [queue], "worker_id": "w"}))
        .await
        .expect(200);
    let error = json!({"code": "handler_error", "message": message});
    api.nack(json!({"job_id": id, "error": error})).await.expect(200);
    id
}

async fn listed(api: &Api, query: &str) -> (Vec<String>, Value) {
    let page = api.get(&format!("/ojs/v1/dead-letter?{query}")).await.expect(200);
    let jobs = page["jobs"].as_array().expect("a list");
    let ids = jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned());
    (ids.collect(), page["pagination"]["total"].clone())
}

async fn change(api: &Api, verb: &str, body: Value) -> Value {
    api.post(&format!("/api/v1/dead-letters/{verb}"), body).await.expect(200)["data"].clone()
}

#[tokio::test]
async fn list_shows_those_that_match_every_filter() {
    let api = Api::start();
    let refused = letter(&api, "mail", "mail.send", "Connection refused").await;
    let bounced = letter(&api, "mail", "mail.send", "bounced").await;
    let billed = letter(&api, "bills", "bill.print", "connection lost").await;
    let all = vec![billed.clone(), bounced.clone(), refused.clone()];
    for (query, expected) in [
        ("queue=mail", vec![bounced.clone(), refused.clone()]),
        ("type=bill.print", vec![billed.clone()]),
        ("queue=mail&type=bill.print", vec![]),
        ("reason=exhausted", all.clone()),
        ("reason=poison_suspect", vec![]),
        ("since=1h", all.clone()),
        ("until=1h", vec![]),
        ("since=2100-01-01T00:00:00Z", vec![]),
        ("error_contains=CONNECTION", vec![billed.clone(), refused.clone()]),
        ("error_contains=connection&queue=mail", vec![refused.clone()]),
        ("limit=2", all[..2].to_vec()),
    ] {
        assert_eq!(listed(&api, query).await.0, expected, "{query}");
    }
    assert_eq!(listed(&api, "queue=mail").await.1, 2);
    assert_eq!(listed(&api, "reason=exhausted&limit=1").await.1, 3);
    for (query, problem) in [
        ("reason=tired", "exhausted, poison_suspect, at_most_once"),
        ("since=soon", "a time such as"),
    ] {
        let refused = api.get(&format!("/ojs/v1/dead-letter?{query}")).await.expect(400);
        assert!(refused.to_string().contains(problem), "{refused}");
    }
}

#[tokio::test]
async fn all_that_match_are_retried_and_the_others_stay() {
    let api = Api::start();
    let mut mail = Vec::new();
    for n in 0..600 {
        mail.push(letter(&api, "mail", "mail.send", &format!("error {n}")).await);
    }
    let billed = letter(&api, "bills", "bill.print", "no paper").await;
    let body = json!({"queue": "mail", "dry_run": true});
    let would = change(&api, "retry", body).await;
    assert_eq!((&would["matched"], &would["changed"]), (&json!(600), &json!(0)), "{would}");
    assert_eq!(listed(&api, "limit=1").await.1, 601);
    let some = change(&api, "retry", json!({"queue": "mail", "limit": 7})).await;
    assert_eq!((&some["matched"], &some["changed"]), (&json!(7), &json!(7)), "{some}");
    let rest = json!({"queue": "mail", "until": some["until"], "cursor": some["next_cursor"]});
    let rest = change(&api, "retry", rest).await;
    assert_eq!((&rest["changed"], &rest["next_cursor"]), (&json!(593), &Value::Null), "{rest}");
    assert_eq!(listed(&api, "").await.0, [billed]);
    let job = &api.get(&format!("/api/v1/executions/{}", mail[0])).await.expect(200)["data"];
    assert_eq!((&job["status"], &job["life"]), (&json!("requested"), &json!(2)));
}

#[tokio::test]
async fn all_that_match_are_removed_and_their_jobs_stay_discarded() {
    let api = Api::start();
    let first = letter(&api, "mail", "mail.send", "first").await;
    letter(&api, "mail", "mail.send", "second").await;
    let none = change(&api, "purge", json!({"until": "2h"})).await;
    assert_eq!((&none["matched"], &none["changed"]), (&json!(0), &json!(0)), "{none}");
    let second = change(&api, "purge", json!({"error_contains": "SECOND"})).await;
    assert_eq!((&second["matched"], &second["changed"]), (&json!(1), &json!(1)), "{second}");
    assert_eq!(listed(&api, "").await.0, std::slice::from_ref(&first));
    let rest = change(&api, "purge", json!({"all": true})).await;
    assert_eq!(rest["changed"], 1, "{rest}");
    let job = &api.get(&format!("/api/v1/executions/{first}")).await.expect(200)["data"];
    assert_eq!((&job["state"], &job["dead_letter"]), (&json!("discarded"), &Value::Null));
}

#[tokio::test]
async fn request_that_names_nothing_changes_nothing() {
    let api = Api::start();
    letter(&api, "mail", "mail.send", "error").await;
    for body in [
        json!({}),
        json!({"queue": "mail", "all": true}),
        json!({"reason": "tired"}),
        json!({"queue": "mail", "cursor": "here"}),
        json!({"quueue": "mail"}),
    ] {
        for verb in ["retry", "purge"] {
            let path = format!("/api/v1/dead-letters/{verb}");
            api.post(&path, body.clone()).await.refused(400, "invalid_request");
        }
    }
    assert_eq!(listed(&api, "").await.1, 1);
}
