//! What a caller sends to start an execution. Every slip is refused by name.

use std::collections::BTreeMap;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::Overlap;
use outlast_core::keys::Keys;
use outlast_core::resources::Resources;
use outlast_core::retry::RetryPolicy;
use outlast_core::selector::{Placement, Selector};
use outlast_core::time::Span;
use serde_json::{Map, Value};

use crate::duration;
use crate::fault::Fault;
use crate::json;
use crate::json::fields::{given, text};
use crate::keys;
use crate::ojs::{names, retry};
use crate::placement;
use crate::resources;
use crate::time::When;
use crate::unique::{self, UniquePolicy};

/// Fields of the body.
const KNOWN: &[&str] = &[
    "action_ref",
    "parameters",
    "queue",
    "priority",
    "timeout",
    "scheduled_timeout",
    "retry",
    "labels",
    "keys",
    "requires",
    "prefers",
    "unique",
    "resources",
    "overlap",
    "packs",
    "delay",
];

/// An execution that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The action.
    pub action_ref: String,
    /// Its parameters, not checked against the action; `null` when none are given.
    pub parameters: Value,
    /// Queue, if it names one.
    pub queue: Option<String>,
    /// -100 to 100, if it says so.
    pub priority: Option<i8>,
    /// Longest an attempt may run.
    pub timeout: Option<Span>,
    /// How long it is kept while no live worker can run it.
    pub scheduled_timeout: Option<ScheduledTimeout>,
    /// The retry policy, as sent.
    pub retry: Option<Value>,
    /// Labels that the worker must carry.
    pub labels: BTreeMap<String, String>,
    /// Its keys, without those of the action.
    pub keys: Keys,
    /// Which workers it wants, without what the action wants.
    pub placement: Placement,
    /// What makes it the only one of its sort, if it is to be.
    pub unique: Option<UniquePolicy>,
    /// What an attempt may use; what this leaves out is the action's.
    pub resources: Resources,
    /// Whether attempts may overlap.
    pub overlap: Option<Overlap>,
    /// Whether it runs only with the files of the pack that it was validated against, if it says so.
    pub is_pinned: Option<bool>,
    /// When it may first run, if not at once.
    pub delay: Option<When>,
}

impl Request {
    /// Reads the body.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        let read: Value = json::read(body)?;
        let Value::Object(fields) = read else {
            return Err(Fault::payload("request body must be a JSON object"));
        };
        if let Some(name) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let known = KNOWN.join(", ");
            return Err(Fault::field(name, format!("is not known; known fields are {known}")));
        }
        let text_of_body = json::text(body)?;
        // Cheaper than looking for the field first: few have such numbers.
        if json::changed_number(text_of_body).is_some()
            && let Some(parameters) = json::field(text_of_body, "parameters")
        {
            json::keeps_numbers("parameters", parameters.get())?;
        }
        let queue = text(&fields, "queue")?;
        queue.map(names::queue).transpose()?;
        let action_ref = text(&fields, "action_ref")?;
        Ok(Self {
            action_ref: action_ref
                .ok_or_else(|| Fault::field("action_ref", "is missing"))?
                .to_owned(),
            parameters: fields.get("parameters").cloned().unwrap_or_default(),
            queue: queue.map(ToOwned::to_owned),
            priority: given(&fields, "priority").map(priority).transpose()?,
            timeout: given(&fields, "timeout").map(|value| span("timeout", value)).transpose()?,
            scheduled_timeout: given(&fields, "scheduled_timeout").map(scheduled).transpose()?,
            retry: given(&fields, "retry").cloned(),
            labels: given(&fields, "labels").map(labels).transpose()?.unwrap_or_default(),
            keys: given(&fields, "keys").map(keys::read).transpose()?.unwrap_or_default(),
            placement: Placement {
                requires: selector(&fields, "requires")?,
                prefers: selector(&fields, "prefers")?,
            },
            unique: given(&fields, "unique").map(unique::read).transpose()?,
            resources: given(&fields, "resources")
                .map(resources::read)
                .transpose()?
                .unwrap_or_default(),
            overlap: text(&fields, "overlap")?.map(overlap).transpose()?,
            is_pinned: text(&fields, "packs")?.map(is_pinned).transpose()?,
            delay: given(&fields, "delay").map(delay).transpose()?,
        })
    }

    /// Returns the retry policy it asks for; what it leaves out is `default`'s.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn policy(&self, default: RetryPolicy) -> Result<RetryPolicy, Fault> {
        match &self.retry {
            None => Ok(default),
            Some(number @ Value::Number(_)) => {
                Ok(RetryPolicy { max_attempts: retry::max_attempts(number)?, ..default })
            }
            Some(policy) => retry::policy(policy, default, retry::Unknown::Refused),
        }
    }
}

