//! The log: what happened, and who did what.

use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use outlast_store::event::{Event, NewestPage, NewestQuery};

use super::jobs::{encoded, quoted, short};
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::event_log;
use crate::http::request::ApiRequest;

/// How many events are on a page.
const EVENTS: u32 = 100;

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let now = req.app.now().await?;
    let of = event_log::asked(req).await?;
    let of = outlast_store::event::EventQuery { limit: EVENTS, ..of };
    let query = NewestQuery {
        of,
        since: req.time("since", now)?,
        until: req.time("until", now)?,
        before: req.query("before"),
    };
    let is_audit = query.of.audit;
    let has_place = query.before.is_some();
    let found = req.app.engine.store().newest_events(query).await;
    let NewestPage { events, previous } =
        found.map_err(|error| ApiError::of_page(error, has_place))?;
    let names = event_log::names(&req.app, &events).await?;
    let frame = Head::new(Place::Log, "Log", command(req)).saying(said).frame(req).await;
    let root = frame.root();
    let row = if is_audit { audit_row } else { log_row };
    let rows = events.iter().rev().map(|(cursor, event)| {
        let name = event.worker.and_then(|worker| names.get(&worker)).map(String::as_str);
        row(&root, cursor, event, name)
    });
    let next = previous.map(|before| {
        (format!("events?{}before={}", filter(req), encoded(&before)), "Earlier events")
    });
    let (caption, columns) = match is_audit {
        true => (
            "Changes by people and programs that asked for them, the latest ones first.",
            vec!["When", "Who", "From", "What", "To what", "Evidence"],
        ),
        false => (
            "The latest ones first.",
            vec!["When", "What", "Job", "Worker", "Who", "From", "Evidence"],
        ),
    };
    let table = Table {
        name: "events",
        caption: caption.to_owned(),
        columns,
        rows: rows.collect(),
        empty: "No event matches.",
        grows: req.query("before").is_none().then_some("event"),
        next,
    };
    Ok(sheet::page(frame, vec![Section::Filter(choose(req)), Section::Table(table)]))
}

const FIELDS: [(&str, &str, &str); 6] = [
    ("type", "What", "job.lost, worker.*"),
    ("queue", "Queue", ""),
    ("job", "Job", "id"),
    ("worker", "Worker", "id or name"),
    ("since", "Since", "2h"),
    ("until", "Until", ""),
];

fn choose(req: &ApiRequest) -> Form {
    let field = |(name, label, example): (&str, &str, &str)| {
        Field::word(name, label, req.query(name).unwrap_or_default()).such_as(example)
    };
    let audit =
        Field::word("audit", "Only changes on request", req.query("audit").unwrap_or_default())
            .of(&["false", "true"]);
    Form {
        name: "filter".to_owned(),
        action: "events".to_owned(),
        label: "Filter".to_owned(),
        fields: FIELDS.map(field).into_iter().chain([audit]).collect(),
        ..Form::default()
    }
}

/// The filter as it stands in a query, ready for one more field.
fn filter(req: &ApiRequest) -> String {
    let names = FIELDS.iter().map(|(name, ..)| *name).chain(["audit"]);
    let given = names.filter_map(|name| Some((name, req.query(name)?)));
    given.map(|(name, value)| format!("{name}={}&", encoded(&value))).collect()
}

fn command(req: &ApiRequest) -> String {
    let given = FIELDS.iter().filter_map(|(name, ..)| Some((name, req.query(name)?)));
    let flags = given.map(|(name, value)| format!(" --{name} {}", quoted(&value)));
    let audit = if req.flag("audit").unwrap_or_default() { " --audit" } else { "" };
    format!("outlast events{audit}{}", flags.collect::<String>())
}

/// The name of an event, which leads to the log as it was when this was its latest event.
fn what(cursor: &str, event: &Event) -> Cell {
    Cell::Link(event.kind.word(), format!("events?before={}", encoded(cursor)))
}

/// Who did it, and from where.
fn who(event: &Event) -> [Cell; 2] {
    let author = event.author();
    let who = author.map_or(event.by.as_str(), |author| author.who);
    [Cell::Text(who.to_owned()), Cell::text(author.map(|author| author.from.to_string()))]
}

fn evidence(event: &Event) -> Cell {
    let code = event.evidence.word().map(|word| format!("{word}: ")).unwrap_or_default();
    Cell::Text(short(&format!("{code}{}", event.evidence), 300))
}

fn log_row(root: &str, cursor: &str, event: &Event, worker: Option<&str>) -> Row {
    let [who, from] = who(event);
    Row {
        key: cursor.to_owned(),
        testid: Some("event".to_owned()),
        cells: vec![
            Cell::At(event.at),
            what(cursor, event),
            event.job.map_or_else(|| Cell::text(event.queue.clone()), |job| sheet::job(root, job)),
            sheet::worker(root, event.worker, worker),
            who,
            from,
            evidence(event),
        ],
    }
}

/// Where it is to no job, worker or queue, the evidence says to what.
fn audit_row(root: &str, cursor: &str, event: &Event, worker: Option<&str>) -> Row {
    let [who, from] = who(event);
    let to_what = match (event.job, event.worker) {
        (Some(job), _) => sheet::job(root, job),
        (None, Some(_)) => sheet::worker(root, event.worker, worker),
        (None, None) => Cell::text(event.queue.as_ref().map(|queue| format!("queue {queue}"))),
    };
    Row {
        key: cursor.to_owned(),
        testid: Some("event".to_owned()),
        cells: vec![Cell::At(event.at), who, from, what(cursor, event), to_what, evidence(event)],
    }
}
