//! Lengths of time: ISO 8601 (`PT1M30S`), and the configuration's style (`90`, `1.5`,
//! `200ms`, `30s`, `5m`, `2h`, `1d`).
//!
//! Years and months have no fixed length and are refused.

use outlast_core::time::Span;
use serde_json::Value;

/// Longest length accepted anywhere: a hundred years, so that sums never overflow.
pub(crate) const MILLIS_MAX: u64 = 100 * 366 * 24 * 3600 * 1000;

/// Reads an ISO 8601 duration of weeks, days, hours, minutes and seconds.
#[must_use]
pub fn iso(text: &str) -> Option<Span> {
    let body = text.strip_prefix('P')?;
    let (date, clock) = match body.split_once('T') {
        Some((_, "")) => return None,
        Some((date, clock)) => (date, clock),
        None => (body, ""),
    };
    if date.is_empty() && clock.is_empty() {
        return None;
    }
    let days = parts(date, &[('W', 604_800_000), ('D', 86_400_000)])?;
    let seconds = parts(clock, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])?;
    span(days.checked_add(seconds)?)
}

/// Reads numbers with units, each unit at most once and in this order.
fn parts(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut total = 0_u64;
    let mut units = units.iter();
    while !text.is_empty() {
        let end = text.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, rest) = text.split_at(end);
        let unit = rest.chars().next()?;
        let (_, scale) = units.by_ref().find(|(name, _)| *name == unit)?;
        total = total.checked_add(millis(number, *scale)?)?;
        text = rest.get(1..)?;
    }
    Some(total)
}

/// Returns a decimal number times `scale` milliseconds, rounded down.
fn millis(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once(['.', ',']).unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with(['.', ',']) {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        place /= 10;
        total = total.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(total)
}

fn span(millis: u64) -> Option<Span> {
    (millis <= MILLIS_MAX).then_some(Span(millis))
}

/// Reads a length in whole milliseconds; `None` stands for what is no such number.
///
/// # Errors
/// Returns what would be right.
pub(crate) fn milliseconds(number: Option<u64>) -> Result<Span, String> {
    match number {
        None | Some(0) => Err("must be a whole number of milliseconds above 0".into()),
        Some(millis) => span(millis)
            .ok_or_else(|| format!("must be at most {MILLIS_MAX} milliseconds, a hundred years")),
    }
}

/// Shows a length as ISO 8601.
#[must_use]
pub fn to_iso(length: Span) -> String {
    let (seconds, millis) = (length.0 / 1000, length.0 % 1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::from("PT");
    let mut put = |part: String| text.push_str(&part);
    if hours > 0 {
        put(format!("{hours}H"));
    }
    if minutes > 0 {
        put(format!("{minutes}M"));
    }
    if millis > 0 {
        let fraction = format!("{millis:03}");
        put(format!("{seconds}.{}S", fraction.trim_end_matches('0')));
    } else if seconds > 0 || length.0 == 0 {
        put(format!("{seconds}S"));
    }
    text
}

/// Reads a duration as people write it, in settings, packs, requests and flags alike: seconds,
/// or a number with a unit; ISO 8601 too.
#[must_use]
pub fn plain(text: &str) -> Option<Span> {
    let text = text.trim();
    if text.starts_with('P') {
        return iso(text);
    }
    let (number, unit) = split(text);
    if unit == "ms" {
        return span(number.parse().ok()?);
    }
    span(millis(number, scale(unit)?)?)
}

fn split(text: &str) -> (&str, &str) {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    (number.trim(), unit)
}

/// Milliseconds of a unit.
fn scale(unit: &str) -> Option<u64> {
    match unit {
        "" | "s" | "sec" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    }
}

/// Says what is wrong with a value that [`value`] refuses: `expected`, or that it is too long.
#[must_use]
pub fn problem(refused: &Value, expected: &'static str) -> &'static str {
    const TOO_LONG: &str = "a duration of at most a hundred years";
    let text = match refused {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return expected,
    };
    let (number, unit) = split(&text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_form = digits(whole) && digits(fraction) && (unit != "ms" || number == whole);
    let is_known = unit == "ms" || scale(unit).is_some();
    if has_form && is_known && plain(&text).is_none() { TOO_LONG } else { expected }
}

/// Reads a JSON value as a duration: a number of seconds, or a text as [`plain`] reads it.
#[must_use]
pub fn value(value: &Value) -> Option<Span> {
    match value {
        Value::Number(number) => plain(&number.to_string()),
        Value::String(text) => plain(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
