//! Requests about operations: what they select, and who may send them. No steps are taken here.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use outlast_core::operation::{OperationId, OperationKind, OperationStatus};
use outlast_server::access::{Access, KnownToken, Role, TokenHash};
use outlast_store::operation::{ExpectedOperation, NewOperation, OperationChange, WriteOperation};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::{Api, Reply};

const OPERATIONS: &str = "/api/v1/operations";

/// Enqueues a job; returns its id.
async fn job(api: &Api, queue: &str, more: Value) -> String {
    let mut options = json!({"queue": queue, "retry": {"max_attempts": 1}});
    if let (Some(options), Value::Object(more)) = (options.as_object_mut(), more) {
        options.extend(more);
    }
    let job = json!({"type": "mail.send", "args": [], "options": options});
    let body = api.post("/ojs/v1/jobs", job).await.expect(201);
    body["job"]["id"].as_str().expect("an id").to_owned()
}

async fn fail(api: &Api, queue: &str, message: &str) -> String {
    let id = job(api, queue, json!({})).await;
    let fetch = json!({"queues": [queue], "worker_id": "w"});
    api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
    let error = json!({"code": "handler_error", "message": message});
    api.nack(json!({"job_id": id, "error": error})).await.expect(200);
    id
}

fn request(kind: &str, filter: Value) -> Value {
    json!({"kind": kind, "filter": filter})
}

async fn preview(api: &Api, kind: &str, filter: Value) -> Value {
    let mut body = request(kind, filter);
    body["dry_run"] = json!(true);
    api.post(OPERATIONS, body).await.expect(200)["data"].clone()
}

async fn send(api: &Api, body: Value, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::post(OPERATIONS);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

#[tokio::test]
async fn dry_run_counts_what_would_be_changed_and_shows_three() {
    let api = Api::start();
    let mut mail = Vec::new();
    for _ in 0..5 {
        mail.push(job(&api, "mail", json!({})).await);
    }
    let delayed = job(&api, "mail", json!({"delay_until": "+PT1H"})).await;
    let failed = fail(&api, "bills", "Connection refused").await;
    fail(&api, "bills", "no paper").await;
    for (kind, filter, matched, words) in [
        ("cancel", json!({"queue": "mail"}), 6, "jobs of queue mail that have not ended"),
        ("cancel", json!({"all": true}), 6, "all jobs that have not ended"),
        ("cancel", json!({"status": "running"}), 0, "jobs with status running"),
        ("cancel", json!({"queue": "bills"}), 0, "jobs of queue bills that have not ended"),
        (
            "retry",
            json!({"type": "mail.send"}),
            2,
            "jobs of type mail.send that failed, timed out or were abandoned",
        ),
        (
            "retry",
            json!({"error_contains": "REFUSED", "status": ["failed"]}),
            1,
            "jobs with status failed, whose error contains \"REFUSED\"",
        ),
    ] {
        let would = preview(&api, kind, filter.clone()).await;
        assert_eq!((&would["matched"], &would["selection"]), (&json!(matched), &json!(words)));
        assert_eq!((&would["at_least"], &would["filter"]["all"]), (&json!(false), &filter["all"]));
        let shown = would["examples"].as_array().expect("examples");
        assert_eq!(shown.len(), matched.min(3), "{would}");
    }
    let would = preview(&api, "cancel", json!({"queue": "mail"})).await;
    assert_eq!(would["examples"][0]["id"], delayed.as_str());
    let refused = preview(&api, "retry", json!({"error_contains": "refused"})).await;
    let example = &refused["examples"][0];
    assert_eq!((&example["id"], &example["error"]), (&json!(failed), &json!("Connection refused")));
    let all = api.get(OPERATIONS).await.expect(200);
    assert_eq!(all["data"], json!([]), "a dry run begins nothing");
}

#[tokio::test]
async fn decision_about_another_number_of_jobs_is_a_conflict_in_words() {
    let api = Api::start();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(job(&api, "mail", json!({})).await);
    }
    let order = |expected: u64, as_of: Option<&Value>| json!({"kind": "cancel", "filter": {"queue": "mail"}, "expected": expected, "as_of": as_of});
    for expected in [3, 5] {
        let error = api.post(OPERATIONS, order(expected, None)).await.refused(409, "conflict");
        let words = format!("4 jobs match now, and not {expected} as when this was decided");
        assert!(error["message"].as_str().expect("a message").contains(&words), "{error}");
    }
    let as_of = preview(&api, "cancel", json!({"queue": "mail"})).await["as_of"].clone();
    for id in &ids[..3] {
        api.post(&format!("/api/v1/executions/{id}/cancel"), json!({})).await.expect(200);
    }
    let error = api.post(OPERATIONS, order(4, Some(&as_of))).await.refused(409, "conflict");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("of the 4 jobs that matched at"), "{message}");
    assert!(message.contains("1 still do; nothing was changed"), "{message}");
    let begun = api.post(OPERATIONS, order(1, None)).await.expect(201)["data"].clone();
    assert_eq!((&begun["expected"], &begun["status"]), (&json!(1), &json!("running")));
    // Of those that matched then, one is left.
    assert_eq!(
        api.post(OPERATIONS, order(2, Some(&as_of))).await.expect(201)["data"]["expected"],
        2
    );
}

