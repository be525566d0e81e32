//! A job's keys in a request: `"keys": {"tenant": "42"}`.

use std::collections::BTreeMap;

use outlast_core::keys::{KEYS_MAX, Keys, KeysError, NAME_BYTES_MAX, VALUE_BYTES_MAX};
use serde_json::Value;

use crate::fault::Fault;

/// The field, and the option of an OJS job.
const FIELD: &str = "keys";

/// Reads the keys of a job. Numbers and booleans become their text.
///
/// # Errors
/// Returns what is wrong with them, in the words that `outlast.enqueue` uses too.
pub fn read(value: &Value) -> Result<Keys, Fault> {
    const EXPECTED: &str = "must be an object of texts such as `{\"tenant\": \"42\"}`";
    let Value::Object(fields) = value else { return Err(Fault::field(FIELD, EXPECTED)) };
    let texts = fields.iter().map(|(name, value)| Some((name.clone(), text(value)?)));
    let texts: Option<BTreeMap<String, String>> = texts.collect();
    let texts = texts.ok_or_else(|| Fault::field(FIELD, EXPECTED))?;
    Keys::new(texts).map_err(|error| Fault::field(FIELD, problem(&error)))
}

/// Returns what a key's value is as text: that of a text, a number or a boolean.
#[must_use]
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Puts into words why keys are refused; completes "field `keys` …".
#[must_use]
pub fn problem(error: &KeysError) -> String {
    match error {
        KeysError::TooMany(count) => format!("holds {count} keys; at most {KEYS_MAX} are taken"),
        KeysError::Name(name) => format!(
            "names a key `{name}`; a name has 1 to {NAME_BYTES_MAX} characters out of a-z, 0-9, \
             `_`, `.` and `-`"
        ),
        KeysError::Value { name, bytes } => {
            format!(
                "has a value for `{name}` of {bytes} bytes; at most {VALUE_BYTES_MAX} are taken"
            )
        }
        KeysError::Nul(name) => {
            format!("has a value for `{name}` with a NUL character, which is not taken")
        }
    }
}
