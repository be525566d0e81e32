//! Settings of queues as the API and the command line write them.

use std::collections::HashSet;

use outlast_core::job::DeadLetterReason;
use outlast_core::keys::{NAME_BYTES_MAX, VALUE_BYTES_MAX, is_name};
use outlast_core::queue::{
    Change, DEPTH_MAX, LETTER_RULES_MAX, LetterRule, QueueChange, QueueRefusal, WEIGHT_MAX, Weight,
};
use outlast_core::selector::Selector;
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::json::fields::known;
use crate::placement;

/// Fields of the body.
const KNOWN: &[&str] = &["dead_letters", "fair_by", "max_depth", "prefers", "requires", "weights"];
/// Fields of a rule about dead letters.
const RULE: &[&str] = &["action", "reasons", "webhook"];
/// Longest name of an action.
const ACTION_MAX: usize = 255;
/// Longest address of a webhook.
const URL_MAX: usize = 2_000;

/// Reads what is to change of a queue's settings from a request's body. A field that is missing
/// changes nothing; null removes a setting.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn read(body: &[u8]) -> Result<QueueChange, Fault> {
    let fields = known(KNOWN, body)?;
    let (fair_by, weights) = (key(&fields)?, weights(&fields)?);
    if fair_by == Change::Unset && !weights.is_empty() {
        let problem = "is for fair queues, and `fair_by` is null";
        return Err(Fault::rule("weights", problem));
    }
    Ok(QueueChange {
        fair_by,
        weights,
        max_depth: depth(&fields)?,
        requires: selector("requires", &fields)?,
        prefers: selector("prefers", &fields)?,
        dead_letters: dead_letters(&fields)?,
    })
}

fn dead_letters(fields: &Map<String, Value>) -> Result<Change<Vec<LetterRule>>, Fault> {
    let wrong = |problem: String| Fault::field("dead_letters", problem);
    let rules = match fields.get("dead_letters") {
        None => return Ok(Change::Keep),
        Some(Value::Null) => return Ok(Change::Unset),
        Some(Value::Array(rules)) => rules,
        Some(_) => {
            let problem = r#"must be a list such as [{"action": "ops.report"}]; or null for none"#;
            return Err(wrong(problem.to_owned()));
        }
    };
    if rules.len() > LETTER_RULES_MAX {
        return Err(wrong(format!("has too many rules; a queue has at most {LETTER_RULES_MAX}")));
    }
    let rules = rules.iter().map(letter_rule).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    Ok(if rules.is_empty() { Change::Unset } else { Change::Set(rules) })
}

fn letter_rule(rule: &Value) -> Result<LetterRule, String> {
    let Value::Object(fields) = rule else { return Err("has a rule that is no object".into()) };
    if let Some(unknown) = fields.keys().find(|name| !RULE.contains(&name.as_str())) {
        return Err(format!("has a rule with `{unknown}`; known are {}", RULE.join(", ")));
    }
    let mut reasons: Vec<DeadLetterReason> = match fields.get("reasons") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(words)) => words.iter().map(reason).collect::<Result<_, _>>()?,
        Some(word) => vec![reason(word)?],
    };
    let mut known = HashSet::new();
    reasons.retain(|reason| known.insert(reason.as_str()));
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("has a rule whose `{name}` is no text")),
    };
    let (webhook, action) = (text("webhook")?, text("action")?);
    if webhook.as_deref().is_some_and(|url| !is_address(url)) {
        return Err(
            "has a `webhook` that is no http:// or https:// address without a password".into()
        );
    }
    if action.as_deref().is_some_and(|it| !it.contains('.') || it.len() > ACTION_MAX) {
        return Err("has an `action` that is none, such as `ops.report`".into());
    }
    if webhook.is_none() && action.is_none() {
        return Err("has a rule with neither `webhook` nor `action`".into());
    }
    Ok(LetterRule { reasons, webhook, action })
}

fn reason(word: &Value) -> Result<DeadLetterReason, String> {
    word.as_str().and_then(DeadLetterReason::parse).ok_or_else(|| {
        let known = DeadLetterReason::ALL.map(DeadLetterReason::as_str).join(", ");
        format!("has a reason that is none of {known}")
    })
}

/// A receiver checks the signature: a password in the address would be shown to others.
fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    url.len() <= URL_MAX
        && host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && url.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

/// What a bound is.
const DEPTH: &str = "a whole number from 1 to 1000000000";

