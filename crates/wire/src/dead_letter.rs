//! Which dead letters, in a request: `{"queue": "mail", "reason": "exhausted", "since": "2h"}`.

use outlast_core::job::DeadLetterReason;
use outlast_core::limits::PAGE_MAX;
use outlast_core::time::Timestamp;

use serde_json::Value;

use crate::fault::Fault;
use crate::json::fields::{flag, given, known, text};
use crate::time;

const KNOWN: &[&str] = &[
    "queue",
    "type",
    "reason",
    "since",
    "until",
    "error_contains",
    "all",
    "dry_run",
    "limit",
    "cursor",
];

const NOTHING: &str = "must be true if no filter is given: `\"all\": true` is every dead letter, `\"queue\": \"mail\"` some";

/// A change of all dead letters that match.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LettersOrder {
    /// Of this queue.
    pub queue: Option<String>,
    /// Of this type, or action reference.
    pub job_type: Option<String>,
    /// For this reason.
    pub reason: Option<DeadLetterReason>,
    /// Dead-lettered at this time or later.
    pub since: Option<Timestamp>,
    /// Dead-lettered before this time.
    pub until: Option<Timestamp>,
    /// Whose latest error contains this, in upper or lower case.
    pub error: Option<String>,
    /// Whether they are only counted.
    pub dry_run: bool,
    /// How many at most.
    pub limit: Option<u32>,
    /// Where an earlier request ended.
    pub cursor: Option<String>,
}

/// Reads a change of dead letters; times are judged as of `now`.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn read(body: &[u8], now: Timestamp) -> Result<LettersOrder, Fault> {
    let fields = known(KNOWN, body)?;
    let owned = |name: &str| -> Result<Option<String>, Fault> {
        let value = text(&fields, name)?;
        if value.is_some_and(str::is_empty) {
            return Err(Fault::field(name, "must not be empty; leave it out for any"));
        }
        Ok(value.map(ToOwned::to_owned))
    };
    let time = |name: &str| -> Result<Option<Timestamp>, Fault> {
        owned(name)?.map(|value| time::past(name, &value, now)).transpose()
    };
    let limit = |value: &Value| {
        let fits = value.as_u64().and_then(|limit| u32::try_from(limit).ok());
        let fits = fits.filter(|limit| (1..=PAGE_MAX).contains(limit));
        fits.ok_or_else(|| Fault::field("limit", format!("must be from 1 to {PAGE_MAX}")))
    };
    let order = LettersOrder {
        queue: owned("queue")?,
        job_type: owned("type")?,
        reason: owned("reason")?.map(|word| reason("reason", &word)).transpose()?,
        since: time("since")?,
        until: time("until")?,
        error: owned("error_contains")?,
        dry_run: flag(&fields, "dry_run")?.unwrap_or(false),
        limit: given(&fields, "limit").map(limit).transpose()?,
        cursor: owned("cursor")?,
    };
    match (flag(&fields, "all")?, order.has_filter()) {
        (Some(true), false) | (None | Some(false), true) => Ok(order),
        (Some(true), true) => {
            let problem = "is given with a filter: it is all dead letters or those that match";
            Err(Fault::field("all", problem))
        }
        (None | Some(false), false) => Err(Fault::field("all", NOTHING)),
    }
}

impl LettersOrder {
    const fn has_filter(&self) -> bool {
        self.queue.is_some()
            || self.job_type.is_some()
            || self.reason.is_some()
            || self.since.is_some()
            || self.until.is_some()
            || self.error.is_some()
    }
}

/// Reads the reason in the field or parameter `name`.
///
/// # Errors
/// Returns which reasons there are.
pub fn reason(name: &str, word: &str) -> Result<DeadLetterReason, Fault> {
    DeadLetterReason::parse(word).ok_or_else(|| {
        let all = DeadLetterReason::ALL.map(DeadLetterReason::as_str).join(", ");
        Fault::field(name, format!("must be one of {all}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<LettersOrder, String> {
        super::read(body.as_bytes(), Timestamp(10_000_000)).map_err(|fault| fault.to_string())
    }

    #[test]
    fn filters_say_which() {
        let body = r#"{"queue": "mail", "type": "mail.send", "reason": "poison_suspect",
            "since": "2h", "until": "1970-01-01T02:00:00Z", "error_contains": "Refused",
            "dry_run": true, "limit": 10, "cursor": "17"}"#;
        let all = LettersOrder {
            queue: Some("mail".into()),
            job_type: Some("mail.send".into()),
            reason: Some(DeadLetterReason::PoisonSuspect),
            since: Some(Timestamp(2_800_000)),
            until: Some(Timestamp(7_200_000)),
            error: Some("Refused".into()),
            dry_run: true,
            limit: Some(10),
            cursor: Some("17".into()),
        };
        assert_eq!(read(body), Ok(all));
        assert_eq!(read(r#"{"all": true}"#), Ok(LettersOrder::default()));
    }

    #[test]
    fn what_would_hit_more_than_is_meant_is_refused() {
        for (body, problem) in [
            ("{}", "must be true if no filter"),
            (r#"{"all": false}"#, "must be true if no filter"),
            (r#"{"dry_run": true}"#, "must be true if no filter"),
            (r#"{"queue": "", "all": true}"#, "must not be empty"),
            (r#"{"queue": "a", "all": true}"#, "with a filter"),
            (r#"{"queeu": "a"}"#, "queeu"),
            (r#"{"queue": 7}"#, "must be a string"),
            (r#"{"reason": "tired"}"#, "must be one of exhausted, poison_suspect, at_most_once"),
            (r#"{"since": "soon"}"#, "`since`"),
            (r#"{"all": true, "limit": 0}"#, "must be from 1 to"),
            (r#"{"all": true, "limit": "many"}"#, "must be from 1 to"),
            (r#"{"all": true, "limit": 1000000}"#, "must be from 1 to"),
            (r#"{"all": 1}"#, "must be true or false"),
            ("[]", "must be a JSON object"),
        ] {
            let fault = read(body).unwrap_err();
            assert!(fault.contains(problem), "{body}: {fault}");
        }
    }
}