#[tokio::test]
async fn requests_that_select_too_much_or_name_nothing_are_refused() {
    let api = Api::start();
    for (body, status, words) in [
        (request("cancel", json!({})), 400, "selects nothing"),
        (request("cancel", json!({"queue": ""})), 400, "must not be empty"),
        (request("cancel", json!({"status": "failed"})), 422, "does not apply"),
        (request("purge", json!({"queue": "mail"})), 400, "must be `cancel` or `retry`"),
        (request("cancel", json!({"worker": "missing"})), 404, "worker missing is not known"),
    ] {
        let refused = api.post(OPERATIONS, body).await.expect(status);
        let message = refused["error"]["message"].as_str().expect("a message");
        assert!(message.contains(words), "{message}");
    }
    for path in ["nonsense", "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c"] {
        api.get(&format!("{OPERATIONS}/{path}")).await.refused(404, "not_found");
        let stop = format!("{OPERATIONS}/{path}/stop");
        api.post(&stop, json!({})).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn same_key_begins_one_operation() {
    let api = Api::start();
    let key = [("idempotency-key", "one")];
    let first = send(&api, request("cancel", json!({"queue": "mail"})), &key).await;
    let begun = first.expect(201)["data"].clone();
    let second = send(&api, request("cancel", json!({"queue": "mail"})), &key).await;
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(second.expect(200)["data"]["id"], begun["id"]);
    let other = send(&api, request("cancel", json!({"queue": "bills"})), &key).await;
    assert_eq!(other.refused(409, "conflict")["details"]["reason"], "idempotency_key_reused");
    let another = send(&api, request("cancel", json!({"queue": "mail"})), &[]).await;
    assert_ne!(another.expect(201)["data"]["id"], begun["id"]);
    let all = api.get(OPERATIONS).await.expect(200);
    assert_eq!(all["data"].as_array().map(Vec::len), Some(2));
    let page = api.get(&format!("{OPERATIONS}?limit=1")).await.expect(200);
    let next = page["pagination"]["next_cursor"].as_str().expect("a cursor");
    let rest = api.get(&format!("{OPERATIONS}?cursor={next}&running=true")).await.expect(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(1));
    assert_ne!(rest["data"][0]["id"], page["data"][0]["id"]);
}

#[tokio::test]
async fn operation_needs_the_role_of_the_same_order_to_one_job() {
    let token = |role: Role| KnownToken {
        name: format!("{role}'s"),
        role,
        hash: TokenHash::of(role.as_str()),
    };
    let access = Access::new(Role::ALL.map(token).to_vec(), Vec::new());
    let api = Api::with(|settings| settings.access = Arc::new(access));
    let give = async |role: &str, kind: &str| {
        let bearer = format!("Bearer {role}");
        send(&api, request(kind, json!({"queue": "mail"})), &[("authorization", &bearer)]).await
    };
    let begun = give("producer", "cancel").await.expect(201)["data"].clone();
    let by = begun["by"].as_str().expect("who");
    assert!(by.starts_with("api: producer's"), "{by}");
    let refused = give("producer", "retry").await.refused(403, "permission_denied");
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("a retry of jobs needs the role operator or admin"), "{message}");
    give("viewer", "cancel").await.refused(403, "permission_denied");
    let retry = give("operator", "retry").await.expect(201)["data"]["id"].clone();
    let stop = async |role: &str| {
        let path = format!("{OPERATIONS}/{}/stop", retry.as_str().expect("an id"));
        let request = Request::post(path).header("authorization", format!("Bearer {role}"));
        api.send(request.body(Body::empty()).expect("a request")).await
    };
    stop("producer").await.refused(403, "permission_denied");
    let stopped = stop("operator").await.expect(200)["data"].clone();
    assert_eq!(stopped["status"], "stopped");
    let again = stop("operator").await.refused(409, "conflict");
    let message = again["message"].as_str().expect("a message");
    assert!(message.contains("is stopped; only one that runs can be stopped"), "{message}");
}

#[tokio::test]
async fn only_so_many_operations_run_at_a_time() {
    let api = Api::start();
    for _ in 0..20 {
        api.post(OPERATIONS, request("cancel", json!({"all": true}))).await.expect(201);
    }
    let body = request("cancel", json!({"all": true}));
    let error = api.post(OPERATIONS, body).await.refused(409, "conflict");
    assert!(error["message"].as_str().is_some_and(|words| words.contains("too many operations")));
}

/// A page offers to change the jobs that it lists, and no others.
#[tokio::test]
async fn all_that_match_are_those_that_the_page_lists() {
    let api = Api::start();
    let list = "/jobs?status=failed&key=a%3D1&key=b%3D2&id_suffix=beef&limit=10";
    let page = api.get(list).await.text;
    let link = page.split("operations/new?").nth(1).and_then(|rest| rest.split('"').next());
    let link = link.expect("a link").replace("&#38;", "&").replace("&amp;", "&");
    let mut given: Vec<&str> = link.split('&').collect();
    given.sort_unstable();
    let expected = ["id_suffix=beef", "key=a%3D1", "key=b%3D2", "kind=retry", "status=failed"];
    assert_eq!(given, expected);
    let asked = api.get(&format!("/operations/new?{link}")).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    assert!(asked.text.contains("a=1") && asked.text.contains("b=2"), "{}", asked.text);
    assert!(asked.text.contains("beef"), "{}", asked.text);
    let twice = api.get("/operations/new?kind=retry&key=a%3D1&key=a%3D2").await;
    assert!(twice.text.contains("has two values for"), "{}", twice.text);
}

#[tokio::test]
async fn tenants_list_their_own_operations_only() {
    let api = Api::start();
    let body = request("cancel", json!({"queue": "mail"}));
    let mine = send(&api, body.clone(), &[("x-ojs-tenant", "a")]).await.expect(201);
    send(&api, body, &[("x-ojs-tenant", "b")]).await.expect(201);
    let listed = async |tenant: Option<&str>| {
        let request = Request::get(OPERATIONS);
        let request = tenant.into_iter().fold(request, |it, name| it.header("x-ojs-tenant", name));
        let reply = api.send(request.body(Body::empty()).expect("a request")).await.expect(200);
        let all = reply["data"].as_array().expect("a list").clone();
        all.into_iter().map(|it| it["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some("a")).await, [mine["data"]["id"].clone()]);
    assert_eq!(listed(Some("c")).await, Vec::<Value>::new());
    assert_eq!(listed(None).await.len(), 2);
}

/// Presses the button of a page, in the browser of a tenant.
async fn press(api: &Api, form: &str, tenant: &str) -> Reply {
    let request = Request::post("/operations/begin").header("host", "127.0.0.1:8080");
    let request = request.header("origin", "http://127.0.0.1:8080").header("x-ojs-tenant", tenant);
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    api.send(request.body(Body::from(form.to_owned())).expect("a request")).await
}

#[tokio::test]
async fn form_that_is_sent_twice_begins_one_operation() {
    let api = Api::start();
    let job = json!({"type": "mail.send", "args": [], "options": {"queue": "mail"}});
    let request = Request::post("/ojs/v1/jobs").header("x-ojs-tenant", "a");
    api.send(request.body(Body::from(job.to_string())).expect("a request")).await.expect(201);
    let page = async |path: &str, tenant: &str| {
        let request = Request::get(path).header("x-ojs-tenant", tenant);
        api.send(request.body(Body::empty()).expect("a request")).await
    };
    let asked = page("/operations/new?kind=cancel&queue=mail", "a").await.text;
    let field = |name: &str| {
        let rest = asked.split(&format!("name=\"{name}\"")).nth(1).expect("a field");
        let value = rest.split("value=\"").nth(1).and_then(|rest| rest.split('"').next());
        value.expect("a value").replace("&#34;", "%22")
    };
    let form = ["kind", "filter", "expected", "at_least", "as_of", "once"]
        .map(|name| format!("{name}={}", field(name)))
        .join("&");
    let [first, second] = [press(&api, &form, "a").await, press(&api, &form, "a").await];
    assert!(first.status == 303 && second.status == 303, "{}", first.text);
    assert_eq!(first.header("location"), second.header("location"));
    let listed = api.get(OPERATIONS).await.expect(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    // It is the tenant's who pressed.
    let id = listed["data"][0]["id"].as_str().expect("an id").to_owned();
    let one = format!("/operations/{id}");
    assert!(page(&one, "a").await.status == 200 && page(&one, "b").await.status == 404);
    assert!(page("/operations", "a").await.text.contains(&id));
    assert!(!page("/operations", "b").await.text.contains(&id));
    let of_others = page("/operations/new?kind=cancel&queue=mail", "b").await.text;
    assert!(of_others.contains("None of the"), "{of_others}");
}

/// One of them once kept all from being listed.
#[tokio::test]
async fn operation_that_cannot_be_read_is_shown_as_damaged_among_the_others() {
    let api = Api::start();
    job(&api, "mail", json!({})).await;
    let begun = send(&api, request("cancel", json!({"queue": "mail"})), &[]).await.expect(201);
    let new = NewOperation {
        kind: OperationKind::Cancel,
        about: "jobs of a colour".to_owned(),
        definition: r#"{"filter": {"colour": "red"}}"#.to_owned(),
        by: "api: ops (later build)".to_owned(),
    };
    let damaged = OperationId(Uuid::now_v7());
    let write = WriteOperation {
        id: damaged,
        expected: ExpectedOperation::Absent,
        new: Some(new),
        to: OperationChange::to(OperationStatus::Running),
        orders: Vec::new(),
        by: "api: ops (later build)".to_owned(),
    };
    api.engine.submit(write).await.expect("it is stored").expect("it is new");
    let listed = api.get(OPERATIONS).await.expect(200)["data"].clone();
    let of = |id: &str| {
        let all = listed.as_array().expect("operations");
        all.iter().find(|it| it["id"] == id).unwrap_or_else(|| panic!("{id}: {listed}")).clone()
    };
    let id = damaged.to_string();
    let shown = of(&id);
    assert!(shown["damaged"].as_str().is_some_and(|why| why.contains("colour")), "{shown}");
    assert_eq!(
        (&shown["selection"], &shown["status"]),
        (&json!("jobs of a colour"), &json!("running"))
    );
    let whole = of(begun["data"]["id"].as_str().expect("an id"));
    assert_eq!((&whole["filter"]["queue"], whole.get("damaged")), (&json!("mail"), None));
    // Whose it is cannot be read either.
    let of_tenant = Request::get(OPERATIONS).header("x-ojs-tenant", "acme").body(Body::empty());
    let of_tenant = api.send(of_tenant.expect("a request")).await.expect(200);
    assert_eq!(of_tenant["data"], json!([]));
    for page in ["/operations".to_owned(), format!("/operations/{id}")] {
        let page = api.get(&page).await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(page.text.contains("jobs of a colour"), "{}", page.text);
        assert!(page.text.contains("data-state=\"damaged\""), "{}", page.text);
    }
    let one = format!("{OPERATIONS}/{id}");
    assert_eq!(api.get(&one).await.expect(200)["data"]["damaged"], shown["damaged"]);
    let stopped = api.post(&format!("{one}/stop"), json!({})).await.expect(200);
    assert_eq!(stopped["data"]["status"], "stopped");
}
