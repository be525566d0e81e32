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
fn faults_name_the_place_and_what_would_be_right() {
    let b = |b: Value| steps(json!({"a": {"action": "x"}, "b": b}));
    for (said, expected) in [
        (fault(&json!([])), "is a list; a workflow is an object with `steps`"),
        (fault(&json!({})), "steps: a workflow needs at least one step"),
        (steps(json!({})), "steps: a workflow needs at least one step"),
        (fault(&json!({"step": 1})), "step: is no key that is known here; did you mean `steps`?"),
        (
            fault(&json!({"timeout": "2 h", "steps": {"a": {"action": "x"}}})),
            "timeout: is no length of time; write seconds, or 200ms, 30s, 5m, 2h, 7d",
        ),
        (
            fault(
                &json!({"keys": {"a": "${{ steps.a.status }}"}, "steps": {"a": {"action": "x"}}}),
            ),
            "keys: may read only `parameters` and `workflow`; its jobs are not there yet",
        ),
        (steps(json!([{"action": "x"}])), "steps[0].name: a step of a list needs a `name`"),
        (
            steps(json!([{"name": "a", "action": "x"}, {"name": "a", "action": "x"}])),
            "steps[1].name: there is another step `a`",
        ),
        (
            steps(json!([{"name": "a b", "action": "x"}])),
            "steps[0].name: `a b` is no name of a step: letters, digits, `_`, `-` and `.`, first a letter or digit, at most 128 bytes",
        ),
        (b(json!({})), "steps.b: a step needs `action`, `type` or `workflow`: what it does"),
        (
            b(json!({"action": "x", "type": "y"})),
            "steps.b.type: is there beside `action`; a step does one thing",
        ),
        (
            b(json!({"action": "x", "afer": "a"})),
            "steps.b.afer: is no key that is known here; did you mean `after`?",
        ),
        (b(json!({"action": "x", "after": ["a", "c"]})), "steps.b.after[1]: there is no step `c`"),
        (
            b(json!({"action": "x", "after": "b"})),
            "steps.b.after: `b` waits for itself; leave it out",
        ),
        (
            b(json!({"action": "x", "after": ["a", "a"]})),
            "steps.b.after[1]: `a` is there twice; leave one out",
        ),
        (
            b(json!({"action": "x", "after": [1]})),
            "steps.b.after[0]: is a number; write a step's name",
        ),
        (
            b(json!({"action": "x", "args": []})),
            "steps.b.args: an action takes parameters by name: with: {name: value}",
        ),
        (b(json!({"type": "x", "with": {}})), "steps.b.with: a type takes a list: args: [value]"),
        (b(json!({"action": "x", "with": []})), "steps.b.with: must be an object, not a list"),
        (b(json!({"action": "x", "when": "succes"})), "steps.b.when: did you mean `success`?"),
        (
            b(json!({"action": "x", "when": "failure"})),
            "steps.b.when: a step that waits for none never runs on a failure; add `after`",
        ),
        (
            b(json!({"action": "x", "when": true})),
            "steps.b.when: is true or false; write success, failure, always or CEL",
        ),
        (
            b(json!({"action": "x", "when": "no_failure"})),
            "steps.b.when: `no_failure`: there is no `no_failure`; an expression reads parameters, steps, item, index, workflow; text is written in quotes",
        ),
        (
            b(json!({"action": "x", "when": "steps.a.status == 1"})),
            "steps.b.when: reads the step `a`, which does not come before it; add it: after: [a]",
        ),
        (
            b(json!({"action": "x", "with": {"x": "${{ steps.c.result }}"}})),
            "steps.b.with: reads the step `c`, which is not there",
        ),
        (
            b(json!({"action": "x", "with": {"x": "${{ steps.b.result }}"}})),
            "steps.b.with: reads its own step `b`; it has not ended yet",
        ),
        (
            b(json!({"action": "x", "with": {"x": ["${{ 1 + }}"]}})),
            "steps.b.with.x[0]: `1 +`: is no CEL at character 4: mismatched input '<EOF>' expecting expression",
        ),
        (
            b(json!({"action": "x", "with": {"x": "${{ item }}"}})),
            "steps.b.with: reads `item` or `index`, which are there only in `with` and `args` of a step with `for_each`",
        ),
        (
            b(json!({"action": "x", "for_each": "files"})),
            "steps.b.for_each: is text; write an expression such as \"${{ steps.load.result.files }}\", or a list",
        ),
        (
            b(json!({"action": "x", "concurrency": 2})),
            "steps.b.concurrency: is for steps with `for_each`; a limit bounds jobs of many workflows",
        ),
        (
            b(json!({"action": "x", "for_each": [], "concurrency": 0})),
            "steps.b.concurrency: must be a whole number from 1 to 10000",
        ),
        (
            b(json!({"action": "x", "on_failure": "ignore"})),
            "steps.b.on_failure: is `ignore`; write one of fail, continue",
        ),
        (
            b(json!({"workflow": "x", "queue": "y"})),
            "steps.b.queue: is for jobs; a step that starts a workflow has none, its steps have",
        ),
        (
            b(json!({"action": "x", "options": {}})),
            "steps.b.options: is for steps with `type`; an action has its keys beside it",
        ),
        (
            b(json!({"action": "x", "callback": true})),
            "steps.b.callback: is no key that is known here; write one of name, action, type, workflow, after, with, args, when, for_each, concurrency, retry, timeout, on_failure, requires, prefers, resources, queue, priority, options, meta",
        ),
    ] {
        assert_eq!(said, expected);
    }
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
    for n in 1..500 {
        dense[n]["after"] = (0..n).map(|before| format!("s{before}")).collect();
    }
    assert!(steps(json!(dense)).contains("wait for more than 100000 steps"));
}
