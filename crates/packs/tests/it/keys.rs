//! The keys of an action's jobs.

use std::collections::BTreeMap;

use outlast_core::keys::Keys;
use outlast_packs::Violation;
use serde_json::{Value, json};

use crate::fixture::with_action;

fn map(keys: &[(&str, &str)]) -> BTreeMap<String, String> {
    keys.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The keys of a job with these parameters and keys of its own.
fn keys(
    definition: &str,
    parameters: &Value,
    given: &[(&str, &str)],
) -> Result<BTreeMap<String, String>, String> {
    let given = Keys::new(map(given)).unwrap();
    with_action(definition, |action| {
        let complete = action.check(parameters).unwrap();
        let keys = action.keys(&complete, &given);
        keys.map_err(|all| all.iter().map(Violation::to_string).collect::<Vec<_>>().join("; "))
    })
}

const TENANT: &str = "keys: {tenant: '{{tenant}}'}\n";

#[test]
fn keys_are_made_of_parameters_and_texts() {
    let definition = "keys:\n  tenant: 'acme-{{ tenant }}/{{customer.id}}'\n  team: core\n  n: 7\n";
    let parameters = json!({"tenant": 42, "customer": {"id": "c1", "name": "x"}});
    let made = map(&[("tenant", "acme-42/c1"), ("team", "core"), ("n", "7")]);
    assert_eq!(keys(definition, &parameters, &[]), Ok(made));
    for (value, text) in [(json!(true), "true"), (json!(1.5), "1.5"), (json!(""), "")] {
        let made = keys(TENANT, &json!({ "tenant": value }), &[]);
        assert_eq!(made, Ok(map(&[("tenant", text)])));
    }
    let defaults = "parameters:\n  tenant: {default: none}\nkeys: {tenant: '{{tenant}}'}\n";
    assert_eq!(keys(defaults, &json!({}), &[]), Ok(map(&[("tenant", "none")])));
}

#[test]
fn braces_in_a_parameter_are_text() {
    let made = keys(TENANT, &json!({"tenant": "{{tenant}}", "other": 1}), &[]);
    assert_eq!(made, Ok(map(&[("tenant", "{{tenant}}")])));
}

#[test]
fn keys_of_the_request_add_to_the_actions_and_replace_them() {
    let parameters = json!({"tenant": "42"});
    let made = keys(TENANT, &parameters, &[("account", "acme")]);
    assert_eq!(made, Ok(map(&[("account", "acme"), ("tenant", "42")])));
    let replaced = Ok(map(&[("tenant", "7")]));
    assert_eq!(keys(TENANT, &parameters, &[("tenant", "7")]), replaced);
    assert_eq!(keys(TENANT, &json!({}), &[("tenant", "7")]), replaced, "nothing is missing then");
}

#[test]
fn parameters_that_make_no_key_are_named_with_what_would_be_right() {
    let long = "v".repeat(257);
    for (parameters, violation) in [
        (json!({}), "/tenant: is missing; key `tenant` of the action is made of it"),
        (json!({"tenant": null}), "/tenant: is missing; key `tenant` of the action is made of it"),
        (
            json!({"tenant": ["a"]}),
            "/tenant: is a list; key `tenant` of the action takes a text, a number or a boolean",
        ),
        (
            json!({"tenant": long}),
            "/tenant: makes key `tenant` 257 bytes long; at most 256 are taken",
        ),
        (
            json!({"tenant": "a\u{0}"}),
            "/tenant: contains a NUL character, which key `tenant` cannot have",
        ),
    ] {
        assert_eq!(keys(TENANT, &parameters, &[]), Err(violation.to_owned()));
    }
    let inner = keys("keys: {id: '{{customer.id}}'}\n", &json!({"customer": {}}), &[]);
    assert!(inner.unwrap_err().starts_with("/customer/id: is missing"));
}

#[test]
fn a_secret_makes_no_key_however_its_schema_says_so() {
    let definition = "parameters:\n  type: object\n  properties:\n    pin: {}\n  \
                      patternProperties:\n    'i': {secret: true}\nkeys: {a: 'x{{pin}}'}\n";
    let faults = crate::fixture::Demo::new().action(definition, "").fault();
    assert!(faults.contains("parameter `pin` is secret"), "{faults}");
}

#[test]
fn an_action_shows_its_templates() {
    with_action("keys: {tenant: '{{tenant}}', a: 7}\n", |action| {
        let shown: Vec<_> = action.key_templates().collect();
        assert_eq!(shown, [("a", "7"), ("tenant", "{{tenant}}")]);
    });
}
