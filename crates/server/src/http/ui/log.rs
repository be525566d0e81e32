//! The log: what happened, and who did what.

use std::collections::HashMap;

use outlast_core::id::WorkerId;
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
    let has_place = query.before.is_some();
    let found = req.app.engine.store().newest_events(query).await;
    let NewestPage { events, previous } =
        found.map_err(|error| ApiError::of_page(error, has_place))?;
    let names = event_log::names(&req.app, &events).await?;
    let frame = Head::new(Place::Log, "Log", command(req)).saying(said).frame(req).await;
    let root = frame.root();
    let rows = events.iter().rev().map(|(cursor, event)| row(&root, cursor, event, &names));
    let next = previous.map(|before| {
        (format!("events?{}before={}", filter(req), encoded(&before)), "Earlier events")
    });
    let table = Table {
        name: "events",
        caption: "The latest ones first.".to_owned(),
        columns: vec!["When", "What", "Job", "Worker", "Who", "Evidence"],
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
    Form {
        name: "filter".to_owned(),
        action: "events".to_owned(),
        label: "Filter".to_owned(),
        fields: FIELDS.map(field).to_vec(),
        ..Form::default()
    }
}

/// The filter as it stands in a query, ready for one more field.
fn filter(req: &ApiRequest) -> String {
    let given = FIELDS.iter().filter_map(|(name, ..)| Some((name, req.query(name)?)));
    given.map(|(name, value)| format!("{name}={}&", encoded(&value))).collect()
}

fn command(req: &ApiRequest) -> String {
    let given = FIELDS.iter().filter_map(|(name, ..)| Some((name, req.query(name)?)));
    let flags = given.map(|(name, value)| format!(" --{name} {}", quoted(&value)));
    format!("outlast events{}", flags.collect::<String>())
}

fn row(root: &str, cursor: &str, event: &Event, names: &HashMap<WorkerId, String>) -> Row {
    let kind = serde_json::to_value(event.kind).ok();
    let kind = kind.and_then(|kind| kind.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    let name = event.worker.and_then(|worker| names.get(&worker)).map(String::as_str);
    let code = event.evidence.word().map(|word| format!("{word}: ")).unwrap_or_default();
    Row {
        key: cursor.to_owned(),
        testid: Some("event".to_owned()),
        cells: vec![
            Cell::At(event.at),
            Cell::Text(kind),
            event.job.map_or_else(|| Cell::text(event.queue.clone()), |job| sheet::job(root, job)),
            sheet::worker(root, event.worker, name),
            Cell::Text(event.by.clone()),
            Cell::Text(short(&format!("{code}{}", event.evidence), 300)),
        ],
    }
}
