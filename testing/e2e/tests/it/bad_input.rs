//! Bad input: a clear message that names the thing, the right status or exit code, nothing
//! half-done.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use outlast_e2e::process::{Process, command, run_to_end};
use outlast_e2e::{Reply, Scene};
use reqwest::Method;
use serde_json::{Value, json};

const START: Duration = Duration::from_secs(30);

fn check(reply: &Reply, status: u16, named: &str) {
    assert_eq!(reply.status, status, "{}", reply.text);
    let error = &reply.body["error"];
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{}", reply.text);
    assert!(error["message"].is_string(), "{}", reply.text);
    assert!(reply.text.contains(named), "{named:?} is not named in {}", reply.text);
}

fn send(scene: &Scene, path: &str, body: Vec<u8>) -> Reply {
    scene.api().try_send(Method::POST, path, "application/json", Some(body)).expect("an answer")
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn requests_that_cannot_be_met_are_refused_by_name_and_leave_nothing_behind() {
    let scene = Scene::start();
    let execution = |action: &str, parameters: &Value| {
        let body = json!({"action_ref": action, "parameters": parameters});
        scene.api().post("/executions", &body)
    };
    check(&execution("core.nonsense", &json!({})), 404, "core.nonsense");
    check(&execution("core.echo", &json!({"message": 7})), 422, "message");
    check(&execution("core.echo", &json!({})), 422, "message");
    check(&execution("core.echo", &json!("hello")), 422, "parameters");
    check(&send(&scene, "/executions", b"{\"action_ref\": ".to_vec()), 400, "");
    check(&send(&scene, "/executions", Vec::new()), 400, "");
    check(&send(&scene, "/executions", b"{\"parameters\": {}}".to_vec()), 400, "action_ref");
    let oversize = json!({
        "action_ref": "core.echo", "parameters": {"message": "x".repeat(1_500_000)},
    });
    check(&scene.api().post("/executions", &oversize), 413, "");
    let deep =
        format!(r#"{{"action_ref": "core.echo", "parameters": {{"message": {}}}}}"#, nested(100));
    check(&send(&scene, "/executions", deep.into_bytes()), 400, "");
    let list = scene.api().get("/api/v1/executions").expect(200);
    assert_eq!(list["data"], json!([]), "nothing was accepted");
}

/// A key that PostgreSQL does not take was answered with 503 every time, and one NUL hid every
/// event that was stored with it.
#[test]
fn names_that_no_store_takes_as_a_key_are_refused_with_their_bound() {
    let scene = Scene::start();
    let with = |labels: Value| {
        let queue = "q".repeat(255);
        let body = json!({"action_ref": "core.noop", "queue": queue, "labels": labels});
        scene.api().post("/executions", &body)
    };
    // Random enough that no store makes it short.
    let long = |bytes: usize| -> String {
        let mut state = 7_u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + u8::try_from((state >> 40) % 26).expect("a letter"))
        };
        (0..bytes).map(|_| letter()).collect()
    };
    check(&with(json!({"zone": long(3_000)})), 422, "1024");
    check(&with((0..33).map(|n| (n.to_string(), json!("x"))).collect()), 422, "32");
    check(&with(json!({"zone": long(1_000)})), 422, "label `zone`");
    check(&with(json!({"gpu type": "a100"})), 422, "label `gpu type`");
    check(&with(json!({"gpu": "a 100"})), 422, "value `a 100`");
    let _stored = with(json!({"pool": "a", "zone": "", "n": 1})).expect(201);
    let many = (0..14).map(|n| (n.to_string(), json!(long(63))));
    let _stored = with(many.collect()).expect(201);
    let job = json!({"type": "a.b", "args": [], "meta": {"tenant_id": long(256)}});
    check(&scene.api().post("/ojs/v1/jobs", &job), 422, "255");
    let job = json!({"type": "a.b", "args": [], "meta": {"tenant_id": long(255)}});
    let stored = scene.api().post("/ojs/v1/jobs", &job).expect(201);
    let id = &stored["job"]["id"];
    let ack = json!({"job_id": id, "worker_id": "a\u{0}b"});
    check(&scene.api().post("/ojs/v1/workers/ack", &ack), 400, "worker_id");
    let fetch = json!({"queues": ["default"], "worker_id": "a\u{0}b"});
    check(&scene.api().post("/ojs/v1/workers/fetch", &fetch), 400, "worker_id");
}

