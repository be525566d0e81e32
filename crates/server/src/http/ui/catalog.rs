//! Actions, each with a form that runs it; and servers.

use outlast_dashboard::pages::Text;
use outlast_dashboard::pages::sheet::{Cell, Row, Section, Table};
use outlast_dashboard::{Flash, Place};

use super::jobs::encoded;
use super::run_form;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::intake::IntakeError;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let packs = req.app.engine.settings().packs.current();
    let frame =
        Head::new(Place::Actions, "Actions", "outlast packs list").saying(said).frame(req).await;
    let rows = packs.actions().map(|action| Row {
        key: encoded(&action.reference),
        testid: Some(format!("action-{}", action.reference)),
        cells: vec![
            Cell::Link(action.reference.clone(), format!("actions/{}", encoded(&action.reference))),
            Cell::Text(action.pack.clone()),
            Cell::Text(action.runner.as_str().to_owned()),
            Cell::Text(action.description.clone()),
            Cell::Text(if action.enabled { "yes" } else { "no" }.to_owned()),
        ],
    });
    let table = Table {
        name: "actions",
        caption: "What the packs of this server have.".to_owned(),
        columns: vec!["Action", "Pack", "Runs in", "What it does", "On"],
        rows: rows.collect(),
        empty: "There are no actions.",
        ..Table::default()
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

pub(super) async fn one(
    req: &ApiRequest,
    name: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let packs = req.app.engine.settings().packs.current();
    let action = packs.get(name).ok_or_else(|| IntakeError::no_action(&packs, name))?;
    let command = format!("outlast run {}", action.reference);
    let frame = Head::new(Place::Actions, format!("Action {}", action.reference), command)
        .saying(said)
        .frame(req)
        .await;
    let hidden = &req.app.engine.settings().hidden;
    let schema = action.schema();
    let mut sections = vec![Section::Note(action.description.clone())];
    if frame.reader.may.produce && action.enabled {
        sections.push(Section::Heading("Run it".to_owned()));
        sections.push(Section::Buttons(vec![run_form::form(&action.reference, schema, hidden)]));
    }
    sections.push(Section::Facts(vec![
        ("Pack", Cell::Text(action.pack.clone())),
        ("Runs in", Cell::Text(action.runner.as_str().to_owned())),
        ("Tags", Cell::Text(action.tags.join(", "))),
    ]));
    let mut schema = schema.clone();
    hidden.mask_schema(&mut schema);
    let schema = serde_json::to_string_pretty(&schema).unwrap_or_default();
    sections.push(Section::Text("Its parameters".to_owned(), Text::of(&schema)));
    Ok(sheet::page(frame, sections))
}

/// This server, its store, and what it says of itself.
pub(super) async fn servers(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let engine = &req.app.engine;
    let (facts, health, settings) = (engine.store().facts(), engine.health(), engine.settings());
    let frame =
        Head::new(Place::Servers, "Servers", "outlast doctor").saying(said).frame(req).await;
    let up = outlast_dashboard::atoms::Lasting(crate::clock::boot_time().since(req.app.started));
    let sections = vec![
        Section::Note("The server that answers; with several behind one address, each request may see another one.".to_owned()),
        Section::Facts(vec![
            ("State", Cell::Live(if health.ready { "ready".to_owned() } else { health.store.clone() })),
            ("Store", Cell::Text(facts.kind.to_owned())),
            ("A commit is durable by", Cell::Text(facts.durability.to_owned())),
            ("Generation of the store", Cell::Text(facts.generation.to_string())),
            ("Version", Cell::Text(settings.version.to_owned())),
            ("Up for", Cell::Live(up.to_string())),
        ]),
    ];
    Ok(sheet::page(frame, sections))
}
