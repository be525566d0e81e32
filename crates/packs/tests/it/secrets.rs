//! Secrets never show.

use serde_json::{Value, json};

use crate::fixture::with_action;

const FLAT: &str = r"
parameters:
  user: {type: string}
  password: {type: string, secret: true}
  keys: {type: array, items: {type: object, properties: {id: {}, key: {secret: true}}}}
  login: {type: object, properties: {name: {}, pin: {secret: true}}}
  headers: {type: object, additionalProperties: {type: string, secret: true}}
";

const SCHEMA: &str = r"
parameters:
  type: object
  properties:
    user: {type: string}
    password: {type: string, secret: true}
    keys: {type: array, items: {$ref: '#/$defs/key'}}
    login: {anyOf: [{type: string}, {type: object, properties: {name: {}, pin: {secret: true}}}]}
    headers: {type: object, additionalProperties: {type: string, secret: true}}
  $defs:
    key: {type: object, properties: {id: {}, key: {secret: true}}}
";

fn mask(style: &str, parameters: &Value) -> Value {
    with_action(style, |action| action.mask(parameters))
}

#[test]
fn secret_values_are_masked_at_any_depth_in_both_styles() {
    let given = json!({
        "user": "ada", "password": "pw", "keys": [{"id": 1, "key": "k"}, {"id": 2}],
        "login": {"name": "n", "pin": 1234}, "headers": {"x": "y"}, "other": "z",
    });
    for style in [FLAT, SCHEMA] {
        assert_eq!(
            mask(style, &given),
            json!({
                "user": "ada", "password": "***", "keys": [{"id": 1, "key": "***"}, {"id": 2}],
                "login": {"name": "n", "pin": "***"}, "headers": {"x": "***"}, "other": "z",
            })
        );
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_masked_as_well() {
    let given = json!({"login": "pw", "keys": "pw", "headers": ["pw"], "password": {"a": "pw"}});
    let masked = mask(FLAT, &given).to_string();
    assert!(!masked.contains("pw"), "{masked}");
}

#[test]
fn parameters_without_secrets_are_shown_as_they_are() {
    let given = json!({"user": "ada", "deep": {"er": [1]}});
    assert_eq!(mask(FLAT, &given), given);
    assert_eq!(mask("", &given), given);
}

#[test]
fn a_secret_is_masked_whatever_keyword_leads_to_it() {
    let schema = r"
parameters:
  type: object
  properties:
    list: {type: array, prefixItems: [{type: string}, {type: string, secret: true}], items: {secret: true}}
    mode: {type: string}
    login: {$ref: '#/$defs/login', description: beside a reference}
  patternProperties:
    '^token_': {type: string, secret: true}
  if: {properties: {mode: {const: key}}}
  then: {properties: {key: {type: string, secret: true}}}
  else: {properties: {password: {type: string, secret: true}}}
  dependentSchemas:
    proxy: {properties: {proxy_password: {secret: true}}}
  $defs:
    login: {type: object, unevaluatedProperties: {secret: true}}
";
    let given = json!({
        "list": ["plain", "pw", "pw"], "mode": "key", "token_a": "pw", "tokens": "plain",
        "key": "pw", "password": "pw", "proxy": "plain", "proxy_password": "pw",
        "login": {"any": "pw"},
    });
    let masked = mask(schema, &given);
    assert!(!masked.to_string().contains("pw"), "{masked}");
    assert_eq!((&masked["list"][0], &masked["tokens"]), (&json!("plain"), &json!("plain")));
    assert_eq!((&masked["mode"], &masked["proxy"]), (&json!("key"), &json!("plain")));
}
