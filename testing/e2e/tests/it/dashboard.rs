//! The dashboard: what its pages show, what its buttons do, and that a browser finds no fault.

use std::time::{Duration, Instant};

use outlast_e2e::wait::{LEASE, eventually, stays, within};
use outlast_e2e::{Api, Browser, Reply, Run, Scene, ServerOptions, skip};
use reqwest::Method;
use serde_json::{Value, json};

/// How soon pages show what happened.
const SOON: Duration = Duration::from_secs(3);
/// Longest page, and longest update, in bytes.
const PAGE_MAX: usize = 60 * 1024;
const UPDATE_MAX: usize = 4 * 1024;
/// A text that would run as a script if a page did not escape it.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&";

const PAGES: [&str; 18] = [
    "/",
    "/jobs",
    "/waiting",
    "/operations",
    "/operations/new?kind=cancel&queue=far",
    "/queues",
    "/workers",
    "/deploy",
    "/losses",
    "/failures",
    "/dead-letters",
    "/limits",
    "/schedules",
    "/workflows",
    "/events",
    "/servers",
    "/actions",
    "/actions/core.echo",
];

fn page(api: &Api, path: &str) -> String {
    let reply = api.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    reply.text
}

fn live(api: &Api, path: &str) -> Value {
    let path = path.trim_start_matches('/').replace('/', "%2F");
    api.get(&format!("/live?page={path}")).expect(200)
}

fn press(api: &Api, path: &str, fields: &str) -> Reply {
    let kind = "application/x-www-form-urlencoded";
    api.try_send(Method::POST, path, kind, Some(fields.as_bytes().to_vec())).expect("an answer")
}

/// Everything that a page can be about, with texts that would do harm.
fn furnished(scene: &Scene) -> Vec<String> {
    let api = scene.api();
    let failing = Run::action("core.fail").parameter("message", json!(HOSTILE));
    let failed = scene.run(failing.with("retry", json!({"max_attempts": 1})));
    scene.await_status(&failed, "failed", within(LEASE));
    let waiting =
        api.ojs_enqueue("lonely.job", &json!({"queue": "far", "keys": {"tenant": HOSTILE}}));
    let limit = json!({"scope": "key", "of": "tenant", "concurrency": 1});
    let _ = api.try_send(
        Method::PUT,
        "/api/v1/limits/each",
        "application/json",
        Some(limit.to_string().into_bytes()),
    );
    let schedule =
        json!({"cron": "0 2 * * *", "action_ref": "core.echo", "parameters": {"message": HOSTILE}});
    let _ = api.try_send(
        Method::PUT,
        "/api/v1/schedules/night",
        "application/json",
        Some(schedule.to_string().into_bytes()),
    );
    let steps = json!([{"name": "a", "action": "core.noop"}, {"name": "b", "action": "core.echo", "after": "a", "with": {"message": HOSTILE}}]);
    let workflow = api
        .post("/api/v1/workflows", &json!({"workflow": {"name": HOSTILE, "steps": steps}}))
        .expect(201);
    let workflow = workflow["data"]["id"].as_str().expect("an id").to_owned();
    vec![
        format!("/jobs/{failed}"),
        format!("/jobs/{waiting}"),
        "/queues/far".to_owned(),
        "/limits/each".to_owned(),
        "/schedules/night".to_owned(),
        format!("/workflows/{workflow}"),
    ]
}

#[test]
fn every_page_is_small_escapes_texts_and_has_relative_links_only() {
    let scene = Scene::start();
    let worker = scene.worker("one");
    let mut paths = furnished(&scene);
    paths.extend(PAGES.map(str::to_owned));
    paths.push(format!("/workers/{}", worker.id()));
    for path in &paths {
        let html = page(scene.api(), path);
        assert!(html.len() <= PAGE_MAX, "{path} has {} bytes", html.len());
        assert!(!html.contains("<script>alert") && !html.contains("<img"), "{path}: {html}");
        for absolute in ["href=\"/", "src=\"/", "action=\"/", "href=\"http", "style=", "onclick"] {
            assert!(!html.contains(absolute), "{path} has {absolute}: {html}");
        }
        let live = live(scene.api(), path);
        let length = live.to_string().len();
        assert!(length <= UPDATE_MAX || path == "/events", "{path}: an update of {length} bytes");
    }
    let headers = scene.api().get("/jobs").headers;
    let policy = headers["content-security-policy"].to_str().expect("text");
    assert!(policy.contains("default-src 'none'") && policy.contains("require-trusted-types-for"));
    assert_eq!(headers["cache-control"], "no-store");
    let gone = scene.api().get("/jobs/0198c0de-71f3-7000-8000-000000000000");
    assert_eq!(gone.status, 404);
    assert!(gone.text.contains("is not known") && gone.text.contains("</html>"), "{}", gone.text);
}

