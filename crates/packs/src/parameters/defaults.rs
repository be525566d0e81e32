//! Filling in what the caller left out.
//!
//! A default goes into an object that is there; an object that is missing altogether is not
//! made up to hold defaults of its own. A default of null means none.

use serde_json::Value;

use super::schema::resolve;
use crate::limits::DEPTH_MAX;

pub(super) fn fill(schema: &Value, parameters: &mut Value) {
    descend(schema, schema, parameters, DEPTH_MAX);
}

fn descend(root: &Value, schema: &Value, value: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let schema = resolve(root, schema);
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, definition) in properties.into_iter().flatten() {
                let definition = resolve(root, definition);
                let default = definition.get("default").filter(|default| !default.is_null());
                if let Some(default) = default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(inner) = map.get_mut(name) {
                    descend(root, definition, inner, depth);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                list.iter_mut().for_each(|item| descend(root, items, item, depth));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
