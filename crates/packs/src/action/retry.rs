//! The retry policy of an action.

use std::time::Duration;

use serde_json::Value;

use crate::duration;
use crate::keys::{Known, RETRY};

/// The retry policy of an action. Omitted fields have the default of the server.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RetrySpec {
    /// Attempts in all, the first included.
    pub max_attempts: Option<u32>,
    /// The wait before the second attempt.
    pub initial_interval: Option<Duration>,
    /// The longest wait.
    pub max_interval: Option<Duration>,
    /// What each wait is multiplied by for the next.
    pub backoff_coefficient: Option<f64>,
    /// How waits grow, by the name that the wire uses.
    pub backoff_strategy: Option<String>,
    /// Whether waits are spread at random.
    pub jitter: Option<bool>,
    /// Types of errors after which it is not tried again.
    pub non_retryable_errors: Option<Vec<String>>,
    /// What happens to a job that used up its attempts.
    pub on_exhaustion: Option<OnExhaustion>,
}

/// What happens to a job that used up its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExhaustion {
    /// It is discarded.
    Discard,
    /// It is dead-lettered for an operator.
    DeadLetter,
}

const STRATEGIES: &[&str] = &["none", "constant", "linear", "exponential"];

pub(super) fn read(value: &Value) -> Result<RetrySpec, String> {
    let mut spec = RetrySpec::default();
    let Value::Object(map) = value else {
        spec.max_attempts = Some(attempts(value)?);
        return Ok(spec);
    };
    for (key, value) in map {
        match key.as_str() {
            "max_attempts" => spec.max_attempts = Some(attempts(value)?),
            "initial_interval" => spec.initial_interval = Some(duration::parse(value)?),
            "max_interval" => spec.max_interval = Some(duration::parse(value)?),
            "backoff_coefficient" => {
                let coefficient = value.as_f64().filter(|coefficient| *coefficient >= 1.0);
                let problem = || format!("backoff_coefficient {value} is not a number from 1");
                spec.backoff_coefficient = Some(coefficient.ok_or_else(problem)?);
            }
            "backoff_strategy" => spec.backoff_strategy = Some(strategy(value)?),
            "jitter" => {
                let problem = || format!("jitter {value} is neither true nor false");
                spec.jitter = Some(value.as_bool().ok_or_else(problem)?);
            }
            "non_retryable_errors" => spec.non_retryable_errors = Some(errors(value)?),
            "on_exhaustion" => spec.on_exhaustion = Some(exhaustion(value)?),
            _ if RETRY.known(key) == Known::Here => {}
            _ => return Err(format!("key `{key}` is not known; {}", RETRY.remedy(key))),
        }
    }
    Ok(spec)
}

fn attempts(value: &Value) -> Result<u32, String> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("max_attempts {value} is not a whole number from 1"))
}

fn strategy(value: &Value) -> Result<String, String> {
    let name = value.as_str().filter(|name| STRATEGIES.contains(name));
    name.map(ToOwned::to_owned)
        .ok_or_else(|| format!("backoff_strategy {value} is not one of {}", STRATEGIES.join(", ")))
}

fn errors(value: &Value) -> Result<Vec<String>, String> {
    let problem = || format!("non_retryable_errors {value} is not a list of error types");
    let list = value.as_array().ok_or_else(problem)?;
    list.iter().map(|item| item.as_str().map(ToOwned::to_owned).ok_or_else(problem)).collect()
}

fn exhaustion(value: &Value) -> Result<OnExhaustion, String> {
    match value.as_str() {
        Some("discard") => Ok(OnExhaustion::Discard),
        Some("dead_letter") => Ok(OnExhaustion::DeadLetter),
        _ => Err(format!("on_exhaustion {value} is not one of discard, dead_letter")),
    }
}
