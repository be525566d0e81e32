//! Queues: how many jobs, how old, what they are held to.

use outlast_core::queue::QueueSettings;
use outlast_dashboard::atoms::counted;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table, Why};
use outlast_dashboard::{Flash, Frame, Place};
use outlast_store::query::QueueStats;
use outlast_store::queue::QueueRecord;

use super::jobs::encoded;
use super::sheet::{self, Head};
use crate::http::error::{ApiError, Missing};
use crate::http::request::ApiRequest;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let snapshot = req.app.snapshot().await?;
    let mut frame =
        Head::new(Place::Queues, "Queues", "outlast queues list").saying(said).frame(req).await;
    frame.counted = Some(snapshot.counted_at);
    let rows = snapshot.queues.iter().map(|queue| row(queue, snapshot.settings.get(&queue.name)));
    let table = Table {
        name: "queues",
        caption: "Ended jobs are counted for as long as they are kept.".to_owned(),
        columns: vec![
            "Queue",
            "State",
            "Waiting#",
            "Delayed#",
            "Retrying#",
            "Held back#",
            "Active#",
            "Completed#",
            "Cancelled#",
            "Failed#",
            "Oldest waits since",
            "Bound#",
        ],
        rows: rows.collect(),
        empty: "No job has been enqueued yet.",
        grows: None,
        next: None,
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

fn row(queue: &QueueStats, record: Option<&QueueRecord>) -> Row {
    let bound = record.and_then(|record| record.settings.max_depth);
    Row {
        key: encoded(&queue.name),
        testid: Some(format!("queue-{}", queue.name)),
        cells: vec![
            Cell::Link(queue.name.clone(), format!("queues/{}", encoded(&queue.name))),
            Cell::State(state(queue).to_owned()),
            Cell::Count(queue.available),
            Cell::Count(queue.scheduled),
            Cell::Count(queue.retryable),
            Cell::Count(queue.pending),
            Cell::Count(queue.active),
            Cell::Count(queue.completed),
            Cell::Count(queue.cancelled),
            Cell::Count(queue.discarded),
            Cell::at(queue.oldest_available),
            Cell::Text(bound.map(|bound| bound.to_string()).unwrap_or_default()),
        ],
    }
}

const fn state(queue: &QueueStats) -> &'static str {
    if queue.paused { "paused" } else { "open" }
}

pub(super) async fn one(
    req: &ApiRequest,
    name: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let store = req.app.engine.store();
    let unknown = || ApiError::not_found(Missing::Queue, format!("queue {name} is not known"));
    let queue = store.queue(name.to_owned()).await?.ok_or_else(unknown)?;
    let settings = store.queue_settings().await?.into_iter().find(|it| it.queue == name);
    let command = format!("outlast queues stats {}", super::jobs::quoted(name));
    let mut frame =
        Head::new(Place::Queues, format!("Queue {name}"), command).saying(said).frame(req).await;
    frame.counted = Some(req.app.now().await?);
    let text = match (queue.paused, queue.available) {
        (true, waiting) => {
            let waiting = counted(waiting, "job waits", "jobs wait");
            format!("paused: {waiting}, and no worker is given one")
        }
        (false, 0) => "open; no job waits for a worker".to_owned(),
        (false, waiting) => {
            format!("open; {} for a worker", counted(waiting, "job waits", "jobs wait"))
        }
    };
    let why = Why { status: Some(state(&queue).to_owned()), text, testid: "queue-why" };
    let mut sections = vec![Section::Why(why)];
    if frame.reader.may.operate {
        sections.push(Section::Buttons(buttons(&queue)));
    }
    sections.push(Section::Facts(facts(&frame, &queue, settings.as_ref())));
    if frame.reader.may.operate {
        sections.push(Section::Heading("Bound".to_owned()));
        let bound = settings.as_ref().and_then(|it| it.settings.max_depth);
        let bound = bound.map(|it| it.to_string()).unwrap_or_default();
        let form = Form::button("bound", format!("{}/set", encoded(name)), "Set")
            .with(Field::word("max_depth", "Most jobs that wait; empty for any number", bound));
        sections.push(Section::Buttons(vec![form]));
    }
    let list = format!("{}jobs?queue={}", frame.root(), encoded(name));
    sections.push(Section::Facts(vec![("Its jobs", Cell::Link("list them".to_owned(), list))]));
    Ok(sheet::page(frame, sections))
}

fn buttons(queue: &QueueStats) -> Vec<Form> {
    let to = |order: &str| format!("{}/{order}", encoded(&queue.name));
    match queue.paused {
        true => vec![Form::button("resume", to("resume"), "Resume")],
        false => {
            let words = format!(
                "Pause queue {}? No worker is given a job of it until it is resumed.",
                queue.name
            );
            vec![Form::button("pause", to("pause"), "Pause").asks(words)]
        }
    }
}

fn facts(
    frame: &Frame,
    queue: &QueueStats,
    record: Option<&QueueRecord>,
) -> Vec<(&'static str, Cell)> {
    let none = QueueSettings::default();
    let settings = record.map_or(&none, |record| &record.settings);
    let list = |status: &str| {
        format!("{}jobs?queue={}&status={status}", frame.root(), encoded(&queue.name))
    };
    let mut facts = vec![
        ("Waiting", Cell::Count(queue.available)),
        ("Delayed", Cell::Count(queue.scheduled)),
        ("Retrying", Cell::Count(queue.retryable)),
        ("Held back", Cell::Count(queue.pending)),
        ("Active", Cell::Count(queue.active)),
        ("Completed", Cell::Count(queue.completed)),
        ("Cancelled", Cell::Count(queue.cancelled)),
        ("Failed", Cell::Count(queue.discarded)),
        ("Failed ones", Cell::Link("list them".to_owned(), list("failed,timeout,abandoned"))),
        ("Oldest waits since", Cell::at(queue.oldest_available)),
    ];
    if let Some(fair) = &settings.fair {
        let weights = fair.weights.iter().map(|(value, weight)| format!("{value}: {weight}"));
        let weights = weights.collect::<Vec<_>>().join(", ");
        let words = if weights.is_empty() { "equal shares".to_owned() } else { weights };
        facts.push(("Shared by", Cell::Text(format!("{} ({words})", fair.key))));
    }
    for (name, selector) in
        [("Requires", &settings.placement.requires), ("Prefers", &settings.placement.prefers)]
    {
        if !selector.is_empty() {
            facts.push((name, Cell::Text(selector.to_string())));
        }
    }
    if let Some(record) = record {
        facts.push(("Set by", Cell::Text(record.set_by.clone())));
        facts.push(("Set", Cell::At(record.set_at)));
    }
    facts
}
