//! `outlast jobs cancel|retry` by filter, and `outlast operations`.

use serde_json::{Value, json};

use crate::outlast;
use crate::stub::Stub;

const ID: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";

fn operation(status: &str, changed: u64) -> Value {
    json!({"id": ID, "kind": "cancel", "selection": "jobs of queue mail", "status": status,
        "matched": 1204, "changed": changed, "skipped": 24,
        "skipped_by_reason": {"already running": 24}, "rate_per_second": 5000,
        "created": "2026-11-22T10:00:00Z"})
}

/// A server that counts 1,204 jobs, and has changed them at the third look.
fn server() -> Stub {
    Stub::start(|asked, number| {
        let data = match asked.line.as_str() {
            "POST /api/v1/operations" if asked.body.contains("dry_run") => json!({
                "kind": "cancel", "selection": "jobs of queue mail", "dry_run": true,
                "matched": 1204, "at_least": false, "as_of": "2026-11-22T10:00:00Z",
                "examples": [{"id": "j1", "action_ref": "mail.send", "status": "requested",
                    "queue": "mail"}],
            }),
            "POST /api/v1/operations" => operation("running", 0),
            line if line.ends_with("/stop") => operation("stopped", 7),
            _ if number < 3 => operation("running", 500),
            _ => operation("done", 1180),
        };
        (200, json!({ "data": data }).to_string())
    })
}

fn bodies(stub: &Stub) -> Vec<Value> {
    let posts = stub.asked().into_iter().filter(|asked| asked.line.starts_with("POST"));
    posts.map(|asked| serde_json::from_str(&asked.body).unwrap()).collect()
}

#[test]
fn jobs_that_filters_select_are_changed_by_an_operation_that_is_followed() {
    let stub = server();
    let words = [
        "jobs",
        "cancel",
        "--queue",
        "mail",
        "--type",
        "mail.send",
        "--since",
        "2h",
        "--key",
        "tenant=42",
        "--status",
        "requested,running",
        "--error-contains",
        "refused",
        "--reason",
        "sent twice",
        "--server",
        &stub.url,
    ];
    let said = outlast(&words);
    assert_eq!((said.code, &*said.err), (0, "1180 cancelled, 24 skipped: 24 already running\n"));
    assert!(said.out.contains("status") && said.out.contains("done"), "{}", said.out);
    let filter = json!({"queue": "mail", "action_ref": "mail.send", "created_after": "2h",
        "keys": {"tenant": "42"}, "status": ["requested", "running"],
        "error_contains": "refused"});
    let sent = json!({"kind": "cancel", "filter": filter, "reason": "sent twice"});
    // No terminal asked, so nothing is counted first.
    assert_eq!(bodies(&stub), [sent]);
}

#[test]
fn dry_run_counts_and_shows_some() {
    let stub = server();
    let words = ["jobs", "retry", "--all", "--dry-run", "--server", &stub.url];
    let said = outlast(&words);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.err, "1204 jobs, of which 1 are shown; nothing was changed\n");
    assert!(said.out.contains("mail.send"), "{}", said.out);
    let sent = json!({"kind": "retry", "filter": {"all": true}, "dry_run": true});
    assert_eq!(bodies(&stub), [sent]);
    let printed = outlast(&[&words[..], &["-o", "json"]].concat());
    let printed: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!((&printed["matched"], &printed["examples"][0]["id"]), (&json!(1204), &json!("j1")));
}

#[test]
fn detached_operation_goes_on_and_it_is_said_how_to_stop_it() {
    let stub = server();
    let words = ["jobs", "cancel", "--queue", "mail", "--detach", "--server", &stub.url];
    let said = outlast(&words);
    assert_eq!((said.code, said.out.trim()), (0, ID));
    assert!(said.err.contains(&format!("`outlast operations stop {ID}` stops it")), "{}", said.err);
    assert_eq!(stub.asked().len(), 1);
}

#[test]
fn operation_that_was_stopped_is_a_failure_for_who_followed_it() {
    let stub = Stub::start(|asked, _| {
        let status = if asked.line.starts_with("POST") { "running" } else { "stopped" };
        (200, json!({ "data": operation(status, 7) }).to_string())
    });
    let said = outlast(&["jobs", "cancel", "--queue", "mail", "--server", &stub.url]);
    assert_eq!(said.code, 1);
    let words = format!("operation {ID} stopped: 7 cancelled, 24 skipped: 24 already running");
    assert!(said.err.contains(&words), "{}", said.err);
}

#[test]
fn jobs_are_named_by_ids_by_filters_or_all() {
    let stub = server();
    for (more, message) in [
        (
            &[][..],
            "error: no job is named to cancel\nhint: `outlast jobs cancel ID`, filters, or --all",
        ),
        (
            &["j1", "--queue", "mail"],
            "error: jobs are named by id or selected by filters, not both",
        ),
        (&["--all", "--queue", "mail"], "error: jobs are named by id or selected by filters"),
        (&["--all", "j1"], "error: jobs are named by id or selected by filters, not both"),
    ] {
        let said = outlast(&[&["jobs", "cancel", "--server", &stub.url], more].concat());
        assert!(said.code == 2 && said.err.starts_with(message), "{}", said.err);
    }
    assert!(stub.asked().is_empty());
}

#[test]
fn operations_are_listed_shown_and_stopped_by_a_part_of_their_id() {
    let list = json!({"data": [operation("running", 3)], "pagination": {"next_cursor": null}});
    let stub = Stub::start(move |asked, _| {
        let is_list = asked.line.contains("/operations?");
        let one = json!({ "data": operation("stopped", 7) });
        (200, if is_list { list.to_string() } else { one.to_string() })
    });
    let there = ["--server", &stub.url];
    let listed = outlast(&[&["operations", "list", "--running"][..], &there].concat());
    assert!(listed.code == 0 && listed.out.contains("jobs of queue mail"), "{}", listed.err);
    let shown = outlast(&[&["operations", "show", "8e7c"][..], &there].concat());
    assert!(shown.out.contains("7 cancelled, 24 skipped: 24 already running"), "{}", shown.out);
    let stopped = outlast(&[&["operations", "stop", "01a1"][..], &there].concat());
    assert_eq!(stopped.code, 0, "{}", stopped.err);
    let asked: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    assert!(asked[0].contains("running=true"), "{asked:?}");
    assert_eq!(asked.last().unwrap(), &format!("POST /api/v1/operations/{ID}/stop"));
    let unknown = outlast(&[&["operations", "show", "ffff"][..], &there].concat());
    assert_eq!(unknown.code, 3, "{}", unknown.err);
}
