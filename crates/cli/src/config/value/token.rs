//! Bearer tokens that a server knows: hashed here, and never kept in plain.

use outlast_server::access::{KnownToken, Role, TokenHash};
use serde::Deserialize;
use serde_json::Value;

const EXPECTED: &str = "a list of {name, role, token or sha256}, where role is one of \
                        admin, operator, producer, worker, viewer";
/// Shorter ones can be guessed.
pub(crate) const TOKEN_LENGTH_MIN: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    token: Option<String>,
    #[serde(alias = "token_sha256")]
    sha256: Option<String>,
    role: String,
    #[serde(default)]
    name: String,
}

/// A YAML list; in the environment the same as YAML text.
pub(crate) fn tokens(value: &Value) -> Result<Vec<KnownToken>, &'static str> {
    let items: Vec<Written> = match value {
        Value::Null => Vec::new(),
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) => serde_saphyr::from_str(text).map_err(|_yaml| EXPECTED)?,
        other => serde_json::from_value(other.clone()).map_err(|_json| EXPECTED)?,
    };
    let tokens = items.into_iter().map(token).collect::<Result<Vec<_>, _>>()?;
    let twice = |(place, token): (usize, &KnownToken)| {
        tokens.iter().take(place).any(|other| other.hash == token.hash)
    };
    if tokens.iter().enumerate().any(twice) {
        return Err("right: the same token is listed twice");
    }
    Ok(tokens)
}

/// A token to be shown; blanks around it are not part of it.
pub(crate) fn shown(value: &Value) -> Result<Option<String>, &'static str> {
    let text = super::text(value)?;
    let token = text.trim();
    if !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err("a token: printable ASCII without blanks");
    }
    Ok((!token.is_empty()).then(|| token.to_owned()))
}

/// A role by its name.
pub(crate) fn role(name: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role.as_str() == name)
}

/// A YAML mapping of names in certificates to roles, or `name=role` with commas.
pub(crate) fn roles(value: &Value) -> Result<Vec<(String, Role)>, &'static str> {
    const EXPECTED: &str = "a mapping of names in certificates to roles, such as \
                            {ci.example: producer}";
    let named = super::labels(value).map_err(|_labels| EXPECTED)?;
    let role = |(name, word): (String, String)| Some((name, role(&word)?));
    named.into_iter().map(role).collect::<Option<_>>().ok_or(EXPECTED)
}

fn token(written: Written) -> Result<KnownToken, &'static str> {
    let role = role(&written.role).ok_or(EXPECTED)?;
    let hash = match (written.token, written.sha256) {
        // Blanks around it, such as the end of a secret's file, are not part of it: what is
        // shown to a server is read the same way.
        (Some(token), None) if token.trim().len() >= TOKEN_LENGTH_MIN => {
            TokenHash::of(token.trim())
        }
        (Some(_), None) => return Err("safe: a token has at least 16 characters"),
        (None, Some(hash)) => {
            hash.parse().map_err(|_no_hash| "right: sha256 has 64 hexadecimal digits")?
        }
        (None, None) | (Some(_), Some(_)) => return Err(EXPECTED),
    };
    let name = if written.name.is_empty() { role.to_string() } else { written.name };
    Ok(KnownToken { name, role, hash })
}
