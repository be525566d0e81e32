//! `outlast run` and `outlast jobs logs --follow`.

use serde_json::Value;

use crate::outlast;
use crate::stub::{Answer, Asked, Stub};

fn text(answer: &str) -> Answer {
    (200, answer.to_owned())
}

/// A job that runs at the first look and has then ended as `end` says, with output between.
fn job(end: &'static str) -> Stub {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    Stub::start(move |asked: &Asked, _| {
        if asked.line.starts_with("POST /api/v1/executions") {
            return (201, r#"{"data":{"id":"j1","status":"requested"}}"#.to_owned());
        }
        if asked.line.contains("/logs") {
            return if asked.line.ends_with("after=2") {
                text(r#"{"data":[]}"#)
            } else {
                text(
                    r#"{"data":[{"n":1,"stream":"stdout","text":"hi\n"},
                        {"n":2,"stream":"stderr","text":"careful\u001b\n"}]}"#,
                )
            };
        }
        match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => text(r#"{"data":{"id":"j1","status":"running"}}"#),
            _ => text(end),
        }
    })
}

const COMPLETED: &str =
    r#"{"data":{"id":"j1","status":"completed","attempt":1,"worker":{"name":"w1"}}}"#;

#[test]
fn waiting_run_prints_output_once_and_ends_well() {
    let stub = job(COMPLETED);
    let said = outlast(&["run", "core.echo", "-p", "message=hi", "--wait", "--server", &stub.url]);
    assert_eq!((said.code, said.out.as_str()), (0, "hi\n"));
    assert_eq!(said.err, "careful\\u{1b}\njob j1 completed, attempt 1, worker w1\n");
}

#[test]
fn run_sends_text_and_json_parameters_and_options() {
    let stub = job(COMPLETED);
    let args = ["run", "x.y", "-p", "a=1", "-p", "b:=[2]", "--queue", "mail", "--priority", "-5"];
    let rest = ["--time-limit", "5m", "--server", &stub.url];
    assert_eq!(outlast(&[&args[..], &rest[..]].concat()).code, 0);
    let sent: Value = serde_json::from_str(&stub.asked().first().unwrap().body).unwrap();
    let expected = serde_json::json!({"action_ref": "x.y", "parameters": {"a": "1", "b": [2]},
        "queue": "mail", "priority": -5, "timeout": 300.0});
    assert_eq!(sent, expected);
}

#[test]
fn with_json_stdout_is_the_job_alone() {
    let stub = job(COMPLETED);
    let said = outlast(&["run", "core.echo", "--wait", "-o", "json", "--server", &stub.url]);
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["status"], "completed");
    assert!(said.err.starts_with("hi\ncareful"), "{}", said.err);
}

#[test]
fn failed_job_ends_the_command_with_1_and_its_reason() {
    let stub = job(r#"{"data":{"id":"j1","status":"failed","error":{"message":"exit code 3"}}}"#);
    let said = outlast(&["run", "core.fail", "--wait", "--server", &stub.url]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("error: job j1 failed: exit code 3\n"), "{}", said.err);
}

#[test]
fn wait_that_is_over_is_124_and_says_how_to_go_on() {
    let waits =
        r#"{"data":{"id":"j1","status":"requested","waiting_reason":"no eligible worker"}}"#;
    let stub = job(waits);
    let args = ["run", "core.echo", "--wait", "--timeout", "100ms", "--server", &stub.url];
    let said = outlast(&args);
    assert_eq!(said.code, 124);
    assert!(said.err.contains("requested after the wait: no eligible worker"), "{}", said.err);
    assert!(said.err.contains("outlast jobs logs -f j1"), "{}", said.err);
}

#[test]
fn wrong_parameters_are_refused_before_anything_is_sent() {
    for wrong in [&["-p", "nothing"][..], &["-p", "a:={"], &["-p", "a=1", "-p", "a=2"]] {
        let said = outlast(&[&["run", "core.echo", "--server", "127.0.0.1:1"], wrong].concat());
        assert_eq!(said.code, 2, "{}", said.err);
    }
    let said = outlast(&["run", "x", "--wait", "--timeout", "soon"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("--wait-timeout is `soon`, which is not a duration"), "{}", said.err);
}

#[test]
fn logs_are_followed_to_the_end() {
    let stub = job(COMPLETED);
    let said = outlast(&["jobs", "logs", "j1", "--follow", "--server", &stub.url]);
    assert_eq!((said.code, said.out.as_str()), (0, "hi\n"));
}

#[test]
fn logs_as_json_are_one_list() {
    let stub = job(COMPLETED);
    let said = outlast(&["jobs", "logs", "j1", "-o", "json", "--server", &stub.url]);
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 2);
}

#[test]
fn priority_out_of_range_is_refused_with_the_range() {
    for given in ["101", "-101", "500"] {
        let said = outlast(&["run", "x.y", "--priority", given]);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("-100..=100"), "{}", said.err);
    }
}
