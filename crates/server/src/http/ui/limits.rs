//! Limits: how much of each is in use, and who holds it.

use outlast_core::limit::Scope as LimitScope;
use outlast_core::time::Timestamp;
use outlast_dashboard::atoms::counted;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table, Why};
use outlast_dashboard::{Flash, Place};
use outlast_store::limit::LimitRecord;
use outlast_wire::limit::rate_text;

use super::jobs::encoded;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::limits::{self, InUse};
use crate::http::request::ApiRequest;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let snapshot = req.app.snapshot().await?;
    let frame =
        Head::new(Place::Limits, "Limits", "outlast limits list").saying(said).frame(req).await;
    let rows = snapshot.limits.iter().map(|(record, in_flight)| Row {
        key: encoded(record.limit.name.as_str()),
        testid: Some(format!("limit-{}", record.limit.name)),
        cells: vec![
            link("limits/", record),
            Cell::Text(scope(record)),
            Cell::Live(in_use(record, *in_flight)),
            Cell::text(record.limit.rate.map(rate_text)),
            Cell::Text(if record.configured { "configuration" } else { &record.set_by }.to_owned()),
            Cell::At(record.set_at),
        ],
    });
    let table = Table {
        name: "limits",
        caption: String::new(),
        columns: vec!["Limit", "On", "In use", "Rate", "Set by", "Set"],
        rows: rows.collect(),
        empty: "There are no limits. `outlast limits set` makes one.",
        grows: None,
        next: None,
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

fn link(root: &str, record: &LimitRecord) -> Cell {
    let name = record.limit.name.as_str();
    Cell::Link(name.to_owned(), format!("{root}{}", encoded(name)))
}

fn scope(record: &LimitRecord) -> String {
    format!("{} {}", record.limit.scope.kind(), record.limit.scope.of())
}

fn in_use(record: &LimitRecord, in_flight: Option<u64>) -> String {
    let most =
        record.limit.concurrency.map_or_else(|| "any number".to_owned(), |it| it.to_string());
    match in_flight {
        Some(count) => format!("{count} of {most}"),
        None => format!("{most} for each value"),
    }
}

pub(super) async fn one(
    req: &ApiRequest,
    name: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let name = outlast_wire::limit::name(name)?;
    let record = limits::find(&req.app, &name).await?;
    let used = InUse::read(&req.app, &record, req.query("value").as_deref()).await?;
    let command = format!("outlast limits show {name}");
    let frame =
        Head::new(Place::Limits, format!("Limit {name}"), command).saying(said).frame(req).await;
    let root = frame.root();
    let text = sentence(&used, &record);
    let mut sections = vec![Section::Why(Why { status: None, text, testid: "limit-why" })];
    if record.configured {
        sections.push(Section::Note(
            "The server's configuration sets it: change `limits` in its file and send SIGHUP."
                .to_owned(),
        ));
    } else if frame.reader.may.operate {
        sections.push(Section::Buttons(vec![change(&record), remove(&record)]));
    }
    if let LimitScope::Key(_) = record.limit.scope {
        sections.push(Section::Table(values(&used, &record)));
    }
    sections.push(Section::Heading("Who holds it".to_owned()));
    sections.push(Section::Table(Table {
        name: "holders",
        caption: if used.more {
            "There are more than are shown.".to_owned()
        } else {
            String::new()
        },
        columns: vec!["Job", "Worker", "Value", "Since"],
        rows: holders(&used, &root),
        empty: "No one.",
        grows: Some("holder"),
        next: None,
    }));
    sections.push(Section::Facts(vec![
        ("On", Cell::Text(scope(&record))),
        ("Rate", Cell::text(record.limit.rate.map(rate_text))),
        ("Set by", Cell::Text(record.set_by.clone())),
        ("Set", Cell::At(record.set_at)),
    ]));
    Ok(sheet::page(frame, sections))
}

/// Says how much of a limit is in use.
fn sentence(used: &InUse<'_>, record: &LimitRecord) -> String {
    let concurrency = record.limit.concurrency;
    let held: u64 = used.gates.iter().map(|(gate, _)| gate.in_flight).sum();
    let is_full = |in_flight| concurrency.is_some_and(|most| in_flight >= u64::from(most));
    let full = used.gates.iter().filter(|(gate, _)| is_full(gate.in_flight)).count();
    let most = concurrency.map_or_else(|| "any number".to_owned(), |it| it.to_string());
    match &record.limit.scope {
        LimitScope::Key(key) => {
            format!(
                "{}; {most} for each value of {key}; {}",
                counted(held, "attempt holds it", "attempts hold it"),
                counted(full as u64, "value is full", "values are full")
            )
        }
        LimitScope::Queue(_) | LimitScope::Type(_) => format!("{held} of {most} are in use"),
    }
}

fn holders(used: &InUse<'_>, root: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (gate, by) in &used.gates {
        for holder in by {
            let named = holder.worker.and_then(|id| used.workers.get(&id));
            let named = named.or(holder.plain.as_ref());
            rows.push(Row {
                key: sheet::key(holder.job),
                testid: Some("holder".to_owned()),
                cells: vec![
                    sheet::job(root, holder.job),
                    sheet::worker(root, holder.worker, named.map(String::as_str)),
                    Cell::text(gate.value.clone()),
                    Cell::At(holder.claimed),
                ],
            });
        }
    }
    rows
}

fn values(used: &InUse<'_>, record: &LimitRecord) -> Table {
    let opens = |at: Option<Timestamp>| at.map_or_else(|| Cell::Text("open".to_owned()), Cell::At);
    let rows = used.gates.iter().map(|(gate, _)| Row {
        key: encoded(gate.value.as_deref().unwrap_or_default()),
        testid: None,
        cells: vec![
            Cell::text(gate.value.clone()),
            Cell::Count(gate.in_flight),
            opens(used.opens(gate).filter(|_| record.limit.rate.is_some())),
        ],
    });
    Table {
        name: "values",
        caption: "Values that are held, those with most first.".to_owned(),
        columns: vec!["Value", "In use#", "Rate opens"],
        rows: rows.collect(),
        empty: "No value is held.",
        grows: None,
        next: None,
    }
}

fn change(record: &LimitRecord) -> Form {
    let limit = &record.limit;
    let concurrency = limit.concurrency.map(|it| it.to_string()).unwrap_or_default();
    Form::button("set", format!("{}/set", encoded(limit.name.as_str())), "Change")
        .with(Field::hidden(limit.scope.kind(), limit.scope.of()))
        .with(Field::word("concurrency", "At a time", concurrency))
        .with(
            Field::word("rate", "Rate", limit.rate.map(rate_text).unwrap_or_default())
                .such_as("100/1m"),
        )
}

fn remove(record: &LimitRecord) -> Form {
    let name = &record.limit.name;
    Form::button("remove", format!("{}/remove", encoded(name.as_str())), "Remove")
        .asks(format!("Remove limit {name}? What waits for it starts at once."))
}
