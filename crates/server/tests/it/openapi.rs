//! `/openapi.json` against what is really answered: every route is asked, and every answer is
//! compared with its description.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request};
use outlast_server::Settings;
use outlast_server::access::{Access, KnownToken, Role, TokenHash};
use outlast_store::browser_session::BeginSession;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::{Api, Reply};
use crate::audit::{changes_in_the_log, check_that_changes_are_said, is_change};

/// A server with its description, which remembers what was asked.
struct Described {
    api: Api,
    document: Value,
    asked: BTreeSet<(String, String)>,
    audited: BTreeSet<(String, String)>,
    /// Codes of errors that were seen.
    refused: BTreeSet<String>,
}

/// Whether a path is one of a template's.
fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let same = |(of, part): (&&str, &&str)| of.starts_with('{') || of == part;
    template.len() == path.len() && template.iter().zip(&path).all(same)
}

/// Forbids fields that are not described, so that a new one must be.
fn closed(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), false.into());
            }
            fields.values_mut().for_each(closed);
        }
        Value::Array(items) => items.iter_mut().for_each(closed),
        _ => {}
    }
}

impl Described {
    async fn start() -> Self {
        Self::with(|settings| settings.conformance = true).await
    }

    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let api = Api::with(change);
        let document = api.get("/openapi.json").await.expect(200);
        let (asked, audited) = (BTreeSet::new(), BTreeSet::new());
        Self { api, document, asked, audited, refused: BTreeSet::new() }
    }

    /// Asks, and compares the answer with what is said about it. Returns the answer.
    async fn ask(&mut self, method: Method, path: &str, body: Option<Value>) -> Reply {
        let text = body.as_ref().map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder().method(&method).uri(path).body(text);
        self.send(request.expect("a request"), body).await
    }

    async fn send(&mut self, request: Request<Body>, body: Option<Value>) -> Reply {
        let (method, path) = (request.method().clone(), request.uri().to_string());
        let path = path.as_str();
        let before = if method == Method::GET { 0 } else { changes_in_the_log(&self.api).await };
        let reply = self.api.send(request).await;
        let bare = path.split('?').next().unwrap_or(path);
        let paths = self.document["paths"].as_object().expect("paths");
        let exact = paths.keys().find(|template| *template == bare);
        let template = exact.or_else(|| paths.keys().find(|template| fits(template, bare)));
        let template = template.unwrap_or_else(|| panic!("{path} is not described")).clone();
        let word = method.as_str().to_lowercase();
        let operation = self.document["paths"][&template][&word].clone();
        assert!(operation.is_object(), "{method} {template} is not described");
        let status = reply.status.as_u16().to_string();
        let named = operation["responses"].get(&status);
        let answer = named.unwrap_or_else(|| panic!("{method} {path} {status}: {}", reply.text));
        let kind = reply.header("content-type").split(';').next().unwrap_or_default();
        let schema = answer["content"].get(kind).map(|content| content["schema"].clone());
        let schema =
            schema.unwrap_or_else(|| panic!("{method} {template}: {kind} is not described"));
        let given = if kind.ends_with("json") { reply.json() } else { json!(reply.text) };
        self.check(&schema, &given, &format!("{method} {path} {status}"));
        if !reply.status.is_success() && given.get("error").is_some() {
            let code = given["error"]["code"].as_str().expect("a code");
            let codes = answer["x-codes"].as_array().expect("codes");
            assert!(codes.iter().any(|known| known == code), "{method} {path}: {code}");
            assert_ne!(code, "internal_error", "{method} {path}: {given:#}");
            self.refused.insert(code.to_owned());
        }
        if reply.status.is_success() {
            if let Some(body) = &body {
                let content = operation["requestBody"]["content"].as_object();
                let content = content.and_then(|kinds| kinds.values().next());
                if let Some(content) = content {
                    self.check(&content["schema"], body, &format!("{method} {path}, sent"));
                }
            }
            if is_change(&word, &template) && changes_in_the_log(&self.api).await > before {
                self.audited.insert((word.clone(), template.clone()));
            }
            self.asked.insert((word, template));
        }
        reply
    }

    fn check(&self, schema: &Value, given: &Value, what: &str) {
        let mut whole = json!({"$ref": "#/wanted", "wanted": schema});
        whole["components"] = self.document["components"].clone();
        closed(&mut whole["wanted"]);
        closed(&mut whole["components"]["schemas"]);
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&whole)
            .unwrap_or_else(|error| panic!("{what}: no sound schema: {error}"));
        let wrong: Vec<_> = validator
            .iter_errors(given)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{what}: {wrong:#?}\n{given:#}");
    }

    async fn get(&mut self, path: &str) -> Reply {
        self.ask(Method::GET, path, None).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Reply {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Enqueues a plain job and returns its id.
    async fn job(&mut self, options: Value) -> String {
        let job = json!({"type": "t", "args": [1], "meta": {"m": 1}, "x": 2, "options": options});
        let reply = self.post("/ojs/v1/jobs", job).await.expect(201);
        reply["job"]["id"].as_str().expect("an id").to_owned()
    }

    async fn fetch(&mut self) {
        let fetch = json!({"queues": ["default"], "worker_id": "w", "count": 1});
        let jobs = self.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
        assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1));
    }
}

