//! The list of jobs.

use std::fmt::Write as _;

use outlast_core::job::State;
use outlast_dashboard::pages::{BulkLink, Filter, JobRow, JobsPage, StateCount, html};
use outlast_dashboard::{Flash, Place};
use outlast_store::record::JobRecord;
use outlast_wire::Fault;

use super::operations::{self, Bulk};
use super::{frame, job, numbers};
use crate::hidden::HiddenKeys;
use crate::http::error::ApiError;
use crate::http::executions;
pub(super) use crate::http::request::encoded;
use crate::http::request::{ApiRequest, decoded};

/// Most rows of a page.
const ROWS_MAX: u32 = 50;
/// Longest reason in a list, in characters.
const WHY_MAX: usize = 200;

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    filters_only(req)?;
    let filter = filter(req);
    let mut query = executions::asked(req).await?;
    query.page.limit = query.page.limit.min(ROWS_MAX);
    let has_cursor = query.page.cursor.is_some();
    let found = req.app.engine.store().jobs(query).await;
    let found = found.map_err(|error| ApiError::of_page(error, has_cursor))?;
    let reasons = req.app.engine.waiting_reasons(&found.jobs).await;
    let hidden = &req.app.engine.settings().hidden;
    let rows = found.jobs.iter().zip(reasons);
    let rows = rows.map(|(record, reason)| row(record, reason, hidden)).collect();
    let snapshot = req.app.snapshot().await?;
    let totals = numbers::totals(&snapshot);
    let counts = totals.into_iter().map(|(state, count)| count_of(state, count)).collect();
    let next = found.next.map(|cursor| query_of(req, Some(cursor)));
    let mut frame = frame::of(req, Place::Jobs, "Jobs".to_owned(), command(&filter)).await;
    frame.counted = Some(snapshot.counted_at);
    frame.flash = said;
    let offered = operations::offered(&filter.status, &query_of(req, None), &frame);
    let bulk =
        offered.into_iter().map(|Bulk { kind, query }| BulkLink { kind: kind.as_str(), query });
    let bulk = bulk.collect();
    Ok(html(&JobsPage { frame, counts, filter, bulk, rows, next, note: None }))
}

fn filter(req: &ApiRequest) -> Filter {
    let of = |name: &str| req.query(name).unwrap_or_default();
    Filter {
        status: of("status"),
        queue: of("queue"),
        action_ref: of("action_ref"),
        worker: of("worker"),
        key: of("key"),
        error_contains: of("error_contains"),
        id: of("id"),
        schedule: of("schedule"),
        workflow: of("workflow"),
        created_after: of("created_after"),
        created_before: of("created_before"),
    }
}

/// The names of the other parameters of these pages.
const OTHERS: [&str; 4] = ["kind", "cursor", "limit", "done"];

/// The names of the parameters that say which jobs are listed, besides `key`.
pub(super) const FIELDS: [&str; 11] = [
    "status",
    "queue",
    "action_ref",
    "worker",
    "error_contains",
    "id",
    "id_suffix",
    "schedule",
    "workflow",
    "created_after",
    "created_before",
];

/// Refuses a filter that there is not, and one that is given twice: left out, it would select more jobs.
pub(super) fn filters_only(req: &ApiRequest) -> Result<(), Fault> {
    let query = req.parts().uri.query().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut seen = Vec::new();
    for (name, value) in pairs.map(|(name, value)| (decoded(name), value)) {
        let is_filter = FIELDS.contains(&name.as_str());
        if !is_filter && name != "key" && !OTHERS.contains(&name.as_str()) {
            let problem = format!("is no filter; there are {}, key", FIELDS.join(", "));
            return Err(Fault::field(&name, problem));
        }
        if is_filter && !value.is_empty() {
            if seen.contains(&name) {
                return Err(Fault::rule(&name, "is given twice, and a job has one"));
            }
            seen.push(name);
        }
    }
    Ok(())
}

/// Writes a query that lists the jobs that a request lists, of which some have no field in the form.
fn query_of(req: &ApiRequest, cursor: Option<String>) -> String {
    let given = FIELDS.iter().filter_map(|name| Some((*name, req.query(name)?)));
    let keys = req.every("key").into_iter().map(|pair| ("key", pair));
    query(given.chain(keys).chain(cursor.map(|cursor| ("cursor", cursor))))
}

/// Writes a query of what has a value.
fn query(parameters: impl Iterator<Item = (&'static str, String)>) -> String {
    let mut query = String::new();
    for (name, value) in parameters.filter(|(_, value)| !value.is_empty()) {
        let and = if query.is_empty() { "" } else { "&" };
        // Writing to a string cannot fail.
        let _ = write!(query, "{and}{name}={}", encoded(&value));
    }
    query
}

/// The command that lists the same jobs.
fn command(filter: &Filter) -> String {
    let flags = [
        ("--status", &filter.status),
        ("--queue", &filter.queue),
        ("--action", &filter.action_ref),
        ("--worker", &filter.worker),
        ("--key", &filter.key),
        ("--error-contains", &filter.error_contains),
        ("--schedule", &filter.schedule),
        ("--workflow", &filter.workflow),
    ];
    let mut command = "outlast jobs list".to_owned();
    for (flag, value) in flags.into_iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(command, " {flag} {}", quoted(value));
    }
    command
}

/// Quotes a word for a shell, if it needs that.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._=:/@,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn count_of(state: State, count: u64) -> StateCount {
    let status = match state {
        State::Scheduled | State::Available | State::Pending | State::Retryable => "requested",
        State::Active => "scheduled,running",
        State::Completed => "completed",
        State::Cancelled => "cancelled",
        State::Discarded => "failed,timeout,abandoned",
    };
    StateCount { state: state.as_str(), query: format!("status={}", encoded(status)), count }
}

fn row(record: &JobRecord, reason: Option<String>, hidden: &HiddenKeys) -> JobRow {
    let why = reason.or_else(|| job::message(record.error.as_deref(), hidden));
    JobRow {
        id: record.job.id.to_string(),
        job_type: record.job.key.job_type.clone(),
        queue: record.job.key.queue.clone(),
        status: executions::status(record).as_str(),
        attempt: record.epoch.0,
        created: record.job.created,
        worker: record.last_holder.as_ref().and_then(|holder| holder.name.clone()),
        why: short(&why.unwrap_or_default(), WHY_MAX),
    }
}

/// Cuts a text after so many characters.
pub(super) fn short(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, command, encoded, query, quoted, short};

    #[test]
    fn filter_survives_its_way_through_a_query_and_a_shell() {
        let filter = Filter {
            queue: "a&b=c".into(),
            error_contains: "it's \"50 %\"".into(),
            ..Filter::default()
        };
        let given = [
            ("queue", filter.queue.clone()),
            ("worker", String::new()),
            ("error_contains", filter.error_contains.clone()),
            ("cursor", "c/1".into()),
        ];
        let wanted = "queue=a%26b%3Dc&error_contains=it%27s%20%2250%20%25%22&cursor=c%2F1";
        assert_eq!(query(given.into_iter()), wanted);
        let words = r#"outlast jobs list --queue 'a&b=c' --error-contains 'it'\''s "50 %"'"#;
        assert_eq!(command(&filter), words);
        assert_eq!((encoded("żó"), quoted("")), ("%C5%BC%C3%B3".into(), "''".into()));
        assert_eq!([short("żółw", 4), short("żółw", 3)], ["żółw", "żół…"]);
    }
}
