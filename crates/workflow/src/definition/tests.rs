mod faults;
mod standard;

use serde_json::json;

use super::*;
use crate::limits;

fn fault(value: &Value) -> String {
    Definition::read(value).expect_err("it was taken").to_string()
}

/// Returns the fault of a workflow with these steps.
fn steps(steps: Value) -> String {
    fault(&json!({"steps": steps}))
}

fn example() -> Value {
    json!({
        "name": "nightly",
        "parameters": {"folder": {"type": "string", "required": true}},
        "timeout": "2h",
        "keys": {"folder": "${{ parameters.folder }}"},
        "labels": {"team": "data"},
        "steps": {
            "load": {"action": "ase.load", "with": {"folder": "${{ parameters.folder }}"}, "queue": "io"},
            "each": {"action": "ase.elaborate", "after": "load", "concurrency": 4,
                "for_each": "${{ steps.load.result.files }}", "with": {"file": "${{ item }}"},
                "retry": {"max_attempts": 3}, "timeout": 90, "requires": "pool=big",
                "resources": {"memory": "2Gi"}, "on_failure": "continue", "priority": 3},
            "mail": {"type": "mail.send", "after": ["each"], "args": ["${{ steps.each.total }} files"],
                "when": "steps.each.failed == 0 && parameters.folder != ''"},
            "sub": {"workflow": "pack.other", "after": ["each", "load"], "when": "always"},
        },
    })
}

#[test]
fn a_definition_survives_the_store() {
    let definition = Definition::read(&example()).unwrap();
    let stored = definition.to_json();
    let again = Definition::of_stored(&stored).unwrap();
    assert_eq!(again, definition);
    assert_eq!(again.to_json().to_string(), stored.to_string());
    assert_eq!(definition.timeout, Some(Span::from_secs(7200)));
    assert_eq!(definition.steps()[1].job.timeout, Some(Span::from_secs(90)));
    assert_eq!(definition.steps()[3].after, [1, 0]);
}

#[test]
fn a_list_of_steps_is_the_same_as_an_object() {
    let by_name = Definition::read(&json!({"steps": {
        "a": {"action": "x"}, "b": {"action": "x", "after": "a"}}}));
    let list = Definition::read(&json!({"steps": [
        {"name": "a", "action": "x"}, {"name": "b", "action": "x", "after": ["a"]}]}));
    assert_eq!(by_name.unwrap(), list.unwrap());
}

#[test]
fn shape_is_derived_from_the_edges() {
    let definition = Definition::read(&example()).unwrap();
    assert_eq!(definition.children(1), [2, 3]);
    assert_eq!([0, 1, 2, 3].map(|step| definition.depth(step)), [0, 1, 2, 2]);
    assert_eq!(definition.last_steps(), [2, 3]);
    let backwards = Definition::read(&json!({"steps": {
        "b": {"action": "x", "after": "a"}, "a": {"action": "x"}}}));
    assert_eq!(backwards.unwrap().order(), [1, 0]);
}

#[test]
fn a_cycle_is_named() {
    let said = steps(json!([
        {"name": "a", "action": "x", "after": ["c"]},
        {"name": "b", "action": "x", "after": ["a"]},
        {"name": "c", "action": "x", "after": ["d", "b"]},
        {"name": "d", "action": "x"},
        {"name": "e", "action": "x", "after": ["c"]},
    ]));
    assert_eq!(said, "steps[0].after: waits for itself: a after c after b after a; leave out one");
}

#[test]
fn a_name_with_a_dash_is_not_a_difference() {
    let said = steps(json!({
        "step-0": {"action": "x"},
        "next": {"action": "x", "after": "step-0", "with": {"x": "${{ steps.step-0.result }}"}},
    }));
    assert!(said.ends_with("write steps[\"step-0\"], since `-` is minus"), "{said}");
}

#[test]
fn results_of_steps_further_before_may_be_read() {
    let definition = Definition::read(&json!({"steps": {
        "a": {"action": "x"},
        "b": {"action": "x", "after": "a"},
        "c": {"action": "x", "after": "b", "with": {"x": "${{ steps.a.result }}"}},
    }}));
    assert!(definition.is_ok());
}

#[test]
fn size_is_bounded() {
    let many = |count: usize| -> Value {
        (0..count).map(|n| json!({"name": format!("s{n}"), "action": "x"})).collect()
    };
    assert!(Definition::read(&json!({"steps": many(limits::STEPS_MAX)})).is_ok());
    let said = steps(many(limits::STEPS_MAX + 1));
    assert!(said.starts_with("steps: a workflow of 10001 steps; at most 10000"), "{said}");
    let items: Vec<_> = (0..=limits::ITEMS_MAX).collect();
    let said = steps(json!({"a": {"action": "x", "for_each": items}}));
    assert_eq!(said, "steps.a.for_each: has 10001 items, more than 10000");
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    assert!(steps(json!({"a": {"action": "x", "with": {"x": deep}}})).contains("nests deeper"));
    let mut dense: Vec<_> =
        (0..500).map(|n| json!({"name": format!("s{n}"), "action": "x"})).collect();
    for (n, step) in dense.iter_mut().enumerate() {
        step["after"] = (0..n).map(|before| format!("s{before}")).collect();
    }
    assert!(steps(json!(dense)).contains("wait for more than 100000 steps"));
}
