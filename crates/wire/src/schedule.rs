//! Schedules as the API, the command line and the configuration write them, and as the standard
//! does. What the expression and the time zone mean is read elsewhere.

use outlast_core::schedule::ScheduleName;
use outlast_core::time::Span;
use serde_json::{Map, Value, json};

use crate::duration;
use crate::execution::request::Request;
use crate::fault::Fault;
use crate::json::fields::{flag, given, known, no_others, text};
use crate::json::{self, long_number};
use crate::ojs::enqueue;
use crate::time::When;
use crate::workflow;

/// Fields that say when it fires.
const TIMING: &[&str] =
    &["cron", "time_zone", "overlap", "catch_up", "jitter", "until", "paused", "pause_reason"];

/// Fields that say what an action's job is like.
const OF_ACTION: &[&str] = &[
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
    "resources",
    "packs",
];

/// Fields that say what a job of a type is like.
const OF_TYPE: &[&str] = &[
    "type", "args", "meta", "options", "queue", "priority", "timeout", "retry", "keys", "requires",
    "prefers",
];

/// Fields that say which workflow it starts.
const OF_WORKFLOW: &[&str] = &["workflow_ref", "parameters", "labels", "keys"];

/// Fields of the standard's request.
const STANDARD: &[&str] = &[
    "name",
    "expression",
    "cron",
    "timezone",
    "overlap_policy",
    "enabled",
    "description",
    "job_template",
    "type",
    "args",
    "meta",
    "options",
    "catch_up",
    "jitter",
    "until",
];

/// Longest job of a schedule, in bytes of JSON.
const TEMPLATE_BYTES_MAX: usize = 64 * 1024;

/// Longest reason for a pause, in characters.
const REASON_MAX: usize = 500;

/// Longest that fires may be put off.
const JITTER_MAX: Span = Span::from_secs(3600);

/// What a schedule is asked to be.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRequest {
    /// When it fires, as written.
    pub cron: String,
    /// The name of the time zone, if it has one.
    pub time_zone: Option<String>,
    /// What a fire does while an earlier job has not ended, as one of our words.
    pub overlap: Option<String>,
    /// What becomes of fires that were missed.
    pub catch_up: Option<String>,
    /// Most that a fire is put off.
    pub jitter: Span,
    /// The last moment at which it fires.
    pub until: Option<When>,
    /// Whether it is paused from now on, with the reason; `None` leaves that as it is.
    pub paused: Option<Option<String>>,
    /// What each fire stores.
    pub template: Template,
    /// What the request calls its fields.
    pub names: FieldNames,
}

/// A schedule as a configuration lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSchedule {
    /// Its name.
    pub name: ScheduleName,
    /// What it is to be.
    pub request: ScheduleRequest,
}

/// What each fire of a schedule stores: a request as its API takes it, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// An execution of an action.
    Execution(String),
    /// A job of a type.
    Ojs(String),
    /// A workflow of a pack.
    Workflow(String),
}

impl Template {
    /// Returns the request.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Execution(text) | Self::Ojs(text) | Self::Workflow(text) => text,
        }
    }
}

/// What a request calls its fields, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldNames {
    /// The expression.
    pub cron: &'static str,
    /// The time zone.
    pub time_zone: &'static str,
    /// What happens on overlap.
    pub overlap: &'static str,
}

/// As our own API calls them.
pub const OURS: FieldNames =
    FieldNames { cron: "cron", time_zone: "time_zone", overlap: "overlap" };

/// Checks the name of a schedule.
///
/// # Errors
/// Returns what it may consist of.
pub fn name(text: &str) -> Result<ScheduleName, Fault> {
    ScheduleName::new(text).map_err(|_not| {
        Fault::field(
            "name",
            "must have 1 to 128 characters out of a-z, A-Z, 0-9, `_`, `.`, `:` and `-`, and be \
             neither `.` nor `..`",
        )
    })
}

/// Reads a schedule from a request's body.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn read(body: &[u8]) -> Result<ScheduleRequest, Fault> {
    of_ours(&object(body)?)
}

/// Reads a schedule as a configuration lists it: with its name.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn listed(fields: &Map<String, Value>) -> Result<NamedSchedule, Fault> {
    let name = text(fields, "name")?.ok_or_else(|| Fault::field("name", "is missing"))?;
    let name = self::name(name)?;
    let mut fields = fields.clone();
    fields.remove("name");
    if let Some(number) = fields.values().find_map(long_number) {
        let problem = format!("holds {number}, which may have lost digits: write it as a text");
        return Err(Fault::rule("parameters", problem));
    }
    let request = of_ours(&fields)?;
    if matches!(request.until, Some(When::In(_))) {
        let problem =
            "must be a time such as `2030-01-31T12:00:00Z`: a configuration is read again";
        return Err(Fault::field("until", problem));
    }
    Ok(NamedSchedule { name, request })
}

