//! Hiding secret parameters wherever parameters are shown.
//!
//! Works on parameters that were not checked, too: where a value has another shape than its
//! schema and a secret could be inside, all of it is hidden.

use serde_json::{Value, json};

use crate::limits::DEPTH_MAX;

const HIDDEN: &str = "***";

/// Keywords with a list of schemas that apply to the value itself. Which of them fits is not
/// asked: what any of them calls a secret is hidden.
const LISTED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with one schema that applies to the value itself.
const SINGLE: [&str; 3] = ["if", "then", "else"];
/// Keywords with one schema for what no other keyword names.
const OTHERS_OF_OBJECT: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// The same for lists; `contains` may fit any item.
const OTHERS_OF_LIST: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];

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
    let Some(depth) = depth.checked_sub(1) else {
        *value = Value::from(HIDDEN);
        return;
    };
    if is_secret(schema) {
        *value = Value::from(HIDDEN);
        return;
    }
    for same in of_the_value_itself(root, schema) {
        hide(root, same, value, depth);
    }
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                for definition in of_property(schema, name) {
                    hide(root, definition, inner, depth);
                }
            }
        }
        Value::Array(list) if has_list_keyword(schema) => {
            for (at, item) in list.iter_mut().enumerate() {
                for definition in of_item(schema, at) {
                    hide(root, definition, item, depth);
                }
            }
        }
        // A caller may have put the secret where its object or list belongs.
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let parts = of_the_parts(schema);
            if parts.into_iter().any(|part| holds_secret(root, part, depth)) {
                *value = Value::from(HIDDEN);
            }
        }
        Value::Null => {}
    }
}

/// Schemas beside this one that describe the same value.
fn of_the_value_itself<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
    let referred = target.and_then(|pointer| root.pointer(pointer));
    let listed = LISTED.iter().filter_map(|keyword| schema.get(keyword)?.as_array()).flatten();
    let single = SINGLE.iter().filter_map(|keyword| schema.get(keyword));
    let dependent = schema.get("dependentSchemas").and_then(Value::as_object);
    let dependent = dependent.into_iter().flat_map(|named| named.values());
    referred.into_iter().chain(listed).chain(single).chain(dependent).collect()
}

/// Schemas of a property by its name, by a pattern, or for want of both.
fn of_property<'a>(schema: &'a Value, name: &str) -> Vec<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let fitting = patterns.into_iter().flatten().filter(|(pattern, _)| matches(pattern, name));
    let found: Vec<_> = named.into_iter().chain(fitting.map(|(_, found)| found)).collect();
    if !found.is_empty() {
        return found;
    }
    OTHERS_OF_OBJECT.iter().filter_map(|keyword| schema.get(keyword)).collect()
}

/// Whether a name fits a pattern, as the validator reads patterns. One that it cannot read
/// fits everything: rather too much is hidden than too little.
fn matches(pattern: &str, name: &str) -> bool {
    let none_fits = json!({"patternProperties": {pattern: false}});
    let Ok(validator) = jsonschema::validator_for(&none_fits) else { return true };
    !validator.is_valid(&json!({name: null}))
}

/// Schemas of the item at this place in a list.
fn of_item(schema: &Value, at: usize) -> Vec<&Value> {
    let placed = |keyword: &str| schema.get(keyword).and_then(Value::as_array)?.get(at);
    let placed: Vec<_> = ["prefixItems", "items"].into_iter().filter_map(placed).collect();
    let others =
        OTHERS_OF_LIST.iter().filter(|keyword| placed.is_empty() || **keyword == "contains");
    let others = others.filter_map(|keyword| schema.get(keyword)).filter(|other| !other.is_array());
    others.chain(placed.iter().copied()).collect()
}

fn has_list_keyword(schema: &Value) -> bool {
    schema.get("prefixItems").is_some()
        || OTHERS_OF_LIST.iter().any(|keyword| schema.get(keyword).is_some())
}

/// Schemas of everything that the value may have inside it.
fn of_the_parts(schema: &Value) -> Vec<&Value> {
    let named = ["properties", "patternProperties"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword)?.as_object())
        .flat_map(|named| named.values());
    let placed = ["prefixItems", "items"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword)?.as_array())
        .flatten();
    let others = OTHERS_OF_OBJECT.iter().chain(&OTHERS_OF_LIST);
    let others = others.filter_map(|keyword| schema.get(keyword)).filter(|part| !part.is_array());
    named.chain(placed).chain(others).collect()
}

fn is_secret(schema: &Value) -> bool {
    schema.get("secret").and_then(Value::as_bool) == Some(true)
}

/// Whether a schema marks the value, or anything inside it, as secret.
fn holds_secret(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    is_secret(schema)
        || of_the_parts(schema)
            .into_iter()
            .chain(of_the_value_itself(root, schema))
            .any(|inner| holds_secret(root, inner, depth))
}
