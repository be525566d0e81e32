//! What a fire does while the job of the last fire is not yet at its end.

#[cfg(test)]
mod tests;

use std::fmt;

/// What a fire does while an earlier fire's job waits or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It makes no job.
    #[default]
    Skip,
    /// Its job waits until the earlier one has ended.
    Queue,
    /// It cancels the earlier job, and its own job takes the place.
    Replace,
    /// Both run.
    Allow,
}

impl Overlap {
    /// Every choice, the default one first.
    pub const ALL: [Self; 4] = [Self::Skip, Self::Queue, Self::Replace, Self::Allow];

    /// Returns the choice with this name.
    ///
    /// # Errors
    ///
    /// Refuses every other word; names are in lower case.
    pub fn parse(name: &str) -> Result<Self, OverlapError> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == name);
        known.ok_or_else(|| OverlapError { given: name.chars().take(40).collect() })
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue => "queue",
            Self::Replace => "replace",
            Self::Allow => "allow",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no choice for overlaps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("overlap is skip, queue, replace or allow, not `{}`", .given.escape_debug())]
pub struct OverlapError {
    /// The beginning of the word.
    pub given: String,
}