#[test]
fn things_that_are_not_there_are_404() {
    let scene = Scene::start();
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    for path in [
        format!("/api/v1/executions/{id}"),
        format!("/api/v1/executions/{id}/attempts"),
        format!("/api/v1/executions/{id}/logs"),
        format!("/api/v1/workers/{id}"),
        "/api/v1/nonsense".to_owned(),
    ] {
        assert_eq!(scene.api().get(&path).status, 404, "{path}");
    }
    check(&scene.api().cancel(id), 404, id);
}

#[test]
fn plain_jobs_that_cannot_be_met_are_refused_in_the_words_of_the_standard() {
    let scene = Scene::start();
    let post = |body: &str| {
        let body = Some(body.as_bytes().to_vec());
        let sent = scene.api().try_send(
            Method::POST,
            "/ojs/v1/jobs",
            "application/openjobspec+json",
            body,
        );
        sent.expect("an answer")
    };
    check(&post("{ nonsense"), 400, "invalid_payload");
    check(&post(r#"{"args": []}"#), 400, "type");
    let policy = r#"{"type": "a.b", "args": [], "options": {"retry": {"max_attempts": -1}}}"#;
    check(&post(policy), 422, "max_attempts");
    let oversize = json!({"type": "a.b", "args": ["x".repeat(1_500_000)]});
    assert_eq!(post(&oversize.to_string()).status, 413);
}

/// Runs `outlast server` with these arguments to its end and checks what it says.
fn refuses_to_start(arguments: &[&str], codes: &[i32], named: &[&str]) {
    let mut all = vec!["server", "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    let finished = run_to_end(&all, START);
    let code = finished.code.unwrap_or_else(|| panic!("ended by a signal: {finished:?}"));
    assert!(codes.contains(&code), "exit code {code}: {}", finished.stderr);
    for name in named {
        assert!(finished.stderr.contains(name), "{name:?} is not named in {}", finished.stderr);
    }
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

fn database(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("outlast.db").display())
}

#[test]
fn an_unknown_configuration_key_is_named_with_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("outlast.yaml");
    fs::write(&config, "executor:\n  scheduled_timeuot: 5\n").unwrap();
    let (config, database) = (config.to_str().unwrap().to_owned(), database(folder.path()));
    let arguments = ["--database", &database, "--config", &config];
    refuses_to_start(&arguments, &[2], &["scheduled_timeuot", "scheduled_timeout"]);
    assert!(!folder.path().join("outlast.db").exists(), "nothing is half-done");
}

#[test]
fn a_bad_value_is_named_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("outlast.yaml");
    fs::write(&config, "executor:\n  scheduled_timeout: soon\n").unwrap();
    let (config, database) = (config.to_str().unwrap().to_owned(), database(folder.path()));
    let arguments = ["--database", &database, "--config", &config];
    refuses_to_start(&arguments, &[2], &["scheduled_timeout", "soon"]);
}

#[test]
fn a_missing_pack_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let arguments = ["--database", &database, "--packs", "/nonexistent/packs"];
    refuses_to_start(&arguments, &[1], &["/nonexistent/packs"]);
}

/// systemd does not start a unit again that ended with 2, and an agent may be about to write it.
#[test]
fn a_worker_whose_files_are_not_there_yet_ends_with_code_one() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().display().to_string();
    for arguments in [
        &["worker", "--token-file", "/nonexistent/token"][..],
        &["worker", "--token-file", "/dev/null"],
        &["worker", "--packs", "/nonexistent/packs"],
        &["worker", "--packs", &empty],
    ] {
        let finished = run_to_end(arguments, START);
        assert_eq!(finished.code, Some(1), "{arguments:?}: {}", finished.stderr);
        let file = arguments.last().unwrap();
        assert!(finished.stderr.contains(file), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn a_missing_configuration_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let arguments = ["--database", &database, "--config", "/nonexistent/outlast.yaml"];
    refuses_to_start(&arguments, &[1, 2], &["/nonexistent/outlast.yaml"]);
}

#[test]
fn an_unreadable_database_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.db");
    fs::write(&garbage, "this is no database, and long enough to be taken for one".repeat(100))
        .unwrap();
    let garbage = format!("sqlite:{}", garbage.display());
    refuses_to_start(&["--database", &garbage], &[1], &["garbage.db"]);
    let missing = "sqlite:/nonexistent/folder/outlast.db";
    refuses_to_start(&["--database", missing], &[1], &["/nonexistent/folder"]);
    let folder_itself = format!("sqlite:{}", folder.path().display());
    refuses_to_start(&["--database", &folder_itself], &[1], &[folder.path().to_str().unwrap()]);
}

