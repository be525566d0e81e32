//! Signing in to the dashboard with a token, in a real browser and over plain HTTP.

use std::time::Duration;

use outlast_e2e::authority::trusting_nobody;
use outlast_e2e::process::run_to_end;
use outlast_e2e::wait::{eventually, stays, within};
use outlast_e2e::{
    Api, Authority, Browser, Proxy, Run, Scene, ServerOptions, Validity, Weather, skip,
};
use reqwest::Method;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use rustix::process::Signal;
use serde_json::{Value, json};

/// How soon pages show what happened: at most two seconds for the session, and one for the page to ask.
const SOON: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(30);
const ADMIN: &str = "an-admin-token-for-tests";
const OPERATOR: &str = "an-operator-token-for-tests";
const VIEWER: &str = "a-viewer-token-for-tests";
const WORKER: &str = "a-worker-token-for-tests";

fn tokens() -> Value {
    json!([
        {"name": "root", "role": "admin", "token": ADMIN},
        {"name": "boss", "role": "operator", "token": OPERATOR},
        {"name": "night", "role": "viewer", "token": VIEWER},
        {"name": "fleet", "role": "worker", "token": WORKER},
    ])
}

fn options() -> ServerOptions {
    ServerOptions::default().set("server.tokens", tokens())
}

fn scene() -> Scene {
    Scene::with(options()).acting_as(ADMIN)
}

/// A browser, or nothing where there is none.
fn browser() -> Option<Browser> {
    skip::has("chromedriver", "chromium-driver").then(Browser::start)
}

/// What a person sees and does in a browser.
struct Person<'a> {
    browser: &'a Browser,
    url: String,
}

impl<'a> Person<'a> {
    fn at(browser: &'a Browser, url: &str) -> Self {
        Self { browser, url: url.to_owned() }
    }

    fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.url));
    }

    fn text(&self, selector: &str) -> String {
        let script =
            format!("return (document.querySelector(\"{selector}\") || {{}}).textContent || ''");
        self.browser.script(&script).as_str().unwrap_or_default().trim().to_owned()
    }

    /// Where the browser is.
    fn path(&self) -> String {
        let here = self.browser.script("return location.pathname + location.search");
        here.as_str().unwrap_or_default().to_owned()
    }

    fn await_path(&self, path: &str) {
        eventually(&format!("the browser is at {path}"), within(SOON), || {
            (self.path() == path).then_some(())
        });
    }

    /// Types a token and sends it.
    fn type_token(&self, token: &str) {
        let script = format!(
            "document.querySelector('input[name=token]').value = '{token}';
             document.querySelector('[data-testid=sign-in] button').click()"
        );
        let _ = self.browser.script(&script);
    }

    /// Opens a page that asks for a token, and signs in.
    fn sign_in(&self, path: &str, token: &str) {
        self.open(path);
        assert!(self.path().starts_with("/login?next="), "{}", self.path());
        self.type_token(token);
        self.await_path(path);
    }

    fn is_out(&self) -> bool {
        self.browser.script("return (document.getElementById('out') || {hidden: true}).hidden")
            == false
    }

    fn await_out(&self) {
        eventually("the page says that its reader is signed out", within(SOON), || {
            self.is_out().then_some(())
        });
    }
}

#[test]
fn token_is_typed_once_and_the_page_that_was_asked_for_comes_back() {
    let Some(browser) = browser() else { return };
    let scene = scene();
    let job = scene.run(Run::holding(Duration::from_secs(120)));
    let person = Person::at(&browser, scene.api().url());
    let path = format!("/jobs/{job}");
    person.open(&path);
    assert_eq!(person.path(), format!("/login?next=jobs%2F{job}"));
    assert_eq!(person.text("h1"), "Sign in");
    for (token, why) in [
        ("a-token-that-is-not-known", "this server does not know that token"),
        (WORKER, "that is a token for workers, which cannot sign in"),
    ] {
        person.type_token(token);
        eventually("it says why not", within(SOON), || {
            person.text(".flash").contains(why).then_some(())
        });
    }
    // The policy has no fault to find; that a token was refused is said as a status, too.
    let complaints = browser.complaints();
    let faults = complaints.iter().filter(|it| !it.contains("status of 40"));
    assert_eq!(faults.count(), 0, "{complaints:?}");
    person.type_token(OPERATOR);
    person.await_path(&path);
    assert!(
        person.text("footer").contains("Signed in as boss, operator"),
        "{}",
        person.text("footer")
    );
    assert_eq!(browser.script("return document.cookie"), "", "no script sees the cookie");
    // The page is kept up to date, and its buttons work.
    let press = "document.querySelector('form[data-form=cancel]').submit()";
    let _ = browser.script(press);
    eventually("the job is cancelled", within(SOON), || {
        person.text(".flash").contains("Done: it is cancelled").then_some(())
    });
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let _ = browser.script("document.querySelector('[data-testid=sign-out] button').click()");
    person.await_path("/login");
    person.open("/workers");
    assert_eq!(person.path(), "/login?next=workers");
}

