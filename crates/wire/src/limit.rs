//! Limits as the API, the command line and the configuration write them.

use outlast_core::gate::{PERIOD_MAX, Rate, STARTS_MAX};
use outlast_core::keys::{NAME_BYTES_MAX, is_name};
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::time::Span;
use serde_json::{Map, Value};

use crate::duration;
use crate::fault::Fault;
use crate::json::fields::{given, known, no_others, text};
use crate::ojs::names;

/// Fields of the body.
const KNOWN: &[&str] = &["scope", "of", "concurrency", "rate"];

/// What a limit can be on.
const SCOPES: [&str; 3] = ["queue", "type", "key"];

/// Fields of a limit in a configuration.
const LISTED: &[&str] = &["name", "queue", "type", "key", "scope", "of", "concurrency", "rate"];

const CONCURRENCY: &str = "must be a whole number from 0 to 4294967295; 0 lets nothing start";

/// Says what a rate must look like, to follow "must be" or "which is not".
pub const RATE: &str = "starts per period, such as `100/1m` or `5/1s`: 1 to 1000000000 starts, \
                        and a period of 1 ms to 24 h";

/// Reads a limit from a request's body.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn read(name: LimitName, body: &[u8]) -> Result<Limit, Fault> {
    let fields = known(KNOWN, body)?;
    let scope = scope(text(&fields, "scope")?, text(&fields, "of")?)?;
    of_fields(name, scope, &fields)
}

/// Reads a limit as a configuration lists it: with its name, and what it is on either as in a
/// request's body or as `queue`, `type` or `key`.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn listed(fields: &Map<String, Value>) -> Result<Limit, Fault> {
    const ONE_OF: &str = "is missing; a limit is on one of `queue`, `type` and `key`";
    no_others(LISTED, fields)?;
    let name = text(fields, "name")?.ok_or_else(|| Fault::field("name", "is missing"))?;
    let name = self::name(name)?;
    let mut short = SCOPES.into_iter().filter(|kind| given(fields, kind).is_some());
    let scope = match (short.next(), short.next()) {
        (None, _) if given(fields, "scope").is_none() => return Err(Fault::field("key", ONE_OF)),
        (None, _) => scope(text(fields, "scope")?, text(fields, "of")?)?,
        (Some(first), Some(second)) => {
            let problem = format!("and `{second}` are both given: a limit is on one of them");
            return Err(Fault::field(first, problem));
        }
        (Some(kind), None) => {
            if let Some(long) = ["scope", "of"].into_iter().find(|it| given(fields, it).is_some()) {
                let problem = format!("and `{long}` are both given: a limit is on one of them");
                return Err(Fault::field(kind, problem));
            }
            let of = text(fields, kind)?.unwrap_or_default();
            let scope = Scope::parse(kind, of).ok_or_else(|| Fault::field(kind, ONE_OF))?;
            checked(scope).map_err(|problem| Fault::field(kind, problem))?
        }
    };
    of_fields(name, scope, fields)
}

fn of_fields(name: LimitName, scope: Scope, fields: &Map<String, Value>) -> Result<Limit, Fault> {
    let concurrency = given(fields, "concurrency").map(concurrency).transpose()?;
    let rate = given(fields, "rate").map(rate_value).transpose()?;
    if concurrency.is_none() && rate.is_none() {
        let problem = "or `rate` is missing: a limit has at least one of them";
        return Err(Fault::field("concurrency", problem));
    }
    Ok(Limit { name, scope, concurrency, rate })
}

/// Checks the name of a limit.
///
/// # Errors
/// Returns what it may consist of.
pub fn name(text: &str) -> Result<LimitName, Fault> {
    LimitName::new(text).map_err(|_not| {
        Fault::field("name", format!("{}, and be neither `.` nor `..`", name_problem()))
    })
}

fn scope(kind: Option<&str>, of: Option<&str>) -> Result<Scope, Fault> {
    const KIND: &str = "must be `queue`, `type` or `key`";
    let kind = kind.ok_or_else(|| Fault::field("scope", format!("is missing; it {KIND}")))?;
    let missing = || Fault::field("of", format!("is missing; it names the {kind}"));
    let scope = Scope::parse(kind, of.unwrap_or_default());
    let scope = scope.ok_or_else(|| Fault::field("scope", KIND))?;
    of.ok_or_else(missing)?;
    checked(scope).map_err(|problem| Fault::field("of", problem))
}

/// Checks what a limit applies to, or says what the name of a queue, type or key must be.
fn checked(scope: Scope) -> Result<Scope, String> {
    let fits = match &scope {
        Scope::Queue(of) => names::is_queue(of),
        Scope::Type(of) => names::job_type(of).is_ok(),
        Scope::Key(of) => is_name(of),
    };
    match &scope {
        _ if fits => Ok(scope),
        Scope::Queue(_) => Err(names::QUEUE.to_owned()),
        Scope::Type(_) => Err("must be lower-case words joined by dots, such as `email.send`, as \
                               a job's type or an action's ref"
            .to_owned()),
        Scope::Key(_) => Err(name_problem()),
    }
}

fn name_problem() -> String {
    format!("must have 1 to {NAME_BYTES_MAX} characters out of a-z, 0-9, `_`, `.` and `-`")
}

fn concurrency(value: &Value) -> Result<u32, Fault> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Fault::field("concurrency", CONCURRENCY))
}

fn rate_value(value: &Value) -> Result<Rate, Fault> {
    let rate = value.as_str().and_then(rate);
    rate.ok_or_else(|| Fault::field("rate", format!("must be {RATE}")))
}

/// Reads a rate such as `100/1m`.
#[must_use]
pub fn rate(text: &str) -> Option<Rate> {
    let (starts, period) = text.split_once('/')?;
    let starts = starts.trim();
    if starts.is_empty() || !starts.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let starts = starts.parse().ok().filter(|starts| *starts <= STARTS_MAX)?;
    let period = duration::plain(period).filter(|period| *period <= PERIOD_MAX)?;
    Rate::new(starts, period)
}

/// Shows a rate as [`rate`] reads it.
#[must_use]
pub fn rate_text(rate: Rate) -> String {
    format!("{}/{}", rate.starts(), period(rate.period()))
}

/// Shows a length of time with the largest unit of which it is a multiple.
fn period(length: Span) -> String {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let unit = UNITS.into_iter().find(|(millis, _)| length.0.is_multiple_of(*millis));
    match unit {
        Some((millis, unit)) => format!("{}{unit}", length.0 / millis),
        None => format!("{}ms", length.0),
    }
}
