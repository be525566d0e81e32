//! Why packs could not be read.

use std::fmt;
use std::io;

/// Why a pack could not be read: where, what is wrong, and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{position}: {problem}; {remedy}")]
pub struct PackError {
    position: FilePosition,
    problem: String,
    remedy: String,
    #[source]
    source: Option<io::Error>,
}

/// A file, and the line in it where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FilePosition {
    file: String,
    line: Option<u64>,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}", self.file),
            None => formatter.write_str(&self.file),
        }
    }
}

impl PackError {
    /// The file or folder at fault.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.position.file
    }

    /// The line at fault, counted from 1, where it is known.
    #[must_use]
    pub const fn line(&self) -> Option<u64> {
        self.position.line
    }

    /// Whether it may be right later without an edit: a folder of another host that is not mounted
    /// yet, for example. What this user must not read is not.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.source.as_ref().is_none_or(|error| error.kind() != io::ErrorKind::PermissionDenied)
    }

    /// What is wrong, without the place.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    pub(crate) fn new(
        file: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let position = FilePosition { file: file.into(), line: None };
        Self { position, problem: problem.into(), remedy: remedy.into(), source: None }
    }

    pub(crate) fn io(file: impl Into<String>, act: &str, source: io::Error) -> Self {
        let mut error = Self::new(
            file,
            format!("cannot {act}: {source}"),
            "check that the path is right and accessible to this user",
        );
        error.source = Some(source);
        error
    }

    pub(crate) fn at(mut self, line: Option<u64>) -> Self {
        self.position.line = line.filter(|line| *line > 0);
        self
    }
}
