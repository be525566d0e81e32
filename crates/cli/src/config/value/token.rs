//! Bearer tokens that a server knows.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

const EXPECTED: &str = "a list of {token or token_sha256, role, name}, where role is one of \
                        admin, operator, producer, worker, viewer";

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Everything.
    Admin,
    /// Everything about jobs, queues and workers.
    Operator,
    /// Enqueue, read and cancel.
    Producer,
    /// Take jobs and report on them.
    Worker,
    /// Read.
    Viewer,
}

/// The token itself, or its hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    /// In plain.
    Plain(String),
    /// SHA-256 as 64 hexadecimal digits.
    Sha256(String),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(hidden)"),
            Self::Sha256(_) => f.write_str("Sha256(hidden)"),
        }
    }
}

/// A token with its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// What the client sends, or its hash.
    pub(crate) secret: Secret,
    /// What it may do.
    pub(crate) role: Role,
    /// Who it was given to.
    pub(crate) name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    token: Option<String>,
    token_sha256: Option<String>,
    role: Role,
    #[serde(default)]
    name: String,
}

/// A YAML list; in the environment the same as YAML text.
pub(crate) fn tokens(value: &Value) -> Result<Vec<Token>, &'static str> {
    let items: Vec<Written> = match value {
        Value::Null => Vec::new(),
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) => serde_saphyr::from_str(text).map_err(|_yaml| EXPECTED)?,
        other => serde_json::from_value(other.clone()).map_err(|_json| EXPECTED)?,
    };
    items.into_iter().map(token).collect()
}

fn token(written: Written) -> Result<Token, &'static str> {
    let secret = match (written.token, written.token_sha256) {
        (Some(token), None) if token.len() >= 16 => Secret::Plain(token),
        (Some(_), None) => return Err("safe: a token has at least 16 characters"),
        (None, Some(hash)) if hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()) => {
            Secret::Sha256(hash.to_lowercase())
        }
        (None, Some(_)) => return Err("right: token_sha256 has 64 hexadecimal digits"),
        (None, None) | (Some(_), Some(_)) => return Err(EXPECTED),
    };
    Ok(Token { secret, role: written.role, name: written.name })
}
