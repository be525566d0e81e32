//! What is said of a wrong workflow: the place, what is wrong, what would be right.

use super::*;

/// Returns what is said of this step beside another, `a`.
fn b(step: Value) -> String {
    steps(json!({"a": {"action": "x"}, "b": step}))
}

#[test]
fn of_a_workflow() {
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
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn of_the_keys_of_a_step() {
    for (said, expected) in [
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
fn of_conditions_and_expressions() {
    for (said, expected) in [
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
    ] {
        assert_eq!(said, expected);
    }
}