#[test]
fn session_that_is_ended_elsewhere_is_said_on_an_open_page_and_begins_again_there() {
    let Some(browser) = browser() else { return };
    let scene = scene();
    let job = scene.run(Run::short());
    let person = Person::at(&browser, scene.api().url());
    let path = format!("/jobs/{job}");
    person.sign_in(&path, OPERATOR);
    let _ = browser.script("window.kept = 'kept'");
    let listed =
        run_to_end(&["sessions", "list", "--server", scene.api().url(), "--token", ADMIN], BOUND);
    assert!(listed.stdout.contains("boss") && listed.stdout.contains("127.0.0.1"), "{listed:?}");
    let id = listed.stdout.lines().nth(1).and_then(|line| line.split(' ').next()).expect("an id");
    let ended = run_to_end(
        &["sessions", "end", &id[24..], "--server", scene.api().url(), "--token", ADMIN],
        BOUND,
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains(&format!("session {id} ended")), "{ended:?}");
    person.await_out();
    assert_eq!(
        browser.script("return document.querySelector('form[data-form] fieldset').disabled"),
        true
    );
    stays("it is not loaded again and again", Duration::from_millis(2_500), || {
        (browser.script("return window.kept") != "kept").then(|| "it was loaded again".to_owned())
    });
    // What is pressed all the same is refused in words.
    let _ = browser.script("document.querySelector('form[data-form]').submit()");
    eventually("the order is refused", within(SOON), || {
        person.text(".why").contains("You are signed out. Nothing was changed.").then_some(())
    });
    assert_eq!(scene.api().execution(&job)["status"], "requested");
    let _ = browser.script("[...document.links].find(it => it.text === 'Sign in').click()");
    person.await_path(&format!("/login?next=jobs%2F{job}"));
    person.type_token(OPERATOR);
    person.await_path(&path);
}

#[test]
fn session_ends_on_the_page_that_lists_them() {
    let Some(browser) = browser() else { return };
    let scene = scene();
    let other = other_session(&scene, VIEWER);
    let person = Person::at(&browser, scene.api().url());
    person.sign_in("/sessions", VIEWER);
    assert_eq!(
        browser.script("return document.querySelectorAll('[data-testid=session]').length"),
        2
    );
    assert!(person.text("main").contains("night (this browser)"), "{}", person.text("main"));
    let press = "window.confirm = () => true;
                 [...document.querySelectorAll('[data-testid=session]')]
                     .find(row => !row.textContent.includes('this browser'))
                     .querySelector('button').click()";
    let _ = browser.script(press);
    eventually("it has ended", within(SOON), || {
        person.text(".flash").contains("the session has ended").then_some(())
    });
    assert_eq!(
        browser.script("return document.querySelectorAll('[data-testid=session]').length"),
        1
    );
    assert_eq!(status_with(&scene, &other), 303);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn session_ends_when_its_token_leaves_the_configuration() {
    let Some(browser) = browser() else { return };
    let scene = scene();
    let person = Person::at(&browser, scene.api().url());
    person.sign_in("/workers", OPERATOR);
    let kept = other_session(&scene, VIEWER);
    let config = scene.folder().join("outlast.yaml");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    // A token of the same name takes its place.
    let changed = text.replace(OPERATOR, "another-operator-token-for-tests");
    assert_ne!(changed, text);
    std::fs::write(&config, &changed).expect("writing the configuration");
    scene.server().process().signal(Signal::HUP);
    person.await_out();
    assert_eq!(status_with(&scene, &kept), 200);
    // The token comes back, and the session does not.
    eventually("its end is logged", within(SOON), || {
        let events = scene.api().get("/api/v1/events?stream=false&type=session.ended").text;
        events.contains("of boss from").then_some(())
    });
    std::fs::write(&config, &text).expect("writing the configuration");
    scene.server().process().signal(Signal::HUP);
    let known = Api::new(scene.api().url()).with_token(OPERATOR);
    eventually("the token is known again", within(SOON), || {
        (known.get("/api/v1/workers").status == 200).then_some(())
    });
    person.open("/workers");
    assert_eq!(person.path(), "/login?next=workers");
    person.type_token(OPERATOR);
    person.await_path("/workers");
}

/// Leads a browser to another server, with the connections that it has kept.
fn lead(door: &Proxy, url: &str) {
    door.set(Weather::Cut);
    door.lead_to(url);
    door.set(Weather::Clear);
}

#[test]
fn session_holds_on_every_server_of_the_store_and_after_a_restart() {
    let Some(browser) = browser() else { return };
    let mut scene = Scene::with(options().postgres()).acting_as(ADMIN);
    let other = scene.another_server_with("other", options());
    let door = Proxy::to(scene.api().url());
    let person = Person::at(&browser, &door.url());
    person.sign_in("/workers", OPERATOR);
    lead(&door, &other.url());
    person.open("/queues");
    assert_eq!(person.path(), "/queues");
    assert!(person.text("footer").contains("Signed in as boss, operator"));
    scene.server_mut().kill();
    scene.server_mut().start_again();
    lead(&door, scene.api().url());
    person.open("/jobs");
    assert_eq!(person.path(), "/jobs");
    // Signed out at one, it is at the other too.
    let _ = browser.script("document.querySelector('[data-testid=sign-out] button').click()");
    person.await_path("/login");
    lead(&door, &other.url());
    eventually("the other one knows", within(SOON), || {
        person.open("/jobs");
        (person.path() == "/login?next=jobs").then_some(())
    });
}

#[test]
fn viewer_sees_no_button_but_the_one_to_sign_out() {
    let Some(browser) = browser() else { return };
    let scene = scene();
    let job = scene.run(Run::short());
    let person = Person::at(&browser, scene.api().url());
    let path = format!("/jobs/{job}");
    person.sign_in(&path, VIEWER);
    let buttons = "return document.querySelectorAll('form[method=post]').length";
    assert_eq!(browser.script(buttons), 1);
    assert!(person.text("footer").contains("The role viewer does not allow everything"));
    for path in ["/queues/default", "/deploy", "/actions/core.echo", "/limits", "/schedules"] {
        person.open(path);
        assert_eq!(browser.script(buttons), 1, "{path}: {}", person.text("main"));
    }
}

#[test]
fn wrong_tokens_are_limited_and_the_page_says_for_how_long() {
    let Some(browser) = browser() else { return };
    let scene = scene();
    let person = Person::at(&browser, scene.api().url());
    let open = other_session(&scene, VIEWER);
    person.open("/jobs");
    for _ in 0..10 {
        assert_eq!(try_token(&scene, "a-wrong-one").status(), 401);
    }
    person.type_token(OPERATOR);
    eventually("it says how long", within(SOON), || {
        let said = person.text(".flash");
        said.contains("too many wrong tokens came from this address: try again in").then_some(())
    });
    let limited = try_token(&scene, OPERATOR);
    assert_eq!(limited.status(), 429);
    let wait: u64 =
        limited.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=6).contains(&wait), "{wait}");
    assert_eq!(status_with(&scene, &open), 200, "sessions go on");
    eventually("the right token is taken after that", Duration::from_secs(wait + 2), || {
        (try_token(&scene, OPERATOR).status() == 303).then_some(())
    });
}

