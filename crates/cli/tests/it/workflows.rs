//! `outlast workflows`.

use serde_json::{Value, json};

use crate::stub::{Answer, Asked, Stub};
use crate::{Said, outlast, outlast_with};

const ID: &str = "019a0000-0000-7000-8000-0000000000a1";
const OTHER: &str = "019a0000-0000-7000-8000-0000000000b2";

fn workflow(status: &str) -> Value {
    json!({"id": ID, "name": "night", "status": status, "form": "steps", "retries": 0,
           "created": "2026-11-21T12:00:00Z", "updated": "2026-11-21T12:00:00Z"})
}

fn data(workflow: &Value) -> Answer {
    (200, json!({"data": workflow}).to_string())
}

/// A server whose workflow runs at the first look and has then ended so; it draws what is asked for.
fn server(end: Value) -> Stub {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    Stub::start(move |asked: &Asked, _| {
        if asked.line.starts_with("POST /api/v1/workflows") {
            return (201, json!({"data": workflow("running")}).to_string());
        }
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut shown = if look == 0 { workflow("running") } else { end.clone() };
        if asked.line.contains("drawing=") {
            shown["drawing"] = json!(format!("night  {}\n", shown["status"].as_str().unwrap()));
        }
        data(&shown)
    })
}

fn run(server: &Stub, args: &[&str]) -> Said {
    outlast(&[&["workflows", "run", "reports.nightly", "--server", &server.url], args].concat())
}

fn sent(server: &Stub, number: usize) -> Value {
    serde_json::from_str(&server.asked()[number].body).unwrap()
}

#[test]
fn a_file_is_sent_as_it_is_and_a_reference_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("night.yaml");
    std::fs::write(&file, "name: night\nsteps:\n  say: {action: core.echo}\n").unwrap();
    let stub = server(workflow("completed"));
    let file = file.to_str().unwrap();
    let args = ["-p", "folder=in", "-p", "n:=2", "--label", "zone=a", "--key", "tenant=42"];
    let more = ["--name", "trial", "--server", &stub.url];
    let said = outlast(&[&["workflows", "run", file][..], &args, &more].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains(ID) && said.out.contains("running"), "{}", said.out);
    let expected = json!({
        "workflow": {"name": "night", "steps": {"say": {"action": "core.echo"}}},
        "parameters": {"folder": "in", "n": 2}, "labels": {"zone": "a"},
        "keys": {"tenant": "42"}, "name": "trial",
    });
    assert_eq!(sent(&stub, 0), expected);

    assert_eq!(run(&stub, &[]).code, 0);
    assert_eq!(sent(&stub, 1), json!({"workflow_ref": "reports.nightly"}));
}

#[test]
fn a_file_that_cannot_be_read_is_refused_before_anything_is_sent() {
    let said = outlast(&["workflows", "run", "gone.yaml", "--server", "127.0.0.1:1"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.starts_with("error: gone.yaml: "), "{}", said.err);
    let twice = ["workflows", "run", "-", "--parameters", "-", "--server", "127.0.0.1:1"];
    let said = outlast(&twice);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("standard input is named twice"), "{}", said.err);
    let said = outlast(&["workflows", "run", "a.b", "--wait-timeout", "5s"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("goes with --wait or --watch"), "{}", said.err);
}

#[test]
fn waiting_ends_as_the_workflow_ends() {
    let said = run(&server(workflow("completed")), &["--wait"]);
    assert_eq!((said.code, said.out.as_str()), (0, "night  completed\n"), "{}", said.err);
    assert_eq!(said.err, format!("workflow {ID} completed\n"));

    let mut failed = workflow("failed");
    failed["error"] = json!("step load: no route");
    let said = run(&server(failed), &["--wait"]);
    assert_eq!(said.code, 1);
    let expected = format!("error: workflow {ID} failed: step load: no route\n");
    assert!(said.err.starts_with(&expected), "{}", said.err);
    assert!(said.err.contains(&format!("outlast workflows retry {ID}")), "{}", said.err);

    for (status, words) in [("timeout", "ran out of time"), ("cancelled", "was cancelled")] {
        let said = run(&server(workflow(status)), &["--wait"]);
        assert_eq!(said.code, 1);
        assert!(said.err.contains(words), "{}", said.err);
    }
}

#[test]
fn a_wait_that_is_over_is_124_and_says_how_to_go_on() {
    let mut ending = workflow("running");
    ending["ending"] = json!("cancelled");
    let said = run(&server(ending), &["--wait", "--wait-timeout", "100ms"]);
    assert_eq!(said.code, 124);
    assert!(said.err.contains("is running, being cancelled after the wait"), "{}", said.err);
    assert!(said.err.contains(&format!("outlast workflows show {ID} --watch")), "{}", said.err);
}

#[test]
fn a_watch_draws_each_change_once() {
    let said = run(&server(workflow("completed")), &["--watch"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.out, "night  running\n\nnight  completed\n");
    let said = run(&server(workflow("completed")), &["--watch", "-o", "json"]);
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((shown["status"].as_str(), shown.get("drawing")), (Some("completed"), None));
    assert!(said.err.starts_with("night  running\n\nnight  completed\n"), "{}", said.err);
}

#[test]
fn texts_that_are_refused_are_sent_again_as_json() {
    let refusal = |path: &str| {
        let violations = json!([{"path": path, "message": "must be integer, not string"}]);
        let error = json!({"code": "validation_error", "message": "parameters are refused",
                           "details": {"violations": violations}});
        (422, json!({"error": error}).to_string())
    };
    let stub = Stub::start(move |asked, _| match asked.body.contains(r#""n":"2""#) {
        true => refusal("/n"),
        false if asked.body.contains("\"word\"") => refusal("/word"),
        false => data(&workflow("running")),
    });
    assert_eq!(run(&stub, &["-p", "n=2", "-p", "text=7"]).code, 0);
    assert_eq!(sent(&stub, 1)["parameters"], json!({"n": 2, "text": "7"}));
    let said = run(&stub, &["-p", "word=five"]);
    assert_eq!(said.code, 2);
    assert!(
        said.err.contains("/word: must be integer") && said.err.contains("name:=json"),
        "{}",
        said.err
    );
}

#[test]
fn a_reference_that_is_not_known_says_where_workflows_are_found() {
    let body = r#"{"error":{"code":"not_found","message":"there is no workflow reports.nightly",
        "details":{"resource":"workflow"}}}"#;
    let said = run(&Stub::always(404, body), &[]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("`outlast packs list -o json`"), "{}", said.err);
}

