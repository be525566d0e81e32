//! Reading fields of answers by a dotted path.

use serde_json::Value;

use super::escape;

/// The value at `path`, if there is one that is not null.
pub fn at<'a>(item: &'a Value, path: &str) -> Option<&'a Value> {
    let found = path.split('.').try_fold(item, |value, name| value.get(name))?;
    (!found.is_null()).then_some(found)
}

/// The value at `path` as one safe line; a dash where there is none.
pub fn text_at(item: &Value, path: &str) -> String {
    at(item, path).map_or_else(|| "-".to_owned(), shown)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => escape(text),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let names: Vec<String> = items.iter().map(shown).collect();
            if names.is_empty() { "-".to_owned() } else { names.join(",") }
        }
        Value::Object(map) if map.is_empty() => "-".to_owned(),
        other => escape(&other.to_string()),
    }
}
