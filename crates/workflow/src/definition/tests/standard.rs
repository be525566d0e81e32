//! The forms of the standard, as its cases send them.

use super::*;

/// Returns each step as `name < those it waits for (when)`.
fn shape(value: &Value) -> Vec<String> {
    let definition = Definition::of_standard(value).unwrap();
    assert_eq!(Definition::of_stored(&definition.to_json()), Ok(definition.clone()));
    let shown = |step: &StepDefinition| {
        let after: Vec<_> =
            step.after.iter().map(|of| definition.steps()[*of].name.as_str()).collect();
        format!("{} < {} ({})", step.name, after.join(" "), step.when.as_text())
    };
    definition.steps().iter().map(shown).collect()
}

fn refused(value: &Value) -> String {
    Definition::of_standard(value).unwrap_err().to_string()
}

#[test]
fn a_chain_is_one_after_another() {
    let chain = json!({"type": "chain", "name": "orders", "steps": [
        {"type": "order.validate", "args": [{"id": 1}], "options": {"queue": "q"}},
        {"type": "payment.charge", "args": []},
    ]});
    assert_eq!(shape(&chain), ["step-0 <  (success)", "step-1 < step-0 (success)"]);
    let definition = Definition::of_standard(&chain).unwrap();
    assert_eq!(definition.form, Form::Chain);
    assert_eq!(definition.name.as_deref(), Some("orders"));
    assert_eq!(definition.steps()[0].input.to_json(), json!([{"id": 1}]));
    assert_eq!(definition.steps()[0].job.options, Some(json!({"queue": "q"})));
}

#[test]
fn a_batch_is_a_group_with_callbacks() {
    let job = json!({"type": "t"});
    let batch = json!({"type": "batch", "jobs": [job, job], "callbacks":
        {"on_failure": job, "on_complete": job, "on_success": job}});
    assert_eq!(
        shape(&batch),
        [
            "job-0 <  (success)",
            "job-1 <  (success)",
            "on-complete < job-0 job-1 (always)",
            "on-success < job-0 job-1 (success)",
            "on-failure < job-0 job-1 (failure)",
        ]
    );
}

#[test]
fn forms_nest() {
    let job = json!({"type": "t"});
    let nested = json!({"type": "chain", "steps": [
        job,
        {"type": "group", "jobs": [job, {"type": "chain", "steps": [job, job]}]},
        {"type": "batch", "jobs": [job], "callbacks": {"on_failure": job}},
        job,
    ]});
    assert_eq!(
        shape(&nested),
        [
            "step-0 <  (success)",
            "step-1.job-0 < step-0 (success)",
            "step-1.job-1.step-0 < step-0 (success)",
            "step-1.job-1.step-1 < step-1.job-1.step-0 (success)",
            "step-2.job-0 < step-1.job-0 step-1.job-1.step-1 (success)",
            "step-2.on-failure < step-2.job-0 (failure)",
            "step-3 < step-2.on-failure (no_failure)",
        ]
    );
}

#[test]
fn a_dag_with_the_names_of_callbacks_is_a_batch_of_an_sdk() {
    let dag = json!({"name": "n", "options": {"queue": "all"}, "steps": [
        {"id": "on-failure", "type": "t", "args": [], "depends_on": ["job-0"]},
        {"id": "job-0", "type": "t", "args": [], "options": {"priority": 1}},
    ]});
    assert_eq!(shape(&dag), ["on-failure < job-0 (failure)", "job-0 <  (success)"]);
    let definition = Definition::of_standard(&dag).unwrap();
    assert!(definition.steps()[0].callback && definition.steps()[1].handled);
    assert_eq!(definition.steps()[1].job.options, Some(json!({"queue": "all", "priority": 1})));
}

#[test]
fn arguments_of_the_standard_are_data() {
    let chain = json!({"type": "chain", "steps": [{"type": "t", "args": ["${{ parameters.x"]}]});
    shape(&chain);
    let definition = Definition::of_standard(&chain).unwrap();
    assert_eq!(definition.steps()[0].input.to_json(), json!(["${{ parameters.x"]));
}

#[test]
fn faults_name_the_place() {
    let job = json!({"type": "t"});
    let mut deep = job.clone();
    for _ in 0..20 {
        deep = json!({"type": "chain", "steps": [deep]});
    }
    assert!(refused(&deep).ends_with("nests deeper than 16"), "{}", refused(&deep));
    for (value, expected) in [
        (json!({"type": "chian", "steps": []}), "type: is `chian`; did you mean `chain`?"),
        (json!({"type": "chain", "steps": []}), "steps: a chain needs at least one step"),
        (json!({"type": "chain"}), "steps: is missing; write a list of jobs"),
        (
            json!({"type": "group", "jobs": [job, {"args": []}]}),
            "jobs[1].type: a job needs a type, such as `email.send`",
        ),
        (
            json!({"type": "group", "jobs": [{"type": "t", "args": {}}]}),
            "jobs[0].args: must be a list",
        ),
        (
            json!({"type": "batch", "jobs": [job]}),
            "callbacks: a batch needs callbacks; without any it is a group",
        ),
        (
            json!({"type": "batch", "jobs": [job], "callbacks": {"on_sucess": job}}),
            "callbacks.on_sucess: is no key that is known here; did you mean `on_success`?",
        ),
        (
            json!({"steps": [{"id": "a", "type": "t", "depends_on": ["b"]}]}),
            "steps[0].depends_on[0]: there is no step `b`",
        ),
        (
            json!({"steps": [{"id": "a", "type": "t", "depends_on": ["b"]}, {"id": "b", "type": "t", "depends_on": ["a"]}]}),
            "steps[0].depends_on: waits for itself: a after b after a; leave out one",
        ),
        (
            json!({"steps": [{"type": "t"}]}),
            "steps[0].id: a step needs an id of letters, digits, `_`, `-` and `.`",
        ),
    ] {
        assert_eq!(refused(&value), expected);
    }
}
