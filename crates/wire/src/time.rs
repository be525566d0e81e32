//! Instants as RFC 3339 text, and the standard's relative form (`+PT2S`).

pub(crate) mod text;
pub(crate) mod text_if;

use std::fmt;

use outlast_core::time::{Span, Timestamp};

use serde_json::Value;

use crate::duration;
use crate::fault::Fault;

/// Shows an instant as RFC 3339 in UTC, with milliseconds only where there are some.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Instants beyond the calendar's end (year 9999) are shown as its end.
        let at =
            jiff::Timestamp::from_millisecond(self.0.as_millis()).unwrap_or(jiff::Timestamp::MAX);
        at.fmt(f)
    }
}

/// The latest instant that can be given: at every offset it is still in the calendar's last year.
pub const LATEST: &str = "9999-12-30T22:00:00Z";

/// An instant as a producer gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// On the calendar.
    At(Timestamp),
    /// So long from the moment the server judges it.
    In(Span),
}

impl When {
    /// Reads RFC 3339 text with an offset, or `+` and an ISO 8601 duration.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(relative) = text.strip_prefix('+') {
            return duration::iso(relative).map(Self::In);
        }
        let at: jiff::Timestamp = text.parse().ok()?;
        Some(Self::At(Timestamp(at.as_millisecond())))
    }

    /// Returns the instant it means if the time is `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(span) => now.after(span),
        }
    }
}

/// Reads the time in the field or parameter `name`, which may also be how long before `now` it was.
///
/// # Errors
/// Returns what would be right.
pub fn past(name: &str, text: &str, now: Timestamp) -> Result<Timestamp, Fault> {
    if let Some(When::At(at)) = When::parse(text) {
        return Ok(at);
    }
    let ago = duration::value(&Value::String(text.to_owned()));
    let before = |ago: Span| now.0.saturating_sub(i64::try_from(ago.0).unwrap_or(i64::MAX));
    ago.map(|ago| Timestamp(before(ago))).ok_or_else(|| {
        Fault::field(name, "must be a time such as 2026-11-21T12:00:00Z, or how long ago: 2h")
    })
}

#[cfg(test)]
mod tests {
    use super::{LATEST, Rfc3339, When};

    #[test]
    fn the_latest_time_is_read_and_none_after_it() {
        let Some(When::At(latest)) = When::parse(LATEST) else { panic!("{LATEST}") };
        assert_eq!(Rfc3339(latest).to_string(), LATEST);
        assert_eq!(When::parse("9999-12-30T22:00:01Z"), None);
        assert_eq!(When::parse("9999-12-31T23:59:59Z"), None);
    }
}
