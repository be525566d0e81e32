use serde_json::{Value, json};

use super::{document, write};
use crate::workflow::WorkflowView;

const ID: &str = "019a0000-0000-7000-8000-000000000001";
const JOB: &str = "019a0000-0000-7000-8000-0000000000";

/// A workflow of steps with a status, each with one job once it has started.
fn workflow(form: &str, status: &str, steps: &[(&str, &str)]) -> WorkflowView {
    let steps: Vec<Value> = steps
        .iter()
        .enumerate()
        .map(|(index, (name, status))| {
            let ran = !matches!(*status, "waiting" | "skipped" | "cancelled");
            let is = |wanted: &str| u32::from(*status == wanted);
            let failed = is("failed") + is("timeout") + is("abandoned");
            let mut step = json!({
                "name": name, "status": status, "after": [], "type": "email.send",
                "total": u32::from(ran), "held": 0, "running": is("running"),
                "completed": is("completed"), "failed": failed,
                "job_ids": if ran { json!([format!("{JOB}{index:02}")]) } else { json!([]) },
                "callback": name.starts_with("on-"),
            });
            if ran {
                step["started"] = json!("2026-11-21T12:00:01Z");
            }
            if failed == 1 {
                step["error"] = json!("no route");
            }
            if *status == "completed" {
                step["result"] = serde_json::from_str("{\"n\": 1}").expect("JSON");
                step["finished"] = json!("2026-11-21T12:00:02Z");
            }
            step
        })
        .collect();
    let mut view = json!({
        "id": ID, "name": "trial", "status": status, "form": form, "retries": 0,
        "created": "2026-11-21T12:00:00Z", "updated": "2026-11-21T12:00:03Z", "steps": steps,
    });
    if status != "running" {
        view["finished"] = json!("2026-11-21T12:00:03Z");
    }
    serde_json::from_value(view).expect("a view")
}

fn shown(workflow: &WorkflowView) -> Value {
    serde_json::from_slice(&document(workflow)).expect("JSON")
}

#[test]
fn a_chain_that_stopped_says_where_and_why() {
    let steps = [("step-0", "completed"), ("step-1", "failed"), ("step-2", "skipped")];
    let shown = shown(&workflow("chain", "failed", &steps));
    let chain = &shown["workflow"];
    assert_eq!(
        [&chain["type"], &chain["state"], &chain["steps_total"], &chain["steps_completed"]],
        [&json!("chain"), &json!("failed"), &json!(3), &json!(1)]
    );
    let states: Vec<_> = (0..3).map(|n| chain["steps"][n]["state"].as_str()).collect();
    assert_eq!(states, [Some("completed"), Some("failed"), Some("cancelled")]);
    assert_eq!(chain["steps"][0]["result"], json!({"n": 1}));
    assert_eq!(chain["steps"][2]["job_id"], Value::Null);
    assert_eq!(chain["failed_step_index"], 1);
    assert_eq!(chain["failed_job_ids"], json!([format!("{JOB}01")]));
    let error = json!({
        "step": "step-1", "job_id": format!("{JOB}01"), "code": "handler_error",
        "message": "no route",
    });
    assert_eq!(chain["errors"], json!([error]));
    assert_eq!(chain["metadata"]["job_count"], 3);
    assert_eq!(chain["completed_at"], "2026-11-21T12:00:03Z");
    assert!(chain.get("jobs").is_none(), "{chain}");
}

#[test]
fn the_root_has_the_main_fields_too() {
    let shown = shown(&workflow("group", "running", &[("job-0", "running")]));
    for field in ["id", "name", "type", "state", "jobs_total", "created_at", "started_at"] {
        assert_eq!(shown[field], shown["workflow"][field], "{field}");
        assert!(!shown[field].is_null(), "{field}");
    }
    assert!(shown.get("steps").is_none() && shown.get("completed_at").is_none(), "{shown}");
}

#[test]
fn a_batch_counts_its_jobs_and_not_its_callbacks() {
    let steps = [
        ("job-0", "completed"),
        ("job-1", "timeout"),
        ("on-complete", "running"),
        ("on-success", "skipped"),
    ];
    let shown = shown(&workflow("batch", "running", &steps));
    let batch = &shown["workflow"];
    let counts = ["jobs_total", "jobs_completed", "jobs_failed", "steps_total"];
    assert_eq!(counts.map(|count| batch[count].as_u64()), [Some(2), Some(1), Some(1), Some(2)]);
    assert_eq!(batch["jobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(batch["callbacks"]["on_complete"]["state"], "active");
    assert_eq!(batch["callbacks"]["on_success"]["state"], "cancelled");
    assert_eq!(batch["errors"][0]["code"], "timeout");
}

#[test]
fn what_waits_counts_as_a_job_and_an_empty_group_has_none() {
    let waiting = workflow("chain", "running", &[("step-0", "running"), ("step-1", "waiting")]);
    assert_eq!(shown(&waiting)["jobs_total"], 2);
    let mut empty = workflow("group", "completed", &[("jobs", "completed")]);
    (empty.steps[0].total, empty.steps[0].completed) = (0, 0);
    assert_eq!(shown(&empty)["jobs_total"], 0);
}

#[test]
fn states_are_the_words_of_the_standard() {
    let state = |workflow: &WorkflowView| shown(workflow)["state"].clone();
    let mut one = workflow("steps", "running", &[("load", "running")]);
    assert_eq!(state(&one), "running");
    assert_eq!(shown(&one)["type"], "dag");
    one.steps[0].started = None;
    assert_eq!(shown(&one)["workflow"]["steps"][0]["state"], "pending");
    one.ending = Some(crate::workflow::Ending::Timeout);
    assert_eq!(state(&one), "running");
    one.ending = Some(crate::workflow::Ending::Cancelled);
    assert_eq!(state(&one), "cancelled");
    assert_eq!(shown(&one)["cancelled_at"], "2026-11-21T12:00:03Z");
    assert_eq!(state(&workflow("steps", "timeout", &[("load", "timeout")])), "failed");
    let cancelled = workflow("chain", "cancelled", &[("step-0", "completed"), ("b", "cancelled")]);
    assert_eq!(shown(&cancelled)["workflow"]["steps_cancelled"], 1);
}

#[test]
fn results_are_passed_on_as_they_were_written() {
    let mut one = workflow("chain", "completed", &[("step-0", "completed")]);
    let result = "{\"n\": 123456789012345678901}".to_owned();
    one.result = Some(serde_json::value::RawValue::from_string(result).expect("JSON"));
    let mut out = Vec::new();
    write(&mut out, &one);
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("123456789012345678901"), "{text}");
}
