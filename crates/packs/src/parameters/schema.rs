//! From the two ways of describing parameters to one JSON Schema.
//!
//! JSON Schema style is a schema for an object. Flat style is a mapping from a parameter's
//! name to its schema, with `required`, `default` and `secret` inside. A `required: true`
//! inside a property is understood in both, at any depth.

use serde_json::{Map, Value, json};

use crate::keys::nearest;

/// Keywords whose value is a mapping from names to schemas.
const NAMED: &[&str] =
    &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is one schema.
const SINGLE: &[&str] = &["items", "additionalProperties", "not", "if", "then", "else", "contains"];
/// Keywords whose value is a list of schemas.
const LISTED: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords that hide a value, require one or limit what is accepted, or that lead to such a
/// keyword. A typo in one of them would go unnoticed until it does harm.
const GUARDS: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "secret",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// The other keywords of JSON Schema, and keys that packs of other systems have beside them.
const OTHER_KEYWORDS: &[&str] = &[
    "const",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "dependencies",
    "deprecated",
    "description",
    "else",
    "example",
    "examples",
    "format",
    "id",
    "if",
    "immutable",
    "label",
    "name",
    "not",
    "order",
    "placeholder",
    "position",
    "readOnly",
    "then",
    "title",
    "writeOnly",
];

/// Returns the schema, and what an operator should know about keys that are no keywords.
pub(super) fn from_either_style(described: Value) -> Result<(Value, Vec<String>), String> {
    let map = match described {
        Value::Null => Map::new(),
        Value::Object(map) => map,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("not a mapping".to_owned());
        }
    };
    let mut schema = if is_json_schema(&map) { Value::Object(map) } else { from_flat(map)? };
    if let Value::Object(map) = &mut schema {
        map.entry("type").or_insert_with(|| json!("object"));
    }
    let mut notes = Vec::new();
    check_keys(&schema, "", &mut notes)?;
    lift_required(&mut schema);
    Ok((schema, notes))
}

/// Looks for misspelt keywords, which a schema passes over. One that is a typo of a guard is
/// refused: what was to be required or secret would not be. Other keys that resemble a keyword are
/// noted, and those that resemble none are left to other systems.
fn check_keys(schema: &Value, place: &str, notes: &mut Vec<String>) -> Result<(), String> {
    let Some(map) = schema.as_object() else { return Ok(()) };
    for (key, value) in map {
        let place = format!("{place}/{key}");
        match value {
            _ if !is_keyword(key) => {
                if let Some(guard) = GUARDS.iter().find(|guard| is_typo(key, guard)) {
                    let hint = format!("did you mean `{guard}`?");
                    return Err(format!("`{key}` at {place} is not a keyword; {hint}"));
                }
                if let Some(near) = nearest(key, keywords()) {
                    let hint = format!("did you mean `{near}`?");
                    notes.push(format!("key `{key}` at {place} has no effect; {hint}"));
                }
            }
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                for (name, value) in named {
                    check_keys(value, &format!("{place}/{name}"), notes)?;
                }
            }
            Value::Array(list) if LISTED.contains(&key.as_str()) => {
                for value in list {
                    check_keys(value, &place, notes)?;
                }
            }
            Value::Object(_) if SINGLE.contains(&key.as_str()) => check_keys(value, &place, notes)?,
            _ => {}
        }
    }
    Ok(())
}

/// Whether a key differs from a keyword by one letter that is wrong, missing, too many or swapped
/// with the next, by two such letters in long keywords, or in case alone.
fn is_typo(key: &str, keyword: &str) -> bool {
    let letters = if keyword.len() < 8 { 1 } else { 2 };
    strsim::osa_distance(&key.to_lowercase(), &keyword.to_lowercase()) <= letters
}

fn keywords() -> impl Iterator<Item = &'static str> {
    GUARDS.iter().chain(OTHER_KEYWORDS).copied()
}

fn is_keyword(key: &str) -> bool {
    keywords().any(|keyword| keyword == key) || key.starts_with("x-") || key.starts_with('$')
}

/// Tells the styles apart. A flat parameter may itself be called `type` or `properties`,
/// but then that key holds a definition, and a definition has texts in it.
fn is_json_schema(map: &Map<String, Value>) -> bool {
    let keyword = |name: &str| map.get(name).is_some_and(|value| !value.is_object());
    let properties = map.get("properties").and_then(Value::as_object);
    ["type", "$schema", "$ref", "allOf", "anyOf", "oneOf", "required"].into_iter().any(keyword)
        || properties.is_some_and(|named| named.values().all(Value::is_object))
}

fn from_flat(map: Map<String, Value>) -> Result<Value, String> {
    let mut properties = Map::new();
    for (name, definition) in map {
        let definition = match definition {
            Value::Object(_) => definition,
            Value::Null => json!({}),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(format!("parameter `{name}` is not a mapping"));
            }
        };
        properties.insert(name, definition);
    }
    Ok(json!({"type": "object", "properties": properties}))
}

/// Moves every `required: true` from inside a property to the list of its parent.
fn lift_required(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    let mut lifted = Vec::new();
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for (name, definition) in properties {
            let Value::Object(definition) = definition else { continue };
            let Some(required) = definition.get("required").and_then(Value::as_bool) else {
                continue;
            };
            definition.remove("required");
            if required {
                lifted.push(name.clone());
            }
        }
    }
    require(map, lifted);
    for (keyword, value) in map {
        match value {
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                named.values_mut().for_each(lift_required);
            }
            Value::Array(list) if LISTED.contains(&keyword.as_str()) => {
                list.iter_mut().for_each(lift_required);
            }
            Value::Object(_) if SINGLE.contains(&keyword.as_str()) => lift_required(value),
            _ => {}
        }
    }
}

fn require(map: &mut Map<String, Value>, names: Vec<String>) {
    if names.is_empty() {
        return;
    }
    let required = map.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(list) = required {
        for name in names {
            let name = Value::String(name);
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
}

/// Follows `$ref`s inside the document from one schema to the one that counts.
pub(super) fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..crate::limits::DEPTH_MAX {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
        let Some(target) = target.and_then(|pointer| root.pointer(pointer)) else { break };
        schema = target;
    }
    schema
}
