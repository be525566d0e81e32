//! The audit: who changed something by a request, and from where. That each route which changes something
//! is in it is checked with what each answers (`openapi.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request};
use outlast_server::access::{Access, KnownToken, Role, TokenHash};
use outlast_server::tls::CertificateNames;
use serde_json::{Value, json};

use crate::api::{Api, Reply};

/// Routes by their methods and paths.
type Routes = BTreeSet<(String, String)>;

/// Routes of the work itself, which the log tells of by what happens to jobs: those of producers, whose jobs and
/// workflows say who enqueued them, and of workers. The last one empties the log.
const WORK: [(&str, &str); 14] = [
    ("post", "/api/v1/executions"),
    ("post", "/api/v1/executions/{id}/rerun"),
    ("post", "/executions"),
    ("post", "/executions/{id}/rerun"),
    ("post", "/ojs/v1/jobs"),
    ("post", "/ojs/v1/jobs/batch"),
    ("post", "/api/v1/workflows"),
    ("post", "/ojs/v1/workflows"),
    ("post", "/ojs/v1/workers/fetch"),
    ("post", "/ojs/v1/workers/ack"),
    ("post", "/ojs/v1/workers/nack"),
    ("post", "/ojs/v1/workers/heartbeat"),
    ("post", "/ojs/v1/workers/beat"),
    ("post", "/ojs/v1/admin/reset"),
];

/// Whether a route changes something on request.
pub(crate) fn is_change(method: &str, template: &str) -> bool {
    method != "get" && !WORK.contains(&(method, template))
}

/// Counts the changes by requests in the log. Each says who, and from where.
pub(crate) async fn changes_in_the_log(api: &Api) -> usize {
    let page = api.get("/api/v1/events?newest=true&audit=true&limit=1000").await;
    if page.status != 200 {
        return 0;
    }
    let events = page.json()["data"].as_array().cloned().unwrap_or_default();
    for event in &events {
        let by = event["data"]["by"].as_str().expect("who");
        assert!(by.ends_with("(unnamed client)") || by == "dashboard: viewer", "{event}");
        assert_eq!(event["data"]["from"], "0.0.0.0", "no connection: {event}");
    }
    events.len()
}

/// Checks that each of the routes which changes something was `audited`.
pub(crate) fn check_that_changes_are_said(described: &Routes, audited: &Routes) {
    let unsaid = described.difference(audited);
    let unsaid: Vec<_> = unsaid.filter(|(method, path)| is_change(method, path)).collect();
    assert!(unsaid.is_empty(), "changes of which the log does not say who made them: {unsaid:?}");
    let is_known = |(method, path): &&(&str, &str)| {
        described.contains(&((*method).to_owned(), (*path).to_owned()))
    };
    assert!(WORK.iter().all(|it| is_known(&it)), "a route that is gone is among {WORK:?}");
}

const HOST: (&str, &str) = ("host", "127.0.0.1:8080");
const PAGE: (&str, &str) = ("origin", "http://127.0.0.1:8080");
const AGENT: (&str, &str) = ("user-agent", "curl/8");

async fn send(
    api: &Api,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::from(body.to_owned())).expect("a request")).await
}

/// Who changed what, the latest last.
async fn changes(api: &Api, headers: &[(&str, &str)]) -> Vec<(String, String, String)> {
    let path = "/api/v1/events?newest=true&audit=true";
    let page = send(api, Method::GET, path, headers, "").await.expect(200);
    let events = page["data"].as_array().expect("events").clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |it: &Value| (text(&it["type"]), text(&it["data"]["by"]), text(&it["data"]["from"]));
    events.iter().map(of).collect()
}

fn change(kind: &str, by: &str) -> (String, String, String) {
    // There is no connection in these tests.
    (kind.to_owned(), by.to_owned(), "0.0.0.0".to_owned())
}

#[tokio::test]
async fn changes_say_how_their_author_is_known_and_nothing_else_is_among_them() {
    let token =
        KnownToken { name: "alice".to_owned(), role: Role::Admin, hash: TokenHash::of("secret") };
    let access = Access::new(vec![token], vec![("ops".to_owned(), Role::Operator)]);
    let api = Api::with(|settings| settings.access = Arc::new(access));
    let bearer = ("authorization", "Bearer secret");
    let job = json!({"type": "t", "args": []}).to_string();
    send(&api, Method::POST, "/ojs/v1/jobs", &[bearer], &job).await.expect(201);
    let fetch = json!({"queues": ["default"]}).to_string();
    let fetched = send(&api, Method::POST, "/ojs/v1/workers/fetch", &[bearer], &fetch).await;
    let ack = json!({"job_id": fetched.expect(200)["jobs"][0]["id"]}).to_string();
    // No worker names itself: the token and its client report the end, which is no change.
    send(&api, Method::POST, "/ojs/v1/workers/ack", &[bearer, AGENT], &ack).await.expect(200);
    assert_eq!(changes(&api, &[bearer]).await, []);

    let pause = "/ojs/v1/queues/mail/pause";
    send(&api, Method::POST, pause, &[bearer, AGENT], "").await.expect(200);
    let names = CertificateNames(vec!["ops".to_owned()]);
    let request = Request::post("/ojs/v1/queues/mail/resume").extension(Arc::new(names));
    let request = request.header(HOST.0, HOST.1).body(Body::empty());
    api.send(request.expect("a request")).await.expect(200);
    let login = send(&api, Method::POST, "/login", &[HOST, PAGE, AGENT], "token=secret").await;
    let cookie = login.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let cookie = ("cookie", cookie.as_str());
    let pressed =
        send(&api, Method::POST, "/queues/mail/pause", &[HOST, PAGE, AGENT, cookie], "x=").await;
    assert_eq!(pressed.status, 303, "{}", pressed.text);
    assert_eq!(
        changes(&api, &[bearer]).await,
        [
            change("queue.paused", "api: alice (curl/8)"),
            change("queue.resumed", "certificate: ops (unnamed client)"),
            change("session.began", "dashboard: alice"),
            change("queue.paused", "dashboard: alice (curl/8)"),
        ]
    );
}

