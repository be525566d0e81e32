//! Operations in requests: `{"kind": "cancel", "filter": {"queue": "mail"}, "dry_run": true}`.
//!
//! A filter has the names of the parameters that lists of executions take. What an operation stores is a
//! filter too: its times are fixed, and its worker is named by id.

use std::collections::BTreeMap;

use outlast_core::limits::{OPERATION_FILTER_BYTES_MAX, OPERATION_REASON_BYTES_MAX};
use outlast_core::operation::OperationKind;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::workflow::WorkflowId;
use serde_json::{Map, Value, json};

use crate::execution::status::Status;
use crate::fault::Fault;
use crate::json::fields::{flag, given, known, no_others, text};
use crate::time::{self, Rfc3339};
use crate::{id, keys, schedule};

const KNOWN: &[&str] = &["kind", "filter", "dry_run", "expected", "as_of", "reason"];
const FILTER: &[&str] = &[
    "status",
    "action_ref",
    "type",
    "queue",
    "worker",
    "keys",
    "schedule",
    "workflow",
    "error_contains",
    "id",
    "id_suffix",
    "created_after",
    "created_before",
    "all",
];

const NOTHING: &str = "selects nothing: `\"all\": true` is every job, `\"queue\": \"mail\"` some";

/// Most keys of a filter: no job has more.
const KEYS_MAX: usize = outlast_core::keys::KEYS_MAX;

/// A request for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRequest {
    /// What is done with each job.
    pub kind: OperationKind,
    /// Which jobs.
    pub filter: JobFilter,
    /// Whether they are only counted.
    pub dry_run: bool,
    /// How many matched when someone decided this.
    pub expected: Option<u64>,
    /// When that was: no job that was made or changed later is touched.
    pub as_of: Option<Timestamp>,
    /// Why, for the event log.
    pub reason: String,
}

/// Which jobs. Every part that is set must match.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// With one of these statuses; empty means any.
    pub statuses: Vec<Status>,
    /// Of this type, or action reference.
    pub job_type: Option<String>,
    /// Of this queue.
    pub queue: Option<String>,
    /// Whose latest attempt is or was this worker's, by id or name.
    pub worker: Option<String>,
    /// With these keys.
    pub keys: BTreeMap<String, String>,
    /// Stored by this schedule.
    pub schedule: Option<ScheduleName>,
    /// Of this workflow.
    pub workflow: Option<WorkflowId>,
    /// Whose latest error contains this, in upper or lower case.
    pub error: Option<String>,
    /// With an id that begins with these digits.
    pub id: Option<String>,
    /// With an id that ends with these digits.
    pub id_suffix: Option<String>,
    /// Made at this time or later.
    pub created_from: Option<Timestamp>,
    /// Made before this time.
    pub created_before: Option<Timestamp>,
}

/// Reads a request; times are judged as of `now`.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn read(body: &[u8], now: Timestamp) -> Result<OperationRequest, Fault> {
    let fields = known(KNOWN, body)?;
    let kind = text(&fields, "kind")?.and_then(OperationKind::parse);
    let kind = kind.ok_or_else(|| Fault::field("kind", "must be `cancel` or `retry`"))?;
    let filter = match given(&fields, "filter") {
        None => return Err(Fault::field("filter", NOTHING)),
        Some(filter) => JobFilter::read(filter, now)?,
    };
    filter.fits(kind)?;
    let reason = text(&fields, "reason")?.unwrap_or_default().trim().to_owned();
    if reason.len() > OPERATION_REASON_BYTES_MAX {
        let problem = format!("is longer than {OPERATION_REASON_BYTES_MAX} bytes");
        return Err(Fault::size("reason", problem));
    }
    let number = |value: &Value| {
        value.as_u64().ok_or_else(|| Fault::field("expected", "must be a whole number"))
    };
    let as_of = text(&fields, "as_of")?.map(|text| time::past("as_of", text, now)).transpose()?;
    if as_of.is_some_and(|as_of| as_of > now) {
        return Err(Fault::field("as_of", "has not come yet"));
    }
    Ok(OperationRequest {
        kind,
        filter,
        dry_run: flag(&fields, "dry_run")?.unwrap_or(false),
        expected: given(&fields, "expected").map(number).transpose()?,
        as_of,
        reason,
    })
}

/// Returns the statuses of jobs that an operation can change.
#[must_use]
pub const fn allowed(kind: OperationKind) -> &'static [Status] {
    match kind {
        OperationKind::Cancel => &[Status::Requested, Status::Scheduled, Status::Running],
        OperationKind::Retry => &[Status::Failed, Status::Timeout, Status::Abandoned],
    }
}

