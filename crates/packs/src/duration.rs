//! Durations in packs.

use std::time::Duration;

use outlast_wire::duration;
use serde_json::Value;

pub(crate) fn parse(value: &Value) -> Result<Duration, String> {
    let span = duration::value(value);
    let wrong = || format!("`{}` is not a duration", shown(value));
    span.map(|span| Duration::from_millis(span.as_millis())).ok_or_else(wrong)
}

/// What to write instead of a bad duration.
pub(crate) const REMEDY: &str = "write seconds, such as 30 or 0.5, or 200ms, 30s, 5m, 2h, 7d";

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
