//! Human-readable times and durations, relative and absolute.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{at, text_at};
use crate::clock;

/// The time at `path` as `2026-01-31 12:00:00Z (5s ago)`; what is no time is shown as it is.
pub fn when(item: &Value, path: &str) -> String {
    match moment(item, path) {
        Some(time) => when_seen(time, clock::now()),
        None => text_at(item, path),
    }
}

/// The time at `path` as `5s ago` or `in 5s`: for tables.
pub fn ago(item: &Value, path: &str) -> String {
    match moment(item, path) {
        Some(time) => relative(time, clock::now()),
        None => text_at(item, path),
    }
}

fn moment(item: &Value, path: &str) -> Option<Timestamp> {
    at(item, path)?.as_str()?.parse().ok()
}

fn when_seen(time: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", time.strftime("%Y-%m-%d %H:%M:%SZ"), relative(time, now))
}

fn relative(time: Timestamp, now: Timestamp) -> String {
    let distance = now.duration_since(time).unsigned_abs();
    let text = span(distance);
    if time > now { format!("in {text}") } else { format!("{text} ago") }
}

/// A length of time in its two largest units at most.
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0 => format!("{}ms", length.as_millis()),
        1..10 => format!("{:.1}s", length.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::{relative, span, when_seen};
    use jiff::Timestamp;
    use std::time::Duration;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn times_are_shown_absolute_and_relative() {
        assert_eq!(when_seen(at(0), at(90)), "1970-01-01 00:00:00Z (1m30s ago)");
        assert_eq!(relative(at(20), at(0)), "in 20s");
    }

    #[test]
    fn lengths_use_two_units_at_most() {
        let cases = [(0, "0ms"), (5, "5.0s"), (59, "59s"), (3_700, "1h01m"), (90_000, "1d01h")];
        for (seconds, shown) in cases {
            assert_eq!(span(Duration::from_secs(seconds)), shown);
        }
    }
}