#[test]
fn lists_are_filtered_and_read_page_by_page() {
    let stub = Stub::start(|asked, _| {
        let next = if asked.line.contains("cursor=") { Value::Null } else { json!("7") };
        let page =
            json!({"data": [workflow("failed")], "pagination": {"limit": 2, "next_cursor": next}});
        (200, page.to_string())
    });
    let args = ["workflows", "list", "--status", "failed", "--name", "night", "--limit", "2"];
    let said = outlast(&[&args[..], &["--server", &stub.url]].concat());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out.lines().filter(|line| line.contains(ID)).count(), 2, "{}", said.out);
    let lines: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(
        lines,
        [
            "GET /api/v1/workflows?status=failed&name=night&limit=2",
            "GET /api/v1/workflows?status=failed&name=night&limit=1&cursor=7",
        ]
    );
    let said = outlast(&["workflows", "list", "--limit", "1", "--server", &stub.url]);
    assert_eq!(said.err, "1 shown; --limit shows more, --cursor 7 the next\n");
}

#[test]
fn a_workflow_is_shown_with_its_drawing_and_its_jobs() {
    let mut whole = workflow("failed");
    for (name, value) in [
        ("error", json!("step send: no route")),
        ("parameters", json!({"folder": "in"})),
        ("drawing", json!("night  failed\n✗ send  failed\n")),
        ("parent", json!({"workflow": OTHER, "step": "each", "item": 0})),
        (
            "steps",
            json!([
                {"name": "load", "status": "completed", "action": "ase.load", "job_ids": ["j1"]},
                {"name": "each", "status": "completed", "action": "ase.one", "job_ids": ["j2", "j3"]},
                {"name": "sub", "status": "failed", "workflow": "a.b", "workflow_ids": ["w1"]},
                {"name": "send", "status": "skipped", "action": "ase.send", "job_ids": []},
            ]),
        ),
    ] {
        whole[name] = value;
    }
    let stub = Stub::start(move |_, _| data(&whole));
    let said = outlast(&["workflows", "show", ID, "--server", &stub.url]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.starts_with("night  failed\n✗ send  failed\n\n"), "{}", said.out);
    for shown in
        ["step send: no route", "{\"folder\":\"in\"}", "step each", "2 jobs", "workflow w1"]
    {
        assert!(said.out.contains(shown), "{shown}\n{}", said.out);
    }
    assert!(!said.out.contains("ase.send"), "it has no job: {}", said.out);
    assert_eq!(stub.asked()[0].line, format!("GET /api/v1/workflows/{ID}?drawing=1000"));
    let said = outlast(&["workflows", "show", ID, "-o", "json", "--server", &stub.url]);
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["steps"][1]["job_ids"], json!(["j2", "j3"]));
    assert_eq!(stub.asked()[1].line, format!("GET /api/v1/workflows/{ID}"));
}

#[test]
fn orders_go_to_the_workflow_that_is_meant() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().to_str().unwrap().to_owned();
    let stub = Stub::start(|asked, _| {
        if asked.line.starts_with("GET /api/v1/workflows?") {
            let mut other = workflow("running");
            other["id"] = json!(OTHER);
            return (200, json!({"data": [workflow("running"), other]}).to_string());
        }
        data(&workflow("running"))
    });
    let ask = |args: &[&str]| {
        let all = [&["workflows"], args, &["--server", stub.url.as_str()]].concat();
        outlast_with(&all, &[("XDG_STATE_HOME", state.as_str())])
    };
    let said = ask(&["cancel", "@last"]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("no workflow was started from here"), "{}", said.err);
    assert_eq!(ask(&["run", "a.b"]).code, 0);
    assert_eq!(ask(&["cancel", "@last"]).code, 0);
    assert_eq!(ask(&["retry", "00a1"]).code, 0);
    let lines: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(
        lines[1..],
        [
            format!("POST /api/v1/workflows/{ID}/cancel"),
            "GET /api/v1/workflows?limit=500".to_owned(),
            format!("POST /api/v1/workflows/{ID}/retry"),
        ]
    );
    let said = ask(&["cancel", "019a"]);
    assert_eq!(said.code, 4);
    assert!(said.err.contains(ID) && said.err.contains(OTHER), "{}", said.err);
    let said = ask(&["cancel", "ffff"]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("begins or ends with ffff"), "{}", said.err);
}
