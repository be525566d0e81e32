//! Matchers that are words: `string:uuidv7`, `array:length:3`, `~1000`, `contains:x`.

use regex::Regex;
use serde_json::Value;

use super::{approximately, array, differs, displayed, holds, number, string};

const UUID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
const UUID_V7: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";
const DATETIME: &str =
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$";

pub(super) fn check(word: &str, actual: Option<&Value>) -> Result<(), String> {
    match word {
        "any" => return holds(actual.is_some_and(|value| !value.is_null()), word, actual),
        "exists" => return holds(actual.is_some(), word, actual),
        "absent" => return holds(actual.is_none_or(Value::is_null), word, actual),
        _ => {}
    }
    if let Some(kind) = word.strip_prefix("string:") {
        return strings(kind, word, actual);
    }
    if let Some(kind) = word.strip_prefix("number:") {
        return numbers(kind, word, actual);
    }
    if let Some(kind) = word.strip_prefix("array:") {
        return arrays(kind, word, actual);
    }
    if let Some(kind) = word.strip_prefix("one_of:") {
        let found = actual.map(displayed);
        let hit = kind.split(',').any(|choice| found.as_deref() == Some(choice.trim()));
        return holds(hit, word, actual);
    }
    if let Some(element) = word.strip_prefix("contains:") {
        let hit = array(actual)?.iter().any(|value| displayed(value) == element);
        return holds(hit, word, actual);
    }
    if let Some(element) = word.strip_prefix("not_contains:") {
        let hit = array(actual)?.iter().any(|value| displayed(value) == element);
        return holds(!hit, word, actual);
    }
    if let Some(Ok(expected)) = word.strip_prefix('~').map(str::parse::<f64>) {
        return holds(approximately(expected, number(actual)?), word, actual);
    }
    holds(actual.and_then(Value::as_str) == Some(word), &format!("{word:?}"), actual)
}

fn strings(kind: &str, word: &str, actual: Option<&Value>) -> Result<(), String> {
    let text = string(actual)?;
    if let Some(part) = kind.strip_prefix("contains:") {
        return holds(text.contains(part), word, actual);
    }
    if let Some(pattern) = kind.strip_prefix("pattern(").and_then(|rest| rest.strip_suffix(')')) {
        return pattern_holds(pattern, text);
    }
    match kind {
        "nonempty" | "non_empty" => holds(!text.is_empty(), word, actual),
        "uuid" => pattern_holds(UUID, text),
        "uuidv7" => pattern_holds(UUID_V7, text),
        "datetime" => pattern_holds(DATETIME, text),
        _ => Err(unknown(word)),
    }
}

fn numbers(kind: &str, word: &str, actual: Option<&Value>) -> Result<(), String> {
    let value = number(actual)?;
    if let Some(bounds) = kind.strip_prefix("range(").and_then(|rest| rest.strip_suffix(')')) {
        let (low, high) = bounds.split_once(',').ok_or_else(|| unknown(word))?;
        let bound = |text: &str| text.trim().parse::<f64>().map_err(|_error| unknown(word));
        return holds(bound(low)? <= value && value <= bound(high)?, word, actual);
    }
    match kind {
        "positive" => holds(value > 0.0, word, actual),
        "non_negative" => holds(value >= 0.0, word, actual),
        _ => Err(unknown(word)),
    }
}

fn arrays(kind: &str, word: &str, actual: Option<&Value>) -> Result<(), String> {
    let length = array(actual)?.len();
    let count = |text: &str| text.parse::<usize>().map_err(|_error| unknown(word));
    if let Some(least) = kind.strip_prefix("min_length:").or_else(|| kind.strip_prefix("min:")) {
        return holds(length >= count(least)?, word, actual);
    }
    let parenthesised = kind.strip_prefix("length(").and_then(|rest| rest.strip_suffix(')'));
    if let Some(exact) = kind.strip_prefix("length:").or(parenthesised) {
        return holds(length == count(exact)?, word, actual);
    }
    match kind {
        "nonempty" => holds(length > 0, word, actual),
        "empty" => holds(length == 0, word, actual),
        _ => Err(unknown(word)),
    }
}

pub(super) fn pattern_holds(pattern: &str, text: &str) -> Result<(), String> {
    let regex = Regex::new(pattern).map_err(|error| format!("pattern {pattern:?}: {error}"))?;
    let value = Value::from(text);
    if regex.is_match(text) { Ok(()) } else { Err(differs(&format!("/{pattern}/"), Some(&value))) }
}

fn unknown(word: &str) -> String {
    format!("the runner does not know the matcher {word:?}")
}
