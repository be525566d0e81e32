//! Operations: all, one, and the page that asks before one begins.

use axum::extract::Request;
use axum::response::Response;
use outlast_core::operation::{OperationId, OperationKind, OperationStatus, typed};
use outlast_core::time::{Span, Timestamp};
use outlast_core::words;
use outlast_dashboard::atoms::{Count, Lasting};
use outlast_dashboard::pages::sheet::{Card, Cell, Field, Form, Row, Section, Table, Why};
use outlast_dashboard::{Flash, Frame, Place};
use outlast_store::operation::OperationQuery;
use outlast_store::record::JobRecord;
use outlast_wire::Fault;
use outlast_wire::execution::status::Status;
use outlast_wire::operation::allowed;
use outlast_wire::time::Rfc3339;
use serde_json::{Map, Value, json};

use super::jobs::{FIELDS, quoted, short};
use super::sheet::{self, Head};
use super::{orders, response};
use crate::access::Scope;
use crate::hidden::HiddenKeys;
use crate::http::cursor;
use crate::http::error::{ApiError, Missing};
use crate::http::operations::Speed;
use crate::http::request::ApiRequest;
use crate::http::{App, executions, operations};
use crate::operations::count::{Counted, count};
use crate::operations::definition::Definition;
use crate::operations::service::{self, Operation, Shown};

/// How many operations are on a page.
const OPERATIONS: u32 = 50;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let after = req.query("cursor").and_then(|text| cursor::read(&text).ok());
    let query = OperationQuery { running: None, after, limit: OPERATIONS };
    let (found, next) = operations::page(req, query).await?;
    let next = next.map(|cursor| (format!("operations?cursor={cursor}"), "Older operations"));
    let rows = found.iter().map(|operation| (operation.record(), state(operation)));
    let rows = rows.map(|(record, state)| Row {
        key: sheet::key(record.id),
        testid: Some("operation".to_owned()),
        cells: vec![
            Cell::Link(
                format!("{} {}", record.new.kind.as_str(), short(&record.new.about, 200)),
                format!("operations/{}", record.id),
            ),
            Cell::State(state.to_owned()),
            Cell::Count(record.matched),
            Cell::Count(record.changed),
            Cell::Count(record.skipped()),
            Cell::At(record.created),
            Cell::at(record.ended),
            Cell::Text(record.new.by.clone()),
        ],
    });
    let table = Table {
        name: "operations",
        caption: "The latest ones first.".to_owned(),
        columns: vec![
            "Operation",
            "Status",
            "Matched#",
            "Changed#",
            "Skipped#",
            "Began",
            "Ended",
            "Who",
        ],
        rows: rows.collect(),
        empty: "There are no operations. The page of jobs has buttons for all jobs that match.",
        grows: None,
        next,
    };
    let frame = Head::new(Place::Jobs, "Operations", "outlast operations list")
        .saying(said)
        .frame(req)
        .await;
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

/// How an operation stands, in one word.
fn state(operation: &Shown) -> &'static str {
    match operation {
        Shown::Whole(operation) => operation.record.status.as_str(),
        Shown::Damaged(..) => "damaged",
    }
}

pub(super) async fn one(
    req: &ApiRequest,
    id: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let unknown =
        || ApiError::not_found(Missing::Operation, format!("operation {id} is not known"));
    let id: OperationId = id.parse().map_err(|_not| unknown())?;
    let found = service::find(&req.app.engine, id, req.tenant()?.as_deref()).await?;
    let now = req.app.now().await?;
    let record = found.record();
    let kind = record.new.kind;
    let which = match &found {
        Shown::Whole(it) => it.definition.filter.in_words(kind),
        Shown::Damaged(record, _) => record.new.about.clone(),
    };
    let title = format!("{}: {}", capital(kind), short(&which, 120));
    let command = format!("outlast operations show {id}");
    let frame = Head::new(Place::Jobs, title, command).saying(said).frame(req).await;
    let text = match &found {
        Shown::Whole(operation) => sentence(operation),
        Shown::Damaged(record, problem) => format!(
            "This server cannot read which jobs it is about: {problem}. It takes no step here; a server of a later \
             build may. So far {}.",
            record.outcome()
        ),
    };
    let mut sections = vec![
        Section::Why(Why {
            status: Some(state(&found).to_owned()),
            text,
            testid: "operation-outcome",
        }),
        Section::Cards(cards(&found, now)),
    ];
    if record.status == OperationStatus::Running && may(&frame, kind) {
        let words = "Stop this operation? What it changed stays so.";
        let stop = Form::button("stop", format!("{id}/stop"), "Stop").asks(words);
        sections.push(Section::Buttons(vec![stop]));
    }
    let rows = record.skipped.iter().map(|(skip, count)| Row {
        key: skip.as_str().replace(' ', "-"),
        testid: Some("skip".to_owned()),
        cells: vec![Cell::Text(skip.as_str().to_owned()), Cell::Count(*count)],
    });
    sections.push(Section::Table(Table {
        name: "skips",
        caption: "Jobs that matched and stay as they are.".to_owned(),
        columns: vec!["Why", "Jobs#"],
        rows: rows.collect(),
        empty: "None so far.",
        grows: Some("skip"),
        next: None,
    }));
    sections.push(Section::Facts(facts(&found, which)));
    Ok(sheet::page(frame, sections))
}