/// Reads a schedule as the standard writes it, in either of its forms: with `expression` and
/// `job_template`, or with `cron` and the job's own fields.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn of_the_standard(body: &[u8]) -> Result<NamedSchedule, Fault> {
    let fields = object(body)?;
    no_others(STANDARD, &fields)?;
    let name = text(&fields, "name")?.ok_or_else(|| Fault::field("name", "is missing"))?;
    let name = self::name(name)?;
    let twice = [("expression", "cron"), ("job_template", "type"), ("job_template", "args")];
    let both =
        |(one, other): &(&str, &str)| [one, other].iter().all(|it| given(&fields, it).is_some());
    if let Some((one, other)) = twice.into_iter().find(both) {
        return Err(Fault::field(one, format!("and `{other}` are both given: one is enough")));
    }
    let cron = if given(&fields, "expression").is_some() { "expression" } else { "cron" };
    let names = FieldNames { cron, time_zone: "timezone", overlap: "overlap_policy" };
    let job = match given(&fields, "job_template") {
        Some(Value::Object(job)) => job.clone(),
        Some(_) => return Err(Fault::field("job_template", "must be an object")),
        None => {
            let own = ["type", "args", "meta", "options"];
            let own =
                own.iter().filter_map(|it| Some(((*it).to_owned(), given(&fields, it)?.clone())));
            own.collect()
        }
    };
    let overlap = text(&fields, "overlap_policy")?.map(of_policy).transpose()?;
    let request = ScheduleRequest {
        cron: text(&fields, cron)?
            .ok_or_else(|| Fault::field("expression", "is missing"))?
            .to_owned(),
        time_zone: text(&fields, "timezone")?.map(ToOwned::to_owned),
        overlap,
        catch_up: text(&fields, "catch_up")?.map(ToOwned::to_owned),
        jitter: jitter(&fields)?,
        until: until(&fields)?,
        paused: flag(&fields, "enabled")?.map(|enabled| (!enabled).then(String::new)),
        template: of_type(job)?,
        names,
    };
    Ok(NamedSchedule { name, request })
}

/// Returns our word for the standard's word for what happens on overlap.
fn of_policy(word: &str) -> Result<String, Fault> {
    let ours = match word {
        "skip" | "allow" | "queue" | "replace" => word,
        "cancel_previous" => "replace",
        "enqueue" => "queue",
        _ => {
            let problem = "must be `skip`, `allow`, `cancel_previous` or `enqueue`";
            return Err(Fault::field("overlap_policy", problem));
        }
    };
    Ok(ours.to_owned())
}

/// Returns the standard's word for one of ours.
#[must_use]
pub fn policy_of(overlap: &str) -> &str {
    match overlap {
        "replace" => "cancel_previous",
        "queue" => "enqueue",
        other => other,
    }
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Fault> {
    let Value::Object(fields) = json::read(body)? else {
        return Err(Fault::payload("request body must be a JSON object"));
    };
    // What is stored is written again from what was read.
    let field = if fields.contains_key("type") { "args" } else { "parameters" };
    json::keeps_numbers(field, json::text(body)?)?;
    Ok(fields)
}

fn of_ours(fields: &Map<String, Value>) -> Result<ScheduleRequest, Fault> {
    let kinds = [("action_ref", OF_ACTION), ("type", OF_TYPE), ("workflow_ref", OF_WORKFLOW)];
    let mut named = kinds.into_iter().filter(|(name, _)| given(fields, name).is_some());
    let (kind, job) = named.next().ok_or_else(|| {
        let problem = "is missing, and so are `type` and `workflow_ref`: a schedule names one of \
                       them";
        Fault::field("action_ref", problem)
    })?;
    if let Some((other, _)) = named.next() {
        let problem = format!("and `{other}` are both given: a schedule names one of them");
        return Err(Fault::field(kind, problem));
    }
    no_others(&[TIMING, job].concat(), fields)?;
    let of_job = |(name, _): &(&String, &Value)| job.contains(&name.as_str());
    let own: Map<String, Value> =
        fields.iter().filter(of_job).map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(ScheduleRequest {
        cron: text(fields, "cron")?.ok_or_else(|| Fault::field("cron", "is missing"))?.to_owned(),
        time_zone: text(fields, "time_zone")?.map(ToOwned::to_owned),
        overlap: text(fields, "overlap")?.map(ToOwned::to_owned),
        catch_up: text(fields, "catch_up")?.map(ToOwned::to_owned),
        jitter: jitter(fields)?,
        until: until(fields)?,
        paused: paused(fields)?,
        template: match kind {
            "action_ref" => of_action(own)?,
            "type" => of_type(own)?,
            _ => of_workflow(own)?,
        },
        names: OURS,
    })
}

fn paused(fields: &Map<String, Value>) -> Result<Option<Option<String>>, Fault> {
    let reason =
        text(fields, "pause_reason")?.map(|text| reason("pause_reason", text)).transpose()?;
    match (flag(fields, "paused")?, reason) {
        (Some(true), reason) => Ok(Some(Some(reason.unwrap_or_default()))),
        (_, Some(_)) => Err(Fault::field("pause_reason", "is for a schedule with `paused: true`")),
        (paused, None) => Ok(paused.map(|_| None)),
    }
}

/// Reads why a schedule is paused: `{"reason": …}`.
///
/// # Errors
/// Returns what is wrong with it.
pub fn pause_reason(body: &[u8]) -> Result<String, Fault> {
    let fields = known(&["reason"], body)?;
    text(&fields, "reason")?.map_or_else(|| Ok(String::new()), |text| reason("reason", text))
}

/// Checks that a request that takes nothing brings nothing.
///
/// # Errors
/// Names the field that it brings.
pub fn nothing(body: &[u8]) -> Result<(), Fault> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let Value::Object(fields) = json::read(body)? else {
        return Err(Fault::payload("request body must be empty or `{}`"));
    };
    match fields.keys().next() {
        Some(field) => Err(Fault::field(field, "is not known: this request takes no fields")),
        None => Ok(()),
    }
}

