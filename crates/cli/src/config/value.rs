//! Reading single values, as YAML or as text: durations, sizes, lists, addresses.
//!
//! Every function answers a refusal with what would be right, to be put after "which is not".

mod address;
mod amount;
mod handler;
mod limit;
mod schedule;
mod token;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use outlast_core::labels::{self, LabelError};
use outlast_server::UiMode;
use outlast_server::base_path::BasePath;
use serde_json::Value;

use crate::log::LogFormat;

pub(crate) use address::{Database, database, listen, servers};
pub(crate) use amount::{
    concurrency, count, duration, heartbeat, multiplier, percent, probe_duration, size,
    size_or_none, times,
};
pub(crate) use handler::{
    EXPECTED as DEAD_LETTERS_EXPECTED, dead_letters, networks, webhook_secret, webhook_timeout,
};
pub(crate) use limit::{EXPECTED as LIMITS_EXPECTED, limits};
pub(crate) use schedule::{EXPECTED as SCHEDULES_EXPECTED, schedules};
pub(crate) use token::{TOKEN_LENGTH_MIN, role, roles, shown as shown_token, tokens};

/// A YAML list; in the environment the same as YAML text. `None` if nothing is given.
fn items(value: &Value, expected: &'static str) -> Result<Option<Vec<Value>>, Cow<'static, str>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => match serde_saphyr::from_str(text) {
            Ok(Value::Array(items)) => Ok(Some(items)),
            Ok(_) | Err(_) => Err(expected.into()),
        },
        Value::Array(items) => Ok(Some(items.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(expected.into()),
    }
}

/// Whether a shutdown spends one of a job's retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruptions {
    /// It does not.
    Free,
    /// It does.
    Charge,
}

/// How a worker holds the process trees of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Containment {
    /// The best that works.
    Auto,
    /// A PID namespace.
    PidNamespace,
    /// A control group, version 2.
    Cgroup,
    /// A process group and a child subreaper.
    Subreaper,
}

impl Containment {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::PidNamespace => "pidns",
            Self::Cgroup => "cgroup",
            Self::Subreaper => "subreaper",
        }
    }
}

pub(crate) fn text(value: &Value) -> Result<String, &'static str> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Ok(String::new()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err("text"),
    }
}

pub(crate) fn flag(value: &Value) -> Result<bool, &'static str> {
    let text = match value {
        Value::Bool(given) => return Ok(*given),
        other => text(other).unwrap_or_default(),
    };
    match text.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("true or false"),
    }
}

pub(crate) fn interruptions(value: &Value) -> Result<Interruptions, &'static str> {
    match text(value).unwrap_or_default().as_str() {
        "free" => Ok(Interruptions::Free),
        "charge" => Ok(Interruptions::Charge),
        _ => Err("free or charge"),
    }
}

pub(crate) fn ui(value: &Value) -> Result<UiMode, &'static str> {
    // YAML 1.1 reads `on` and `off` as flags.
    match (value.as_bool(), text(value).unwrap_or_default().as_str()) {
        (Some(true), _) | (None, "on") => Ok(UiMode::On),
        (Some(false), _) | (None, "off") => Ok(UiMode::Off),
        (None, "read_only") => Ok(UiMode::ReadOnly),
        (None, _) => Err("on, read_only or off"),
    }
}

/// A path, or nothing.
pub(crate) fn base_path(value: &Value) -> Result<BasePath, &'static str> {
    let text =
        if value.is_null() { String::new() } else { text(value).unwrap_or_else(|_not| "?".into()) };
    text.parse().map_err(|_not| "a path such as /outlast")
}

pub(crate) fn log_format(value: &Value) -> Result<LogFormat, &'static str> {
    match text(value).unwrap_or_default().as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("text or json"),
    }
}

pub(crate) fn containment(value: &Value) -> Result<Containment, &'static str> {
    match text(value).unwrap_or_default().as_str() {
        "auto" => Ok(Containment::Auto),
        "pidns" => Ok(Containment::PidNamespace),
        "cgroup" => Ok(Containment::Cgroup),
        "subreaper" => Ok(Containment::Subreaper),
        _ => Err("one of auto, pidns, cgroup, subreaper"),
    }
}

/// A YAML list, or text with commas; empty text is an empty list.
pub(crate) fn list(value: &Value) -> Result<Vec<String>, &'static str> {
    const EXPECTED: &str = "a list such as [a, b] or a,b";
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => {
            items.iter().map(|item| text(item).map_err(|_text| EXPECTED)).collect()
        }
        Value::String(text) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(items.map(ToOwned::to_owned).collect())
        }
        Value::Number(number) => Ok(vec![number.to_string()]),
        Value::Bool(_) | Value::Object(_) => Err(EXPECTED),
    }
}

