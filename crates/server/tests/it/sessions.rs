//! Browsers that sign in with a token: what they get, what it allows, and when it ends.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use http::{Method, Request};
use outlast_server::access::{Access, KnownToken, Role, TokenHash};
use outlast_store::store::Clock as _;
use serde_json::{Value, json};

use crate::api::{Api, Reply};

const FORM: &str = "application/x-www-form-urlencoded";
const HOST: &str = "jobs.example:8080";

fn token(role: Role) -> KnownToken {
    let hash = TokenHash::of(&format!("secret-{role}"));
    KnownToken { name: format!("{role}'s"), role, hash }
}

fn guarded() -> Api {
    let access = Access::new(Role::ALL.map(token).to_vec(), Vec::new());
    Api::with(|settings| settings.access = Arc::new(access))
}

/// A request as a browser sends it.
async fn browse(api: &Api, method: Method, path: &str, cookie: &str, form: &str) -> Reply {
    let mut request = Request::builder().method(method).uri(path).header("host", HOST);
    request = request.header("accept", "text/html,*/*;q=0.8").header("user-agent", "browser/1");
    if !form.is_empty() {
        request = request.header("origin", format!("http://{HOST}")).header("content-type", FORM);
    }
    if !cookie.is_empty() {
        request = request.header("cookie", cookie);
    }
    api.send(request.body(Body::from(form.to_owned())).expect("a request")).await
}

async fn get(api: &Api, path: &str, cookie: &str) -> Reply {
    browse(api, Method::GET, path, cookie, "").await
}

async fn press(api: &Api, path: &str, cookie: &str) -> Reply {
    browse(api, Method::POST, path, cookie, "x=").await
}

async fn try_token(api: &Api, token: &str) -> Reply {
    browse(api, Method::POST, "/login", "", &format!("token={token}&next=jobs%3Fstatus%3Dfailed"))
        .await
}

/// Signs in; returns the cookie as a browser sends it back.
async fn sign_in(api: &Api, role: Role) -> String {
    let reply = try_token(api, &format!("secret-{role}")).await;
    assert_eq!(reply.status, 303, "{}", reply.text);
    reply.header("set-cookie").split(';').next().expect("a cookie").to_owned()
}

async fn listed(api: &Api, role: Role) -> Vec<Value> {
    let request = Request::get("/api/v1/sessions");
    let request = request.header("authorization", format!("Bearer secret-{role}"));
    let reply = api.send(request.body(Body::empty()).expect("a request")).await;
    reply.expect(200)["data"].as_array().expect("a list").clone()
}

async fn end_by_api(api: &Api, id: &Value, role: Role) -> Reply {
    let id = id.as_str().expect("an id");
    let request = Request::delete(format!("/api/v1/sessions/{id}"));
    let request = request.header("authorization", format!("Bearer secret-{role}"));
    api.send(request.body(Body::empty()).expect("a request")).await
}

async fn session_events(api: &Api) -> Vec<(String, String, String)> {
    let request = Request::get("/api/v1/events?stream=false&type=session.*");
    let request = request.header("authorization", "Bearer secret-viewer");
    let reply = api.send(request.body(Body::empty()).expect("a request")).await.expect(200);
    let events = reply["data"].as_array().expect("events").clone();
    let text = |event: &Value, name: &str| {
        let found = if event[name].is_null() { &event["data"][name] } else { &event[name] };
        found.as_str().unwrap_or_else(|| panic!("{name}: {event}")).to_owned()
    };
    let of = |event: &Value| {
        let kind = if event["type"].is_null() { "event" } else { "type" };
        (text(event, kind), text(event, "by"), text(event, "evidence"))
    };
    events.iter().map(of).collect()
}