/// Reads whether a schedule is to fire: `{"enabled": …}`.
///
/// # Errors
/// Returns what is wrong with it.
pub fn enabled(body: &[u8]) -> Result<bool, Fault> {
    let fields = known(&["enabled"], body)?;
    flag(&fields, "enabled")?.ok_or_else(|| Fault::field("enabled", "is missing"))
}

/// Checks the reason for a pause.
///
/// # Errors
/// Returns what is wrong with it.
fn reason(field: &str, text: &str) -> Result<String, Fault> {
    if text.chars().count() > REASON_MAX || text.chars().any(|c| c.is_control() && c != '\n') {
        let problem = format!("must be a text of at most {REASON_MAX} characters");
        return Err(Fault::field(field, problem));
    }
    Ok(text.to_owned())
}

fn jitter(fields: &Map<String, Value>) -> Result<Span, Fault> {
    let Some(value) = given(fields, "jitter") else { return Ok(Span::ZERO) };
    duration::value(value).filter(|span| *span <= JITTER_MAX).ok_or_else(|| {
        let expected = "a duration of at most 1 h: seconds such as `90`, or `30s`, `5m`, `2h`";
        Fault::field("jitter", format!("must be {}", duration::problem(value, expected)))
    })
}

fn until(fields: &Map<String, Value>) -> Result<Option<When>, Fault> {
    let Some(text) = text(fields, "until")? else { return Ok(None) };
    When::parse(text).map(Some).ok_or_else(|| {
        let problem = "must be a time such as `2030-01-31T12:00:00Z`, or relative such as `+P30D`";
        Fault::field("until", problem)
    })
}

/// Checks what is stored of an action's job. What only makes sense for one job is refused.
fn of_action(job: Map<String, Value>) -> Result<Template, Fault> {
    let text = Value::Object(job).to_string();
    is_short("parameters", &text)?;
    Request::read(text.as_bytes())?;
    Ok(Template::Execution(text))
}

/// Checks what is stored of a workflow.
fn of_workflow(workflow: Map<String, Value>) -> Result<Template, Fault> {
    let text = Value::Object(workflow).to_string();
    is_short("parameters", &text)?;
    workflow::read(text.as_bytes())?;
    Ok(Template::Workflow(text))
}

/// Checks how long a job is: it is read at each fire, and shown in lists.
fn is_short(field: &str, text: &str) -> Result<(), Fault> {
    if text.len() > TEMPLATE_BYTES_MAX {
        let problem = format!(
            "and what else the job of a schedule is come to {} bytes; at most {TEMPLATE_BYTES_MAX} \
             are taken",
            text.len()
        );
        return Err(Fault::size(field, problem));
    }
    Ok(())
}

fn of_type(mut job: Map<String, Value>) -> Result<Template, Fault> {
    if given(&job, "args").is_none() {
        job.insert("args".to_owned(), json!([]));
    }
    let text = Value::Object(job).to_string();
    is_short("args", &text)?;
    let envelope = enqueue::one(text.as_bytes())?;
    if matches!(envelope.expires, Some(When::At(_))) {
        let problem =
            "must be relative for jobs of schedules, such as `+PT1H`; `until` ends the schedule";
        return Err(Fault::field("expires_at", problem));
    }
    let single = [
        ("id", envelope.id.is_some(), "each fire stores a job of its own"),
        (
            "unique",
            envelope.unique.is_some(),
            "`overlap` says what happens while one has not ended",
        ),
        ("scheduled_at", envelope.first.is_some(), "the expression says when it runs"),
    ];
    if let Some((name, _, why)) = single.into_iter().find(|(_, is_given, _)| *is_given) {
        return Err(Fault::field(name, format!("is not for jobs of schedules: {why}")));
    }
    Ok(Template::Ojs(text))
}

#[cfg(test)]
mod tests;