impl JobFilter {
    /// Reads a filter, as it was sent or stored.
    ///
    /// # Errors
    /// Returns what is wrong with it, and what would be right.
    pub fn read(filter: &Value, now: Timestamp) -> Result<Self, Fault> {
        let Value::Object(fields) = filter else {
            return Err(Fault::field("filter", "must be an object such as {\"queue\": \"mail\"}"));
        };
        no_others(FILTER, fields)?;
        if filter.to_string().len() > OPERATION_FILTER_BYTES_MAX {
            let problem = format!("is longer than {OPERATION_FILTER_BYTES_MAX} bytes");
            return Err(Fault::size("filter", problem));
        }
        let owned = |name: &str| -> Result<Option<String>, Fault> {
            let value = text(fields, name)?;
            if value.is_some_and(|value| value.trim().is_empty()) {
                return Err(Fault::field(name, "must not be empty; leave it out for any"));
            }
            Ok(value.map(ToOwned::to_owned))
        };
        let at = |name: &str| -> Result<Option<Timestamp>, Fault> {
            owned(name)?.map(|value| time::past(name, &value, now)).transpose()
        };
        let job_type = match (owned("action_ref")?, owned("type")?) {
            (Some(_), Some(_)) => {
                let problem = "and `action_ref` are both given: they are the same";
                return Err(Fault::field("type", problem));
            }
            (one, other) => one.or(other),
        };
        let found = Self {
            statuses: statuses(fields)?,
            job_type,
            queue: owned("queue")?,
            worker: owned("worker")?,
            keys: read_keys(fields)?,
            schedule: owned("schedule")?.map(|name| schedule::name(&name)).transpose()?,
            workflow: owned("workflow")?.map(|id| workflow(&id)).transpose()?,
            error: owned("error_contains")?,
            id: owned("id")?.map(|part| id::digits("id", "first", &part)).transpose()?,
            id_suffix: owned("id_suffix")?
                .map(|part| id::digits("id_suffix", "last", &part))
                .transpose()?,
            created_from: at("created_after")?,
            created_before: at("created_before")?,
        };
        if found.schedule.is_some() && found.workflow.is_some() {
            let problem = "and `schedule` are both given: one is enough";
            return Err(Fault::field("workflow", problem));
        }
        match (flag(fields, "all")?, found == Self::default()) {
            (Some(true), true) | (None | Some(false), false) => Ok(found),
            (Some(true), false) => {
                let problem = "is given with a filter: it is all jobs or those that match";
                Err(Fault::field("all", problem))
            }
            (None | Some(false), true) => Err(Fault::field("filter", NOTHING)),
        }
    }

    /// Refuses statuses of jobs that an operation cannot change.
    fn fits(&self, kind: OperationKind) -> Result<(), Fault> {
        let allowed = allowed(kind);
        match self.statuses.iter().find(|status| !allowed.contains(status)) {
            None => Ok(()),
            Some(status) => {
                let words: Vec<&str> = allowed.iter().map(|status| status.as_str()).collect();
                let problem = format!(
                    "is {}, and `{}` does not apply to such jobs; it is one of {}",
                    status.as_str(),
                    kind.as_str(),
                    words.join(", ")
                );
                Err(Fault::rule("status", problem))
            }
        }
    }

    /// Returns the statuses that jobs may have.
    #[must_use]
    pub fn statuses(&self, kind: OperationKind) -> Vec<Status> {
        let any = self.statuses.is_empty();
        let all = allowed(kind).iter().copied();
        all.filter(|status| any || self.statuses.contains(status)).collect()
    }

    /// Whether nothing that it asks for can change while a job has not ended.
    #[must_use]
    pub fn is_lasting(&self, kind: OperationKind) -> bool {
        self.worker.is_none()
            && self.error.is_none()
            && self.statuses(kind).len() == allowed(kind).len()
    }