#[test]
fn a_port_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let database = database(folder.path());
    let finished = run_to_end(&["server", "--listen", &address, "--database", &database], START);
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains(&address), "{}", finished.stderr);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_open_listener_without_tokens_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    // An address kept for documentation: no machine has it, so nothing can ever listen there.
    let finished =
        run_to_end(&["server", "--listen", "192.0.2.1:0", "--database", &database], START);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    for name in ["tokens", "--insecure"] {
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
    }
}

#[test]
fn a_worker_on_bad_usage_ends_with_code_two() {
    for arguments in [
        &["worker", "--concurrency", "many"][..],
        &["worker", "--shutdown-timeout", "soonish"],
        &["worker", "--nonsense"],
    ] {
        let finished = run_to_end(arguments, START);
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
        assert!(!finished.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_worker_that_can_run_nothing_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["worker", "--server", "http://127.0.0.1:9", "--containment", "subreaper"];
    let mut command = command(&arguments.map(str::to_owned));
    command.env("PATH", folder.path());
    let mut worker = Process::spawn("worker", command, folder.path());
    assert_eq!(worker.await_end(START), Some(1), "{}", worker.log());
    let reason = "nothing to run: no shell interpreter: looked for sh, bash in PATH";
    assert!(worker.log().contains(reason), "{}", worker.log());
}

#[test]
fn a_wrong_log_filter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(&["jobs".to_owned(), "list".to_owned()]);
    command.env("OUTLAST_LOG", "outlast_server=debgu");
    let mut list = Process::spawn("list", command, folder.path());
    assert_eq!(list.await_end(START), Some(2), "{}", list.log());
    assert!(list.log().contains("OUTLAST_LOG holds `outlast_server=debgu`"), "{}", list.log());
    assert!(list.log().contains("did you mean `debug`?"), "{}", list.log());
}

/// What a user mistypes most, at a real server.
#[test]
fn a_wrong_flag_is_named_with_what_would_be_right() {
    let scene = Scene::start();
    let url = scene.server().url();
    for (words, named) in [
        (&["jobs", "cancel"][..], "no job is named to cancel"),
        (&["events", "--after", "X"], "--after is not a cursor from this server"),
        (&["events", "-f", "--after", "X"], "--after is not a cursor from this server"),
        (&["events", "--type", "X"], "--type holds \"X\", which names no event"),
        (&["run", "core.noop", "--delay", "1000000d"], "at most a hundred years"),
        (&["run", "core.noop", "--retry", "99999"], "--retry: `max_attempts` must be"),
        (&["run", "A", "--any-type"], "ACTION must be lower-case words"),
        (&["run", "core.noop", "--queue", "A"], "--queue must be lower-case"),
        (&["run", "a.b", "--any-type", "--time-limit", "0"], "--time-limit must be"),
    ] {
        let said = run_to_end(&[words, &["--server", &url]].concat(), START);
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains(named), "{words:?}: {}", said.stderr);
    }
    let body = json!({"action_ref": "core.noop", "delay": "1000000d"});
    check(&scene.api().post("/executions", &body), 400, "at most a hundred years");
    let fetch = |body: Value| scene.api().post("/ojs/v1/workers/fetch", &body);
    check(&fetch(json!({"queues": "a"})), 400, "`queues` must be an array of strings");
    check(&fetch(json!({"queues": ["A"]})), 400, "`queues` holds \\\"A\\\"");
    check(&fetch(json!({"queues": ["a"], "count": -1})), 400, "`count` must be a whole number");
    // None, and one: both mean that the job is not retried.
    for attempts in ["0", "1"] {
        let words = ["run", "core.noop", "--retry", attempts, "-o", "json", "--server", &url];
        let said = run_to_end(&words, START);
        let job: Value = serde_json::from_str(&said.stdout).expect(&said.stderr);
        assert_eq!(job["max_attempts"], 1, "{job}");
    }
}

#[test]
fn the_client_says_that_a_server_cannot_be_reached() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let finished = run_to_end(&["jobs", "list", "--server", &url], START);
    assert_eq!(finished.code, Some(6), "{}", finished.stderr);
    assert!(finished.stderr.contains(&url), "{}", finished.stderr);
    assert!(finished.stdout.is_empty(), "{}", finished.stdout);
}
