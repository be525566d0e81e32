use outlast_core::time::Span;
use serde_json::{Value, json};

use super::{NamedSchedule, Template, listed, of_the_standard, read};
use crate::time::When;

fn refusal(body: &Value) -> String {
    read(body.to_string().as_bytes()).expect_err("it is wrong").message
}

#[test]
fn a_schedule_of_an_action_keeps_its_job_as_a_request() {
    let body = json!({
        "cron": "0 2 * * *", "time_zone": "Europe/Vienna", "overlap": "queue", "catch_up": "all",
        "jitter": "30s", "until": "2030-01-01T00:00:00Z", "paused": true, "pause_reason": "audit",
        "action_ref": "core.echo", "parameters": {"message": "hi"}, "queue": "night",
    });
    let request = read(body.to_string().as_bytes()).expect("it is right");
    assert_eq!(request.cron, "0 2 * * *");
    assert_eq!(request.jitter, Span::from_secs(30));
    assert!(matches!(request.until, Some(When::At(at)) if at.0 == 1_893_456_000_000));
    assert_eq!(request.paused, Some(Some("audit".into())));
    let job = json!({
        "action_ref": "core.echo", "parameters": {"message": "hi"}, "queue": "night",
    });
    let Template::Execution(text) = request.template else { panic!("not an execution") };
    assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(job));
}

#[test]
fn faults_name_the_field_and_what_would_be_right() {
    let cases = [
        (json!({"action_ref": "core.echo"}), "field `cron` is missing"),
        (
            json!({"cron": "@daily"}),
            "field `action_ref` is missing, and so are `type` and `workflow_ref`",
        ),
        (
            json!({"cron": "@daily", "workflow_ref": "a.b", "type": "email.send"}),
            "field `type` and `workflow_ref` are both given",
        ),
        (json!({"cron": "@daily", "workflow_ref": "b"}), "field `workflow_ref` must be a pack"),
        (json!({"cron": "@daily", "workflow_ref": "a.b", "queue": "q"}), "field `queue`"),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "type": "email.send"}),
            "field `action_ref` and `type` are both given",
        ),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "timezone": "UTC"}),
            "field `timezone` is not known; did you mean `time_zone`?",
        ),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "delay": 5}),
            "field `delay` is not known",
        ),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "jitter": "soon"}),
            "field `jitter` must be a duration of at most 1 h",
        ),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "jitter": "2h"}),
            "field `jitter` must be a duration of at most 1 h",
        ),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "until": "tomorrow"}),
            "field `until` must be a time such as",
        ),
        (
            json!({"cron": "@daily", "action_ref": "core.echo", "pause_reason": "why"}),
            "field `pause_reason` is for a schedule with `paused: true`",
        ),
        (
            json!({"cron": "@daily", "type": "email.send", "options": {"unique": {"keys": ["type"]}}}),
            "field `unique` is not for jobs of schedules",
        ),
        (
            json!({"cron": "@daily", "type": "email.send", "options": {"delay_until": "+PT5S"}}),
            "field `scheduled_at` is not for jobs of schedules",
        ),
        (json!({"cron": "@daily", "action_ref": "core.echo", "parameters": {"n": 0}}), ""),
    ];
    for (body, expected) in cases {
        if expected.is_empty() {
            assert!(read(body.to_string().as_bytes()).is_ok(), "{body}");
        } else {
            let message = refusal(&body);
            assert!(message.starts_with(expected), "{message}\nexpected {expected}");
        }
    }
    let text = r#"{"cron": "@daily", "action_ref": "core.echo",
                   "parameters": {"n": 123456789012345678901}}"#;
    let message = read(text.as_bytes()).expect_err("a number would change").message;
    assert!(message.contains("send it as a string"), "{message}");
}

#[test]
fn the_standard_writes_schedules_in_two_forms() {
    let long = json!({
        "name": "report", "expression": "0 9 * * *", "timezone": "Asia/Tokyo",
        "overlap_policy": "cancel_previous", "enabled": false,
        "job_template": {"type": "report.make", "args": [1], "options": {"queue": "reports"}},
    });
    let short = json!({
        "name": "report", "cron": "0 9 * * *", "type": "report.make", "args": [1],
        "options": {"queue": "reports"},
    });
    let NamedSchedule { name, request: long } =
        of_the_standard(long.to_string().as_bytes()).expect("it is right");
    assert_eq!(name.as_str(), "report");
    assert_eq!(long.overlap.as_deref(), Some("replace"));
    assert_eq!(long.paused, Some(Some(String::new())));
    let short = of_the_standard(short.to_string().as_bytes()).expect("it is right").request;
    assert_eq!(short.template, long.template);
    assert_eq!((short.names.cron, long.names.cron), ("cron", "expression"));
    let both = json!({"name": "a", "cron": "@daily", "expression": "@daily", "type": "t"});
    let message = of_the_standard(both.to_string().as_bytes()).expect_err("twice").message;
    assert!(message.contains("`cron` are both given"), "{message}");
}

#[test]
fn a_configuration_names_its_schedules_and_has_no_relative_times() {
    let entry = |more: Value| {
        let mut fields = json!({"name": "night", "cron": "@daily", "action_ref": "core.echo"});
        let all = fields.as_object_mut().expect("an object");
        all.extend(more.as_object().expect("an object").clone());
        listed(all)
    };
    let NamedSchedule { name, request } = entry(json!({})).expect("it is right");
    assert_eq!((name.as_str(), request.paused), ("night", None));
    let message = entry(json!({"until": "+P1D"})).expect_err("it is relative").message;
    assert!(message.contains("a configuration is read again"), "{message}");
    let message = entry(json!({"parameters": {"n": [1e300]}})).expect_err("it is long").message;
    assert!(message.contains("may have lost digits"), "{message}");
    let message = entry(json!({"name": "a b"})).expect_err("no name").message;
    assert!(message.starts_with("field `name` must have"), "{message}");
}