async fn work_on_plain_jobs(api: &mut Described) {
    let done = api.job(json!({"timeout_ms": 60_000, "tags": ["a"]})).await;
    api.fetch().await;
    api.get(&format!("/ojs/v1/jobs/{done}")).await.expect(200);
    for beat in ["heartbeat", "beat"] {
        let body = json!({"worker_id": "w", "active_jobs": [done], "queues": ["default"]});
        api.post(&format!("/ojs/v1/workers/{beat}"), body).await.expect(200);
    }
    api.get("/ojs/v1/workers/w/health").await.expect(200);
    let ack = json!({"job_id": done, "result": {"a": 1}, "worker_id": "w"});
    api.post("/ojs/v1/workers/ack", ack.clone()).await.expect(200);
    api.post("/ojs/v1/workers/ack", ack).await.expect(409);
    api.get(&format!("/ojs/v1/jobs/{done}")).await.expect(200);
    let policy = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    for (max_attempts, retryable) in [(3, true), (1, true), (1, false)] {
        let mut retry = policy.clone();
        retry["max_attempts"] = json!(max_attempts);
        let id = api.job(json!({"retry": retry})).await;
        api.fetch().await;
        let error = json!({"type": "E", "message": "m", "retryable": retryable});
        let nack = json!({"job_id": id, "error": error, "worker_id": "w"});
        api.post("/ojs/v1/workers/nack", nack).await.expect(200);
        let left = api.get(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
        if left["job"]["state"] == "retryable" {
            // It must not come due under a later fetch.
            api.ask(Method::DELETE, &format!("/ojs/v1/jobs/{id}"), None).await.expect(200);
        }
    }
    let letters = api.get("/ojs/v1/dead-letter").await.expect(200);
    let letter = |n: usize| letters["jobs"][n]["id"].as_str().expect("a dead letter").to_owned();
    api.get(&format!("/ojs/v1/dead-letter/{}", letter(0))).await.expect(200);
    api.post(&format!("/ojs/v1/dead-letter/{}/retry", letter(0)), json!({})).await.expect(200);
    // Out of the way of the next fetch.
    api.ask(Method::DELETE, &format!("/ojs/v1/jobs/{}", letter(0)), None).await.expect(200);
    let path = format!("/ojs/v1/dead-letter/{}", letter(1));
    api.ask(Method::DELETE, &path, None).await.expect(200);
    api.ask(Method::DELETE, &path, None).await.expect(404);
    for verb in ["retry", "purge"] {
        let id = api.job(json!({"retry": policy})).await;
        api.fetch().await;
        let nack = json!({"job_id": id, "error": {"message": "m"}, "worker_id": "w"});
        api.post("/ojs/v1/workers/nack", nack).await.expect(200);
        let path = format!("/api/v1/dead-letters/{verb}");
        api.post(&path, json!({})).await.expect(400);
        api.post(&path, json!({"all": true, "dry_run": true})).await.expect(200);
        api.post(&path, json!({"all": true})).await.expect(200);
        api.ask(Method::DELETE, &format!("/ojs/v1/jobs/{id}"), None).await;
    }
}

async fn look_at_everything_else(api: &mut Described) {
    let batch = json!({"jobs": [{"type": "t", "args": []}, {"type": "t", "args": []}]});
    let jobs = api.post("/ojs/v1/jobs/batch", batch).await.expect(201);
    let id = |n: usize| jobs["jobs"][n]["id"].as_str().expect("an id").to_owned();
    api.ask(Method::DELETE, &format!("/ojs/v1/jobs/{}", id(0)), None).await.expect(200);
    api.post(&format!("/ojs/v1/jobs/{}/cancel", id(1)), json!({})).await.expect(200);
    api.job(json!({"delay_until": "+PT1H", "expires_at": "2099-01-01T00:00:00Z"})).await;
    let pending = api.job(json!({"pending": true})).await;
    api.post(&format!("/ojs/v1/jobs/{pending}/activate"), json!({})).await.expect(200);
    api.ask(Method::DELETE, &format!("/ojs/v1/jobs/{pending}"), None).await.expect(200);
    for path in ["/ojs/manifest", "/ojs/v1/health", "/ojs/v1/queues", "/ojs/v1/events"] {
        api.get(path).await.expect(200);
    }
    for order in ["pause", "resume"] {
        api.post(&format!("/ojs/v1/queues/default/{order}"), json!({})).await.expect(200);
    }
    for path in ["/ojs/v1/queues/default", "/ojs/v1/queues/default/stats"] {
        api.get(path).await.expect(200);
    }
    for path in [
        "/health",
        "/health/live",
        "/health/ready",
        "/openapi.json",
        "/api/v1/doctor",
        "/api/v1/actions",
        "/api/v1/actions/core.echo",
        "/api/v1/packs",
        "/api/v1/packs/core",
        "/api/v1/workers",
        "/api/v1/events?stream=false&limit=500",
    ] {
        api.get(path).await.expect(200);
    }
    assert_eq!(api.get("/metrics").await.status, 200);
    api.get("/ojs/v1/queues/unheard-of/stats").await.expect(404);
    api.get("/api/v1/executions?limit=0").await.expect(400);
}

async fn look_at_executions(api: &mut Described, root: &str) {
    let request = json!({
        "action_ref": "core.echo", "parameters": {"message": "m"}, "timeout": 1.5,
        "labels": {"zone": "a"}, "priority": 3, "overlap": "forbidden", "delay": "5m",
        "scheduled_timeout": "30s", "queue": "q",
    });
    let new = api.post(root, request).await.expect(201);
    let id = new["data"]["id"].as_str().expect("an id").to_owned();
    api.post(root, json!({"action_ref": "core.echo"})).await.expect(422);
    api.post(root, json!({"action_ref": "core.noop"})).await.expect(201);
    for rest in ["", "/logs", "/events", "/attempts"] {
        api.get(&format!("{root}/{id}{rest}")).await.expect(200);
    }
    api.post(&format!("{root}/{id}/rerun"), json!({})).await.expect(409);
    api.post(&format!("{root}/{id}/run-now"), json!({})).await.expect(200);
    api.post(&format!("{root}/{id}/run-now"), json!({})).await.expect(409);
    api.post(&format!("{root}/{id}/cancel"), json!({})).await.expect(200);
    api.post(&format!("{root}/{id}/rerun"), json!({})).await.expect(201);
    api.get(&format!("{root}/{id}")).await.expect(200);
    // Everything that the other calls left behind, in whatever state.
    let list = api.get(&format!("{root}?limit=100")).await.expect(200);
    let all = list["data"].as_array().expect("a list").clone();
    for execution in &all {
        let id = execution["id"].as_str().expect("an id");
        api.get(&format!("{root}/{id}/attempts")).await.expect(200);
    }
    let dead = all.iter().find(|execution| execution["state"] == "discarded");
    let dead = dead.expect("a discarded one")["id"].as_str().expect("an id").to_owned();
    api.post(&format!("{root}/{dead}/retry"), json!({})).await.expect(200);
}

async fn order_workers(api: &mut Described) {
    for order in ["quiet", "resume", "drain"] {
        api.post(&format!("/api/v1/workers/w/{order}"), json!({})).await.expect(200);
    }
    api.get("/api/v1/workers/w").await.expect(200);
    for order in ["drain", "resume"] {
        let order = json!({"order": order, "selector": "!spot, pool=gpu"});
        api.post("/api/v1/workers/orders", order).await.expect(200);
        api.get("/api/v1/workers/orders").await.expect(200);
    }
    api.post("/api/v1/workers/orders", json!({"order": "drain"})).await.expect(400);
    api.ask(Method::DELETE, "/api/v1/workers/w", None).await.expect(409);
    api.get("/api/v1/workers/nobody").await.expect(404);
    let end = json!({"worker_id": "w", "state": "terminated"});
    api.post("/ojs/v1/workers/beat", end).await.expect(200);
    api.ask(Method::DELETE, "/api/v1/workers/w", None).await.expect(200);
}

async fn set_queues(api: &mut Described) {
    let fair = json!({"fair_by": "tenant", "weights": {"tenant:42": 3}, "max_depth": 100,
                      "requires": "gpu=true, !spot", "prefers": "zone=a"});
    api.ask(Method::PUT, "/api/v1/queues/fair", Some(fair)).await.expect(200);
    for path in ["queues", "queues/fair"] {
        api.ask(Method::GET, &format!("/api/v1/{path}"), None).await.expect(200);
    }
    api.ask(Method::GET, "/api/v1/queues/nosuch", None).await.expect(404);
    let none = json!({"requires": null, "prefers": ""});
    api.ask(Method::PUT, "/api/v1/queues/fair", Some(none)).await.expect(200);
    let wrong = json!({"requires": "gpu true"});
    api.ask(Method::PUT, "/api/v1/queues/fair", Some(wrong)).await.expect(400);
    let wrong = json!({"weights": {"account:42": 3}});
    api.ask(Method::PUT, "/api/v1/queues/fair", Some(wrong)).await.expect(422);
}

async fn set_limits(api: &mut Described) {
    let limit = json!({"scope": "type", "of": "t", "concurrency": 5, "rate": "100/1m"});
    api.ask(Method::PUT, "/api/v1/limits/stripe", Some(limit.clone())).await.expect(201);
    api.ask(Method::PUT, "/api/v1/limits/stripe", Some(limit)).await.expect(200);
    let limit = json!({"scope": "key", "of": "tenant", "concurrency": 5});
    api.ask(Method::PUT, "/api/v1/limits/tenant", Some(limit)).await.expect(201);
    api.job(json!({})).await;
    api.fetch().await;
    for path in ["limits", "limits/stripe", "limits/tenant", "limits/tenant?value=42"] {
        api.get(&format!("/api/v1/{path}")).await.expect(200);
    }
    for name in ["stripe", "tenant"] {
        let path = format!("/api/v1/limits/{name}");
        api.ask(Method::DELETE, &path, None).await.expect(200);
    }
    api.ask(Method::DELETE, "/api/v1/limits/stripe", None).await.expect(404);
}

async fn begin_operations(api: &mut Described) {
    let all = "/api/v1/operations";
    let filter = json!({"queue": "mail", "status": ["requested"], "keys": {"tenant": "42"}});
    let dry = json!({"kind": "cancel", "filter": filter, "dry_run": true});
    api.post(all, dry).await.expect(200);
    let every = json!({"kind": "cancel", "filter": {"all": true}, "dry_run": true});
    api.post(all, every).await.expect(200);
    let order = json!({"kind": "cancel", "filter": filter, "reason": "sent twice", "expected": 0});
    let begun = api.post(all, order).await.expect(201);
    let one = format!("{all}/{}", begun["data"]["id"].as_str().expect("an id"));
    api.get(all).await.expect(200);
    api.get(&one).await.expect(200);
    api.post(&format!("{one}/stop"), json!({})).await.expect(200);
    api.post(&format!("{one}/stop"), json!({})).await.expect(409);
    api.get(&format!("{all}/nonsense")).await.expect(404);
    api.post(all, json!({"kind": "cancel"})).await.expect(400);
    let ended = json!({"kind": "cancel", "filter": {"status": "failed"}});
    api.post(all, ended).await.expect(422);
}

async fn set_schedules(api: &mut Described) {
    let schedule = json!({
        "cron": "0 2 * * *", "time_zone": "Europe/Vienna", "overlap": "queue", "jitter": "30s",
        "action_ref": "core.echo", "parameters": {"message": "hi"}, "queue": "night",
    });
    let one = "/api/v1/schedules/night";
    api.ask(Method::PUT, one, Some(schedule.clone())).await.expect(201);
    api.ask(Method::PUT, one, Some(schedule)).await.expect(200);
    for _ in 0..2 {
        api.ask(Method::POST, &format!("{one}/trigger"), None).await.expect(201);
    }
    api.get("/api/v1/schedules").await.expect(200);
    api.get(one).await.expect(200);
    let pause = json!({"reason": "audit"});
    api.ask(Method::POST, &format!("{one}/pause"), Some(pause)).await.expect(200);
    api.ask(Method::POST, &format!("{one}/resume"), None).await.expect(200);
    let cron = json!({
        "name": "report", "expression": "@daily", "timezone": "Asia/Tokyo",
        "overlap_policy": "skip", "job_template": {"type": "report.make", "args": [1]},
    });
    api.ask(Method::POST, "/ojs/v1/cron", Some(cron.clone())).await.expect(201);
    api.ask(Method::POST, "/ojs/v1/cron", Some(cron)).await.expect(200);
    api.ask(Method::POST, "/api/v1/schedules/report/trigger", None).await.expect(201);
    api.ask(Method::POST, "/api/v1/schedules/report/trigger", None).await.expect(409);
    for path in ["/ojs/v1/cron", "/ojs/v1/cron/report", "/ojs/v1/cron/night", one] {
        api.get(path).await.expect(200);
    }
    let off = json!({"enabled": false});
    api.ask(Method::PATCH, "/ojs/v1/cron/report", Some(off)).await.expect(200);
    api.ask(Method::DELETE, "/ojs/v1/cron/report", None).await.expect(200);
    api.ask(Method::DELETE, one, None).await.expect(200);
    api.ask(Method::DELETE, one, None).await.expect(404);
    let wrong = json!({"cron": "0 25 * * *", "action_ref": "core.echo"});
    api.ask(Method::PUT, one, Some(wrong)).await.expect(422);
}

async fn run_workflows(api: &mut Described) {
    let all = "/api/v1/workflows";
    let hello = json!({"action": "core.echo", "with": {"message": "${{ parameters.name }}"}});
    let workflow = json!({
        "workflow": {"name": "greeting", "timeout": "2h", "steps": {
            "hello": hello, "bye": {"type": "t", "after": ["hello"], "args": [1]}}},
        "parameters": {"name": "Ada"}, "keys": {"tenant": "42"},
    });
    let begun = api.post(all, workflow).await.expect(201);
    let id = begun["data"]["id"].as_str().expect("an id").to_owned();
    let wrong = json!({"workflow": {"steps": {"a": {"type": "t", "after": ["b"]}}}});
    api.post(all, wrong).await.expect(422);
    api.post(all, json!({"workflow_ref": "core.nosuch"})).await.expect(404);
    let one = format!("{all}/{id}");
    for path in [all, &one, &format!("{one}?drawing=80&wait=0"), &format!("{all}?status=running")] {
        api.get(path).await.expect(200);
    }
    api.get(&format!("{all}?status=started")).await.expect(400);
    api.post(&format!("{one}/retry"), json!({})).await.expect(409);
    api.post(&format!("{one}/cancel"), json!({})).await.expect(200);
    let ended = api.get(&format!("{one}?wait=60")).await.expect(200);
    assert_eq!(ended["data"]["status"], "cancelled");
    api.post(&format!("{one}/cancel"), json!({})).await.expect(409);
    api.post(&format!("{one}/retry"), json!({})).await.expect(200);
    let chain = json!({"type": "chain", "steps": [{"type": "t", "args": [1]}]});
    for cancelling in ["delete", "post"] {
        let begun = api.post("/ojs/v1/workflows", chain.clone()).await.expect(201);
        let path =
            format!("/ojs/v1/workflows/{}", begun["workflow"]["id"].as_str().expect("an id"));
        api.get(&path).await.expect(200);
        match cancelling {
            "delete" => api.ask(Method::DELETE, &path, None).await.expect(200),
            _ => api.post(&format!("{path}/cancel"), json!({})).await.expect(200),
        };
    }
    api.get("/ojs/v1/workflows").await.expect(200);
    api.post("/ojs/v1/workflows", json!({"type": "chain", "steps": [{"args": []}]}))
        .await
        .expect(400);
    api.get("/ojs/v1/workflows/unheard-of").await.expect(404);
}

async fn end_sessions(api: &mut Described) {
    let order = BeginSession {
        id: Uuid::now_v7(),
        secret: [1; 32],
        token: [2; 32],
        name: "viewer".to_owned(),
        address: "192.0.2.7".to_owned(),
        agent: "browser/1".to_owned(),
        by: "dashboard: viewer from 0.0.0.0".to_owned(),
    };
    let session = api.api.engine.submit(order).await.expect("it is begun");
    let all = api.get("/api/v1/sessions?limit=10").await.expect(200);
    assert_eq!(all["data"].as_array().map(Vec::len), Some(1), "{all}");
    let path = format!("/api/v1/sessions/{}", session.id);
    api.ask(Method::DELETE, &path, None).await.expect(200);
    api.ask(Method::DELETE, &path, None).await.refused(404, "not_found");
}

#[tokio::test]
async fn every_route_answers_as_it_is_described() {
    let mut api = Described::start().await;
    for _ in 0..2 {
        work_on_plain_jobs(&mut api).await;
    }
    look_at_executions(&mut api, "/api/v1/executions").await;
    look_at_executions(&mut api, "/executions").await;
    look_at_everything_else(&mut api).await;
    set_limits(&mut api).await;
    set_schedules(&mut api).await;
    begin_operations(&mut api).await;
    run_workflows(&mut api).await;
    set_queues(&mut api).await;
    order_workers(&mut api).await;
    end_sessions(&mut api).await;
    api.post("/ojs/v1/admin/reset", json!({})).await.expect(200);
    let described: BTreeSet<(String, String)> = api.document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(|method| (method.clone(), path.clone())).collect::<Vec<_>>()
        })
        .collect();
    let never: Vec<_> = described.difference(&api.asked).collect();
    assert!(never.is_empty(), "described and never answered well: {never:?}");
    check_that_changes_are_said(&described, &api.audited);
}

