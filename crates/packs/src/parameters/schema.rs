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

/// Every keyword of JSON Schema, and what packs of such systems say beside it.
const KEYWORDS: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "deprecated",
    "description",
    "else",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "id",
    "if",
    "immutable",
    "items",
    "label",
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
    "name",
    "not",
    "oneOf",
    "order",
    "pattern",
    "patternProperties",
    "placeholder",
    "position",
    "prefixItems",
    "properties",
    "propertyNames",
    "readOnly",
    "required",
    "secret",
    "then",
    "title",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "writeOnly",
];

pub(super) fn from_either_style(described: Value) -> Result<Value, String> {
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
    if let Some(slip) = slip(&schema, "") {
        return Err(slip);
    }
    lift_required(&mut schema);
    Ok(schema)
}

/// The first key that is most likely a misspelt keyword: a schema would ignore it, and what was
/// to be required or secret would not be. Keys that resemble no keyword are left to other systems.
fn slip(schema: &Value, place: &str) -> Option<String> {
    let map = schema.as_object()?;
    map.iter().find_map(|(key, value)| {
        let place = format!("{place}/{key}");
        if !is_keyword(key) {
            let near = nearest(key, KEYWORDS.iter().copied())?;
            return Some(format!("`{key}` at {place} is not a keyword; did you mean `{near}`?"));
        }
        match value {
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                named.iter().find_map(|(name, value)| slip(value, &format!("{place}/{name}")))
            }
            Value::Array(list) if LISTED.contains(&key.as_str()) => {
                list.iter().find_map(|value| slip(value, &place))
            }
            Value::Object(_) if SINGLE.contains(&key.as_str()) => slip(value, &place),
            _ => None,
        }
    })
}

fn is_keyword(key: &str) -> bool {
    KEYWORDS.contains(&key) || key.starts_with("x-") || key.starts_with('$')
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
