//! `outlast dead-letters` against a stub server.

use serde_json::{Value, json};

use crate::outlast;
use crate::stub::Stub;

const UNTIL: &str = "2026-11-27T08:00:00Z";

/// Answers a change of dead letters in two steps, and a list with one.
fn in_two_steps() -> Stub {
    Stub::start(|asked, _| {
        if asked.line.starts_with("GET") {
            let letter = json!({"id": "a", "type": "mail.send", "queue": "mail", "attempt": 1});
            return (200, json!({"jobs": [letter], "pagination": {}}).to_string());
        }
        let is_first = !asked.body.contains("cursor");
        let (matched, next) = if is_first { (1_000, json!("17")) } else { (7, Value::Null) };
        let changed = if asked.body.contains(r#""dry_run":true"#) { 0 } else { matched - 1 };
        let data = json!({
            "matched": matched, "changed": changed, "since": null, "until": UNTIL, "next_cursor": next,
        });
        (200, json!({"data": data}).to_string())
    })
}

fn bodies(stub: &Stub) -> Vec<(String, Value)> {
    let asked = stub.asked();
    let posts = asked.iter().filter(|asked| asked.line.starts_with("POST"));
    posts.map(|asked| (asked.line.clone(), serde_json::from_str(&asked.body).unwrap())).collect()
}

#[test]
fn all_that_filters_select_are_changed_in_steps_of_one_selection() {
    let stub = in_two_steps();
    let words = ["dead-letters", "retry", "--queue", "mail", "--error-contains", "Refused"];
    let said = outlast(&[&words[..], &["--since", "2h", "--server", &stub.url]].concat());
    let left = "2 had changed meanwhile, and stay as they are";
    assert_eq!((said.code, said.err), (0, format!("1005 dead letters retried; {left}\n")));
    let path = "POST /api/v1/dead-letters/retry".to_owned();
    let filters = json!({
        "queue": "mail", "error_contains": "Refused", "since": "2h", "dry_run": false, "limit": 1000,
    });
    let mut second = filters.clone();
    second["since"] = Value::Null;
    second["until"] = json!(UNTIL);
    second["cursor"] = json!("17");
    assert_eq!(bodies(&stub), [(path.clone(), filters), (path, second)]);
}

#[test]
fn removing_all_must_be_asked_for() {
    for words in [
        &["purge"][..],
        &["retry"],
        &["purge", "--all", "--queue", "mail"],
        &["purge", "a", "--all"],
        &["retry", "a", "--reason", "exhausted"],
        &["retry", "--reason", "tired"],
        &["purge", "--queue", ""],
    ] {
        let said =
            outlast(&[&["dead-letters"], words, &["--server", "http://127.0.0.1:1"]].concat());
        assert_eq!(said.code, 2, "{words:?}: {}", said.err);
    }
    let stub = in_two_steps();
    let said = outlast(&["dead-letters", "purge", "--all", "-o", "json", "--server", &stub.url]);
    assert_eq!((said.code, said.out.as_str()), (0, "{\n  \"removed\": 1005\n}\n"), "{}", said.err);
    let asked = bodies(&stub);
    assert_eq!((&asked[0].1["all"], &asked[1].1["all"]), (&json!(true), &Value::Null));
    assert_eq!(asked[1].1["until"], UNTIL);
}

#[test]
fn dry_run_shows_some_and_says_how_many_there_are() {
    let stub = in_two_steps();
    let words = ["dead-letters", "purge", "--type", "mail.send", "--dry-run"];
    let said = outlast(&[&words[..], &["--server", &stub.url]].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.err, "1007 dead letters, of which some are shown; nothing was changed\n");
    assert!(said.out.contains("mail.send"), "{}", said.out);
    assert!(bodies(&stub).iter().all(|(_, body)| body["dry_run"] == true));
}