fn selector(fields: &Map<String, Value>, name: &str) -> Result<Selector, Fault> {
    let value = given(fields, name).map(|value| placement::read(name, value.as_str()));
    value.transpose().map(Option::unwrap_or_default)
}

fn priority(value: &Value) -> Result<i8, Fault> {
    let number = value.as_i64().and_then(|number| i8::try_from(number).ok());
    number
        .filter(|number| (-100..=100).contains(number))
        .ok_or_else(|| Fault::field("priority", "must be a whole number from -100 to 100"))
}

fn span(field: &str, value: &Value) -> Result<Span, Fault> {
    const EXPECTED: &str =
        "a duration above 0: seconds such as `90` or `1.5`, or `30s`, `5m`, `2h`";
    duration::value(value).filter(|span| span.0 > 0).ok_or_else(|| {
        Fault::field(field, format!("must be {}", duration::problem(value, EXPECTED)))
    })
}

fn scheduled(value: &Value) -> Result<ScheduledTimeout, Fault> {
    if value.as_str() == Some("never") {
        return Ok(ScheduledTimeout::Never);
    }
    span("scheduled_timeout", value).map(two_digits).map(ScheduledTimeout::After)
}

/// Rounds up to two digits, so by less than a tenth: jobs that wait are looked at by their
/// limit, and a producer that sends what is left until some deadline has a limit for each.
fn two_digits(span: Span) -> Span {
    let mut step = 1;
    while span.0 / step >= 100 {
        step *= 10;
    }
    Span(span.0.div_ceil(step).saturating_mul(step))
}

fn delay(value: &Value) -> Result<When, Fault> {
    const EXPECTED: &str = "seconds such as `90`, a duration such as `5m`, or a time such as \
                            `2026-11-21T12:00:00Z`, at the latest 9999-12-30T22:00:00Z";
    let at = value.as_str().and_then(When::parse);
    at.or_else(|| duration::value(value).map(When::In)).ok_or_else(|| {
        Fault::field("delay", format!("must be {}", duration::problem(value, EXPECTED)))
    })
}

/// Reads whether a job runs only with the files that it was validated against.
fn is_pinned(word: &str) -> Result<bool, Fault> {
    match word {
        "any" => Ok(false),
        "pinned" => Ok(true),
        _ => Err(Fault::field("packs", "must be `any` or `pinned`")),
    }
}

/// Reads whether attempts may overlap.
pub(crate) fn overlap(word: &str) -> Result<Overlap, Fault> {
    match word {
        "allowed" => Ok(Overlap::Allowed),
        "forbidden" => Ok(Overlap::Forbidden),
        _ => Err(Fault::field("overlap", "must be `allowed` or `forbidden`")),
    }
}

/// Reads labels. Numbers and booleans become their text.
pub(crate) fn labels(value: &Value) -> Result<BTreeMap<String, String>, Fault> {
    let problem = "must be an object of strings, such as `{\"zone\": \"a\"}`";
    let Value::Object(fields) = value else { return Err(Fault::field("labels", problem)) };
    let labels = fields.iter().map(|(name, value)| match value {
        Value::String(text) => Some((name.clone(), text.clone())),
        Value::Number(number) => Some((name.clone(), number.to_string())),
        Value::Bool(flag) => Some((name.clone(), flag.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    });
    labels.collect::<Option<_>>().ok_or_else(|| Fault::field("labels", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_waiting_are_rounded_up_to_two_digits() {
        for (given, kept) in [
            (0, 0),
            (99, 99),
            (3_000, 3_000),
            (45_500, 46_000),
            (300_000, 300_000),
            (301_000, 310_000),
        ] {
            assert_eq!(two_digits(Span(given)), Span(kept));
        }
        assert_eq!(two_digits(Span(u64::MAX)), Span(u64::MAX));
    }
}
