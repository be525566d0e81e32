//! What a producer sends: the envelope, read once and kept as text.
//!
//! ```text
//! body ─▶ Received (borrowed fields) ─check─▶ Envelope (the core's types + text as sent)
//! ```
//!
//! Options are read from `options`, and from the root where a client puts them there.

mod received;

use std::borrow::Cow;

use outlast_core::id::JobId;
use outlast_core::job::Overlap;
use outlast_core::keys::Keys;
use outlast_core::resources::Resources;
use outlast_core::retry::RetryPolicy;
use outlast_core::selector::{Placement, Selector};
use outlast_core::time::Span;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub use received::Received;

use crate::duration;
use crate::execution::request;
use crate::fault::Fault;
use crate::json;
use crate::keys;
use crate::ojs::{names, retry};
use crate::placement;
use crate::resources;
use crate::time::{LATEST, When};
use crate::unique::{self, UniquePolicy};

/// A job as its producer wants it, checked.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The id it asks for.
    pub id: Option<JobId>,
    /// Type.
    pub job_type: Cow<'a, str>,
    /// The `args` array as sent.
    pub args: &'a str,
    /// The `meta` object as sent; empty when there is none.
    pub meta: &'a str,
    /// Queue, if it names one.
    pub queue: Option<Cow<'a, str>>,
    /// -100 to 100, if it says so.
    pub priority: Option<i8>,
    /// Longest an attempt may run.
    pub timeout: Option<Span>,
    /// Visibility of an attempt.
    pub visibility: Option<Span>,
    /// When it may first run, if not at once.
    pub first: Option<FirstWanted>,
    /// From when on it must not be started.
    pub expires: Option<When>,
    /// Its retry policy, if it brings one.
    pub retry: Option<RetryPolicy>,
    /// Whether attempts may overlap, if it says so.
    pub overlap: Option<Overlap>,
    /// Its keys, without those of the action.
    pub keys: Keys,
    /// Which workers it wants, without what the action wants.
    pub placement: Placement,
    /// What an attempt may use; what this leaves out is the action's.
    pub resources: Resources,
    /// What makes it the only one of its sort, if it is to be.
    pub unique: Option<UniquePolicy>,
    /// What else must be given back: an object of `options` and the fields that are not
    /// known, as sent; empty when there is nothing.
    pub extra: String,
}

/// When a job wants to be run, if not at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstWanted {
    /// From this time on.
    At(When),
    /// Once it is activated: `pending: true`.
    OnActivation,
}

/// The body of a bulk enqueue.
#[derive(Deserialize)]
struct Bulk<'a> {
    #[serde(borrow)]
    jobs: Vec<Received<'a>>,
}

/// Reads one job.
///
/// # Errors
/// Returns what is wrong with it.
pub fn one(body: &[u8]) -> Result<Envelope<'_>, Fault> {
    let received: Received<'_> =
        serde_json::from_str(json::text(body)?).map_err(|error| json::syntax(&error))?;
    received.check()
}

/// Reads several jobs, all of them or none.
///
/// # Errors
/// Returns what is wrong with the first that is wrong, and its place.
pub fn bulk(body: &[u8]) -> Result<Vec<Envelope<'_>>, Fault> {
    let bulk: Bulk<'_> =
        serde_json::from_str(json::text(body)?).map_err(|error| json::syntax(&error))?;
    if bulk.jobs.is_empty() {
        return Err(Fault::field("jobs", "must hold at least one job"));
    }
    let checked = bulk.jobs.iter().enumerate();
    let checked = checked.map(|(n, job)| job.check().map_err(|fault| fault.of_job(n)));
    checked.collect()
}

/// Returns the text that a raw JSON string holds.
pub(crate) fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

fn flag(field: &str, raw: &RawValue) -> Result<bool, Fault> {
    raw.get().parse().map_err(|_not| Fault::field(field, "must be true or false"))
}

fn integer<T: TryFrom<i64>>(raw: &RawValue) -> Option<T> {
    raw.get().parse::<i64>().ok().and_then(|number| T::try_from(number).ok())
}

fn priority(raw: &RawValue) -> Result<i8, Fault> {
    let number = integer::<i8>(raw).filter(|number| (-100..=100).contains(number));
    number.ok_or_else(|| Fault::field("priority", "must be a whole number from -100 to 100"))
}

/// Reads a length in milliseconds that must not be zero.
fn millis(field: &str, raw: &RawValue) -> Result<Span, Fault> {
    duration::milliseconds(integer(raw)).map_err(|wrong| Fault::field(field, wrong))
}

/// Reads a length as ISO 8601 or seconds.
fn length(field: &str, raw: &RawValue) -> Result<Span, Fault> {
    let value: Option<Value> = serde_json::from_str(raw.get()).ok();
    let span = value.as_ref().and_then(duration::value).filter(|span| span.0 > 0);
    // `outlast.enqueue` refuses it in the same words.
    span.ok_or_else(|| Fault::field(field, "must be a duration such as `PT30S`"))
}

fn when(field: &str, raw: &RawValue) -> Result<When, Fault> {
    let text = text_of(raw).unwrap_or_default();
    When::parse(&text).ok_or_else(|| {
        // It may be a time all the same, at the end of the calendar.
        let latest = if text.starts_with("9999-") {
            format!("at the latest {LATEST}, ")
        } else {
            String::new()
        };
        // `outlast.enqueue_all` refuses others in the same words.
        let problem = format!(
            "must be a time such as `2030-01-31T12:00:00Z`, {latest}or relative such as `+PT30S`"
        );
        Fault::field(field, problem)
    })
}

fn policy(raw: &RawValue) -> Result<RetryPolicy, Fault> {
    let value: Value = serde_json::from_str(raw.get()).map_err(|error| json::syntax(&error))?;
    retry::policy(&value, RetryPolicy::standard(), retry::Unknown::Ignored)
}

fn overlap(raw: &RawValue) -> Result<Overlap, Fault> {
    request::overlap(&text_of(raw).unwrap_or_default())
}

fn keys_of(raw: &RawValue) -> Result<Keys, Fault> {
    let value: Value = serde_json::from_str(raw.get()).map_err(|error| json::syntax(&error))?;
    keys::read(&value)
}

fn resources_of(raw: &RawValue) -> Result<Resources, Fault> {
    let value: Value = serde_json::from_str(raw.get()).map_err(|error| json::syntax(&error))?;
    resources::read(&value)
}

fn selector(field: &str, raw: Option<&RawValue>) -> Result<Selector, Fault> {
    let Some(raw) = raw else { return Ok(Selector::default()) };
    placement::read(field, text_of(raw).as_deref())
}

fn unique_of(raw: &RawValue) -> Result<UniquePolicy, Fault> {
    let value: Value = serde_json::from_str(raw.get()).map_err(|error| json::syntax(&error))?;
    unique::read(&value)
}

fn queue(raw: &RawValue) -> Result<Cow<'_, str>, Fault> {
    let name = text_of(raw).ok_or_else(|| Fault::field("queue", "must be a text"))?;
    names::queue(&name)?;
    Ok(name)
}
