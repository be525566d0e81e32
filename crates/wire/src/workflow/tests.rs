use serde_json::{Value, json};

use super::{Source, Status, StepStatus, WorkflowList, WorkflowView, document, read, status};

fn refusal(body: &Value) -> String {
    read(body.to_string().as_bytes()).expect_err("it is wrong").message
}

#[test]
fn a_workflow_is_in_the_request_or_in_a_pack() {
    let steps = json!({"steps": {"load": {"action": "core.echo"}}});
    let body = json!({
        "workflow": steps, "name": "night", "parameters": {"folder": "in"},
        "labels": {"zone": "a", "gpu": true}, "keys": {"tenant": 42},
    });
    let request = read(body.to_string().as_bytes()).expect("it is right");
    assert_eq!(request.source, Source::Inline(steps));
    assert_eq!(request.name.as_deref(), Some("night"));
    assert_eq!(Value::Object(request.parameters), json!({"folder": "in"}));
    assert_eq!(json!(request.labels), json!({"zone": "a", "gpu": "true"}));
    assert_eq!(json!(request.keys), json!({"tenant": "42"}));

    let request = read(br#"{"workflow_ref": "reports.nightly"}"#).expect("it is right");
    assert_eq!(request.source, Source::Ref("reports.nightly".to_owned()));
    assert!(request.parameters.is_empty() && request.labels.is_empty() && request.keys.is_empty());
}

#[test]
fn faults_name_the_field_and_what_would_be_right() {
    let steps = json!({"steps": {}});
    let cases = [
        (json!({}), "field `workflow` is missing, and so is `workflow_ref`"),
        (
            json!({"workflow": steps, "workflow_ref": "a.b"}),
            "field `workflow` and `workflow_ref` are both given",
        ),
        (json!({"workflow": "a.b"}), "field `workflow` must be an object with `steps`; a workflow"),
        (json!({"workflow": [1]}), "field `workflow` must be an object with `steps`"),
        (json!({"workflow_ref": 1}), "field `workflow_ref` must be a string"),
        (json!({"workflow_ref": "night"}), "field `workflow_ref` must be a pack and a name"),
        (json!({"workflow_ref": "a.b.c"}), "field `workflow_ref` must be a pack and a name"),
        (json!({"workflow_ref": ".b"}), "field `workflow_ref` must be a pack and a name"),
        (
            json!({"workflow_ref": "a.b", "params": {}}),
            "field `params` is not known; did you mean `parameters`?",
        ),
        (json!({"workflow_ref": "a.b", "parameters": [1]}), "field `parameters` must be an object"),
        (json!({"workflow_ref": "a.b", "labels": {"a": []}}), "field `labels` must be an object"),
        (json!({"workflow_ref": "a.b", "keys": {"A b": "c"}}), "field `keys` names a key `A b`"),
        (json!({"workflow_ref": "a.b", "name": ""}), "field `name` must have 1 to 128 bytes"),
        (json!({"workflow_ref": "a.b", "name": "a\nb"}), "field `name` must have 1 to 128 bytes"),
        (
            json!({"workflow_ref": "a.b", "name": "n".repeat(129)}),
            "field `name` must have 1 to 128 bytes",
        ),
    ];
    for (body, expected) in cases {
        let message = refusal(&body);
        assert!(message.starts_with(expected), "{message}\nexpected {expected}");
    }
    for body in [
        r#"{"workflow": {"steps": {}, "n": 123456789012345678901}}"#,
        r#"{"workflow_ref": "a.b", "parameters": {"n": 123456789012345678901}}"#,
    ] {
        let message = read(body.as_bytes()).expect_err("a number would change").message;
        assert!(message.contains("send it as a string"), "{message}");
        let kept = body.replace("123456789012345678901", "12345678901234567890");
        assert!(read(kept.as_bytes()).is_ok(), "{kept}");
    }
}

#[test]
fn a_view_is_read_as_it_was_written() {
    let whole = json!({
        "id": "019a0000-0000-7000-8000-000000000001", "name": "night",
        "workflow_ref": "reports.nightly", "status": "running", "ending": "cancelled",
        "form": "steps", "parameters": {"folder": "in"}, "labels": {"zone": "a"},
        "keys": {"tenant": "42"},
        "parent": {
            "workflow": "019a0000-0000-7000-8000-000000000002", "step": "each", "item": 3,
        },
        "schedule": {"name": "nightly", "fire_time": "2026-11-21T00:00:00Z"}, "retries": 1,
        "error": "step load: no route", "created": "2026-11-21T00:00:00.25Z",
        "updated": "2026-11-21T00:00:01Z", "finished": "2026-11-21T00:00:02Z",
        "deadline": "2026-11-21T02:00:00Z",
        "steps": [{
            "name": "load", "status": "timeout", "after": ["before"], "type": "mail.send",
            "callback": true, "total": 3, "held": 0, "running": 1, "completed": 1, "failed": 1,
            "job_ids": ["019a0000-0000-7000-8000-000000000003"],
            "workflow_ids": ["019a0000-0000-7000-8000-000000000004"], "error": "no route",
            "started": "2026-11-21T00:00:00.5Z", "finished": "2026-11-21T00:00:01Z",
        }],
        "drawing": "night  running\n",
    });
    let view: WorkflowView = serde_json::from_value(whole.clone()).expect("a view");
    let written: Value = serde_json::from_slice(&document(&view)).expect("JSON");
    assert_eq!(written, json!({"data": whole}));
}

#[test]
fn what_is_not_there_is_left_out_and_results_stay_as_they_are() {
    let text = "{\"id\":\"019a0000-0000-7000-8000-000000000001\",\"status\":\"completed\",\
                \"form\":\"chain\",\"retries\":0,\
                \"result\":123456789012345678901,\"created\":\"2026-11-21T00:00:00Z\",\
                \"updated\":\"2026-11-21T00:00:00Z\"}";
    let view: WorkflowView = serde_json::from_str(text).expect("a view");
    let list = WorkflowList {
        workflows: vec![view],
        pagination: super::Pagination { limit: 50, next_cursor: Some("7".to_owned()) },
    };
    let written = String::from_utf8(list.document()).expect("text");
    let pagination = "{\"limit\":50,\"next_cursor\":\"7\"}";
    assert_eq!(written, format!("{{\"data\":[{text}],\"pagination\":{pagination}}}"));
}

#[test]
fn words_are_known_both_ways() {
    for one in Status::ALL {
        assert_eq!(status("status", one.as_str()), Ok(one));
        assert_eq!(serde_json::to_value(one).ok(), Some(json!(one.as_str())));
    }
    for one in StepStatus::ALL {
        assert_eq!(StepStatus::parse(one.as_str()), Some(one));
    }
    let message = status("status", "done").expect_err("no status").message;
    let expected = "field `status` must be one of running, completed, failed, cancelled, timeout";
    assert_eq!(message, expected);
}