/// Says how an operation stands.
fn sentence(Operation { record, definition }: &Operation) -> String {
    let outcome = record.outcome();
    match record.status {
        OperationStatus::Running => format!("So far {outcome}."),
        OperationStatus::Done => match (record.matched, definition.expected) {
            (0, _) => "No job matched any more.".to_owned(),
            (matched, Some(expected)) if matched < expected => format!(
                "Done: {outcome}. Of the {expected} that matched when it was decided, {} had changed before \
                 they were reached.",
                expected - matched
            ),
            _ => format!("Done: {outcome}."),
        },
        OperationStatus::Stopped | OperationStatus::Failed => {
            format!("{}: {outcome}. {}", record.status.as_str(), record.note)
        }
    }
}

fn cards(operation: &Shown, now: Timestamp) -> Vec<Card> {
    let record = operation.record();
    let estimate = operation.definition().and_then(|definition| definition.estimate);
    let card = |label: &str, value: String, testid: &str| Card {
        label: label.to_owned(),
        value,
        testid: format!("operation-{testid}"),
        href: None,
    };
    let speed = Speed::of(record, estimate, now);
    let all = estimate.map(|all| format!(" of about {}", Count(all.max(record.matched))));
    let of = all.filter(|_| record.status == OperationStatus::Running).unwrap_or_default();
    let left = speed.seconds_left.map(|left| Lasting(Span::from_secs(left)).to_string());
    vec![
        card("looked at", format!("{}{of}", Count(record.matched)), "matched"),
        card(record.new.kind.done(), Count(record.changed).to_string(), "changed"),
        card("skipped", Count(record.skipped()).to_string(), "skipped"),
        card("a second", Count(speed.rate).to_string(), "rate"),
        card("time left", left.unwrap_or_else(|| "-".to_owned()), "left"),
    ]
}

fn facts(operation: &Shown, which: String) -> Vec<(&'static str, Cell)> {
    let (record, definition) = (operation.record(), operation.definition());
    let as_of = definition.and_then(|it| it.as_of).unwrap_or(record.created);
    vec![
        ("Id", Cell::Text(record.id.to_string())),
        ("Which jobs", Cell::Text(which)),
        ("As of", Cell::At(as_of)),
        ("Why", Cell::text(definition.map(|it| it.reason.clone()))),
        ("Who", Cell::Text(record.new.by.clone())),
        ("Began", Cell::At(record.created)),
        ("Latest step", Cell::LiveAt(record.updated)),
        ("Ended", Cell::at(record.ended)),
    ]
}

fn capital(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Cancel => "Cancel",
        OperationKind::Retry => "Retry",
    }
}

/// A link to the page that asks before all jobs of a list are changed.
pub(super) struct Bulk {
    pub(super) kind: OperationKind,
    /// The query of that page.
    pub(super) query: String,
}

/// Returns what a reader may do with all jobs that match a list's query.
pub(super) fn offered(statuses: &str, query: &str, frame: &Frame) -> Vec<Bulk> {
    let words: Vec<&str> =
        statuses.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let fits = |kind: OperationKind| {
        words.iter().all(|word| allowed(kind).iter().any(|status| status.as_str() == *word))
    };
    let kinds = OperationKind::ALL.into_iter().filter(|kind| may(frame, *kind) && fits(*kind));
    let of = |kind: OperationKind| {
        let and = if query.is_empty() { "" } else { "&" };
        Bulk { kind, query: format!("kind={}{and}{query}", kind.as_str()) }
    };
    kinds.map(of).collect()
}

/// Reads the filter of a list of jobs.
fn filter_of(req: &ApiRequest) -> Result<Value, Fault> {
    let mut filter = Map::new();
    for name in FIELDS {
        if let Some(value) = req.query(name) {
            filter.insert(name.to_owned(), json!(value));
        }
    }
    let keys = executions::keys(req)?;
    if !keys.is_empty() {
        filter.insert("keys".to_owned(), json!(keys));
    }
    if filter.is_empty() {
        filter.insert("all".to_owned(), json!(true));
    }
    Ok(Value::Object(filter))
}

