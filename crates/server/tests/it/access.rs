//! Bearer tokens over HTTP: which role reaches which route.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request};
use outlast_server::access::{Access, KnownToken, Role, TokenHash};
use outlast_server::tls::CertificateNames;
use serde_json::{Value, json};

use crate::api::{Api, Reply};

fn guarded() -> Api {
    let token = |role: Role| KnownToken {
        name: format!("{role}'s"),
        role,
        hash: TokenHash::of(&format!("secret-{role}")),
    };
    let access = Access::new(Role::ALL.map(token).to_vec(), Vec::new());
    Api::with(|settings| settings.access = Arc::new(access))
}

async fn ask(api: &Api, method: Method, path: &str, role: Option<Role>) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(role) = role {
        request = request.header("authorization", format!("Bearer secret-{role}"));
    }
    api.send(request.body(Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn every_role_reaches_its_routes_and_no_others() {
    let api = guarded();
    let all = "viewer producer worker operator admin";
    for (method, path, allowed) in [
        (Method::GET, "/api/v1/executions", all),
        (Method::GET, "/metrics", all),
        (Method::GET, "/", all),
        (Method::GET, "/ojs/manifest", all),
        (Method::POST, "/executions", "producer operator admin"),
        (Method::POST, "/ojs/v1/jobs", "producer operator admin"),
        (Method::DELETE, "/ojs/v1/jobs/x", "producer operator admin"),
        (Method::POST, "/ojs/v1/workers/fetch", "worker admin"),
        (Method::POST, "/ojs/v1/workers/ack", "worker admin"),
        (Method::POST, "/ojs/v1/workers/nack", "worker admin"),
        (Method::POST, "/ojs/v1/workers/heartbeat", "worker admin"),
        (Method::POST, "/api/v1/workers/x/drain", "operator admin"),
        (Method::DELETE, "/api/v1/workers/x", "operator admin"),
        (Method::POST, "/ojs/v1/queues/q/pause", "operator admin"),
        (Method::DELETE, "/ojs/v1/dead-letter/x", "operator admin"),
    ] {
        for role in Role::ALL {
            let reply = ask(&api, method.clone(), path, Some(role)).await;
            let let_in = reply.status != 403 && reply.status != 401;
            let expected = allowed.split(' ').any(|word| word == role.as_str());
            assert_eq!(let_in, expected, "{role} {method} {path}: {}", reply.text);
        }
        let reply = ask(&api, method.clone(), path, None).await;
        reply.refused(401, "unauthenticated");
        assert_eq!(reply.header("www-authenticate"), "Bearer");
    }
}

#[tokio::test]
async fn a_role_too_small_is_told_which_would_do() {
    let api = guarded();
    for path in ["/executions", "/ojs/v1/jobs"] {
        let reply = ask(&api, Method::POST, path, Some(Role::Viewer)).await;
        let error = reply.refused(403, "permission_denied");
        let message = format!(
            "token \"viewer's\" has the role viewer; POST {path} needs the role producer, \
             operator or admin"
        );
        assert_eq!(error["message"], message);
    }
}

#[tokio::test]
async fn probes_and_the_description_need_no_token_and_nothing_else_says_what_exists() {
    let api = guarded();
    for path in ["/health/live", "/health/ready", "/openapi.json"] {
        ask(&api, Method::GET, path, None).await.expect(200);
    }
    for path in ["/nonsense", "/executions/x/y/z"] {
        ask(&api, Method::GET, path, None).await.refused(401, "unauthenticated");
        ask(&api, Method::GET, path, Some(Role::Viewer)).await.refused(404, "not_found");
    }
    ask(&api, Method::PUT, "/executions", None).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn the_standards_paths_refuse_in_the_standards_type() {
    let api = guarded();
    let reply = ask(&api, Method::GET, "/ojs/v1/queues", None).await;
    assert_eq!(reply.header("content-type"), "application/openjobspec+json");
    assert_eq!(reply.header("ojs-version"), "1.0");
}

/// Any page that a user of this machine looked at could once start executions.
#[tokio::test]
async fn pages_of_others_give_no_orders_to_a_server_without_tokens() {
    let post = async |api: &Api, origin: &str, host: &str, token: Option<&str>| {
        let mut request = Request::post("/executions").header("host", host);
        if !origin.is_empty() {
            request = request.header("origin", origin);
        }
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = r#"{"action_ref":"core.noop"}"#;
        api.send(request.body(Body::from(body)).expect("a request")).await
    };
    let open = Api::start();
    for (origin, host, status) in [
        ("", "127.0.0.1:8080", 201),
        ("", "jobs.example", 201),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", 201),
        ("http://localhost:8080", "localhost:8080", 201),
        ("http://[::1]:8080", "[::1]:8080", 201),
        ("https://evil.example", "127.0.0.1:8080", 403),
        ("http://127.0.0.1:9999", "127.0.0.1:8080", 403),
        ("null", "127.0.0.1:8080", 403),
        // A name that stands for our address at the moment.
        ("http://evil.example:8080", "evil.example:8080", 403),
    ] {
        let reply = post(&open, origin, host, None).await;
        assert_eq!(reply.status, status, "{origin} {host}: {}", reply.text);
    }
    let guarded = guarded();
    let reply =
        post(&guarded, "https://app.example", "jobs.example", Some("secret-producer")).await;
    assert_eq!(reply.status, 201, "a token is proof enough: {}", reply.text);
}

/// A browser shows its certificate for any page. Any page that an operator looked at could once
/// start executions.
#[tokio::test]
async fn pages_of_others_do_not_use_the_certificate_of_a_browser() {
    let roles = vec![("ops".to_owned(), Role::Operator)];
    let access = Access::new(Vec::new(), roles);
    let api = Api::with(|settings| settings.access = Arc::new(access));
    let post = async |target: &str, headers: &[(&str, &str)]| {
        let names = CertificateNames(vec!["ops".to_owned()]);
        let mut request = Request::post(target).extension(Arc::new(names));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = r#"{"action_ref":"core.noop"}"#;
        api.send(request.body(Body::from(body)).expect("a request")).await
    };
    let (host, own) = (("host", "jobs.example"), ("origin", "https://jobs.example"));
    let evil = ("origin", "https://evil.example");
    let site = |site| ("sec-fetch-site", site);
    let cases: [(&[(&str, &str)], u16); 10] = [
        (&[host], 201),
        (&[host, own], 201),
        (&[host, own, site("same-origin")], 201),
        (&[host, site("none")], 201),
        (&[host, evil], 403),
        (&[host, ("origin", "null")], 403),
        (&[host, site("cross-site")], 403),
        (&[host, own, site("same-site")], 403),
        // No token of this server: the certificate speaks all the same.
        (&[host, evil, ("authorization", "Bearer x")], 403),
        (&[host, ("origin", "https://jobs.example:444")], 403),
    ];
    for (headers, status) in cases {
        let reply = post("/executions", headers).await;
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.text);
    }
    // A request of HTTP/2 names its host in its target.
    for (headers, status) in [(&[own], 201), (&[evil], 403)] {
        let reply = post("https://jobs.example/executions", headers).await;
        assert_eq!(reply.status, status, "{headers:?}: {}", reply.text);
    }
}

async fn send(api: &Api, method: Method, path: &str, role: Role, body: Value) -> Reply {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("authorization", format!("Bearer secret-{role}"));
    let request = request.header("user-agent", "curl/8");
    api.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

async fn author_of(api: &Api, id: &str, event: &str) -> Value {
    let path = format!("/api/v1/executions/{id}/events");
    let events = ask(api, Method::GET, &path, Some(Role::Viewer)).await.expect(200);
    let events = events["data"].as_array().expect("events").clone();
    let found = events.iter().find(|found| found["type"] == event || found["event"] == event);
    let found = found.unwrap_or_else(|| panic!("{event}: {events:?}"));
    found["data"]["by"].clone()
}

#[tokio::test]
async fn who_enqueued_a_job_and_who_gave_an_order_is_recorded_by_the_tokens_name() {
    let api = guarded();
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let job = json!({"type": "t", "args": [], "enqueued_by": "forged", "note": 1,
        "options": {"retry": retry}});
    let stored = send(&api, Method::POST, "/ojs/v1/jobs", Role::Producer, job.clone()).await;
    let stored = stored.expect(201)["job"].clone();
    assert_eq!((&stored["enqueued_by"], &stored["note"]), (&json!("producer's"), &json!(1)));
    let letter = stored["id"].as_str().expect("an id");
    let shown = ask(&api, Method::GET, &format!("/ojs/v1/jobs/{letter}"), Some(Role::Viewer)).await;
    assert_eq!(shown.expect(200)["job"]["enqueued_by"], "producer's");
    let all = json!({"jobs": [job]});
    let stored = send(&api, Method::POST, "/ojs/v1/jobs/batch", Role::Operator, all).await;
    let cancelled = stored.expect(201)["jobs"][0].clone();
    assert_eq!(cancelled["enqueued_by"], "operator's");
    let cancelled = cancelled["id"].as_str().expect("an id");
    let execution = json!({"action_ref": "core.noop"});
    let execution = send(&api, Method::POST, "/executions", Role::Admin, execution).await;
    let execution = execution.expect(201)["data"].clone();
    assert_eq!(execution["enqueued_by"], "admin's");
    let execution = execution["id"].as_str().expect("an id");
    assert_eq!(author_of(&api, execution, "job.enqueued").await, "admin's");

    let path = format!("/ojs/v1/jobs/{cancelled}");
    send(&api, Method::DELETE, &path, Role::Producer, Value::Null).await.expect(200);
    assert_eq!(author_of(&api, cancelled, "job.cancelled").await, "api: producer's (curl/8)");
    assert_eq!(author_of(&api, cancelled, "job.enqueued").await, "operator's");
    let fetch = json!({"queues": ["default"]});
    send(&api, Method::POST, "/ojs/v1/workers/fetch", Role::Worker, fetch).await.expect(200);
    let nack = json!({"job_id": letter, "error": {"message": "no"}});
    send(&api, Method::POST, "/ojs/v1/workers/nack", Role::Worker, nack).await.expect(200);
    let path = format!("/ojs/v1/dead-letter/{letter}");
    send(&api, Method::DELETE, &path, Role::Operator, Value::Null).await.expect(200);
    assert_eq!(author_of(&api, letter, "job.purged").await, "api: operator's (curl/8)");
}

#[tokio::test]
async fn where_no_token_is_asked_for_everybody_is_anonymous() {
    let api = Api::start();
    let stored = api.post("/executions", json!({"action_ref": "core.noop"})).await.expect(201);
    assert_eq!(stored["data"]["enqueued_by"], "anonymous");
}
