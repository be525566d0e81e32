//! Something in a pack that has no effect here, though nothing is wrong with it.

use std::fmt;

/// What an operator should know about a file of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The file it is about.
    pub file: String,
    /// What has no effect, and why.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.file, self.message)
    }
}

impl Note {
    pub(crate) fn new(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), message: message.into() }
    }

    pub(crate) fn key(file: &str, key: &str) -> Self {
        Self::new(file, format!("key `{key}` has no effect"))
    }
}