fn plain() -> Client {
    let client = Client::builder().tls_backend_preconfigured(trusting_nobody());
    client.redirect(Policy::none()).build().expect("an HTTP client")
}

fn try_token_at(client: &Client, url: &str, token: &str) -> reqwest::blocking::Response {
    let kind = "application/x-www-form-urlencoded";
    let request = client.request(Method::POST, format!("{url}/login"));
    let request = request.header("Content-Type", kind).header("Accept", "text/html");
    request.body(format!("token={token}&next=")).send().expect("an answer")
}

fn try_token(scene: &Scene, token: &str) -> reqwest::blocking::Response {
    try_token_at(&plain(), scene.api().url(), token)
}

fn cookie_of(response: &reqwest::blocking::Response) -> String {
    response.headers()["set-cookie"].to_str().expect("text").to_owned()
}

/// Signs in another browser; returns its cookie.
fn other_session(scene: &Scene, token: &str) -> String {
    let cookie = cookie_of(&try_token(scene, token));
    cookie.split(';').next().expect("a cookie").to_owned()
}

fn status_with(scene: &Scene, cookie: &str) -> u16 {
    let request = plain().get(format!("{}/jobs", scene.api().url()));
    let request = request.header("Cookie", cookie).header("Accept", "text/html");
    request.send().expect("an answer").status().as_u16()
}

#[test]
fn cookie_of_a_server_with_tls_goes_over_tls_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(folder.path(), "authority");
    let own = authority.sign("server", &["localhost", "127.0.0.1"], Validity::Now);
    let options = options().set("server.tls", json!({"cert": own.cert, "key": own.key}));
    let scene = Scene::with(options).trusting(authority.client(None)).acting_as(ADMIN);
    let client = Client::builder().tls_backend_preconfigured(authority.client(None));
    let client = client.redirect(Policy::none()).build().expect("an HTTP client");
    let url = scene.api().url();
    let cookie = cookie_of(&try_token_at(&client, url, VIEWER));
    let port = url.rsplit(':').next().expect("a port");
    assert!(cookie.starts_with(&format!("__Secure-outlast-{port}=")), "{cookie}");
    for attribute in ["; Secure", "; HttpOnly", "; SameSite=Lax", "; Max-Age=604800"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Path") && !cookie.contains("Domain"), "{cookie}");
    let shown = cookie.split(';').next().expect("a cookie");
    let status = |cookie: &str| {
        let request = client.get(format!("{url}/jobs")).header("Cookie", cookie);
        request.header("Accept", "text/html").send().expect("an answer").status().as_u16()
    };
    assert_eq!(status(shown), 200);
    // A page without TLS may have set one of that name.
    assert_eq!(status(shown.trim_start_matches("__Secure-")), 303);

    let scene = self::scene();
    let cookie = cookie_of(&try_token(&scene, VIEWER));
    assert!(cookie.starts_with("outlast-") && !cookie.contains("Secure"), "{cookie}");
}