#[tokio::test]
async fn page_without_a_session_leads_to_the_one_that_signs_in_and_back() {
    let api = guarded();
    for (path, way) in [
        ("/", "./login?next="),
        ("/jobs?status=failed", "./login?next=jobs%3Fstatus%3Dfailed"),
        ("/jobs/0198c0de-71f3", "../login?next=jobs%2F0198c0de-71f3"),
        ("/sessions", "./login?next=sessions"),
    ] {
        let reply = get(&api, path, "").await;
        assert_eq!((reply.status.as_u16(), reply.header("location")), (303, way), "{path}");
    }
    let asked = get(&api, "/login?next=jobs%3Fstatus%3Dfailed", "").await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    assert!(asked.text.contains(r#"name="next" value="jobs?status=failed""#), "{}", asked.text);
    assert!(!asked.text.contains("href=\"/") && !asked.text.contains("<nav"), "{}", asked.text);
    let reply = try_token(&api, "secret-operator").await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "./jobs?status=failed"));
    let cookie = reply.header("set-cookie");
    let (shown, rest) = cookie.split_once(';').expect("attributes");
    assert_eq!(rest, " Max-Age=604800; HttpOnly; SameSite=Lax");
    assert!(shown.starts_with("outlast-8080=") && shown.len() == 13 + 64, "{shown}");
    let page = get(&api, "/jobs?status=failed", shown).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("Signed in as operator&#39;s, operator"), "{}", page.text);
    // Who is in already need not sign in.
    assert_eq!(get(&api, "/login?next=workers", shown).await.header("location"), "./workers");
}

#[tokio::test]
async fn session_begins_an_operation_and_no_session_does_not() {
    let api = guarded();
    let form = "kind=cancel&filter=%7B%22queue%22%3A%22mail%22%7D&expected=0";
    let refused = browse(&api, Method::POST, "/operations/begin", "", form).await;
    assert_eq!(refused.status, 401, "{}", refused.text);
    let viewer = sign_in(&api, Role::Viewer).await;
    let refused = browse(&api, Method::POST, "/operations/begin", &viewer, form).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let operator = sign_in(&api, Role::Operator).await;
    let begun = browse(&api, Method::POST, "/operations/begin", &operator, form).await;
    assert_eq!(begun.status, 303, "{}", begun.text);
    let path = begun.header("location").trim_start_matches('.').to_owned();
    let shown = get(&api, &format!("/operations{path}"), &operator).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
}

#[tokio::test]
async fn page_of_another_server_is_never_led_to() {
    let api = guarded();
    for next in ["%2F%2Fevil.example", "%2F%5Cevil.example", "https%3A%2F%2Fevil.example"] {
        let form = format!("token=secret-viewer&next={next}");
        let reply = browse(&api, Method::POST, "/login", "", &form).await;
        assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "./"), "{next}");
    }
    assert_eq!(Api::start().get("/login?next=//evil.example").await.header("location"), "./");
}

#[tokio::test]
async fn token_is_taken_from_the_body_alone_and_from_pages_of_this_server() {
    let api = guarded();
    let in_url = browse(&api, Method::POST, "/login?token=secret-viewer", "", "next=").await;
    assert_eq!(in_url.status, 401, "{}", in_url.text);
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        for path in ["/login", "/logout"] {
            let request = Request::post(path).header("host", HOST).header("content-type", FORM);
            let request = request.header(name, value).body(Body::from("token=secret-viewer"));
            let reply = api.send(request.expect("a request")).await;
            assert_eq!(reply.status, 403, "{path} {name}: {}", reply.text);
            assert_eq!(reply.header("set-cookie"), "");
        }
    }
    let long = format!("token={}", "x".repeat(20_000));
    assert_eq!(browse(&api, Method::POST, "/login", "", &long).await.status, 413);
}