/// A long argument is cut, and the page says so.
#[test]
fn long_argument_does_not_make_a_long_page() {
    let scene = Scene::start();
    let id = scene.run(Run::action("core.echo").parameter("message", json!("x".repeat(900_000))));
    let html = page(scene.api(), &format!("/jobs/{id}"));
    assert!(html.len() < 16 * 1024, "{} bytes", html.len());
    assert!(html.contains("Cut: they have"), "{html}");
}

#[test]
fn killed_engine_is_on_losses_and_on_its_jobs_within_three_seconds() {
    let scene = Scene::start();
    let worker = scene.worker("first");
    let jobs: Vec<String> =
        (0..3).map(|_| scene.run(Run::holding_once(Duration::from_secs(120)))).collect();
    for job in &jobs {
        scene.await_status(job, "running", within(LEASE));
    }
    worker.kill_engine();
    let killed = Instant::now();
    let shown = eventually("the losses are shown", within(SOON), || {
        let rows = live(scene.api(), "/losses")["whole"]["losses"].as_array()?.clone();
        let again =
            |row: &Value| row["cells"][9]["text"].as_str().is_some_and(|text| !text.is_empty());
        (rows.len() == 3 && rows.iter().all(again)).then_some(rows)
    });
    assert!(killed.elapsed() < within(SOON), "after {:?}", killed.elapsed());
    let html = page(scene.api(), "/losses");
    assert_eq!(html.matches("data-testid=\"loss\"").count(), 3, "{html}");
    for row in &shown {
        let job = row["cells"][1]["text"].as_str().expect("a job");
        assert!(jobs.iter().any(|it| it == job), "{row}");
        let attempts = scene.api().attempts(job);
        let lost = &attempts[0];
        let cells: Vec<&str> = row["cells"]
            .as_array()
            .expect("cells")
            .iter()
            .map(|it| it["text"].as_str().expect("text"))
            .collect();
        let of_api = |name: &str| lost[name].as_str().unwrap_or_default().to_owned();
        assert_eq!((cells[3], cells[4]), ("first", "engine_killed"), "{row}");
        assert_eq!(cells[5], of_api("evidence"), "{row}");
        assert_eq!((cells[6], &lost["charges"]), ("loss", &json!(["loss"])), "{row}");
        assert_eq!(Some(cells[7]), attempts[1]["worker"]["name"].as_str(), "{row}");
        let html = page(scene.api(), &format!("/jobs/{job}"));
        assert!(
            html.contains("lost on first (engine_killed)") || html.contains("at attempt 2"),
            "{html}"
        );
        assert!(
            html.contains("data-testid=\"attempt\"") && html.contains("<td>loss</td>"),
            "{html}"
        );
    }
}