#[tokio::test]
async fn buttons_of_a_server_without_tokens_are_told_from_its_api() {
    let api = Api::start();
    send(&api, Method::POST, "/queues/mail/pause", &[HOST, PAGE, AGENT], "x=").await;
    // What a client calls itself cannot stand for an address.
    let forged = ("user-agent", "x) from 192.0.2.7");
    send(&api, Method::POST, "/ojs/v1/queues/mail/resume", &[forged], "").await.expect(200);
    assert_eq!(
        changes(&api, &[]).await,
        [
            change("queue.paused", "dashboard: anonymous (curl/8)"),
            change("queue.resumed", "api: anonymous (x) from 192.0.2.7)"),
        ]
    );
}

#[tokio::test]
async fn stream_and_pages_forward_have_the_same_changes() {
    let api = Api::start();
    for order in ["pause", "resume"] {
        api.enqueue(json!({})).await;
        api.post(&format!("/ojs/v1/queues/mail/{order}"), json!({})).await.expect(200);
    }
    let path = "/api/v1/events?stream=false&audit=true&limit=1";
    let first = api.get(path).await.expect(200);
    assert_eq!(first["data"][0]["type"], "queue.paused");
    let next = first["next_cursor"].as_str().expect("a cursor");
    let second = api.get(&format!("{path}&cursor={next}")).await.expect(200);
    assert_eq!(second["data"][0]["type"], "queue.resumed");
    let id = api.enqueue(json!({})).await;
    api.delete(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
    let of_job = format!("/api/v1/executions/{id}/events?audit=true");
    let of_job = api.get(&of_job).await.expect(200);
    let kinds: Vec<_> = of_job["data"].as_array().expect("events").iter().collect();
    assert_eq!(kinds.len(), 1, "{of_job}");
    assert_eq!(
        (&kinds[0]["type"], &kinds[0]["data"]["from"]),
        (&json!("job.cancelled"), &json!("0.0.0.0"))
    );
    api.get("/api/v1/events?stream=false&audit=perhaps").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn the_log_page_shows_changes_with_who_from_where_and_to_what() {
    let api = Api::start();
    for n in 0..102 {
        let order = if n % 2 == 0 { "pause" } else { "resume" };
        api.post(&format!("/ojs/v1/queues/q{n}/{order}"), json!({})).await.expect(200);
        api.enqueue(json!({"queue": "noise"})).await;
    }
    let page = api.get("/events?audit=true").await.text;
    for wanted in ["<th scope=\"col\">From</th>", "<td>0.0.0.0</td>", "<td>queue q101</td>"] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(page.contains("outlast events --audit"), "the command: {page}");
    assert_eq!(page.matches("data-testid=\"event\"").count(), 100);
    assert!(!page.contains("job.enqueued") && !page.contains("queue q1<"), "{page}");
    // Earlier ones, still only changes.
    let href = page.split("href=\"").find(|rest| rest.contains(">Earlier events<"));
    let href = href.and_then(|rest| rest.split('"').next()).expect("a link");
    assert!(href.starts_with("events?audit=true&"), "{href}");
    let earlier =
        api.get(&format!("/{}", href.replace("&#38;", "&").replace("&amp;", "&"))).await.text;
    assert_eq!(earlier.matches("data-testid=\"event\"").count(), 2, "{earlier}");
    assert!(earlier.contains("<td>queue q1</td>") && earlier.contains("<td>queue q0</td>"));
    // The link of an event leads to a log of which it is the latest.
    let link = earlier.split("href=\"").find(|rest| rest.contains(">queue.resumed<"));
    let link = link.and_then(|rest| rest.split('"').next()).expect("a link");
    let linked = api.get(&format!("/{link}")).await.text;
    let first = linked.split("data-testid=\"event\"").nth(1).expect("a row");
    assert!(first.contains("queue.resumed") && first.contains("<td>q1</td>"), "{first}");
}