#[tokio::test]
async fn wrong_tokens_are_refused_in_words_and_after_some_with_a_time_to_wait() {
    let api = guarded();
    let worker = try_token(&api, "secret-worker").await;
    assert_eq!(worker.status, 403);
    assert!(worker.text.contains("a token for workers, which cannot sign in"), "{}", worker.text);
    for _ in 0..9 {
        let reply = try_token(&api, "wrong").await;
        assert_eq!((reply.status.as_u16(), reply.header("set-cookie")), (401, ""));
        assert!(reply.text.contains("does not know that token"), "{}", reply.text);
        assert!(reply.text.contains(r#"value="jobs?status=failed""#), "{}", reply.text);
    }
    for token in ["wrong", "secret-viewer"] {
        let reply = try_token(&api, token).await;
        assert_eq!(reply.status, 429, "{}", reply.text);
        let seconds: u64 = reply.header("retry-after").parse().expect("seconds");
        assert!((1..=6).contains(&seconds), "{seconds}");
        assert!(reply.text.contains("try again in"), "{}", reply.text);
    }
    // Sessions that there are, and tokens that programs show, are not concerned.
    assert!(!listed(&api, Role::Admin).await.iter().any(|it| it["token"] == "worker's"));
}

#[tokio::test]
async fn session_does_on_pages_what_its_role_may_and_only_reads_the_api() {
    let api = guarded();
    let (operator, viewer) =
        (sign_in(&api, Role::Operator).await, sign_in(&api, Role::Viewer).await);
    assert_eq!(press(&api, "/queues/default/pause", &viewer).await.status, 403);
    let done = press(&api, "/queues/default/pause", &operator).await;
    assert_eq!((done.status.as_u16(), done.header("location")), (303, "../default?done=pause"));
    let read = get(&api, "/api/v1/executions", &viewer).await;
    assert_eq!((read.status.as_u16(), read.header("cache-control")), (200, "no-store"));
    let order = browse(&api, Method::POST, "/ojs/v1/queues/default/resume", &operator, "x=").await;
    assert_eq!(order.status, 401, "{}", order.text);
    let request = Request::post("/queues/default/resume").header("host", HOST);
    let request = request.header("cookie", &operator).header("origin", "http://evil.example");
    let forged = api.send(request.body(Body::empty()).expect("a request")).await;
    assert_eq!(forged.status, 403, "{}", forged.text);
}

#[tokio::test]
async fn what_is_asked_without_a_session_is_refused_in_words() {
    let api = guarded();
    let order = press(&api, "/queues/default/pause", "").await;
    assert_eq!(order.status, 401, "{}", order.text);
    assert!(order.text.contains("You are signed out. Nothing was changed."), "{}", order.text);
    let link = r#"href="../../login?next=queues%2Fdefault""#;
    assert!(order.text.contains(link), "{}", order.text);
    let unknown = format!("outlast-8080={}", "0".repeat(64));
    for cookie in ["", "outlast-8080=x", unknown.as_str()] {
        let request = Request::get("/live?page=jobs").header("host", HOST).header("cookie", cookie);
        let update = api.send(request.body(Body::empty()).expect("a request")).await;
        update.refused(401, "unauthenticated");
        let page = get(&api, "/jobs", cookie).await;
        assert_eq!(page.header("location"), "./login?next=jobs");
    }
    // A token that a proxy adds is not replaced by one that is typed in.
    let request = Request::get("/jobs").header("accept", "text/html");
    let request = request.header("authorization", "Bearer wrong").body(Body::empty());
    let refused = api.send(request.expect("a request")).await;
    assert_eq!(refused.status, 401, "{}", refused.text);
    assert!(refused.text.contains("not known to this server"), "{}", refused.text);
}

#[tokio::test]
async fn signing_out_ends_the_session_on_every_server() {
    let api = guarded();
    let other = api.another();
    let cookie = sign_in(&api, Role::Viewer).await;
    assert_eq!(get(&other, "/jobs", &cookie).await.status, 200);
    let out = press(&api, "/logout", &cookie).await;
    assert_eq!((out.status.as_u16(), out.header("location")), (303, "login"));
    let forgotten: Vec<&str> =
        out.headers.get_all("set-cookie").iter().filter_map(|it| it.to_str().ok()).collect();
    assert!(forgotten.iter().any(|it| it.starts_with("outlast-8080=; Max-Age=0")), "{forgotten:?}");
    assert_eq!(get(&api, "/jobs", &cookie).await.status, 303, "at once here");
    tokio::time::timeout(Duration::from_secs(2), async {
        while get(&other, "/jobs", &cookie).await.status != 303 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("and soon elsewhere");
    assert!(listed(&api, Role::Admin).await.is_empty());
}

#[tokio::test]
async fn session_ends_with_its_token_and_does_as_much_as_the_token_does_now() {
    let api = guarded();
    let cookie = sign_in(&api, Role::Viewer).await;
    let replace = |tokens| api.engine.settings().access.replace(tokens, Vec::new());
    let admin = token(Role::Admin);
    let promoted = KnownToken { role: Role::Operator, ..token(Role::Viewer) };
    let gone = replace(vec![admin.clone(), promoted]);
    assert!(!gone.contains(&token(Role::Viewer).hash.session_key()));
    assert_eq!(press(&api, "/queues/default/pause", &cookie).await.status, 303);
    // Another token of the same name.
    let renewed = KnownToken { hash: TokenHash::of("renewed"), ..token(Role::Viewer) };
    let gone = replace(vec![admin.clone(), renewed]);
    assert_eq!(gone, [token(Role::Viewer).hash.session_key()]);
    assert_eq!(get(&api, "/jobs", &cookie).await.status, 303);
    api.engine.end_sessions_of(gone);
    tokio::time::timeout(Duration::from_secs(5), async {
        while session_events_of_admin(&api).await < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it is deleted");
    // Though the token comes back, the session does not.
    replace(vec![admin, token(Role::Viewer)]);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(get(&api, "/jobs", &cookie).await.status, 303);
}

/// It once went on for as long as its connection did.
#[tokio::test]
async fn event_stream_ends_soon_after_its_session_or_its_token() {
    let api = guarded();
    let open = async |name: &'static str, value: String| {
        let request = Request::get("/api/v1/events?stream=true").header(name, value);
        let request = request.header("host", HOST).body(Body::empty()).expect("a request");
        let response = api.open(request).await;
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    };
    let cookie = sign_in(&api, Role::Operator).await;
    let mut of_session = open("cookie", cookie).await;
    let mut of_token = open("authorization", "Bearer secret-viewer".into()).await;
    let mut of_admin = open("authorization", "Bearer secret-admin".into()).await;
    let session = listed(&api, Role::Admin).await[0]["id"].clone();
    assert_eq!(end_by_api(&api, &session, Role::Admin).await.status, 200);
    api.engine.settings().access.replace(vec![token(Role::Admin)], Vec::new());
    let ended = async {
        while of_session.next().await.is_some() {}
        while of_token.next().await.is_some() {}
    };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("both end");
    let goes_on = async { while of_admin.next().await.is_some() {} };
    assert!(tokio::time::timeout(Duration::from_secs(3), goes_on).await.is_err(), "it goes on");
}

async fn session_events_of_admin(api: &Api) -> usize {
    let request = Request::get("/api/v1/events?stream=false&type=session.*");
    let request = request.header("authorization", "Bearer secret-admin");
    let reply = api.send(request.body(Body::empty()).expect("a request")).await.expect(200);
    reply["data"].as_array().expect("events").len()
}

#[tokio::test]
async fn session_ends_twelve_hours_after_its_last_use() {
    let api = guarded();
    let (used, unused) = (sign_in(&api, Role::Viewer).await, sign_in(&api, Role::Viewer).await);
    let hours = async |hours: u32| {
        api.clock.advance(hours * 3_600_000);
        // A server learns the store's time from what the store answers.
        let request = Request::post("/ojs/v1/queues/default/pause");
        let request = request.header("authorization", "Bearer secret-admin").body(Body::empty());
        api.send(request.expect("a request")).await.expect(200);
    };
    for _ in 0..3 {
        hours(5).await;
        assert_eq!(get(&api, "/jobs", &used).await.status, 200);
        tokio::time::timeout(Duration::from_secs(5), async {
            loop {
                let all = listed(&api, Role::Admin).await;
                let latest = all.iter().filter_map(|it| it["used_at"].as_str()).max();
                let latest = latest.map(ToOwned::to_owned);
                let now = outlast_wire::time::Rfc3339(api.clock.now()).to_string();
                if latest == Some(now) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("its use is noted");
    }
    assert_eq!(get(&api, "/jobs", &unused).await.status, 303);
    assert_eq!(listed(&api, Role::Admin).await.len(), 1);
    // A server's idea of the store's time may be some milliseconds ahead of it.
    api.clock.advance(1_000);
    hours(12).await;
    assert_eq!(get(&api, "/jobs", &used).await.status, 303);
}

#[tokio::test]
async fn session_is_read_once_a_second_however_often_it_is_used() {
    let api = guarded();
    let cookie = sign_in(&api, Role::Viewer).await;
    let before = api.store.reads_of_sessions();
    let begun = tokio::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(get(&api, "/login", &cookie).await.status, 303);
    }
    let reads = api.store.reads_of_sessions() - before;
    let most = 1 + usize::try_from(begun.elapsed().as_secs()).expect("a number");
    assert!(reads <= most, "{reads} reads");
}

#[tokio::test]
async fn everyone_lists_and_ends_their_own_sessions_and_an_administrator_all() {
    let api = guarded();
    let viewer = sign_in(&api, Role::Viewer).await;
    let operator = sign_in(&api, Role::Operator).await;
    let all = listed(&api, Role::Admin).await;
    let names: Vec<&Value> = all.iter().map(|it| &it["token"]).collect();
    assert_eq!(names, ["operator's", "viewer's"]);
    assert_eq!((&all[0]["browser"], &all[0]["role"]), (&json!("browser/1"), &json!("operator")));
    assert!(!format!("{all:?}").contains(&operator[13..]), "the secret is no one's to see");
    assert_eq!(listed(&api, Role::Viewer).await, all[1..]);
    end_by_api(&api, &all[0]["id"], Role::Viewer).await.refused(404, "not_found");
    end_by_api(&api, &json!("nonsense"), Role::Admin).await.refused(404, "not_found");
    assert_eq!(get(&api, "/jobs", &operator).await.status, 200);
    assert_eq!(
        end_by_api(&api, &all[0]["id"], Role::Admin).await.expect(200)["data"]["ended"],
        true
    );
    assert_eq!(get(&api, "/jobs", &operator).await.status, 303);

    let page = get(&api, "/sessions", &viewer).await;
    assert!(page.text.contains("viewer&#39;s (this browser)"), "{}", page.text);
    assert!(!page.text.contains("operator&#39;s"), "{}", page.text);
    let id = all[1]["id"].as_str().expect("an id");
    assert!(page.text.contains(&format!("action=\"sessions/{id}/end\"")), "{}", page.text);
    let ended = press(&api, &format!("/sessions/{id}/end"), &viewer).await;
    assert_eq!((ended.status.as_u16(), ended.header("location")), (303, "../../sessions?done=end"));
    assert_eq!(get(&api, "/sessions", &viewer).await.header("location"), "./login?next=sessions");
}

/// An update is shared by all who look at a page with the same role; this page shows each what is theirs.
#[tokio::test]
async fn update_of_the_sessions_page_shows_no_one_elses() {
    let hash = TokenHash::of("secret-second");
    let second = KnownToken { name: "second".to_owned(), role: Role::Viewer, hash };
    let access = Access::new(vec![token(Role::Viewer), second], Vec::new());
    let api = Api::with(|settings| settings.access = Arc::new(access));
    let first = sign_in(&api, Role::Viewer).await;
    let reply = try_token(&api, "secret-second").await;
    let second = reply.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    for page in ["sessions", "%73essions", "sessions%3Fa%3Db", "%2Fsessions%2F"] {
        let update = async |cookie: &str| {
            let request = Request::get(format!("/live?page={page}"));
            let request = request.header("host", HOST).header("cookie", cookie);
            api.send(request.body(Body::empty()).expect("a request")).await.expect(200)["rows"]
                .clone()
        };
        let (mine, theirs) = (update(&first).await, update(&second).await);
        assert_eq!(mine["sessions"].as_array().map(Vec::len), Some(1), "{page}: {mine}");
        assert_ne!(mine, theirs, "{page}");
    }
}

#[tokio::test]
async fn who_signed_in_and_out_and_where_from_is_in_the_event_log() {
    let api = guarded();
    let cookie = sign_in(&api, Role::Viewer).await;
    let id = listed(&api, Role::Viewer).await[0]["id"].as_str().expect("an id").to_owned();
    let _ = press(&api, "/logout", &cookie).await;
    let words = format!("{id} of viewer's from 0.0.0.0");
    let event = |kind: &str| (kind.to_owned(), "dashboard: viewer's".to_owned(), words.clone());
    assert_eq!(session_events(&api).await, [event("session.began"), event("session.ended")]);
}

#[tokio::test]
async fn page_shows_the_buttons_that_its_reader_may_press_and_no_others() {
    let api = guarded();
    let job = json!({"action_ref": "core.echo", "parameters": {"message": "x"}});
    let body = Body::from(job.to_string());
    let request = Request::post("/executions").header("authorization", "Bearer secret-admin");
    let made = api.send(request.body(body).expect("a request")).await.expect(201);
    let id = made["data"]["id"].as_str().expect("an id").to_owned();
    let limit = json!({"scope": "queue", "of": "default", "concurrency": 5}).to_string();
    let request =
        Request::put("/api/v1/limits/five").header("authorization", "Bearer secret-admin");
    api.send(request.body(Body::from(limit)).expect("a request")).await.expect(201);
    let pages = [
        format!("/jobs/{id}"),
        "/queues/default".to_owned(),
        "/limits/five".to_owned(),
        "/actions/core.echo".to_owned(),
        "/deploy".to_owned(),
        "/sessions".to_owned(),
    ];
    for role in [Role::Viewer, Role::Producer, Role::Operator, Role::Admin] {
        let cookie = sign_in(&api, role).await;
        let mut shown = 0;
        for page in &pages {
            let html = get(&api, page, &cookie).await.text;
            for form in html.split("<form ").skip(1).filter(|form| form.contains("data-form=")) {
                let action = form.split("action=\"").nth(1).and_then(|it| it.split('"').next());
                let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
                let path = format!("{folder}/{}", action.expect("an action"));
                if path.contains("/sessions/") {
                    // Pressed, it would sign its reader out.
                    shown += 1;
                    continue;
                }
                let reply = press(&api, &path, &cookie).await;
                assert_ne!(reply.status, 403, "{role} on {page}: {path}: {}", reply.text);
                shown += 1;
            }
        }
        let least = if role == Role::Viewer { 1 } else { 3 };
        assert!(shown >= least, "{role} saw {shown} buttons");
        assert!(role != Role::Viewer || shown == 1, "a viewer saw {shown} buttons");
    }
}

#[tokio::test]
async fn server_without_tokens_knows_no_sessions() {
    let api = Api::start();
    assert_eq!(get(&api, "/jobs", "").await.status, 200);
    assert_eq!(get(&api, "/login", "").await.header("location"), "./");
    let reply = browse(&api, Method::POST, "/login", "", "token=anything").await;
    assert_eq!(reply.status, 401, "{}", reply.text);
    assert!(
        api.get("/api/v1/sessions").await.expect(200)["data"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
}
