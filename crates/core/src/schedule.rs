//! Names of schedules, and what happens when a schedule fires while an earlier job of it is open.
//!
//! When a schedule fires is determined by the crate `outlast-schedule`.

use std::fmt;

/// Most schedules at a time.
pub const SCHEDULES_MAX: usize = 100_000;

/// Longest name of a schedule, in bytes.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 128;

/// The name of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleName(String);

/// A text is no name of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a schedule: it has 1 to {SCHEDULE_NAME_BYTES_MAX} characters out of a-z, \
     A-Z, 0-9, _ . : -, and is neither . nor .."
)]
pub struct ScheduleNameError(String);

impl ScheduleName {
    /// Checks a name. It is part of a URL, from which clients take `.` and `..` away.
    ///
    /// # Errors
    /// Returns what a name may consist of.
    pub fn new(name: &str) -> Result<Self, ScheduleNameError> {
        let fits = (1..=SCHEDULE_NAME_BYTES_MAX).contains(&name.len());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        if fits && name.bytes().all(allowed) && !matches!(name, "." | "..") {
            Ok(Self(name.to_owned()))
        } else {
            Err(ScheduleNameError(name.chars().take(SCHEDULE_NAME_BYTES_MAX).collect()))
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
