//! Instants as RFC 3339 text, and the standard's relative form (`+PT2S`).

use std::fmt;

use outlast_core::time::{Span, Timestamp};

use crate::duration;

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