    /// Writes it so that [`Self::read`] reads the same at any time.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut fields = Map::new();
        let texts = [
            ("action_ref", self.job_type.clone()),
            ("queue", self.queue.clone()),
            ("worker", self.worker.clone()),
            ("schedule", self.schedule.as_ref().map(ToString::to_string)),
            ("workflow", self.workflow.map(|id| id.to_string())),
            ("error_contains", self.error.clone()),
            ("id", self.id.clone()),
            ("id_suffix", self.id_suffix.clone()),
            ("created_after", self.created_from.map(|at| Rfc3339(at).to_string())),
            ("created_before", self.created_before.map(|at| Rfc3339(at).to_string())),
        ];
        if !self.statuses.is_empty() {
            let words: Vec<&str> = self.statuses.iter().map(|it| it.as_str()).collect();
            fields.insert("status".to_owned(), json!(words));
        }
        if !self.keys.is_empty() {
            fields.insert("keys".to_owned(), json!(self.keys));
        }
        for (name, value) in texts {
            if let Some(value) = value {
                fields.insert(name.to_owned(), json!(value));
            }
        }
        if fields.is_empty() {
            fields.insert("all".to_owned(), json!(true));
        }
        Value::Object(fields)
    }

    /// Says in words which jobs these are: `jobs of queue mail with status failed`.
    #[must_use]
    pub fn in_words(&self, kind: OperationKind) -> String {
        let mut words = if *self == Self::default() { "all jobs" } else { "jobs" }.to_owned();
        let parts = [
            ("of queue", self.queue.clone()),
            ("of type", self.job_type.clone()),
            ("of schedule", self.schedule.as_ref().map(ToString::to_string)),
            ("of workflow", self.workflow.map(|id| id.to_string())),
            ("of worker", self.worker.clone()),
        ];
        for (word, value) in parts {
            if let Some(value) = value {
                words.extend([" ", word, " ", &value]);
            }
        }
        let mut with = Vec::new();
        if self.statuses.is_empty() {
            let which = match kind {
                OperationKind::Cancel => "that have not ended",
                OperationKind::Retry => "that failed, timed out or were abandoned",
            };
            with.push(which.to_owned());
        } else {
            let all: Vec<&str> = self.statuses.iter().map(|it| it.as_str()).collect();
            with.push(format!("with status {}", all.join(" or ")));
        }
        with.extend(self.keys.iter().map(|(name, value)| format!("with key {name}={value}")));
        let ends = [("begins", &self.id), ("ends", &self.id_suffix)];
        with.extend(self.error.iter().map(|error| format!("whose error contains {error:?}")));
        for (how, digits) in ends {
            with.extend(digits.iter().map(|digits| format!("whose id {how} with {digits}")));
        }
        with.extend(self.created_from.map(|at| format!("made at {} or later", Rfc3339(at))));
        with.extend(self.created_before.map(|at| format!("made before {}", Rfc3339(at))));
        format!("{words} {}", with.join(", "))
    }
}

/// Reads statuses: a list of them, or a text with commas between.
fn statuses(fields: &Map<String, Value>) -> Result<Vec<Status>, Fault> {
    let expected = || {
        let all = Status::ALL.map(Status::as_str).join(", ");
        Fault::field("status", format!("must be one of {all}, or a list of some"))
    };
    let words: Vec<&str> = match given(fields, "status") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => text.split(',').map(str::trim).collect(),
        Some(Value::Array(list)) => {
            list.iter().map(|it| it.as_str().ok_or_else(expected)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(expected()),
    };
    let mut found = words
        .iter()
        .map(|word| Status::parse(word).ok_or_else(expected))
        .collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err(expected());
    }
    // In one order, each once.
    found = Status::ALL.into_iter().filter(|status| found.contains(status)).collect();
    Ok(found)
}

fn read_keys(fields: &Map<String, Value>) -> Result<BTreeMap<String, String>, Fault> {
    const EXPECTED: &str = "must be an object of texts such as `{\"tenant\": \"42\"}`";
    let Some(value) = given(fields, "keys") else { return Ok(BTreeMap::new()) };
    let Value::Object(pairs) = value else { return Err(Fault::field("keys", EXPECTED)) };
    let texts = pairs.iter().map(|(name, value)| Some((name.clone(), keys::text(value)?)));
    let texts: Option<BTreeMap<String, String>> = texts.collect();
    let texts = texts.ok_or_else(|| Fault::field("keys", EXPECTED))?;
    if texts.is_empty() || texts.len() > KEYS_MAX {
        let problem = format!("must name 1 to {KEYS_MAX} keys; leave it out for any");
        return Err(Fault::field("keys", problem));
    }
    Ok(texts)
}

