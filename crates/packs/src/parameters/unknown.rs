//! Parameters that the action does not have: most likely typos.
//!
//! An action that names its parameters takes those and no others, unless its schema says
//! something about others. One that names none takes anything.

use serde_json::Value;

use super::{Violation, escape};
use crate::keys::nearest;

/// Keywords by which a schema covers parameters that it does not name.
const OPEN: &[&str] = &[
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "$ref",
    "$dynamicRef",
    "dependentSchemas",
    "dependencies",
];

pub(super) fn check(schema: &Value, given: &Value) -> Vec<Violation> {
    let named = schema.get("properties").and_then(Value::as_object);
    let (Some(named), Some(given)) = (named.filter(|named| !named.is_empty()), given.as_object())
    else {
        return Vec::new();
    };
    let closed = schema.get("additionalProperties").is_none_or(|others| *others == false);
    if !closed || OPEN.iter().any(|keyword| schema.get(keyword).is_some()) {
        return Vec::new();
    }
    let unknown = given.keys().filter(|name| !named.contains_key(*name));
    unknown
        .map(|name| {
            let names = named.keys().map(String::as_str);
            let message = match nearest(name, names.clone()) {
                Some(near) => format!("is not a parameter; did you mean `{near}`?"),
                None => {
                    let all: Vec<&str> = names.collect();
                    format!("is not a parameter; known parameters are {}", all.join(", "))
                }
            };
            Violation { path: format!("/{}", escape(name)), message }
        })
        .collect()
}
