//! Workflows of packs: files in `workflows/`, what is wrong with them, and their parameters.

use outlast_packs::{PackSet, Violation, WorkflowParameters};
use serde_json::{Map, Value, json};

use crate::fixture::Demo;

const ECHO: &str = "steps:\n  say: {action: core.echo}\n";

fn with_workflow(text: &str) -> Demo {
    Demo::new().action("", "#!/bin/sh\n").file("demo/workflows/night.yaml", text)
}

/// One line for each fault, in the order of the table.
fn table(rows: &[(&str, &str)]) -> String {
    let lines =
        rows.iter().map(|(what, text)| format!("{what}\n    {}", with_workflow(text).fault()));
    lines.collect::<Vec<_>>().join("\n")
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn references(set: &PackSet) -> Vec<&str> {
    set.workflows().map(|workflow| workflow.reference.as_str()).collect()
}

#[test]
fn a_workflow_is_called_as_its_file_or_as_it_says() {
    let demo = with_workflow(&format!("description: Says it\nx-owner: me\n{ECHO}"))
        .file("demo/workflows/other.yml", &format!("name: day\n{ECHO}"))
        .file("demo/workflows/readme.md", "not a workflow");
    let set = demo.load().unwrap();
    assert_eq!(references(&set), ["demo.day", "demo.night"]);
    let night = set.workflow("demo.night").unwrap();
    assert_eq!((night.pack.as_str(), night.description.as_str()), ("demo", "Says it"));
    assert!(night.enabled);
    assert_eq!(night.definition.name.as_deref(), Some("night"));
    assert_eq!(night.definition.steps().len(), 1);
    let source = json!({"description": "Says it", "steps": {"say": {"action": "core.echo"}}});
    assert_eq!(night.source, source);
    let demo_pack = set.packs().find(|pack| pack.reference == "demo").unwrap();
    assert_eq!(demo_pack.workflows().len(), 2);
    assert_eq!(demo.notes(), [""; 0]);
    assert_eq!(set.nearest_workflow("demo.nigth"), Some("demo.night"));
    assert!(set.workflow("demo.it").is_none() && set.get("demo.night").is_none());
}

#[test]
fn workflows_of_a_pack_that_is_switched_off_are_too() {
    let demo = with_workflow(ECHO).file("demo/pack.yaml", "ref: demo\nenabled: false\n");
    assert!(!demo.load().unwrap().workflow("demo.night").unwrap().enabled);
}

#[test]
fn faulty_workflows_are_reported_with_file_line_and_remedy() {
    let rows = [
        ("not YAML", "steps: [a\n"),
        ("a list", "- steps\n"),
        ("no steps", "description: x\n"),
        ("a slip", "stepss: {}\n"),
        ("a step's slip", "steps:\n  say:\n    action: core.echo\n    affter: [x]\n"),
        (
            "no such step",
            "steps:\n  a: {action: core.echo}\n  b:\n    action: core.echo\n    after: [c]\n",
        ),
        ("name", "name: Night Shift\nsteps: {}\n"),
        ("odd name", "name: night.shift\nsteps:\n  say: {action: core.echo}\n"),
        ("parameters", "steps:\n  say: {action: core.echo}\nparameters:\n  folder: text\n"),
        (
            "a typo in a guard",
            "parameters: {a: {requird: true}}\nsteps:\n  say: {action: core.echo}\n",
        ),
        ("no reference", "steps:\n  say: {action: echo}\n"),
        ("no action", "steps:\n  say:\n    action: core.ecko\n"),
        (
            "no action at all",
            "# why\n\nsteps:\n  first: {action: core.noop}\n\n  say: {action: demo.qqq}\n",
        ),
        ("no workflow", "steps:\n  say: {workflow: demo.qqq}\n"),
        ("no workflow's reference", "steps:\n  say: {workflow: night}\n"),
        (
            "itself",
            "steps:\n  say: {action: core.echo}\n  again: {workflow: demo.night, after: say}\n",
        ),
        ("a long number", "steps:\n  say: {action: core.echo, with: {n: 123456789012345678901}}\n"),
        (
            "an expression",
            "steps:\n  say:\n    action: core.echo\n    with:\n      message: \"${{ steps.x }}\"\n",
        ),
    ];
    insta::assert_snapshot!(table(&rows));
}

#[test]
fn two_workflows_of_one_name_are_refused() {
    let demo = with_workflow(ECHO).file("demo/workflows/z.yaml", &format!("name: night\n{ECHO}"));
    let message = demo.fault();
    let expected = "DIR/demo/workflows/z.yaml:1: workflow `demo.night` is already defined by \
                    DIR/demo/workflows/night.yaml; give one of them another name";
    assert_eq!(message, expected);
    assert_eq!(references(&demo.load().unwrap()), ["demo.night"]);
}

#[test]
fn workflows_that_start_each_other_in_a_circle_are_refused_with_those_that_start_them() {
    let starts = |other: &str| format!("steps:\n  go: {{workflow: demo.{other}}}\n");
    let demo = with_workflow(&starts("b"))
        .file("demo/workflows/b.yaml", &starts("c"))
        .file("demo/workflows/c.yaml", &starts("night"))
        .file("demo/workflows/outside.yaml", &starts("b"))
        .file("demo/workflows/sound.yaml", &starts("leaf"))
        .file("demo/workflows/leaf.yaml", ECHO);
    let set = demo.load().unwrap();
    assert_eq!(references(&set), ["demo.leaf", "demo.sound"]);
    let fault = |name: &str| set.fault_of_workflow(name).unwrap().to_string();
    let night = fault("demo.night");
    assert!(
        night.ends_with(
            "night.yaml:2: steps.go.workflow: demo.night starts itself through demo.b, \
             demo.c; that would never end"
        ),
        "{night}"
    );
    let outside = fault("demo.outside");
    assert!(outside.contains("workflow `demo.b` is left out; correct "), "{outside}");
    assert_eq!(set.faults().count(), 4);
    let demo_pack = set.packs().find(|pack| pack.reference == "demo").unwrap();
    assert_eq!(demo_pack.workflows().len(), 2);
}

#[test]
fn a_workflow_of_a_faulty_action_is_left_out_and_the_action_has_its_own_fault() {
    let demo = with_workflow("steps:\n  go: {action: demo.bad}\n")
        .file("demo/actions/bad.yaml", "runner_type: qqq\n")
        // A faulty workflow is no fault of an action of its name.
        .file("demo/workflows/it.yaml", "steps: {}\n");
    let set = demo.load().unwrap();
    let fault = set.fault_of_workflow("demo.night").unwrap().to_string();
    assert!(fault.contains("steps.go.action: action `demo.bad` is left out; correct "), "{fault}");
    assert!(fault.ends_with("demo/actions/bad.yaml"), "{fault}");
    assert!(set.fault_of("demo.it").is_none() && set.get("demo.it").is_some());
    assert!(set.fault_of("demo.bad").is_some() && set.fault_of_workflow("demo.it").is_some());
}

#[test]
fn what_belongs_to_absent_packs_and_to_other_systems_is_noted() {
    let text = "steps:\n  a: {action: elsewhere.go}\n  b: {workflow: elsewhere.all}\n";
    let demo =
        with_workflow(text).file("demo/workflows/foreign.yaml", "version: 1.0\ntasks: []\n").file(
            "demo/workflows/odd.yaml",
            &format!("parameters: {{n: {{type: integer, default: x}}}}\n{ECHO}"),
        );
    assert_eq!(references(&demo.load().unwrap()), ["demo.night", "demo.odd"]);
    insta::assert_snapshot!(demo.notes().join("\n"));
}

#[test]
fn a_pack_in_place_of_the_built_in_one_has_its_workflows() {
    let demo = Demo::new()
        .file("demo/pack.yaml", "ref: core\n")
        .file("demo/workflows/night.yaml", "steps:\n  say: {type: email.send}\n");
    assert_eq!(references(&demo.load().unwrap()), ["core.night"]);
}

#[test]
fn the_digest_of_a_pack_covers_its_workflows() {
    let digest = |text: &str| {
        let set = with_workflow(text).load().unwrap();
        let demo = set.packs().find(|pack| pack.reference == "demo").unwrap();
        demo.digest.clone()
    };
    assert_eq!(digest(ECHO), digest(ECHO));
    assert_ne!(digest(ECHO), digest("steps:\n  say: {action: core.noop}\n"));
}

#[test]
fn parameters_are_checked_and_completed_as_those_of_actions() {
    let described = json!({
        "folder": {"type": "string", "required": true},
        "depth": {"type": "integer", "default": 2},
        "pin": {"type": "string", "secret": true},
    });
    let parameters = WorkflowParameters::read(Some(&described)).unwrap();
    let complete = parameters.check(&map(json!({"folder": "in", "pin": "1234"}))).unwrap();
    assert_eq!(Value::Object(complete.clone()), json!({"folder": "in", "pin": "1234", "depth": 2}));
    let masked = Value::Object(parameters.mask(&complete));
    assert_eq!(masked, json!({"folder": "in", "pin": "***", "depth": 2}));
    assert_eq!(parameters.schema()["required"], json!(["folder"]));
    let refused = parameters.check(&map(json!({"foldr": "in", "depth": "x"}))).unwrap_err();
    let refused: Vec<String> = refused.iter().map(Violation::to_string).collect();
    assert_eq!(
        refused,
        [
            "/foldr: is not a parameter; did you mean `folder`?",
            "/folder: is required",
            "/depth: must be integer, not string",
        ]
    );
    let anything = map(json!({"a": [1]}));
    assert_eq!(WorkflowParameters::read(None).unwrap().check(&anything), Ok(anything));
    assert!(WorkflowParameters::read(Some(&json!({"a": 1}))).is_err());
}

#[test]
fn a_workflow_of_a_pack_checks_its_parameters() {
    let set = with_workflow(&format!("parameters: {{n: {{default: 1}}}}\n{ECHO}")).load().unwrap();
    let night = set.workflow("demo.night").unwrap();
    assert_eq!(night.parameters.check(&Map::new()), Ok(map(json!({"n": 1}))));
    assert!(night.parameters.check(&map(json!({"m": 1}))).is_err());
}