#[tokio::test]
async fn every_operation_says_what_it_is_for_and_who_may() {
    let api = Api::start();
    let document = api.get("/openapi.json").await.expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 8), "{path}");
            assert!(ids.insert(operation["operationId"].to_string()), "{method} {path}");
            let open = operation["security"] == json!([]);
            assert_eq!(open, path.starts_with("/health/") || path == "/openapi.json", "{path}");
            assert_eq!(open, operation.get("x-roles").is_none(), "{path}");
        }
    }
    assert!(document["paths"].get("/ojs/v1/admin/reset").is_none(), "only for conformance");
}

/// Every operation with its path, parts of it made up.
fn operations(document: &Value) -> Vec<(Method, String)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let part = |part: &str| if part.starts_with('{') { "made-up" } else { part }.to_owned();
        let path = path.split('/').map(part).collect::<Vec<_>>().join("/");
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_uppercase().parse().expect("a method");
            all.push((method, path.clone()));
        }
    }
    all
}

/// A field that nothing reads was once answered with 200 where a route has no parameters at all.
/// The standard lets servers pass over what they do not know, and probes have to succeed.
#[tokio::test]
async fn every_route_refuses_a_parameter_that_it_does_not_know() {
    let api = Api::start();
    let document = api.get("/openapi.json").await.expect(200);
    let ours =
        |(_, path): &(Method, String)| !path.starts_with("/ojs") && !path.starts_with("/health");
    for (method, path) in operations(&document).into_iter().filter(ours) {
        let reply = api.ask(method.clone(), &format!("{path}?surprise=1"), None).await;
        let error = reply.refused(400, "invalid_request");
        assert_eq!(error["details"]["field"], "surprise", "{method} {path}");
    }
}

