//! Durations as packs write them: seconds, or a number with a unit.

use std::time::Duration;

use serde_json::Value;

/// Reads `30`, `0.5`, `"30"`, `"200ms"`, `"30s"`, `"5m"`, `"2h"` or `"7d"`.
pub(crate) fn parse(value: &Value) -> Result<Duration, String> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => seconds(text.trim()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{}` is not a duration", shown(value)))
}

/// What to write instead of a bad duration.
pub(crate) const REMEDY: &str = "write seconds, such as 30 or 0.5, or 200ms, 30s, 5m, 2h, 7d";

fn seconds(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    number.trim().parse::<f64>().ok().map(|number| number * factor)
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