/// Asks before an operation begins: how many jobs, which, and some of them.
pub(super) async fn asks(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    super::jobs::filters_only(req)?;
    let body = json!({"kind": req.query("kind"), "filter": filter_of(req)?}).to_string();
    let now = req.app.now().await?;
    let request = outlast_wire::operation::read(body.as_bytes(), now)?;
    let definition = operations::definition(&req.app, request, req.tenant()?).await?;
    let counted = count(&req.app.engine, &definition, None).await?;
    // What came while they were counted is among them.
    let as_of = req.app.engine.store().now().await?;
    let mut frame = Head::new(
        Place::Jobs,
        format!("{} all that match?", capital(definition.kind)),
        command(&definition),
    )
    .saying(said)
    .frame(req)
    .await;
    // What is asked stays as it was read.
    frame.is_live = false;
    let root = frame.root();
    let text = sentence_of(&counted, &definition.filter.in_words(definition.kind));
    let mut sections = vec![Section::Why(Why { status: None, text, testid: "bulk-count" })];
    if counted.matched > 0 || !counted.is_exact {
        let hidden = &req.app.engine.settings().hidden;
        sections.push(Section::Table(examples(&root, &counted.examples, hidden)));
        sections.push(Section::Note(
            "Jobs that are made later, or change before they are reached, stay as they are. The operation goes \
             on at the server, and can be stopped."
                .to_owned(),
        ));
        if may(&frame, definition.kind) {
            sections.push(Section::Buttons(vec![begin_form(&definition, &counted, as_of)]));
        }
    }
    Ok(sheet::page(frame, sections))
}

fn may(frame: &Frame, kind: OperationKind) -> bool {
    orders::has(frame.reader.may, operations::scope_of(kind))
}

/// Says how many match, as far as that is known.
fn sentence_of(counted: &Counted, jobs: &str) -> String {
    let jobs = jobs.strip_prefix("all ").unwrap_or(jobs);
    match (counted.matched, counted.is_exact) {
        (0, true) => format!("None of the {jobs}."),
        (0, false) => format!("None so far of the {jobs}: only the newest jobs were looked at."),
        (matched, true) => format!("{} {jobs}.", Count(matched)),
        (matched, false) => format!(
            "At least {} {jobs}: only the newest jobs were looked at, and there may be many more.",
            Count(matched)
        ),
    }
}

fn begin_form(definition: &Definition, counted: &Counted, as_of: Timestamp) -> Form {
    let matched = counted.matched;
    let kind = definition.kind;
    let jobs = match counted.is_exact {
        true => words::counted(matched, "job", "jobs"),
        false => "all jobs that match".to_owned(),
    };
    let mut form = Form::button("begin", "begin", &format!("{} {jobs}", capital(kind)))
        .with(Field::hidden("kind", kind.as_str()))
        .with(Field::hidden("filter", definition.filter.document().to_string()))
        .with(Field::hidden("expected", matched.to_string()))
        .with(Field::hidden("at_least", (!counted.is_exact).to_string()))
        .with(Field::hidden("as_of", Rfc3339(as_of).to_string()))
        .with(sheet::once());
    form.is_dangerous = true;
    if let Some(word) = typed(matched, counted.is_exact) {
        let mut field = Field::word("typed", &format!("Type {word} to go on"), "");
        field.is_required = true;
        form = form.with(field);
    }
    form.with(Field::word("reason", "Why, for the log", ""))
}

fn examples(root: &str, jobs: &[JobRecord], hidden: &HiddenKeys) -> Table {
    let rows = jobs.iter().map(|job| Row {
        key: sheet::key(job.job.id),
        testid: Some("example".to_owned()),
        cells: vec![
            sheet::job(root, job.job.id),
            Cell::Text(job.job.key.job_type.clone()),
            Cell::Text(job.job.key.queue.clone()),
            Cell::State(executions::status(job).as_str().to_owned()),
            Cell::At(job.job.created),
            Cell::Text(short(
                &super::job::message(job.error.as_deref(), hidden).unwrap_or_default(),
                200,
            )),
        ],
    });
    Table {
        name: "examples",
        caption: "For instance".to_owned(),
        columns: vec!["Job", "Type", "Queue", "Status", "Made", "Error"],
        rows: rows.collect(),
        ..Table::default()
    }
}

