//! Settings of the dashboard: which pages there are, what they hide, and the path that they are below.

use std::time::Duration;

use outlast_e2e::process::run_to_end;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Browser, Proxy, Run, Scene, ServerOptions, skip};
use reqwest::Method;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(30);
const OPERATOR: &str = "an-operator-token-for-tests";
const FORM: &str = "application/x-www-form-urlencoded";

fn page(api: &Api, path: &str) -> String {
    let reply = api.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    reply.text
}

fn press(api: &Api, path: &str) -> u16 {
    api.try_send(Method::POST, path, FORM, Some(Vec::new())).expect("an answer").status
}

#[test]
fn pages_for_reading_only_have_no_buttons_and_take_no_orders() {
    let scene = Scene::with(ServerOptions::default().set("server.ui", json!("read_only")));
    let api = scene.api();
    let job = scene.run(Run::short());
    for path in [&format!("/jobs/{job}"), "/queues/default", "/deploy", "/actions/core.echo"] {
        let html = page(api, path);
        assert!(!html.contains("method=\"post\""), "{path}: {html}");
        assert!(html.contains("for reading only"), "{path}: {html}");
    }
    assert_eq!(press(api, "/queues/default/pause"), 403);
    assert_eq!(press(api, &format!("/jobs/{job}/cancel")), 403);
    assert_eq!(api.execution(&job)["status"], "requested");
    assert!(scene.cancel(&job).is_success(), "the API takes it");
}

#[test]
fn server_without_pages_has_its_api() {
    let scene = Scene::with(ServerOptions::default().set("server.ui", json!("off")));
    for path in ["/", "/jobs", "/login", "/live?page=jobs", "/assets/icon.svg"] {
        assert_eq!(scene.api().get(path).status, 404, "{path}");
    }
    assert_eq!(press(scene.api(), "/queues/default/pause"), 404);
    let job = scene.run(Run::short());
    assert_eq!(scene.api().execution(&job)["status"], "requested");
}

/// A text that no page may show.
const SECRET: &str = "swordfish";

fn put(api: &Api, path: &str, body: &Value) {
    let sent = api.try_send(Method::PUT, path, "application/json", Some(body.to_string().into()));
    let reply = sent.expect("an answer");
    assert!(reply.is_success(), "{path}: {}", reply.text);
}

#[test]
fn values_of_keys_that_are_hidden_are_on_no_page_and_in_the_api() {
    let scene = Scene::start();
    let _worker = scene.worker("one");
    let api = scene.api();
    let deep = json!({"user": "ann", "list": [{"DB_Password": SECRET, "apiKey": {"a": SECRET}}]});
    let args = json!({"type": "t", "args": [deep], "options": {"queue": "far", "keys": {"token": SECRET}}});
    let plain = api.post("/ojs/v1/jobs", &args).expect(201)["job"]["id"].clone();
    let plain = plain.as_str().expect("an id").to_owned();
    let done = scene.run(Run::action("core.echo").parameter("message", json!("hello")));
    scene.await_status(&done, "completed", within(LEASE));
    put(
        api,
        "/api/v1/schedules/night",
        &json!({"cron": "0 2 * * *", "type": "t", "args": [{"passwd": SECRET}]}),
    );
    let steps = json!([{"name": "a", "action": "core.echo", "with": {"message": "x"}}]);
    let workflow = json!({"workflow": {"name": "w", "steps": steps, "parameters": {"properties": {}}}, "parameters": {"secret": SECRET}});
    let made = api.post("/api/v1/workflows", &workflow);
    let mut pages = vec![
        format!("/jobs/{plain}"),
        format!("/jobs/{done}"),
        "/schedules/night".to_owned(),
        "/jobs".to_owned(),
    ];
    if made.is_success() {
        let id = made.body["data"]["id"].as_str().expect("an id").to_owned();
        pages.push(format!("/workflows/{id}"));
    }
    for path in &pages {
        let html = page(api, path);
        assert!(!html.contains(SECRET), "{path}: {html}");
    }
    let html = page(api, &pages[0]);
    assert!(html.contains("(hidden)") && html.contains("ann"), "{html}");
    assert!(api.get(&format!("/api/v1/executions/{plain}")).text.contains(SECRET));
}

