//! Environment variables and secrets that an action asks for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::keys::{Known, SECRET};
use crate::yaml::scalar;

/// A secret that an action asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretSpec {
    /// How it reaches the script.
    pub way: SecretAs,
    /// The worker's name for it: a file in `worker.secrets`.
    pub from: String,
}

/// How a secret reaches a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretAs {
    /// In a variable of its name.
    Env,
    /// In a private file, whose path is in a variable of its name with `_FILE` behind it.
    File,
}

pub(super) fn environment(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Value::Object(map) = value else { return Err("not a mapping".to_owned()) };
    let one = |(name, value): (&String, &Value)| {
        check_variable(name)?;
        let text = scalar(value).ok_or_else(|| format!("`{name}` is neither text nor number"))?;
        if text.contains('\0') {
            return Err(format!("`{name}` holds a zero character"));
        }
        Ok((name.clone(), text))
    };
    map.iter().map(one).collect()
}

pub(super) fn secrets(value: &Value) -> Result<BTreeMap<String, SecretSpec>, String> {
    let Value::Object(map) = value else { return Err("not a mapping".to_owned()) };
    map.iter().map(|(name, spec)| Ok((name.clone(), secret(name, spec)?))).collect()
}

fn secret(name: &str, spec: &Value) -> Result<SecretSpec, String> {
    check_variable(name)?;
    let mut read = SecretSpec { way: SecretAs::Env, from: name.to_owned() };
    let map = match spec {
        Value::Null => return Ok(read),
        Value::Object(map) => map,
        _ => return Err(format!("`{name}` is not a mapping")),
    };
    for (key, value) in map {
        match (key.as_str(), value.as_str()) {
            ("as", Some("env")) => read.way = SecretAs::Env,
            ("as", Some("file")) => read.way = SecretAs::File,
            ("as", _) => return Err(format!("`{name}`: as {value} is not one of env, file")),
            ("from", Some(from)) if is_file_name(from) => read.from = from.to_owned(),
            ("from", _) => return Err(format!("`{name}`: from {value} is not a file's name")),
            _ if SECRET.known(key) == Known::Here => {}
            _ => return Err(format!("`{name}`: key `{key}` is not known; {}", SECRET.remedy(key))),
        }
    }
    Ok(read)
}

/// Whether a name stays inside the folder of secrets; Kubernetes keeps its own beginning with
/// two dots there.
fn is_file_name(name: &str) -> bool {
    let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with("..") && name != "." && name.chars().all(fit)
}

fn check_variable(name: &str) -> Result<(), String> {
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !begins || !characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`{name}` is not a variable's name (letters, digits, underscores)"));
    }
    let ours = ["OUTLAST_", "ATTUNE_"].iter().any(|prefix| name.starts_with(prefix));
    if ours { Err(format!("`{name}` is reserved")) } else { Ok(()) }
}