#[test]
fn button_does_what_it_says_and_a_stale_one_says_why_not() {
    let scene = Scene::start();
    let _worker = scene.worker("one");
    let api = scene.api();
    let held = scene.run(Run::holding(Duration::from_secs(120)));
    scene.await_status(&held, "running", within(LEASE));
    assert!(page(api, &format!("/jobs/{held}")).contains("if_status"));
    // What the page was decided on is over.
    let stale = press(api, &format!("/jobs/{held}/cancel"), "if_status=requested");
    assert_eq!(stale.status, 409, "{}", stale.text);
    assert!(
        stale.text.contains("is running, not requested; nothing was changed"),
        "{}",
        stale.text
    );
    assert_eq!(api.execution(&held)["status"], "running");
    let cancelled = press(api, &format!("/jobs/{held}/cancel"), "if_status=running");
    assert_eq!(cancelled.status, 200, "the browser was sent to the page: {}", cancelled.text);
    assert!(cancelled.text.contains("Done: it is cancelled."), "{}", cancelled.text);
    assert_eq!(api.execution(&held)["status"], "cancelled");

    let copy = press(api, &format!("/jobs/{held}/rerun"), "");
    assert!(copy.text.contains("this is the copy"), "{}", copy.text);
    assert_eq!(press(api, "/queues/default/pause", "").status, 200);
    assert!(page(api, "/queues/default").contains("Resume"));
    assert_eq!(press(api, "/queues/default/resume", "").status, 200);
    let run = press(api, "/actions/core.echo/run", "p.message=hello&queue=");
    assert!(run.text.contains("Job of core.echo"), "{}", run.text);
    let wrong = press(api, "/actions/core.sleep/run", "p.duration=long");
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    assert!(wrong.text.contains("Not done") && wrong.text.contains("duration"), "{}", wrong.text);
}

fn field(html: &str, name: &str) -> String {
    let mark = format!("name=\"{name}\" value=\"");
    let from = html.find(&mark).unwrap_or_else(|| panic!("no field {name}: {html}")) + mark.len();
    let value = &html[from..];
    value[..value.find('"').expect("its end")].replace("&quot;", "\"").replace("&#34;", "\"")
}

fn many(api: &Api, queue: &str, count: usize) {
    let job = json!({"type": "mail.send", "args": [], "options": {"queue": queue}});
    let jobs: Vec<_> = std::iter::repeat_n(job, count).collect();
    let _ = api.post("/ojs/v1/jobs/batch", &json!({"jobs": jobs})).expect(201);
}

/// The page of jobs leads to a page that asks, which begins an operation, which has a page.
#[test]
fn all_that_match_are_cancelled_after_their_number_was_typed() {
    let scene = Scene::start();
    let api = scene.api();
    many(api, "mail", 120);
    many(api, "bills", 3);
    let list = page(api, "/jobs?queue=mail");
    assert!(list.contains("data-testid=\"bulk-cancel\""), "{list}");
    assert!(
        list.contains("href=\"operations/new?kind=cancel&amp;queue=mail\"")
            || list.contains("href=\"operations/new?kind=cancel&#38;queue=mail\""),
        "{list}"
    );
    let ended = page(api, "/jobs?status=completed");
    assert!(!ended.contains("data-testid=\"bulk-"), "nothing can be done with these: {ended}");
    let asks = page(api, "/operations/new?kind=cancel&queue=mail");
    assert!(asks.contains("120 jobs of queue mail that have not ended."), "{asks}");
    assert_eq!(asks.matches("data-testid=\"example\"").count(), 3, "{asks}");
    assert!(asks.contains("Type 120 to go on") && asks.contains("Cancel 120 jobs"), "{asks}");
    let fields = |typed: &str| {
        let given = ["kind", "filter", "expected", "as_of"].map(|name| {
            let value = field(&asks, name);
            let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            format!("{name}={value}")
        });
        format!("{}&typed={typed}&reason=sent+twice", given.join("&"))
    };
    // Jobs that come now were not on the page.
    many(api, "mail", 5);
    for typed in ["", "12", "125"] {
        let refused = press(api, "/operations/begin", &fields(typed));
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.text.contains("must be 120, the number of jobs; nothing was changed"));
    }
    let begun = press(api, "/operations/begin", &fields("120"));
    assert_eq!(begun.status, 200, "the browser was sent to its page: {}", begun.text);
    let operations = api.get("/api/v1/operations").expect(200);
    let id = operations["data"][0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/operations/{id}");
    let done = eventually("it is done", within(SOON), || {
        let html = page(api, &path);
        html.contains("Done: 120 cancelled.").then_some(html)
    });
    assert!(done.contains("data-testid=\"operation-changed\"") && done.contains("sent twice"));
    assert!(!done.contains("data-form=\"stop\""), "it has ended: {done}");
    let left = api.get("/api/v1/executions?status=requested&limit=1").expect(200);
    assert_eq!(left["pagination"]["total"], 8);
    assert!(page(api, "/operations").contains(&format!("href=\"operations/{id}\"")));
    // What the page was decided on is over.
    let stale = press(api, "/operations/begin", &fields("120"));
    assert_eq!(stale.status, 409, "{}", stale.text);
    assert!(stale.text.contains("of the 120 jobs that matched at"), "{}", stale.text);
}

