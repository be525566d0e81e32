//! The JSON that every list and show prints, in one place: a change of the outside contract
//! shows here.

use std::sync::LazyLock;
use std::time::Duration;

use outlast_e2e::process::run_to_end;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Run, Scene};
use regex::Regex;
use serde_json::{Value, json};

static ID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap());
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());

static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d+ s ago").unwrap());

/// Values that differ from run to run or host to host, by their key.
const VARYING: &[&str] = &[
    "about",
    "containment",
    "evidence",
    "heartbeat_age_seconds",
    "pid",
    "in_flight",
    "cpu_seconds",
    "duration_ms",
    "ledger",
    "pack_digest",
    "peak_memory_bytes",
    "runtimes",
    "started",
    "waiting_reason",
    "n",
];

fn redacted(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let text = ID.replace_all(text, "[id]");
            let text = TIME.replace_all(&text, "[time]");
            json!(AGE.replace_all(&text, "[age] ago"))
        }
        Value::Array(items) => items.iter().map(redacted).collect(),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| {
                let is_varying = VARYING.contains(&key.as_str()) && !value.is_null();
                let value = if is_varying { json!(format!("[{key}]")) } else { redacted(value) };
                (key.clone(), value)
            };
            map.iter().map(pair).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Runs a command with `-o json` and notes what it printed, whatever varies left out.
fn note(scene: &Scene, notes: &mut Vec<Value>, words: &[&str]) {
    let url = scene.server().url();
    let arguments = [words, &["-o", "json", "--server", &url]].concat();
    let said = run_to_end(&arguments, Duration::from_secs(30));
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    let printed: Value = serde_json::from_str(&said.stdout).expect("JSON on stdout");
    let shown: Vec<String> = words.iter().map(|word| ID.replace(word, "ID").into_owned()).collect();
    notes.push(json!({"command": shown.join(" "), "stdout": redacted(&printed)}));
    let lines = [words, &["-o", "jsonl", "--server", &url]].concat();
    if is_repeatable(words) {
        let said = run_to_end(&lines, Duration::from_secs(30));
        for line in said.stdout.lines() {
            let _document: Value = serde_json::from_str(line).expect("a document a line");
        }
    }
}

/// Whether doing it again says the same.
fn is_repeatable(words: &[&str]) -> bool {
    matches!(words.get(1), Some(&("list" | "show" | "stats" | "logs" | "pause" | "resume")))
}

#[test]
fn json_of_every_list_and_show_is_as_documented() {
    let scene = Scene::start();
    let worker = scene.worker("one");
    let done = scene.run(Run::action("core.echo").parameter("message", json!("hi")));
    scene.await_status(&done, "completed", within(LEASE));
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let letter = scene.api().ojs_enqueue("core.fail", &json!({"retry": retry}));
    scene.await_status(&letter, "failed", within(LEASE));
    let failed = scene.api().ojs_enqueue("core.fail", &json!({"retry": {"max_attempts": 1}}));
    scene.await_status(&failed, "failed", within(LEASE));
    let mut notes = Vec::new();
    let mut note = |words: &[&str]| note(&scene, &mut notes, words);
    note(&["jobs", "list"]);
    note(&["jobs", "show", &done]);
    note(&["jobs", "logs", &done]);
    note(&["jobs", "logs", "--follow", &done]);
    note(&["queues", "list"]);
    note(&["queues", "stats", "default"]);
    note(&["queues", "pause", "default"]);
    note(&["queues", "resume", "default"]);
    note(&["workers", "list"]);
    note(&["workers", "show", "one"]);
    note(&["workers", "quiet", "one"]);
    note(&["dead-letters", "list"]);
    note(&["dead-letters", "show", &letter]);
    note(&["dead-letters", "retry", &letter]);
    note(&["jobs", "cancel", &letter]);
    note(&["jobs", "retry", &failed]);
    insta::assert_json_snapshot!(notes);
    drop(worker);
}

#[test]
fn a_job_is_retried_a_letter_purged_and_a_dead_worker_forgotten() {
    let scene = Scene::start();
    let mut worker = scene.worker("one");
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let letter = scene.api().ojs_enqueue("core.fail", &json!({"retry": retry}));
    scene.await_status(&letter, "failed", within(LEASE));
    let url = scene.server().url();
    let outlast = |words: &[&str]| {
        let all = [words, &["--server", &url]].concat();
        run_to_end(&all, Duration::from_secs(30))
    };
    let code = |words: &[&str]| outlast(words).code;
    assert_eq!(code(&["jobs", "retry", &letter]), Some(0));
    scene.await_status(&letter, "failed", within(LEASE));
    assert_eq!(code(&["dead-letters", "show", &letter]), Some(0));
    assert_eq!(code(&["dead-letters", "purge", &letter]), Some(0));
    assert_eq!(code(&["dead-letters", "show", &letter]), Some(3), "it is no letter any more");
    assert_eq!(code(&["dead-letters", "purge", &letter]), Some(3));
    assert_eq!(code(&["queues", "stats", "nobody-knows-it"]), Some(3));
    assert_eq!(code(&["jobs", "retry", "01a1fcae-2ae7-7793-af81-5796e1527985"]), Some(3));
    let done = scene.run(Run::action("core.noop"));
    scene.await_status(&done, "completed", within(LEASE));
    assert_eq!(code(&["jobs", "cancel", &done]), Some(4), "a terminal state does not change");
    assert_eq!(code(&["workers", "forget", "one"]), Some(4), "it lives");
    worker.terminate();
    assert_eq!(worker.await_end(within(LEASE)), Some(0));
    let said = eventually("the worker is forgotten", within(LEASE), || {
        let said = outlast(&["workers", "forget", worker.id(), "-o", "json"]);
        (said.code == Some(0)).then_some(said)
    });
    let printed: Value = serde_json::from_str(&said.stdout).expect("JSON on stdout");
    assert_eq!(printed["forgotten"], true, "{printed}");
    assert_eq!(code(&["workers", "show", worker.id()]), Some(3));
}
