//! Whether interpreters are kept warm for an action, and what they have imported by then.

use std::time::Duration;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::Runner;
use crate::duration;
use crate::error::PackError;
use crate::keys::{Known, WARM};
use crate::limits::PRELOAD_MAX;
use crate::yaml::{Document, line};

/// How interpreters are kept warm for an action. Those of Python are forked, and those of Node.js started
/// ahead.
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
const REMEDY: &str = "write `false`, or a mapping such as `{preload: [requests], idle: 5m}`";

/// Whether interpreters of such actions can be kept warm.
pub(crate) const fn suits(runner: Runner) -> bool {
    matches!(runner, Runner::Python | Runner::Node)
}

/// Reads the key of an action or a pack, which is for actions of these kinds; nothing if it says that
/// interpreters are not kept warm.
pub(crate) fn read(
    document: &Document,
    given: &Spanned<Value>,
    runners: &[Runner],
) -> Result<Option<WarmSpec>, PackError> {
    understand(&given.value, runners)
        .map_err(|problem| document.fault(line(given), format!("warm: {problem}"), REMEDY))
}

fn understand(value: &Value, runners: &[Runner]) -> Result<Option<WarmSpec>, String> {
    let map = match value {
        Value::Bool(false) => return Ok(None),
        Value::Object(map) => map,
        _ => return Err("neither `false` nor a mapping".to_owned()),
    };
    let mut spec = WarmSpec { preload: Vec::new(), idle: IDLE };
    for (key, value) in map {
        match key.as_str() {
            "preload" => spec.preload = modules(value, runners)?,
            "idle" => spec.idle = idle(value)?,
            _ if WARM.known(key) == Known::Here => {}
            _ => return Err(format!("key `{key}` is not known; {}", WARM.remedy(key))),
        }
    }
    Ok(Some(spec))
}

fn modules(value: &Value, runners: &[Runner]) -> Result<Vec<String>, String> {
    let problem = || format!("preload {value} is not a list of modules' names");
    let list = value.as_array().ok_or_else(problem)?;
    if list.len() > PRELOAD_MAX {
        return Err(format!("preload names more than {PRELOAD_MAX} modules"));
    }
    list.iter().map(|item| module(item.as_str().ok_or_else(problem)?, runners)).collect()
}

fn module(name: &str, runners: &[Runner]) -> Result<String, String> {
    let is_name = |runner: &Runner| match runner {
        Runner::Node => is_module_of_node(name),
        _ => is_module_of_python(name),
    };
    if runners.iter().any(is_name) {
        return Ok(name.to_owned());
    }
    let such_as = match runners {
        [Runner::Node] => "`lodash/fp` or `./prices.js`",
        _ => "`json` or `google.cloud`",
    };
    Err(format!("`{name}` is not a module's name, such as {such_as}"))
}

fn is_module_of_python(name: &str) -> bool {
    let is_identifier = |part: &str| {
        let begins = part.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
        begins && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    name.split('.').all(is_identifier)
}

/// A package, a file of one, a part of Node.js, or a file that is found from the script's folder.
fn is_module_of_node(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-._~@".contains(c))
    };
    name.strip_prefix("node:").unwrap_or(name).split('/').all(is_part)
}

fn idle(value: &Value) -> Result<Duration, String> {
    let idle = duration::parse(value).map_err(|problem| format!("idle: {problem}"))?;
    if idle.is_zero() { Err("idle is 0".to_owned()) } else { Ok(idle) }
}
