//! Hiding secret parameters wherever parameters are shown.
//!
//! Works on parameters that were not checked, too: where a value has another shape than its
//! schema and a secret could be inside, all of it is hidden.

use serde_json::Value;

use super::schema::resolve;
use crate::limits::DEPTH_MAX;

const HIDDEN: &str = "***";

pub(super) fn mask(schema: &Value, parameters: &Value) -> Value {
    let mut masked = parameters.clone();
    if holds_secret(schema, schema, DEPTH_MAX) {
        hide(schema, schema, &mut masked, DEPTH_MAX);
    }
    masked
}

/// Collects the texts that masking took out of parameters.
pub(super) fn hidden(shown: &Value, masked: &Value, found: &mut Vec<String>) {
    match (shown, masked) {
        (Value::Object(shown), Value::Object(masked)) => {
            for (name, value) in shown {
                hidden(value, masked.get(name).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(shown), Value::Array(masked)) => {
            for (at, value) in shown.iter().enumerate() {
                hidden(value, masked.get(at).unwrap_or(&Value::Null), found);
            }
        }
        (shown, masked) if shown == masked => {}
        (shown, _) => leaves(shown, found),
    }
}

fn leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.values().for_each(|inner| leaves(inner, found)),
        Value::Array(list) => list.iter().for_each(|inner| leaves(inner, found)),
        Value::String(text) => found.push(text.clone()),
        Value::Number(number) => found.push(number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

fn hide(root: &Value, schema: &Value, value: &mut Value, depth: usize) {
    let schema = resolve(root, schema);
    let Some(depth) = depth.checked_sub(1) else {
        *value = Value::from(HIDDEN);
        return;
    };
    if is_secret(schema) {
        *value = Value::from(HIDDEN);
        return;
    }
    for alternative in alternatives(schema) {
        hide(root, alternative, value, depth);
    }
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                if let Some(definition) = property(schema, name) {
                    hide(root, definition, inner, depth);
                }
            }
        }
        Value::Array(list) if schema.get("items").is_some() => {
            let items = &schema["items"];
            list.iter_mut().for_each(|item| hide(root, items, item, depth));
        }
        // A caller may have put the secret where its object or list belongs.
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if holds_secret(root, schema, depth) && !has_alternatives(schema) {
                *value = Value::from(HIDDEN);
            }
        }
        Value::Null => {}
    }
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| schema.get("additionalProperties"))
}

fn is_secret(schema: &Value) -> bool {
    schema.get("secret").and_then(Value::as_bool) == Some(true)
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let keywords = ["allOf", "anyOf", "oneOf"].into_iter();
    keywords.filter_map(|keyword| schema.get(keyword)?.as_array()).flatten()
}

fn has_alternatives(schema: &Value) -> bool {
    alternatives(schema).next().is_some()
}

/// Whether a schema marks anything inside it as secret.
fn holds_secret(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let schema = resolve(root, schema);
    let named = schema.get("properties").and_then(Value::as_object);
    let single = ["additionalProperties", "items"].into_iter().filter_map(|key| schema.get(key));
    is_secret(schema)
        || named.into_iter().flat_map(|named| named.values()).any(|s| holds_secret(root, s, depth))
        || single.chain(alternatives(schema)).any(|inner| holds_secret(root, inner, depth))
}
