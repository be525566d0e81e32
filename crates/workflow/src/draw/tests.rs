use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::state::{Reason, Stop, WorkflowStatus};

fn workflow(steps: Value) -> (Definition, WorkflowState) {
    let definition = Definition::read(&json!({"name": "nightly", "steps": steps})).unwrap();
    let state = WorkflowState::new(&definition);
    (definition, state)
}

#[test]
fn chain() {
    let (definition, mut state) = workflow(json!({
        "load": {"action": "x"},
        "each": {"action": "x", "after": "load", "for_each": "${{ steps.load.result.files }}"},
        "send": {"action": "x", "after": "each"},
        "report": {"action": "x", "after": "send", "when": "always"},
        "alarm": {"action": "x", "after": "send", "when": "steps.each.failed > 3"},
    }));
    state.steps[0].status = StepStatus::Completed;
    state.steps[1].status = StepStatus::Running;
    state.steps[1].total = 100;
    state.steps[1].completed = 11;
    state.steps[1].failed = 1;
    assert_snapshot!(draw(&definition, &state, 80));
}

#[test]
fn diamond() {
    let (definition, mut state) = workflow(json!({
        "top": {"action": "x"},
        "left": {"action": "x", "after": "top"},
        "right": {"action": "x", "after": "top"},
        "bottom": {"action": "x", "after": ["left", "right"]},
    }));
    state.status = WorkflowStatus::Failed;
    for (step, status) in
        [StepStatus::Completed, StepStatus::Failed, StepStatus::Cancelled, StepStatus::Skipped]
            .into_iter()
            .enumerate()
    {
        state.steps[step].status = status;
    }
    state.steps[1].reason =
        Some(Reason { item: Some(0), text: "exit code 2:\nno such file".into() });
    assert_snapshot!(draw(&definition, &state, 60));
}

#[test]
fn fan_out_and_fan_in() {
    let mut steps = json!({"start": {"action": "x"}});
    for n in 0..12 {
        steps[format!("part-{n}")] = json!({"action": "x", "after": "start"});
    }
    let parts: Vec<_> = (0..12).map(|n| format!("part-{n}")).collect();
    steps["collect"] = json!({"action": "x", "after": parts});
    let (definition, mut state) = workflow(steps);
    state.stop = Some(Stop::Cancel);
    assert_snapshot!(draw(&definition, &state, 72));
}

#[test]
fn mesh_of_sixty() {
    let mut steps = json!({});
    for n in 0..60 {
        let layer = n / 10;
        let before = (0..60).filter(|b| b / 10 + 1 == layer && (b * 7 + n) % 4 == 0);
        let after: Vec<_> = before.map(|b| format!("step-with-a-long-name-{b}")).collect();
        steps[format!("step-with-a-long-name-{n}")] = json!({"action": "x", "after": after});
    }
    let (definition, state) = workflow(steps);
    assert_snapshot!(draw(&definition, &state, 100));
}

#[test]
fn no_line_is_wider_than_asked() {
    let name = "äöü".repeat(20).chars().take(10).collect::<String>() + "x";
    let long = "n".repeat(120);
    let (definition, mut state) = workflow(json!({
        &*long: {"action": "x", "for_each": []},
        "b": {"action": "x", "after": &*long, "when": "parameters.x == 'wide'"},
    }));
    state.steps[1].reason = Some(Reason { item: None, text: name.repeat(30) });
    for width in [1, 40, 41, 60, 200] {
        for line in draw(&definition, &state, width).lines() {
            assert!(line.width() <= width.max(WIDTH_MIN), "{width}: {line}");
        }
    }
}
