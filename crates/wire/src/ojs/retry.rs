//! Retry policies on the wire. Every fault is one of a rule (422) and names its field.

use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::time::Span;
use serde_json::{Map, Value};

use crate::duration;
use crate::fault::Fault;
use crate::json::fields::given;

/// Most attempts a policy may ask for.
const ATTEMPTS_MAX: u64 = 10_000;
/// Largest coefficient.
const COEFFICIENT_MAX: f64 = 1000.0;
/// Most error types in one policy.
const ERRORS_MAX: usize = 100;
/// What a policy may hold, beside the `_ms` forms of its intervals.
const KNOWN: &[&str] = &[
    "max_attempts",
    "initial_interval",
    "initial_interval_ms",
    "backoff_coefficient",
    "max_interval",
    "max_interval_ms",
    "backoff_strategy",
    "backoff_type",
    "jitter",
    "non_retryable_errors",
    "on_exhaustion",
];

/// What a policy may leave to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The standard's extensions: kept by the sender, without effect here.
    Ignored,
    /// Slips: refused by name.
    Refused,
}

/// Reads a policy: what it does not say is `default`'s.
///
/// # Errors
/// Returns the first field that is wrong.
pub fn policy(value: &Value, default: RetryPolicy, unknown: Unknown) -> Result<RetryPolicy, Fault> {
    let Value::Object(fields) = value else {
        return Err(Fault::rule("retry", "must be an object"));
    };
    if unknown == Unknown::Refused
        && let Some(name) = fields.keys().find(|name| !KNOWN.contains(&name.as_str()))
    {
        let problem = format!("is not known; known fields are {}", KNOWN.join(", "));
        return Err(Fault::field(&format!("retry.{name}"), problem));
    }
    let mut policy = default;
    if let Some(attempts) = given(fields, "max_attempts") {
        policy.max_attempts = max_attempts(attempts)?;
    }
    if let Some(wait) = interval(fields, "initial_interval")? {
        policy.initial_interval = wait;
    }
    if let Some(wait) = interval(fields, "max_interval")? {
        policy.max_interval = wait;
    }
    if let Some(value) = given(fields, "backoff_coefficient") {
        policy.coefficient_millis = coefficient(value)?;
    }
    for name in ["backoff_strategy", "backoff_type"] {
        if let Some(value) = given(fields, name) {
            policy.backoff = strategy(name, value)?;
        }
    }
    if let Some(value) = given(fields, "jitter") {
        policy.jitter =
            value.as_bool().ok_or_else(|| Fault::rule("retry.jitter", "must be true or false"))?;
    }
    if let Some(value) = given(fields, "non_retryable_errors") {
        policy.non_retryable = error_types(value)?;
    }
    if let Some(value) = given(fields, "on_exhaustion") {
        policy.on_exhaustion = exhaustion(value)?;
    }
    Ok(policy)
}

/// Reads the number of attempts. 0 asks for no retry, and an attempt there must be.
///
/// # Errors
/// Returns what is wrong with it.
pub fn max_attempts(value: &Value) -> Result<u32, Fault> {
    let number = value.as_u64().filter(|number| *number <= ATTEMPTS_MAX);
    number.and_then(|number| u32::try_from(number.max(1)).ok()).ok_or_else(|| {
        let problem = format!("must be a whole number from 0 to {ATTEMPTS_MAX}");
        Fault::rule("retry.max_attempts", problem)
    })
}

fn interval(fields: &Map<String, Value>, name: &str) -> Result<Option<Span>, Fault> {
    let in_millis = format!("{name}_ms");
    if let Some(value) = given(fields, &in_millis) {
        let millis = value.as_u64().ok_or_else(|| {
            Fault::rule(&format!("retry.{in_millis}"), "must be a whole number of milliseconds")
        })?;
        return Ok(Some(Span(millis)));
    }
    let Some(value) = given(fields, name) else { return Ok(None) };
    // Beside the standard's text, the seconds that the configuration's style allows.
    let span = value.as_str().and_then(duration::plain).or_else(|| duration::value(value));
    let problem = "must be an ISO 8601 duration such as `PT1S`";
    span.map(Some).ok_or_else(|| Fault::rule(&format!("retry.{name}"), problem))
}

fn coefficient(value: &Value) -> Result<u32, Fault> {
    let number = value.as_f64().filter(|number| (1.0..=COEFFICIENT_MAX).contains(number));
    let Some(number) = number else {
        let problem = format!("must be a number from 1 to {COEFFICIENT_MAX}");
        return Err(Fault::rule("retry.backoff_coefficient", problem));
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 1000, so a million at most"
    )]
    Ok((number * 1000.0).round() as u32)
}

fn strategy(name: &str, value: &Value) -> Result<Backoff, Fault> {
    match value.as_str() {
        Some("constant" | "none") => Ok(Backoff::Constant),
        Some("linear") => Ok(Backoff::Linear),
        Some("exponential") => Ok(Backoff::Exponential),
        Some("polynomial") => Ok(Backoff::Polynomial),
        Some(_) | None => {
            let problem = "must be `constant`, `linear`, `exponential` or `polynomial`";
            Err(Fault::rule(&format!("retry.{name}"), problem))
        }
    }
}

fn error_types(value: &Value) -> Result<Vec<String>, Fault> {
    let types = value.as_array().filter(|types| types.len() <= ERRORS_MAX);
    let types = types.and_then(|types| {
        types.iter().map(|name| name.as_str().map(ToOwned::to_owned)).collect::<Option<Vec<_>>>()
    });
    types.ok_or_else(|| {
        let problem = format!("must be an array of at most {ERRORS_MAX} texts");
        Fault::rule("retry.non_retryable_errors", problem)
    })
}

fn exhaustion(value: &Value) -> Result<OnExhaustion, Fault> {
    match value.as_str() {
        Some("discard") => Ok(OnExhaustion::Discard),
        Some("dead_letter") => Ok(OnExhaustion::DeadLetter),
        Some(_) | None => {
            Err(Fault::rule("retry.on_exhaustion", "must be `discard` or `dead_letter`"))
        }
    }
}
