//! Parameters that are valid, but cannot be carried to the script in the way it wants.
//!
//! They are refused at enqueue, rather than failing the job when it starts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Delivery, Format, dotenv, environment};
use crate::limits::{VARIABLE_BYTES_MAX, VIOLATIONS_MAX};
use crate::parameters::{Violation, escape};

pub(crate) fn check(
    delivery: Delivery,
    format: Format,
    schema: &Value,
    parameters: &Value,
) -> Vec<Violation> {
    let none = Map::new();
    let parameters = parameters.as_object().unwrap_or(&none);
    let mut violations = match (delivery, format) {
        (Delivery::Env, _) => in_environment(parameters),
        (Delivery::Stdin | Delivery::File, Format::Dotenv) => in_dotenv(schema, parameters),
        (Delivery::Stdin | Delivery::File, Format::Json | Format::Yaml) => Vec::new(),
    };
    violations.truncate(VIOLATIONS_MAX);
    violations
}

fn in_dotenv(schema: &Value, parameters: &Map<String, Value>) -> Vec<Violation> {
    let declared = schema.get("properties");
    let is_declared = |name: &str| declared.is_some_and(|names| names.get(name).is_some());
    let mut violations = Vec::new();
    for (name, value) in parameters {
        if !dotenv::is_plain(name) {
            let problem = "name may have letters, digits, `_`, `-` and `.` only, as this action \
                           takes dotenv lines";
            violations.push(violation(name, problem));
        }
        if dotenv::steers(name) && !is_declared(name) {
            let problem = "is a name that shells, loaders or interpreters obey, and the action \
                           does not declare it";
            violations.push(violation(name, problem));
        }
        if holds_zero(value) {
            violations.push(violation(name, "holds a zero character, which a shell cannot read"));
        }
    }
    violations
}

fn in_environment(parameters: &Map<String, Value>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    for (name, value) in parameters {
        let variable = environment::variable(name);
        // One for `=`, one for the zero byte at the end.
        let bytes = variable.len() + super::as_text(value).len() + 2;
        if bytes > VARIABLE_BYTES_MAX {
            let problem = format!(
                "takes {bytes} bytes as an environment variable, where {VARIABLE_BYTES_MAX} is \
                 the most"
            );
            violations.push(violation(name, problem));
        }
        if value.as_str().is_some_and(|text| text.contains('\0')) {
            let problem = "holds a zero character, which an environment variable cannot";
            violations.push(violation(name, problem));
        }
        if let Some(other) = taken.insert(variable, name) {
            let problem = format!("becomes the same environment variable as `{other}`");
            violations.push(violation(name, problem));
        }
    }
    violations
}

fn violation(name: &str, message: impl Into<String>) -> Violation {
    Violation { path: format!("/{}", escape(name)), message: message.into() }
}

/// Whether a zero character would be written out; inside JSON it is escaped and harmless.
fn holds_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Object(map) => map.values().any(holds_zero),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}