/// In a browser: from the list of jobs to the end of the operation, and a button that stops one.
#[test]
fn browser_follows_an_operation_to_its_end_and_stops_one() {
    if !skip::has("chromedriver", "chromium-driver") {
        return;
    }
    let scene = Scene::start();
    let (api, url) = (scene.api(), scene.api().url().to_owned());
    many(api, "mail", 1_000);
    let browser = Browser::start();
    let text = |selector: &str| {
        let script = format!("return document.querySelector(\"{selector}\")?.textContent ?? ''");
        browser.script(&script).as_str().unwrap_or_default().to_owned()
    };
    browser.open(&format!("{url}/jobs?queue=mail"));
    let _ = browser.script("document.querySelector('[data-testid=bulk-cancel]').click()");
    eventually("the page asks", within(SOON), || {
        text("[data-testid=bulk-count]").starts_with("1,000 jobs of queue mail").then_some(())
    });
    let typed = "document.querySelector('input[name=typed]').value = '1000'; \
                 document.querySelector('form[data-form=begin]').requestSubmit()";
    let _ = browser.script(typed);
    eventually("its page shows the end by itself", within(Duration::from_secs(5)), || {
        let is_done = text("[data-testid=operation-outcome]") == "Done: 1000 cancelled.";
        (is_done && text("[data-testid=operation-changed]") == "1,000").then_some(())
    });
    assert_eq!(browser.complaints(), Vec::<String>::new());

    for _ in 0..30 {
        many(api, "mail", 1_000);
    }
    let body = json!({"kind": "cancel", "filter": {"queue": "mail"}});
    let begun = api.post("/api/v1/operations", &body).expect(201);
    let id = begun["data"]["id"].as_str().expect("an id").to_owned();
    browser.open(&format!("{url}/operations/{id}"));
    let _ = browser.script("document.querySelector('form[data-form=stop]').submit()");
    eventually("it is stopped", within(SOON), || {
        text("[data-testid=operation-outcome]").starts_with("stopped: ").then_some(())
    });
    let shown = api.get(&format!("/api/v1/operations/{id}")).expect(200);
    assert_eq!(shown["data"]["status"], "stopped");
    assert!(shown["data"]["changed"].as_u64() < Some(30_000), "{shown}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

const OPERATOR: &str = "an-operator-token-for-tests";
const VIEWER: &str = "a-viewer-token-for-tests";

#[test]
fn reader_sees_no_button_that_is_not_allowed() {
    let tokens = json!([
        {"name": "boss", "role": "operator", "token": OPERATOR},
        {"name": "night", "role": "viewer", "token": VIEWER},
    ]);
    let options = ServerOptions::default().set("server.tokens", tokens);
    let scene = Scene::with(options).acting_as(OPERATOR);
    let job = scene.run(Run::short());
    let path = format!("/jobs/{job}");
    let boss = page(scene.api(), &path);
    assert!(
        boss.contains("method=\"post\"") && boss.contains("Signed in as boss, operator"),
        "{boss}"
    );
    let viewer = Api::new(scene.api().url()).with_token(VIEWER);
    let seen = page(&viewer, &path);
    assert!(!seen.contains("method=\"post\""), "{seen}");
    assert!(seen.contains("The role viewer does not allow everything"), "{seen}");
    let refused = press(&viewer, &format!("{path}/cancel"), "if_status=requested");
    assert_eq!(refused.status, 403, "{}", refused.text);
    let anyone = Api::new(scene.api().url());
    assert_eq!(anyone.get(&path).status, 401);
    assert_eq!(anyone.get("/live?page=jobs").status, 401);
}

#[test]
fn page_of_another_site_presses_no_button() {
    let scene = Scene::start();
    let job = scene.run(Run::short());
    let path = format!("/jobs/{job}/cancel");
    let headers = [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    let refused = scene.api().post_with(&path, &headers, &json!({}));
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert_eq!(scene.api().execution(&job)["status"], "requested");
}

/// Loads each page: no error in the console, and the script has run under the policy.
#[test]
fn browser_finds_no_fault_on_any_page() {
    if !skip::has("chromedriver", "chromium-driver") {
        return;
    }
    let scene = Scene::start();
    let worker = scene.worker("one");
    let mut paths = furnished(&scene);
    paths.extend(PAGES.map(str::to_owned));
    paths.push(format!("/workers/{}", worker.id()));
    let browser = Browser::start();
    for path in &paths {
        browser.open(&format!("{}{path}", scene.api().url()));
        let shown = browser.script("return document.getElementById('zone').innerText");
        assert_eq!(shown, "Times: UTC", "{path}: the script has not run");
        let ran =
            browser.script("return document.querySelectorAll('main script, main img').length");
        assert_eq!(ran, 0, "{path}: a text became an element");
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{path}");
    }
    // Times are the reader's own at a click, and the choice is remembered.
    let _ = browser.script("document.getElementById('zone').click()");
    browser.open(&format!("{}/events", scene.api().url()));
    assert_eq!(browser.script("return document.getElementById('zone').innerText"), "Times: local");
}

/// Narrow and wide, light and dark.
const LOOKS: [(u32, bool); 4] = [(1280, false), (1280, true), (390, false), (390, true)];
/// What WCAG 2.2 AA asks for and a program can check, and what is good practice.
const AXE: &str = "
    const done = arguments[0];
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    axe.run(document, {runOnly: {type: 'tag', values: tags}}).then(
        (found) => done(found.violations.flatMap(
            (it) => it.nodes.map((node) => `${it.id}: ${node.html.slice(0, 200)}`))),
        (error) => done(['axe: ' + error]));
";

/// Checks each page with axe-core: names, roles, contrast, headings, what a keyboard reaches.
#[test]
fn every_page_is_accessible_in_both_themes_and_widths() {
    if !skip::has("chromedriver", "chromium-driver") {
        return;
    }
    let Some(axe) = std::env::var_os("OUTLAST_TEST_AXE") else {
        skip::for_want_of("axe-core (OUTLAST_TEST_AXE names its axe.min.js)");
        return;
    };
    let axe = std::fs::read_to_string(axe).expect("axe-core");
    let scene = Scene::start();
    let worker = scene.worker("one");
    let mut paths = furnished(&scene);
    paths.extend(PAGES.map(str::to_owned));
    paths.push(format!("/workers/{}", worker.id()));
    let browser = Browser::start();
    let mut faults = Vec::new();
    for (width, is_dark) in LOOKS {
        browser.look(width, is_dark);
        for path in &paths {
            browser.open(&format!("{}{path}", scene.api().url()));
            let has_loaded = browser.script(&format!("{axe}\nreturn typeof axe.run"));
            assert_eq!(has_loaded, "function", "{path}");
            let found = browser.script_that_calls_back(AXE);
            let found = found.as_array().unwrap_or_else(|| panic!("{path}: {found}"));
            faults.extend(found.iter().map(|it| format!("{path} at {width}, {is_dark}: {it}")));
            let wider =
                "const all = document.documentElement; return all.scrollWidth - all.clientWidth";
            let wider = browser.script(wider);
            if wider != 0 {
                faults.push(format!("{path} is {wider} pixels wider than {width}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Takes a picture of each page: `just web-shots FOLDER`.
#[test]
#[ignore = "writes pictures for people to look at"]
fn pictures_of_every_page() {
    let folder = std::env::var_os("OUTLAST_PICTURES").expect("OUTLAST_PICTURES names a folder");
    let folder = std::path::PathBuf::from(folder);
    std::fs::create_dir_all(&folder).expect("the folder");
    let scene = Scene::start();
    let lost = scene.worker("two");
    let held: Vec<String> =
        (0..3).map(|_| scene.run(Run::holding_once(Duration::from_secs(120)))).collect();
    for job in &held {
        scene.await_status(job, "running", within(LEASE));
    }
    lost.kill_engine();
    let worker = scene.worker("one");
    let mut paths = furnished(&scene);
    paths.extend(PAGES.map(str::to_owned));
    paths.extend(held.first().map(|job| format!("/jobs/{job}")));
    paths.push(format!("/workers/{}", worker.id()));
    eventually("the losses are shown", within(SOON), || {
        let rows = live(scene.api(), "/losses")["whole"]["losses"].as_array()?.len();
        (rows == held.len()).then_some(())
    });
    let browser = Browser::start();
    for (width, is_dark) in LOOKS {
        browser.look(width, is_dark);
        for path in &paths {
            browser.open(&format!("{}{path}", scene.api().url()));
            let page = path.trim_start_matches('/').replace('/', "-");
            let page = if page.is_empty() { "now" } else { &page };
            let theme = if is_dark { "dark" } else { "light" };
            let file = folder.join(format!("{page}-{theme}-{width}.png"));
            std::fs::write(file, browser.picture()).expect("a picture");
        }
    }
}

#[test]
fn open_page_goes_on_by_itself_and_says_when_the_server_is_gone() {
    if !skip::has("chromedriver", "chromium-driver") {
        return;
    }
    let mut scene = Scene::start();
    let _worker = scene.worker("one");
    let job = scene.run(Run::holding(Duration::from_secs(120)));
    scene.await_status(&job, "running", within(LEASE));
    let browser = Browser::start();
    browser.open(&format!("{}/jobs/{job}", scene.api().url()));
    let _ = browser.script("window.kept = 'kept'; document.getElementById('main').focus()");
    let text = |selector: &str| {
        let script = format!("return document.querySelector(\"{selector}\").textContent");
        browser.script(&script).as_str().unwrap_or_default().to_owned()
    };
    let has_contact = || browser.script("return document.getElementById('contact').hidden");
    let is_off = || {
        browser.script("return document.querySelector('form[data-form=cancel] fieldset').disabled")
    };
    assert!(text("[data-testid=job-why]").starts_with("runs on one for"), "{}", text("main"));

    scene.server_mut().kill();
    eventually("the page says that the server is gone", within(SOON), || {
        (has_contact() == false && is_off() == true).then_some(())
    });
    assert!(text("#contact-since").starts_with("since 20"), "{}", text("#contact-since"));
    scene.server_mut().start_again();
    eventually("the page goes on", within(Duration::from_secs(5)), || {
        (has_contact() == true && is_off() == false).then_some(())
    });
    let _ = scene.cancel(&job);
    eventually("the page shows the end", within(SOON), || {
        (text("[data-testid=job-status]").contains("cancelled") && is_off() == true).then_some(())
    });
    assert_eq!(browser.script("return window.kept"), "kept", "the page was not loaded again");
}

/// Pages that say no are pages like others: with their style, with a way back, and they stay.
#[test]
fn page_that_refuses_has_its_style_and_stays() {
    if !skip::has("chromedriver", "chromium-driver") {
        return;
    }
    let tokens = json!([{"name": "boss", "role": "operator", "token": OPERATOR}]);
    let guarded = Scene::with(ServerOptions::default().set("server.tokens", tokens));
    let open = Scene::start();
    let job = open.run(Run::short());
    let browser = Browser::start();
    let is_styled = || browser.script("return document.styleSheets[0].cssRules.length > 10");
    browser.open(&format!("{}/jobs/{job}", guarded.api().url()));
    assert_eq!(is_styled(), true, "{}", browser.script("return document.body.innerHTML"));
    let _ = browser.script("window.kept = 'kept'");
    stays("it is not loaded again and again", Duration::from_millis(2500), || {
        (browser.script("return window.kept") != "kept").then(|| "it was loaded again".to_owned())
    });

    browser.open(&format!("{}/jobs/{job}", open.api().url()));
    // The job moves on, and the page is not told.
    let _ = browser.script("document.body.removeAttribute('data-page')");
    let _ = open.cancel(&job);
    let press = "const form = document.querySelector('form[data-form=cancel]'); form.submit()";
    let _ = browser.script(press);
    let title = || browser.script("return document.querySelector('h1').textContent");
    eventually("the order is refused", within(SOON), || (title() == "Not done").then_some(()));
    assert_eq!(is_styled(), true);
    let _ = browser.script("[...document.links].find(it => it.text.startsWith('Back')).click()");
    eventually("the page is back", within(SOON), || (title() == "Job of ledger.run").then_some(()));
}
