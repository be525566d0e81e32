//! Functions that build JSON Schema.

use serde_json::{Map, Value, json};

pub(super) fn data(schema: Value) -> Value {
    object(&[("data", schema)])
}

/// A page of a list that may be too long to count.
pub(super) fn long_page(name: &str) -> Value {
    let pagination =
        object(&[("limit", int()), ("next_cursor", or_null(text())), ("total", or_null(int()))]);
    object(&[("data", list(named(name))), ("pagination", pagination)])
}

/// A page of a list that is not counted.
pub(super) fn cursor_page(name: &str) -> Value {
    let pagination = object(&[("limit", int()), ("next_cursor", or_null(text()))]);
    object(&[("data", list(named(name))), ("pagination", pagination)])
}

pub(super) fn page(name: &str) -> Value {
    let pagination =
        object(&[("limit", int()), ("next_cursor", or_null(text())), ("total", int())]);
    object(&[("data", list(named(name))), ("pagination", pagination)])
}

/// An object of these fields. A name that ends with `?` may be missing.
pub(super) fn object(fields: &[(&str, Value)]) -> Value {
    let required: Vec<_> =
        fields.iter().map(|(name, _)| *name).filter(|name| !name.ends_with('?')).collect();
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, schema)| (name.trim_end_matches('?').to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object of these fields and others.
pub(super) fn open(fields: &[(&str, Value)]) -> Value {
    let mut schema = object(fields);
    schema["additionalProperties"] = true.into();
    schema
}

pub(super) fn texts() -> Value {
    json!({"type": "object", "additionalProperties": text()})
}

/// What makes a job the only one of its sort.
pub(super) fn unique() -> Value {
    let parts = json!({"type": "array", "items": one_of(&["type", "queue", "args", "meta"])});
    let texts = || list(text());
    let conflicts = outlast_core::unique::OnConflict::ALL.map(|it| it.as_str());
    object(&[
        ("keys?", parts),
        ("args_keys?", texts()),
        ("meta_keys?", texts()),
        ("period?", json!({"type": ["number", "string"]})),
        ("states?", list(state())),
        ("on_conflict?", one_of(&conflicts)),
    ])
}

pub(super) fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub(super) fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

pub(super) fn list(schema: Value) -> Value {
    json!({"type": "array", "items": schema})
}

pub(super) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

pub(super) fn state() -> Value {
    let states = outlast_core::job::State::ALL.map(outlast_core::job::State::as_str);
    one_of(&states)
}

pub(super) fn any() -> Value {
    json!({})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

pub(super) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn int() -> Value {
    json!({"type": "integer"})
}

pub(super) fn number() -> Value {
    json!({"type": "number"})
}