#[tokio::test]
async fn every_refusal_is_one_that_is_described() {
    let token = |role: Role| KnownToken {
        name: role.to_string(),
        role,
        hash: TokenHash::of(role.as_str()),
    };
    let access = Arc::new(Access::new(vec![token(Role::Admin), token(Role::Viewer)], Vec::new()));
    let mut api = Described::with(|settings| {
        settings.access = access;
        settings.max_body = 200;
    })
    .await;
    let long = "x".repeat(300);
    let wrong = r#"{"action_ref": 1, "type": 1, "job_id": 1, "worker_id": 1, "jobs": [1]}"#;
    let bad_policy = r#"{"type": "t", "args": [], "options": {"retry": {"max_attempts": -1}}}"#;
    let unknown = r#"{"job_id": "019a0000-0000-7000-8000-000000000000", "action_ref": "no.such"}"#;
    let bodies = ["", "{", "[]", "{}", "{}{", &long, wrong, bad_policy, unknown];
    for (method, path) in operations(&api.document) {
        if path == "/ojs/v1/admin/reset" {
            continue;
        }
        let accept = if path.starts_with("/ojs") { "*/*" } else { "application/json" };
        let ask = |path: &str, header: (&str, &str), token: &str, body: &str| {
            let request = Request::builder().method(&method).uri(path);
            // A page rather than a stream that never ends.
            let request = request.header("accept", accept).header(header.0, header.1);
            let request = request.header("authorization", format!("Bearer {token}"));
            request.body(Body::from(body.to_owned())).expect("a request")
        };
        let plain = ("x-request-id", "r");
        for token in ["nobody", "viewer"] {
            api.send(ask(&path, plain, token, "{}"), None).await;
        }
        for query in
            ["", "?limit=0", "?limit=x", "?cursor=%00&status=x&type=x&worker=x", "?stream=x"]
        {
            api.send(ask(&format!("{path}{query}"), plain, "admin", "{}"), None).await;
        }
        for header in [("ojs-version", "9.0"), ("x-ojs-tenant", ""), ("idempotency-key", "")] {
            api.send(ask(&path, header, "admin", "{}"), None).await;
        }
        for body in bodies {
            api.send(ask(&path, plain, "admin", body), None).await;
        }
    }
    let id = "019a0000-0000-7000-8000-000000000001";
    let job = json!({"type": "t", "args": [], "id": id});
    for _ in 0..2 {
        let request = Request::post("/ojs/v1/jobs").header("authorization", "Bearer admin");
        let request = request.body(Body::from(job.to_string())).expect("a request");
        api.send(request, None).await;
    }
    let bound = Request::put("/api/v1/queues/full").header("authorization", "Bearer admin");
    let bound = bound.body(Body::from(json!({"max_depth": 1}).to_string()));
    api.send(bound.expect("a request"), None).await;
    for _ in 0..2 {
        let job = json!({"type": "t", "args": [], "options": {"queue": "full"}});
        let request = Request::post("/ojs/v1/jobs").header("authorization", "Bearer admin");
        api.send(request.body(Body::from(job.to_string())).expect("a request"), None).await;
    }
    for end in ["cancel", "cancel"] {
        let request = Request::post(format!("/ojs/v1/jobs/{id}/{end}"));
        let request = request.header("authorization", "Bearer admin").body(Body::empty());
        api.send(request.expect("a request"), None).await;
    }
    api.api.engine.store().close().await.expect("it closes");
    let request = Request::post("/ojs/v1/jobs").header("authorization", "Bearer admin");
    let request = request.body(Body::from(json!({"type": "t", "args": []}).to_string()));
    api.send(request.expect("a request"), None).await;
    let described: BTreeSet<String> = api.document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .flat_map(|methods| methods.as_object().expect("methods").values())
        .flat_map(|operation| operation["responses"].as_object().expect("answers").values())
        .flat_map(|answer| answer["x-codes"].as_array().cloned().unwrap_or_default())
        .map(|code| code.as_str().expect("a code").to_owned())
        .collect();
    let never: Vec<_> = described.difference(&api.refused).collect();
    // Slow clients and faults of ours are seen to elsewhere.
    assert_eq!(never, ["internal_error", "request_timeout"]);
}
