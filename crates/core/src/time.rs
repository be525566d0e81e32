//! Instants and spans. Two clocks exist and their types do not mix.
//!
//! [`Timestamp`] is the store's clock, the only judge of leases. [`BootTime`] is one
//! machine's CLOCK_BOOTTIME, for watching and for deadlines on that machine. A span may
//! be added to either, and nothing turns one into the other.

use std::fmt;

/// A length of time in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Span(pub u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Returns a span of `ms` milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns a span of `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Returns the span in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the span in whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0.saturating_div(1000)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// An instant on the store's clock: milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the instant `span` later.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }

    /// Returns how long after `earlier` this instant is; zero if it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the instant in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// An instant on this machine's CLOCK_BOOTTIME, which runs on through suspend and never
/// jumps. Meaningless on another machine or after a reboot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Returns the instant `span` later.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns how long after `earlier` this instant is; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}
