//! What can be wrong with the configuration, in words that name key, value and origin.

use std::borrow::Cow;
use std::path::PathBuf;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::escape_lines;

use super::{Origin, keys};

/// Why the configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// No such key.
    #[error("unknown setting `{name}` ({origin}){excerpt}")]
    Unknown {
        /// The key as it was written.
        name: String,
        /// Where.
        origin: Origin,
        /// The line of the file, if it was one.
        excerpt: String,
    },
    /// The variable would set a key if its underscores were right.
    #[error("{variable} in the environment has no effect")]
    Underscores {
        /// The variable.
        variable: String,
        /// The key that was meant.
        key: &'static str,
    },
    /// The key exists, its value makes no sense.
    #[error("`{key}` is `{value}` ({origin}), which is not {expected}{excerpt}")]
    Wrong {
        /// The key.
        key: &'static str,
        /// What was written.
        value: String,
        /// Where.
        origin: Origin,
        /// What would be right.
        expected: Cow<'static, str>,
        /// The line of the file, if it was one.
        excerpt: String,
    },
    /// Each value is fine, together they are not.
    #[error("{message}")]
    Together {
        /// What does not fit.
        message: String,
        /// What would.
        hint: String,
    },
    /// A file that a setting names is not there, or holds nothing yet.
    #[error("{message}")]
    NotYet {
        /// Which file, and why it cannot be used.
        message: String,
        /// Its right content.
        hint: String,
    },
    /// The file cannot be read.
    #[error("configuration file {} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is no YAML of the shape that is wanted.
    #[error("configuration file {} is malformed\n{detail}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reader's message with line and snippet.
        detail: String,
    },
}

impl ConfigError {
    pub(crate) fn unknown(name: &str, origin: Origin) -> Self {
        Self::Unknown { name: name.to_owned(), origin, excerpt: String::new() }
    }

    pub(super) fn underscores(variable: &str, key: &'static str) -> Self {
        Self::Underscores { variable: variable.to_owned(), key }
    }

    /// Shows the line of the file below what is wrong with it.
    pub(super) fn with_excerpt(mut self, marked: &str) -> Self {
        match &mut self {
            Self::Unknown { excerpt: shown, .. } | Self::Wrong { excerpt: shown, .. } => {
                *shown = excerpt(marked);
            }
            Self::Underscores { .. }
            | Self::Together { .. }
            | Self::NotYet { .. }
            | Self::Unreadable { .. }
            | Self::Malformed { .. } => {}
        }
        self
    }

    pub(crate) fn together(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Together { message: message.into(), hint: hint.into() }
    }

    /// The same for a command that ends now: nothing tries again, so what may pass is wrong use
    /// as well. Its exit code would say that a job has failed.
    pub(super) fn for_command(self) -> Self {
        match self {
            Self::NotYet { message, hint } => Self::Together { message, hint },
            other => other,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Unknown { name, origin: Origin::Environment(_), .. } => {
                let nearest = keys::nearest(name);
                format!("did you mean {} (`{nearest}`)?", keys::variable(nearest))
            }
            Self::Unknown { name, .. } => match keys::nearest_section(name) {
                Some(section) if !name.contains('.') => {
                    format!("did you mean the section `{section}`?")
                }
                _ => format!("did you mean `{}`?", keys::nearest(name)),
            },
            Self::Underscores { key, .. } => format!(
                "did you mean {} (`{key}`)? Two underscores stand between section and key",
                keys::variable(key)
            ),
            Self::Wrong { key, .. } => match keys::find(key) {
                Some(key) => {
                    format!("{}: {}; default {}", key.name, key.about, key.default_shown())
                }
                None => "see `outlast config show`".to_owned(),
            },
            Self::Together { hint, .. } | Self::NotYet { hint, .. } => hint.clone(),
            Self::Unreadable { .. } => "name a readable YAML file with --config".to_owned(),
            Self::Malformed { .. } => {
                "the file holds sections (server, worker, …) with `key: value` lines; \
                 `outlast config show` lists every key"
                    .to_owned()
            }
        }
    }
}

/// Lines to put below a message; nothing when there are none.
pub(super) fn excerpt(marked: &str) -> String {
    if marked.is_empty() { String::new() } else { format!("\n{}", escape_lines(marked)) }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        // A service manager tries again what may pass, and leaves what needs an edit.
        let exit = match &error {
            ConfigError::NotYet { .. } => Exit::Failed,
            _ => Exit::Usage,
        };
        Self::new(exit, error.to_string()).with_hint(error.hint())
    }
}