fn depth_of(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|depth| (1..=DEPTH_MAX).contains(depth))
}

fn depth(fields: &Map<String, Value>) -> Result<Change<u32>, Fault> {
    match fields.get("max_depth") {
        None => Ok(Change::Keep),
        Some(Value::Null) => Ok(Change::Unset),
        Some(given) => {
            let problem =
                || Fault::field("max_depth", format!("must be {DEPTH}; or null for none"));
            given.as_u64().and_then(depth_of).map(Change::Set).ok_or_else(problem)
        }
    }
}

fn selector(name: &str, fields: &Map<String, Value>) -> Result<Change<Selector>, Fault> {
    match fields.get(name) {
        None => Ok(Change::Keep),
        Some(Value::Null) => Ok(Change::Unset),
        Some(given) => placement::read(name, given.as_str()).map(Change::Set),
    }
}

/// Reads a bound as the command line has it; `None` removes it.
///
/// # Errors
/// Returns what it must be.
pub fn max_depth(text: &str) -> Result<Option<u32>, String> {
    if text == "none" {
        return Ok(None);
    }
    let depth = text.parse().ok().and_then(depth_of);
    depth.map(Some).ok_or_else(|| format!("must be {DEPTH}; or `none` for any number"))
}

fn key(fields: &Map<String, Value>) -> Result<Change<String>, Fault> {
    match fields.get("fair_by") {
        None => Ok(Change::Keep),
        Some(Value::Null) => Ok(Change::Unset),
        Some(Value::String(key)) if is_name(key) => Ok(Change::Set(key.clone())),
        Some(_) => Err(Fault::field(
            "fair_by",
            format!(
                "must be the name of a key, of 1 to {NAME_BYTES_MAX} characters out of a-z, 0-9, \
                 `_`, `.` and `-`; or null for none"
            ),
        )),
    }
}

fn weights(fields: &Map<String, Value>) -> Result<Vec<Weight>, Fault> {
    let weights = match fields.get("weights") {
        None => return Ok(Vec::new()),
        Some(Value::Object(weights)) => weights,
        Some(_) => {
            let problem = r#"must be an object such as {"tenant:42": 3}"#;
            return Err(Fault::field("weights", problem));
        }
    };
    let weight = |(of, weight): (&String, &Value)| {
        let problem = |problem: String| Fault::field("weights", problem);
        let (key, value) = key_and_value(of).map_err(problem)?;
        let weight = weight.as_u64().and_then(weight_of);
        let weight = weight.ok_or_else(|| problem(format!("gives `{of}` what is not {WEIGHT}")))?;
        Ok(Weight { key, value, weight })
    };
    weights.iter().map(weight).collect()
}

/// What a weight is.
const WEIGHT: &str = "a whole number from 1 to 1000";

fn weight_of(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight))
}

/// Reads `KEY:VALUE`. The name of a key has no colon; a value may have some.
fn key_and_value(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').filter(|(key, _)| is_name(key));
    let (key, value) = parts
        .ok_or_else(|| format!("has `{text}`, which is not KEY:VALUE, such as `tenant:42`"))?;
    if value.len() > VALUE_BYTES_MAX || value.contains('\0') {
        return Err(format!("has a value for `{key}` that no key can have"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads `KEY:VALUE=N`, as the command line has it: the name in the body, and the weight.
///
/// # Errors
/// Returns what is wrong with it.
pub fn weight(text: &str) -> Result<(String, u32), String> {
    const FORM: &str = "not KEY:VALUE=N, such as tenant:42=3";
    let (of, number) = text.rsplit_once('=').ok_or(FORM)?;
    key_and_value(of).map_err(|_not| FORM)?;
    let number = number.parse().ok().and_then(weight_of);
    Ok((of.to_owned(), number.ok_or_else(|| format!("the weight is not {WEIGHT}"))?))
}

/// Returns the fault of settings that do not go together.
#[must_use]
pub fn refused(refusal: &QueueRefusal) -> Fault {
    let problem = match refusal {
        QueueRefusal::NotFair(key) => format!("needs a fair queue; set `fair_by` to `{key}`"),
        QueueRefusal::OtherKey { key, fair_by } => {
            format!("has a value of key `{key}`, but the queue is fair by `{fair_by}`")
        }
        QueueRefusal::TooManyWeights => format!("has too many values: {refusal}"),
    };
    Fault::rule("weights", problem)
}
