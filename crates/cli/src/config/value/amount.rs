//! Durations, sizes and counts.

use std::ops::RangeInclusive;
use std::time::Duration;

use outlast_core::limits;
use serde_json::Value;

const DURATION: &str = "a duration: seconds such as 30 or 0.5, or 200ms, 30s, 5m, 2h, 7d";
const COUNT: &str = "a whole number from 0 to 1000000";
const COUNT_MAX: u32 = 1_000_000;

/// Seconds with fractions, or a number with a unit.
pub(crate) fn duration(value: &Value) -> Result<Duration, &'static str> {
    let span = outlast_wire::duration::value(value);
    let span = span.ok_or_else(|| outlast_wire::duration::problem(value, DURATION))?;
    Ok(Duration::from_millis(span.as_millis()))
}

/// How often a probe runs, and how long it may.
pub(crate) fn probe_duration(value: &Value) -> Result<Duration, &'static str> {
    let range = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);
    within(value, &range, "a duration from 100ms to 24h")
}

fn within(
    value: &Value,
    range: &RangeInclusive<Duration>,
    expected: &'static str,
) -> Result<Duration, &'static str> {
    let given = duration(value)?;
    if range.contains(&given) { Ok(given) } else { Err(expected) }
}

/// Bytes, or a number with a unit; `MB` and `MiB` differ as they should.
pub(crate) fn size(value: &Value) -> Result<u64, &'static str> {
    outlast_wire::size::value(value).ok_or(outlast_wire::size::EXPECTED)
}

pub(crate) fn count(value: &Value) -> Result<u32, &'static str> {
    whole(value).filter(|number| *number <= COUNT_MAX).ok_or(COUNT)
}

pub(crate) fn concurrency(value: &Value) -> Result<u32, &'static str> {
    let fits = |number: &u32| (1..=limits::CONCURRENCY_MAX).contains(number);
    whole(value).filter(fits).ok_or("a whole number from 1 to 10000")
}

/// How often something happens in a row.
pub(crate) fn times(value: &Value) -> Result<u32, &'static str> {
    whole(value).filter(|number| (1..=1000).contains(number)).ok_or("a whole number from 1 to 1000")
}

/// A share in percent; 0 for none.
pub(crate) fn percent(value: &Value) -> Result<u32, &'static str> {
    whole(value).filter(|number| *number <= 100).ok_or("a whole number from 0 to 100")
}

/// A size, or 0 for none.
pub(crate) fn size_or_none(value: &Value) -> Result<u64, &'static str> {
    if whole(value) == Some(0) { Ok(0) } else { size(value) }
}

pub(crate) fn multiplier(value: &Value) -> Result<u32, &'static str> {
    // One missed beat must never be a lapse.
    whole(value).filter(|number| (2..=100).contains(number)).ok_or("a whole number from 2 to 100")
}

pub(crate) fn heartbeat(value: &Value) -> Result<Duration, &'static str> {
    let least = Duration::from_millis(limits::HEARTBEAT_MIN.as_millis());
    let most = Duration::from_millis(limits::HEARTBEAT_MAX.as_millis());
    within(value, &(least..=most), "a duration from 100ms to 300s")
}

fn whole(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