/// A program with its arguments, or a line for the shell; none if it is empty.
pub(crate) fn command(value: &Value) -> Result<Vec<String>, &'static str> {
    const EXPECTED: &str = "a list such as [/usr/bin/check, --quick], or a line for the shell";
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(line) if line.trim().is_empty() => Ok(Vec::new()),
        Value::String(line) => Ok(["/bin/sh", "-c", line].map(ToOwned::to_owned).to_vec()),
        Value::Array(words) => {
            let words: Result<Vec<String>, _> = words.iter().map(text).collect();
            let is_usable = |words: &Vec<String>| words.first().is_none_or(|it| !it.is_empty());
            words.ok().filter(is_usable).ok_or(EXPECTED)
        }
        Value::Number(_) | Value::Bool(_) | Value::Object(_) => Err(EXPECTED),
    }
}

/// A list of at least one queue.
pub(crate) fn queues(value: &Value) -> Result<Vec<String>, &'static str> {
    let queues = list(value)?;
    if queues.is_empty() {
        return Err("a list of at least one queue, such as default,mail");
    }
    if queues.iter().any(|queue| outlast_wire::ojs::names::queue(queue).is_err()) {
        return Err("a list of queues such as default,mail, with names of lower-case letters, \
                    digits, `-`, `_` and `.`");
    }
    Ok(queues)
}

pub(crate) fn paths(value: &Value) -> Result<Vec<PathBuf>, &'static str> {
    Ok(list(value)?.into_iter().map(PathBuf::from).collect())
}

/// One path; nothing if the text is empty.
pub(crate) fn path(value: &Value) -> Result<Option<PathBuf>, &'static str> {
    let text = text(value).map_err(|_text| "a path")?;
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// Names of environment variables, a `*` at the end standing for any rest.
pub(crate) fn variables(value: &Value) -> Result<Vec<String>, &'static str> {
    const EXPECTED: &str = "a list of variables such as HTTP_PROXY,AWS_*";
    const OURS: &str = "for jobs to see: OUTLAST_* and OJS_* are the worker's own";
    let names = list(value).map_err(|_list| EXPECTED)?;
    for name in &names {
        let plain = name.strip_suffix('*').unwrap_or(name);
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if plain.is_empty() || !plain.chars().all(fits) {
            return Err(EXPECTED);
        }
        if plain.starts_with("OUTLAST_") || plain.starts_with("OJS_") {
            return Err(OURS);
        }
    }
    Ok(names)
}

/// A file's name, if one is given.
pub(crate) fn file(value: &Value) -> Result<Option<PathBuf>, &'static str> {
    let name = text(value).map_err(|_text| "the name of a file")?;
    Ok((!name.is_empty()).then(|| PathBuf::from(name)))
}

pub(crate) fn runtimes(value: &Value) -> Result<Vec<String>, &'static str> {
    let mut names = Vec::new();
    for name in list(value)? {
        let known = match name.as_str() {
            "shell" => "shell",
            "python" => "python",
            "node" | "nodejs" => "node",
            _ => return Err("a list of shell, python and node"),
        };
        if !names.iter().any(|seen| seen == known) {
            names.push(known.to_owned());
        }
    }
    Ok(names)
}

/// A YAML mapping, or `name=value` with commas.
pub(crate) fn labels(value: &Value) -> Result<BTreeMap<String, String>, &'static str> {
    const EXPECTED: &str = "a mapping of labels such as zone=a,disk=ssd";
    if let Value::Object(map) = value {
        let pair = |(name, value): (&String, &Value)| {
            text(value).map(|value| (name.clone(), value)).map_err(|_text| EXPECTED)
        };
        return map.iter().map(pair).collect();
    }
    let pairs = list(value).map_err(|_list| EXPECTED)?;
    let pair = |pair: &String| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    pairs.iter().map(|text| pair(text).ok_or(EXPECTED)).collect()
}

/// Labels that a worker may carry.
pub(crate) fn worker_labels(value: &Value) -> Result<BTreeMap<String, String>, &'static str> {
    let given = labels(value)?;
    match labels::check(&given) {
        Ok(()) => Ok(given),
        Err(LabelError::Reserved(name)) if name == labels::POOL => {
            Err("allowed: label `pool` is reserved; name the pool with --pool or `worker.pool`")
        }
        Err(LabelError::Reserved(_)) => {
            Err("allowed: `containment`, `outlast_version`, `runtime/…` and `pack/…` are reserved \
                 labels, which the worker sets itself")
        }
        Err(_unusable) => Err(UNUSABLE),
    }
}

/// Names and values are those of Kubernetes.
const UNUSABLE: &str = "right: selectors ask for names and values of at most 63 letters, digits, \
                        `-`, `_` and `.`, a letter or digit first and last";

/// The name of a pool; none if it is empty.
pub(crate) fn pool(value: &Value) -> Result<Option<String>, &'static str> {
    let name = text(value)?;
    if name.is_empty() {
        return Ok(None);
    }
    labels::check_pool(&name).map_err(|_unusable| {
        "the name of a pool: at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first \
         and last"
    })?;
    Ok(Some(name))
}