#[test]
fn names_of_hidden_keys_are_the_operators_choice() {
    let options = ServerOptions::default().set("ui.hide", json!(["iban"]));
    let scene = Scene::with(options);
    let args = json!({"type": "t", "args": [{"IBAN": SECRET, "password": "shown"}]});
    let made = scene.api().post("/ojs/v1/jobs", &args).expect(201);
    let html = page(scene.api(), &format!("/jobs/{}", made["job"]["id"].as_str().expect("an id")));
    assert!(!html.contains(SECRET) && html.contains("shown"), "{html}");
}

fn below_a_path() -> Scene {
    let tokens = json!([{"name": "boss", "role": "operator", "token": OPERATOR}]);
    let options = ServerOptions::default().set("server.tokens", tokens);
    Scene::with(options.set("server.base_path", json!("/a/outlast")))
}

#[test]
fn server_below_a_path_is_there_and_nowhere_else() {
    let scene = below_a_path();
    let root = scene.api().url().to_owned();
    let api = Api::new(&format!("{root}/a/outlast")).with_token(OPERATOR);
    for path in ["/", "/jobs", "/health/live", "/api/v1/executions", "/a/outlasting/jobs", "/login"]
    {
        let reply = Api::new(&root).with_token(OPERATOR).get(path);
        assert_eq!(reply.status, 404, "{path}: {}", reply.text);
        assert!(reply.text.contains("below /a/outlast/"), "{path}: {}", reply.text);
    }
    assert_eq!(api.get("/health/live").status, 200);
    assert_eq!(api.get("").status, 200, "the folder is found without its slash");
    let made = api.post("/executions", &json!({"action_ref": "core.noop"}));
    let location = made.headers["location"].to_str().expect("text").to_owned();
    assert!(location.starts_with("/a/outlast/"), "{location}");
    let moved = Api::new(&root).with_token(OPERATOR).get(&location);
    assert_eq!(moved.body["data"]["id"], made.body["data"]["id"], "{}", moved.text);
    assert_eq!(api.get("/openapi.json").body["servers"][0]["url"], "/a/outlast");
    let listed = run_to_end(&["jobs", "list", "--server", api.url(), "--token", OPERATOR], BOUND);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("core.noop"), "{listed:?}");
}

/// The proxy passes the path on.
#[test]
fn browser_stays_below_the_path() {
    if !skip::has("chromedriver", "chromium-driver") {
        return;
    }
    let scene = below_a_path();
    let root = scene.api().url().to_owned();
    let api = Api::new(&format!("{root}/a/outlast")).with_token(OPERATOR);
    let made = api.post("/executions", &json!({"action_ref": "core.noop"}));
    let door = Proxy::to(&root);
    let browser = Browser::start();
    let here = || browser.script("return location.pathname + location.search");
    let at = |path: &str| {
        eventually(&format!("the browser is at {path}"), within(SOON), || {
            (here() == format!("/a/outlast{path}")).then_some(())
        });
    };
    let id = made.body["data"]["id"].as_str().expect("an id");
    browser.open(&format!("{}/a/outlast/jobs/{id}", door.url()));
    at(&format!("/login?next=jobs%2F{id}"));
    let _ = browser.script(&format!(
        "document.querySelector('input[name=token]').value = '{OPERATOR}';
         document.querySelector('[data-testid=sign-in] button').click()"
    ));
    at(&format!("/jobs/{id}"));
    let styled = || browser.script("return document.styleSheets[0].cssRules.length > 10");
    assert_eq!(styled(), true);
    let _ = browser.script("document.querySelector('form[data-form=cancel]').submit()");
    at(&format!("/jobs/{id}?done=cancel"));
    let places =
        browser.script("return [...document.querySelectorAll('nav a')].map(it => it.href)");
    let places = places.as_array().expect("links").clone();
    assert!(places.len() > 10);
    for place in places {
        browser.open(place.as_str().expect("a link"));
        assert_eq!(styled(), true, "{place}");
        let zone = browser.script("return document.getElementById('zone').innerText");
        assert_eq!(zone, "Times: UTC", "{place}");
        let contact = browser.script("return document.getElementById('contact').hidden");
        assert_eq!(contact, true, "{place}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let _ = browser.script("document.querySelector('[data-testid=sign-out] button').click()");
    at("/login");
}
