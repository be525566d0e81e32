//! Whether interpreters are kept warm for an action, and what they have imported by then.

use std::time::Duration;

use serde_json::Value;
use serde_saphyr::Spanned;

use crate::duration;
use crate::error::PackError;
use crate::keys::{Known, WARM};
use crate::limits::PRELOAD_MAX;
use crate::yaml::{Document, line};

/// How interpreters are kept warm for an action.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmSpec {
    /// Modules that are imported before an attempt needs them, in this order.
    pub preload: Vec<String>,
    /// How long they stay without an attempt.
    pub idle: Duration,
}

/// Without `idle`.
const IDLE: Duration = Duration::from_secs(5 * 60);

/// What to write instead of something that is not understood.
const REMEDY: &str =
    "write `false`, or a mapping such as `{preload: [requests], idle: 5m}`";

/// Reads the key of an action or a pack; nothing if it says that interpreters are not kept warm.
pub(crate) fn read(
    document: &Document,
    given: &Spanned<Value>,
) -> Result<Option<WarmSpec>, PackError> {
    understand(&given.value)
        .map_err(|problem| document.fault(line(given), format!("warm: {problem}"), REMEDY))
}

fn understand(value: &Value) -> Result<Option<WarmSpec>, String> {
    let map = match value {
        Value::Bool(false) => return Ok(None),
        Value::Object(map) => map,
        _ => return Err("neither `false` nor a mapping".to_owned()),
    };
    let mut spec = WarmSpec { preload: Vec::new(), idle: IDLE };
    for (key, value) in map {
        match key.as_str() {
            "preload" => spec.preload = modules(value)?,
            "idle" => spec.idle = idle(value)?,
            _ if WARM.known(key) == Known::Here => {}
            _ => return Err(format!("key `{key}` is not known; {}", WARM.remedy(key))),
        }
    }
    Ok(Some(spec))
}

fn modules(value: &Value) -> Result<Vec<String>, String> {
    let problem = || format!("preload {value} is not a list of modules' names");
    let list = value.as_array().ok_or_else(problem)?;
    if list.len() > PRELOAD_MAX {
        return Err(format!("preload names more than {PRELOAD_MAX} modules"));
    }
    list.iter().map(|item| module(item.as_str().ok_or_else(problem)?)).collect()
}

fn module(name: &str) -> Result<String, String> {
    let is_identifier = |part: &str| {
        let begins = part.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
        begins && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if name.split('.').all(is_identifier) {
        Ok(name.to_owned())
    } else {
        Err(format!("`{name}` is not a module's name, such as `json` or `google.cloud`"))
    }
}

fn idle(value: &Value) -> Result<Duration, String> {
    let idle = duration::parse(value).map_err(|problem| format!("idle: {problem}"))?;
    if idle.is_zero() { Err("idle is 0".to_owned()) } else { Ok(idle) }
}
