//! How the program ends: exit codes, and the message that goes with a bad one.
//!
//! Nothing outside this file decides a number. A failure carries one sentence about what went
//! wrong and, where there is one, a hint at what would help; both go to stderr, never to stdout.

use std::fmt;
use std::process::ExitCode;

use serde_json::Value;

/// Exit codes of every command; of several the highest is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// The operation or the job succeeded.
    Ok = 0,
    /// The operation or the job failed.
    Failed = 1,
    /// Wrong flag, setting, parameter or request.
    Usage = 2,
    /// The thing named does not exist.
    NotFound = 3,
    /// The thing named is in a state that does not allow it.
    Conflict = 4,
    /// The token is missing, unknown or its role too small.
    NotAllowed = 5,
    /// No server answers, or it cannot do this at the moment; the same may succeed later.
    Unreachable = 6,
    /// The wait was over before the job was.
    WaitTimedOut = 124,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        let number: u8 = match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Conflict => 4,
            Exit::NotAllowed => 5,
            Exit::Unreachable => 6,
            Exit::WaitTimedOut => 124,
        };
        Self::from(number)
    }
}

/// Why a command ends with a code other than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What went wrong, naming the thing. Several lines are indented below the first.
    pub message: String,
    /// What would help.
    pub hint: Option<String>,
    /// What the server said for programs, if it refused.
    pub refusal: Option<Box<Refusal>>,
}

/// What a server says for programs when it refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Its code, if it gave one: a proxy gives none.
    pub code: Option<String>,
    /// More about it; null if there is nothing.
    pub details: Value,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, refusal: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Names flags in place of the fields of a request that they set.
    #[must_use]
    pub fn in_flags(mut self, flags: &[(&str, &str)]) -> Self {
        for (field, flag) in flags {
            if let Some(rest) = self.message.strip_prefix(&format!("field `{field}` ")) {
                self.message = format!("{flag} {rest}");
            } else if let Some(rest) = self.message.strip_prefix(&format!("field `{field}.")) {
                self.message = format!("{flag}: `{rest}");
            }
        }
        self
    }

    /// Whether the parameters of an action were refused.
    #[must_use]
    pub fn is_of_parameters(&self) -> bool {
        let Some(refusal) = &self.refusal else { return false };
        let is_of_rules = refusal.code.as_deref() == Some("validation_error");
        is_of_rules && refusal.details.get("violations").is_some()
    }

    /// Whether an action was asked for that is not there.
    #[must_use]
    pub fn is_of_unknown_action(&self) -> bool {
        let Some(refusal) = &self.refusal else { return false };
        refusal.details.get("resource").and_then(Value::as_str) == Some("action")
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message.replace('\n', "\n  "))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", hint.replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::{Exit, Failure};

    #[test]
    fn a_flag_is_named_in_place_of_its_field() {
        let flags = [("delay", "--at"), ("retry", "--retry")];
        for (given, named) in [
            ("field `delay` must be a time", "--at must be a time"),
            ("field `retry.jitter` must be true", "--retry: `jitter` must be true"),
            ("field `queue` is missing", "field `queue` is missing"),
        ] {
            assert_eq!(Failure::usage(given).in_flags(&flags).message, named);
        }
    }

    #[test]
    fn failure_shows_message_and_hint_on_lines_of_their_own() {
        let failure = Failure::new(Exit::NotFound, "no job x\nsecond line").with_hint("look again");
        assert_eq!(failure.to_string(), "error: no job x\n  second line\nhint: look again");
    }
}