/// The command that does the same.
fn command(definition: &Definition) -> String {
    let filter = &definition.filter;
    let statuses: Vec<&str> =
        filter.statuses.iter().map(|status: &Status| status.as_str()).collect();
    let statuses = (!statuses.is_empty()).then(|| statuses.join(","));
    let key = filter.keys.iter().next().map(|(name, value)| format!("{name}={value}"));
    let flags = [
        ("--status", statuses),
        ("--queue", filter.queue.clone()),
        ("--type", filter.job_type.clone()),
        ("--worker", filter.worker.clone()),
        ("--key", key),
        ("--error-contains", filter.error.clone()),
        ("--schedule", filter.schedule.as_ref().map(ToString::to_string)),
        ("--workflow", filter.workflow.map(|id| id.to_string())),
        ("--since", filter.created_from.map(|at| Rfc3339(at).to_string())),
        ("--before", filter.created_before.map(|at| Rfc3339(at).to_string())),
    ];
    let given = flags.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    let words: String = given.map(|(flag, value)| format!(" {flag} {}", quoted(&value))).collect();
    let words = if words.is_empty() { " --all".to_owned() } else { words };
    format!("outlast jobs {}{words} --dry-run", definition.kind.as_str())
}

/// Begins an operation that was asked for, and shows it; or says why not.
pub(super) async fn begin(app: App, request: Request) -> Response {
    let asking = response::Asking::of(&request);
    let mut req = match orders::admitted(app.clone(), request, Scope::Produce).await {
        Ok(req) => req,
        Err(error) => return asking.refused(&app, error),
    };
    let Some(look) = req.for_path("operations/begin") else {
        return asking.refused(&app, ApiError::Internal("the path is no URI".to_owned()));
    };
    let back = "../jobs".to_owned();
    let read = req.fields().await.and_then(|fields| Ok((asked(&fields)?, fields)));
    let (body, fields) = match read {
        Ok(read) => read,
        Err(error) => return response::not_done(&look, &error, back).await,
    };
    let req = orders::sent_once(req.with_json(&body), &fields, &body);
    match operations::begin(req).await {
        Ok(made) => {
            let made: Value = serde_json::from_slice(&made.body).unwrap_or_default();
            let id = made["data"]["id"].as_str().unwrap_or_default();
            response::to(&format!("./{id}"))
        }
        Err(failure) => response::not_done(&look, &failure, back).await,
    }
}

/// Reads a form that was shown by [`asks`], if the number was typed that it asked for.
fn asked(fields: &[(String, String)]) -> Result<Value, Fault> {
    let given = |name: &str| orders::given(fields, name);
    let expected: u64 = given("expected").and_then(|text| text.parse().ok()).unwrap_or(0);
    let given_word = given("typed").unwrap_or_default().replace([',', ' '], "");
    let is_exact = given("at_least") != Some("true");
    let word = typed(expected, is_exact);
    if let Some(word) = word.filter(|word| *word != given_word) {
        let what = if is_exact { ", the number of jobs" } else { ": not all could be counted" };
        let problem = format!("must be {word}{what}; nothing was changed");
        return Err(Fault::rule("typed", problem));
    }
    let filter: Value = given("filter")
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| Fault::field("filter", "is missing"))?;
    Ok(json!({
        "kind": given("kind"),
        "filter": filter,
        "expected": expected,
        "as_of": given("as_of"),
        "reason": given("reason"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(typed: &str, expected: &str, at_least: bool) -> Vec<(String, String)> {
        [
            ("kind", "cancel"),
            ("filter", r#"{"queue":"mail"}"#),
            ("expected", expected),
            ("at_least", if at_least { "true" } else { "false" }),
            ("as_of", "2026-01-01T00:00:00Z"),
            ("typed", typed),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    #[test]
    fn number_is_typed_above_a_hundred() {
        let refused = |typed, expected| asked(&fields(typed, expected, false)).is_err();
        assert!(!refused("", "100") && !refused("1204", "1204") && !refused(" 1,204 ", "1204"));
        assert!(refused("", "101") && refused("120", "1204") && refused("1204x", "1204"));
        let body = asked(&fields("1204", "1204", false)).unwrap();
        assert_eq!((&body["filter"], &body["expected"]), (&json!({"queue": "mail"}), &json!(1204)));
    }

    #[test]
    fn all_is_typed_where_not_all_were_counted() {
        let refused = |typed, expected| asked(&fields(typed, expected, true)).is_err();
        assert!(!refused("all", "0") && !refused("all", "3") && !refused("all", "10000"));
        assert!(
            refused("", "0") && refused("", "3") && refused("3", "3") && refused("10000", "10000")
        );
        let counted = |matched, is_exact| Counted { matched, is_exact, examples: Vec::new() };
        let says = |matched, is_exact| sentence_of(&counted(matched, is_exact), "failed jobs");
        assert_eq!(says(0, true), "None of the failed jobs.");
        assert!(says(0, false).starts_with("None so far of the failed jobs:"));
        assert!(says(3, false).starts_with("At least 3 failed jobs:"));
    }
}
