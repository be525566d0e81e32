//! What an action says about the jobs that run it.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::job::Overlap;
use outlast_core::keys::{KEYS_MAX, Keys, KeysError};
use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::time::Span;
use outlast_packs::{Action, RetrySpec};
use outlast_store::command::Route;
use outlast_wire::{Fault, json};
use serde_json::Value;

use super::IntakeError;

/// A job's arguments.
pub(super) struct Arguments {
    /// As they are stored.
    pub(super) stored: String,
    /// The keys of the job that has them.
    pub(super) keys: Keys,
}

/// Checks the parameters in `args[0]` and completes them. `given` are the keys that came with them.
pub(super) fn arguments(
    action: &Action,
    args: &str,
    given: &Keys,
) -> Result<Arguments, IntakeError> {
    let complete = complete(action, args)?;
    let keys = keys(action, &complete, given)?;
    let stored = Value::Array(vec![complete]).to_string();
    Ok(Arguments { stored, keys })
}

/// Returns the parameters in `args[0]`, checked and complete.
pub(super) fn complete(action: &Action, args: &str) -> Result<Value, IntakeError> {
    json::keeps_numbers("args", args)?;
    let args: Vec<Value> = serde_json::from_str(args).map_err(|error| json::syntax(&error))?;
    if args.len() > 1 {
        return Err(Fault::rule("args", "must hold one object, the action's parameters").into());
    }
    parameters(action, args.first().unwrap_or(&Value::Null))
}

/// Checks parameters and completes them with the action's defaults.
pub(super) fn parameters(action: &Action, given: &Value) -> Result<Value, IntakeError> {
    let reference = action.reference.clone();
    if !action.enabled {
        return Err(IntakeError::DisabledAction { reference });
    }
    action
        .check(given)
        .map_err(|violations| IntakeError::InvalidParameters { reference, violations })
}

/// Returns the keys of a job with these complete parameters: the action's and those `given` with
/// the job, which win.
pub(super) fn keys(action: &Action, parameters: &Value, given: &Keys) -> Result<Keys, IntakeError> {
    let keys = action.keys(parameters, given).map_err(|violations| {
        IntakeError::InvalidParameters { reference: action.reference.clone(), violations }
    })?;
    Keys::new(keys).map_err(|error| {
        let problem = match error {
            KeysError::TooMany(count) => format!(
                "holds {count} keys, those of the action included; at most {KEYS_MAX} are taken"
            ),
            error => outlast_wire::keys::problem(&error),
        };
        Fault::rule("keys", problem).into()
    })
}

pub(super) fn route(action: &Action, wanted: BTreeMap<String, String>, overlap: Overlap) -> Route {
    let mut labels = action.required_labels.clone();
    labels.extend(wanted);
    let proof = overlap == Overlap::Forbidden;
    Route::Action { runtime: action.runner.as_str().to_owned(), labels, proof }
}

/// Returns the queue of jobs that name none.
pub(crate) fn queue(action: Option<&Action>) -> &str {
    action.and_then(|action| action.queue.as_deref()).unwrap_or("default")
}

/// Returns the priority of jobs that have none of their own.
pub(crate) fn priority(action: Option<&Action>) -> i8 {
    action.and_then(|action| action.priority).unwrap_or(0)
}

pub(super) fn timeout(action: &Action) -> Option<Span> {
    action.timeout.map(span)
}

pub(super) const fn overlap(action: &Action) -> Overlap {
    match action.overlap {
        outlast_packs::Overlap::Allowed => Overlap::Allowed,
        outlast_packs::Overlap::Forbidden => Overlap::Forbidden,
    }
}

/// Returns the retry policy of jobs that have none of their own.
pub(crate) fn retry_policy(action: &Action) -> RetryPolicy {
    let standard = RetryPolicy::standard();
    let Some(spec) = &action.retry else { return standard };
    let RetrySpec { max_attempts, initial_interval, max_interval, jitter, .. } = spec;
    RetryPolicy {
        max_attempts: max_attempts.unwrap_or(standard.max_attempts).max(1),
        initial_interval: initial_interval.map_or(standard.initial_interval, span),
        max_interval: max_interval.map_or(standard.max_interval, span),
        jitter: jitter.unwrap_or(standard.jitter),
        coefficient_millis: spec
            .backoff_coefficient
            .map_or(standard.coefficient_millis, coefficient),
        backoff: spec.backoff_strategy.as_deref().map_or(standard.backoff, |name| match name {
            "none" | "constant" => Backoff::Constant,
            "linear" => Backoff::Linear,
            _ => Backoff::Exponential,
        }),
        non_retryable: spec.non_retryable_errors.clone().unwrap_or(standard.non_retryable),
        on_exhaustion: spec.on_exhaustion.map_or(standard.on_exhaustion, |wanted| match wanted {
            outlast_packs::OnExhaustion::Discard => OnExhaustion::Discard,
            outlast_packs::OnExhaustion::DeadLetter => OnExhaustion::DeadLetter,
        }),
    }
}

fn span(length: Duration) -> Span {
    Span(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a policy on the wire may ask for"
)]
fn coefficient(number: f64) -> u32 {
    (number.clamp(1.0, 1000.0) * 1000.0).round() as u32
}
