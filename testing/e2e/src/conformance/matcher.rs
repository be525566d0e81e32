//! Matchers: what a case says about one value.
//!
//! Strings name a matcher or are compared as they are; objects hold operators; everything else
//! is compared. A matcher that is not known is an error and never a match.

mod operators;
#[cfg(test)]
mod tests;
mod words;

use serde_json::Value;

use super::json_path::displayed;

/// Allowed deviation of `~N`, in percent of N.
const TOLERANCE_PERCENT: f64 = 50.0;
/// And at least this much.
const TOLERANCE_MIN: f64 = 100.0;

/// Checks one value; `None` is a value that is not there.
pub(crate) fn check(matcher: &Value, actual: Option<&Value>) -> Result<(), String> {
    match matcher {
        Value::String(word) => words::check(word, actual),
        Value::Object(operators) if operators::are_operators(operators) => {
            operators::check(operators, actual)
        }
        Value::Array(matchers) => elements(matchers, actual),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => match actual {
            Some(value) if same(matcher, value) => Ok(()),
            _ => Err(differs(&matcher.to_string(), actual)),
        },
    }
}

fn elements(matchers: &[Value], actual: Option<&Value>) -> Result<(), String> {
    let Some(Value::Array(values)) = actual else {
        return Err(differs("an array", actual));
    };
    if values.len() != matchers.len() {
        return Err(differs(&format!("{} elements", matchers.len()), actual));
    }
    for (index, (matcher, value)) in matchers.iter().zip(values).enumerate() {
        check(matcher, Some(value)).map_err(|error| format!("[{index}]: {error}"))?;
    }
    Ok(())
}

/// Compares as JSON does: 1 and 1.0 are the same number, the order of keys says nothing.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64().is_some_and(|left| right.as_f64() == Some(left))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, l)| right.get(key).is_some_and(|r| same(l, r)))
        }
        _ => left == right,
    }
}

fn number(actual: Option<&Value>) -> Result<f64, String> {
    actual.and_then(Value::as_f64).ok_or_else(|| differs("a number", actual))
}

fn array(actual: Option<&Value>) -> Result<&[Value], String> {
    match actual {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(differs("an array", actual)),
    }
}

fn string(actual: Option<&Value>) -> Result<&str, String> {
    actual.and_then(Value::as_str).ok_or_else(|| differs("a string", actual))
}

fn holds(truth: bool, expected: &str, actual: Option<&Value>) -> Result<(), String> {
    if truth { Ok(()) } else { Err(differs(expected, actual)) }
}

pub(crate) fn differs(expected: &str, actual: Option<&Value>) -> String {
    let got = actual.map_or_else(|| "nothing".to_owned(), Value::to_string);
    format!("expected {expected}, got {}", shortened(&got))
}

pub(crate) fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 600;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

fn approximately(expected: f64, actual: f64) -> bool {
    let tolerance = (expected * TOLERANCE_PERCENT / 100.0).max(TOLERANCE_MIN);
    (actual - expected).abs() <= tolerance
}
