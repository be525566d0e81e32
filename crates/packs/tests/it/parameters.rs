//! Checking parameters: both styles, defaults, and the messages for users.

use serde_json::{Value, json};

use crate::fixture::with_action;

const FLAT: &str = r"
parameters:
  url: {type: string, required: true, description: Where to}
  method: {type: string, enum: [GET, POST], default: GET, required: true}
  retries: {type: integer, minimum: 0, maximum: 5, default: 2}
  token: {type: string, secret: true, minLength: 8}
  options:
    type: object
    properties:
      verify: {type: boolean, default: true}
      depth: {type: integer, required: true}
";

const SCHEMA: &str = r"
parameters:
  type: object
  required: [url]
  properties:
    url: {type: string, description: Where to}
    method: {type: string, enum: [GET, POST], default: GET, required: true}
    retries: {type: integer, minimum: 0, maximum: 5, default: 2}
    token: {type: string, secret: true, minLength: 8}
    options: {$ref: '#/$defs/options'}
  $defs:
    options:
      type: object
      properties:
        verify: {type: boolean, default: true}
        depth: {type: integer}
      required: [depth]
";

fn violations(definition: &str, parameters: &Value) -> String {
    with_action(definition, |action| {
        let violations = action.check(parameters).unwrap_err();
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn flat_style_becomes_json_schema() {
    with_action(FLAT, |action| {
        insta::assert_json_snapshot!(action.schema());
    });
}

#[test]
fn both_styles_fill_in_the_same_defaults() {
    let given = json!({"url": "http://x", "options": {"depth": 1}});
    for style in [FLAT, SCHEMA] {
        let complete = with_action(style, |action| action.check(&given).unwrap());
        assert_eq!(
            complete,
            json!({
                "url": "http://x", "options": {"depth": 1, "verify": true},
                "method": "GET", "retries": 2,
            })
        );
    }
}

#[test]
fn a_missing_object_is_not_made_up_to_hold_defaults() {
    let complete = with_action(FLAT, |action| action.check(&json!({"url": "u"})).unwrap());
    assert_eq!(complete, json!({"url": "u", "method": "GET", "retries": 2}));
}

#[test]
fn what_the_caller_says_wins_over_a_default() {
    let given = json!({"url": "u", "method": "POST", "retries": 0});
    assert_eq!(with_action(FLAT, |action| action.check(&given).unwrap()), given);
}

#[test]
fn every_violation_is_told_with_its_place_and_without_its_value() {
    let bad = json!({
        "method": "s3cret", "retries": 9, "token": "s3cret", "options": {"verify": "s3cret"},
    });
    for style in [FLAT, SCHEMA] {
        let violations = violations(style, &bad);
        assert!(!violations.contains("s3cret"), "{violations}");
        let mut lines: Vec<&str> = violations.lines().collect();
        lines.sort_unstable();
        insta::allow_duplicates! {
            insta::assert_snapshot!(lines.join("\n"));
        }
    }
}

#[test]
fn parameters_that_are_no_object_are_refused_but_null_counts_as_none() {
    assert_eq!(violations(FLAT, &json!([1])), "parameters must be an object");
    assert_eq!(violations(FLAT, &json!("x")), "parameters must be an object");
    assert_eq!(violations(FLAT, &Value::Null), "/url: is required");
    assert_eq!(with_action("", |action| action.check(&Value::Null).unwrap()), json!({}));
}

#[test]
fn an_action_that_describes_no_parameters_takes_any() {
    let given = json!({"a": [1, {"b": null}]});
    for definition in ["", "parameters:\n", "parameters: {}\n"] {
        assert_eq!(with_action(definition, |action| action.check(&given).unwrap()), given);
    }
}

#[test]
fn a_parameter_that_the_action_does_not_name_is_refused_with_the_nearest() {
    let slip = json!({"url": "x", "metod": "GET", "qqq": 1});
    for style in [FLAT, SCHEMA, &format!("{SCHEMA}  additionalProperties: false\n")] {
        let violations = violations(style, &slip);
        let mut lines: Vec<&str> = violations.lines().collect();
        lines.sort_unstable();
        let [near, far] = lines[..] else { panic!("{violations}") };
        assert_eq!(near, "/metod: is not a parameter; did you mean `method`?");
        assert!(far.starts_with("/qqq: is not a parameter; known parameters are "), "{far}");
    }
    let open = format!("{SCHEMA}  additionalProperties: true\n");
    with_action(&open, |action| assert!(action.check(&slip).is_ok()));
    // What an earlier version of the pack accepted still runs.
    with_action(FLAT, |action| assert!(action.check_again(&slip).is_ok()));
}

#[test]
fn keys_that_resemble_a_keyword_are_noted_and_refused_only_as_a_typo_of_what_guards() {
    let parameter = |keys: &str| {
        crate::fixture::Demo::new().action(&format!("parameters:\n  a: {{{keys}}}\n"), "")
    };
    let others = parameter("note: in metres, unit: m, enumNames: [x], defalt: 1, x-secrt: 1, z: 1");
    assert_eq!(
        others.notes(),
        [("note", "not"), ("unit", "uniqueItems"), ("enumNames", "enum"), ("defalt", "default")]
            .map(|(key, near)| format!(
                "DIR/demo/actions/it.yaml: parameters: key `{key}` at /properties/a/{key} has no \
                 effect; did you mean `{near}`?"
            ))
    );
    assert!(others.load().unwrap().get("demo.it").is_some());
    for (typo, meant) in [
        ("secert: true", "secret"),
        ("Secret: true", "secret"),
        ("requried: true", "required"),
        ("tpye: string", "type"),
        ("maxlenght: 3", "maxLength"),
        ("additionalPropertys: false", "additionalProperties"),
        ("prefixitems: [{type: string, secret: true}]", "prefixItems"),
        ("minPropertis: 1", "minProperties"),
    ] {
        let fault = parameter(typo).fault();
        assert!(fault.contains(&format!("did you mean `{meant}`?")), "{typo}: {fault}");
    }
}

#[test]
fn flat_parameters_may_be_called_like_keywords() {
    let flat = "parameters:\n  type: {type: string, required: true}\n  \
                properties: {type: object, description: any}\n  required: {type: boolean}\n";
    with_action(flat, |action| {
        assert!(action.check(&json!({"type": "x", "properties": {}, "required": true})).is_ok());
        let violations = action.check(&json!({"required": 1})).unwrap_err();
        let paths: Vec<&str> = violations.iter().map(|v| v.path.as_str()).collect();
        assert!(paths.contains(&"/type") && paths.contains(&"/required"), "{paths:?}");
    });
}

#[test]
fn violations_are_bounded_in_number() {
    let many: String = (0..50).map(|n| format!("  p{n}: {{required: true}}\n")).collect();
    let violations = violations(&format!("parameters:\n{many}"), &json!({}));
    assert_eq!(violations.lines().count(), outlast_packs::limits::VIOLATIONS_MAX);
}

#[test]
fn a_reference_that_would_have_to_be_fetched_is_refused_when_the_pack_is_read() {
    let demo = crate::fixture::Demo::new().action(
        "parameters:\n  type: object\n  properties: {a: {$ref: 'http://127.0.0.1:9/s.json'}}\n",
        "",
    );
    let fault = demo.fault();
    assert!(fault.starts_with("DIR/demo/actions/it.yaml:"), "{fault}");
    assert!(fault.contains("http://127.0.0.1:9/s.json"), "{fault}");
}