fn workflow(id: &str) -> Result<WorkflowId, Fault> {
    id.parse().map_err(|_not| Fault::field("workflow", "must be the id of a workflow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000);

    fn read(body: &str) -> Result<OperationRequest, String> {
        super::read(body.as_bytes(), NOW).map_err(|fault| fault.to_string())
    }

    #[test]
    fn request_says_what_is_done_with_which_jobs() {
        let body = r#"{"kind": "retry", "dry_run": true, "expected": 7, "reason": " they may run ",
            "as_of": "5m", "filter": {"status": "timeout,failed", "type": "mail.send",
            "queue": "mail", "worker": "w1", "keys": {"tenant": 42}, "schedule": "nightly",
            "error_contains": "Refused", "id": "0198-C0DE", "id_suffix": "beef",
            "created_after": "2h", "created_before": "1970-01-01T02:00:00Z"}}"#;
        let filter = JobFilter {
            statuses: vec![Status::Failed, Status::Timeout],
            job_type: Some("mail.send".into()),
            queue: Some("mail".into()),
            worker: Some("w1".into()),
            keys: [("tenant".to_owned(), "42".to_owned())].into(),
            schedule: Some(ScheduleName::new("nightly").unwrap()),
            workflow: None,
            error: Some("Refused".into()),
            id: Some("0198c0de".into()),
            id_suffix: Some("beef".into()),
            created_from: Some(Timestamp(2_800_000)),
            created_before: Some(Timestamp(7_200_000)),
        };
        let all = OperationRequest {
            kind: OperationKind::Retry,
            filter: filter.clone(),
            dry_run: true,
            expected: Some(7),
            as_of: Some(Timestamp(9_700_000)),
            reason: "they may run".into(),
        };
        assert_eq!(read(body), Ok(all));
        // What is stored means the same at any later time.
        assert_eq!(JobFilter::read(&filter.document(), Timestamp(77)), Ok(filter.clone()));
        let words = "jobs of queue mail of type mail.send of schedule nightly of worker w1 with \
                     status failed or timeout, with key tenant=42, whose error contains \"Refused\", \
                     whose id begins with 0198c0de, whose id ends with beef, made at \
                     1970-01-01T00:46:40Z or later, made before 1970-01-01T02:00:00Z";
        assert_eq!(filter.in_words(OperationKind::Retry), words);
        let every = read(r#"{"kind": "cancel", "filter": {"all": true}}"#).unwrap();
        assert_eq!(every.filter, JobFilter::default());
        assert_eq!(every.filter.document(), json!({"all": true}));
        assert_eq!(every.filter.in_words(every.kind), "all jobs that have not ended");
    }

    #[test]
    fn what_would_hit_more_than_is_meant_is_refused() {
        for (body, problem) in [
            (r#"{"filter": {"queue": "a"}}"#, "must be `cancel` or `retry`"),
            (r#"{"kind": "delete", "filter": {"queue": "a"}}"#, "must be `cancel` or `retry`"),
            (r#"{"kind": "cancel"}"#, "selects nothing"),
            (r#"{"kind": "cancel", "filter": {}}"#, "selects nothing"),
            (r#"{"kind": "cancel", "filter": {"all": false}}"#, "selects nothing"),
            (r#"{"kind": "cancel", "filter": {"all": true, "queue": "a"}}"#, "with a filter"),
            (r#"{"kind": "cancel", "filter": {"queue": ""}}"#, "must not be empty"),
            (r#"{"kind": "cancel", "filter": {"queeu": "a"}}"#, "did you mean `queue`"),
            (r#"{"kind": "cancel", "filter": {"status": []}}"#, "must be one of"),
            (r#"{"kind": "cancel", "filter": {"status": "late"}}"#, "must be one of"),
            (r#"{"kind": "cancel", "filter": {"status": "failed"}}"#, "does not apply"),
            (r#"{"kind": "retry", "filter": {"status": ["running"]}}"#, "does not apply"),
            (r#"{"kind": "cancel", "filter": {"keys": {}}}"#, "1 to 4 keys"),
            (r#"{"kind": "cancel", "filter": {"id": "12"}}"#, "first 4 to 32 digits"),
            (r#"{"kind": "cancel", "filter": {"type": "a", "action_ref": "a"}}"#, "both given"),
            (r#"{"kind": "cancel", "filter": {"queue": "a"}, "expected": -1}"#, "whole number"),
            (
                r#"{"kind": "cancel", "filter": {"queue": "a"}, "as_of": "2100-01-01T00:00:00Z"}"#,
                "has not come yet",
            ),
            (r#"{"kind": "cancel", "filter": {"queue": "a"}, "limit": 5}"#, "is not known"),
        ] {
            let fault = read(body).unwrap_err();
            assert!(fault.contains(problem), "{body}: {fault}");
        }
        let long = "x".repeat(OPERATION_FILTER_BYTES_MAX);
        let body = json!({"kind": "cancel", "filter": {"error_contains": long}}).to_string();
        assert!(read(&body).unwrap_err().contains("is longer than"));
    }

    #[test]
    fn filter_lasts_if_nothing_that_it_asks_for_can_change() {
        let lasts = |filter: &str| {
            let filter = JobFilter::read(&serde_json::from_str(filter).unwrap(), NOW).unwrap();
            filter.is_lasting(OperationKind::Cancel)
        };
        assert!(lasts(r#"{"queue": "mail", "keys": {"a": "b"}}"#));
        assert!(lasts(r#"{"status": "requested,scheduled,running"}"#));
        assert!(!lasts(r#"{"queue": "mail", "status": "requested"}"#));
        assert!(!lasts(r#"{"queue": "mail", "worker": "w1"}"#));
        assert!(!lasts(r#"{"queue": "mail", "error_contains": "x"}"#));
    }
}
