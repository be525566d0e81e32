//! Matchers that are objects of operators: `{"$exists": true, "$type": "string"}`.

use serde_json::{Map, Value};

use super::words::pattern_holds;
use super::{check as check_value, differs, holds, number, same, string};

/// Tells operators from an object that is meant as itself.
pub(super) fn are_operators(object: &Map<String, Value>) -> bool {
    object.keys().any(|key| key.starts_with('$') || key == "range")
}

pub(super) fn check(operators: &Map<String, Value>, actual: Option<&Value>) -> Result<(), String> {
    operators.iter().try_for_each(|(operator, operand)| one(operator, operand, actual))
}

fn one(operator: &str, operand: &Value, actual: Option<&Value>) -> Result<(), String> {
    let described = || format!("{operator} {operand}");
    match operator {
        "$exists" => {
            let wanted = operand.as_bool().ok_or_else(|| malformed(operator, operand))?;
            // A field that is null is taken as not there, as the cases mean it.
            let there = actual.is_some_and(|value| !value.is_null());
            holds(there == wanted, &described(), actual)
        }
        "$type" => {
            let kind = operand.as_str().ok_or_else(|| malformed(operator, operand))?;
            holds(actual.map(type_of) == Some(kind), &described(), actual)
        }
        "$match" => {
            let pattern = operand.as_str().ok_or_else(|| malformed(operator, operand))?;
            pattern_holds(pattern, string(actual)?)
        }
        "$eq" => holds(actual.is_some_and(|value| same(value, operand)), &described(), actual),
        "$in" | "$or" => {
            let choices = operand.as_array().ok_or_else(|| malformed(operator, operand))?;
            let hit = choices.iter().any(|choice| check_value(choice, actual).is_ok());
            holds(hit, &described(), actual)
        }
        "$gte" | "$gt" | "$lte" | "$lt" => compare(operator, operand, actual),
        "$size" => {
            let Some(Value::Array(values)) = actual else {
                return Err(differs("an array", actual));
            };
            check_value(operand, Some(&Value::from(values.len())))
                .map_err(|error| format!("length: {error}"))
        }
        "$empty" => {
            let wanted = operand.as_bool().ok_or_else(|| malformed(operator, operand))?;
            holds(actual.is_none_or(is_empty) == wanted, &described(), actual)
        }
        "range" => {
            let value = number(actual)?;
            let bounds = operand.as_object().ok_or_else(|| malformed(operator, operand))?;
            for (side, bound) in bounds {
                let bound = bound.as_f64().ok_or_else(|| malformed(operator, operand))?;
                let inside = match side.as_str() {
                    "min" => value >= bound,
                    "max" => value <= bound,
                    _ => return Err(malformed(operator, operand)),
                };
                holds(inside, &described(), actual)?;
            }
            Ok(())
        }
        _ => Err(format!("the runner does not know the operator {operator:?}")),
    }
}

fn compare(operator: &str, operand: &Value, actual: Option<&Value>) -> Result<(), String> {
    let value = number(actual)?;
    let bound = operand.as_f64().ok_or_else(|| malformed(operator, operand))?;
    let truth = match operator {
        "$gte" => value >= bound,
        "$gt" => value > bound,
        "$lte" => value <= bound,
        _ => value < bound,
    };
    holds(truth, &format!("{operator} {operand}"), actual)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn malformed(operator: &str, operand: &Value) -> String {
    format!("the runner cannot read {operator} {operand}")
}
