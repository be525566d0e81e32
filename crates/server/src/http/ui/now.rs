//! The first page: what needs someone, worst first, by the names of the alert rules.

use outlast_core::finding;
use outlast_core::job::State;
use outlast_dashboard::atoms::{Count, Lasting, counted};
use outlast_dashboard::pages::sheet::{Card, Cell, Finding, Row, Section, Table};
use outlast_dashboard::{Flash, Place};

use super::numbers;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::findings;
use crate::http::request::ApiRequest;
use crate::metrics::hour::{Happened, Hour};
use crate::snapshot::Snapshot;

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let (facts, snapshot) = findings::facts(&req.app).await?;
    let mut frame = Head::new(Place::Now, "Now", "outlast doctor").saying(said).frame(req).await;
    frame.counted = Some(snapshot.counted_at);
    let found = finding::findings(&facts);
    let mut sections = Vec::new();
    if found.is_empty() {
        let is_whole = [&facts.lost, &facts.letters, &facts.skips].iter().all(|it| it.is_whole);
        let (old, recent) = (Lasting(finding::OLD), Lasting(facts.lost.over));
        let running = counted(facts.workers.running, "worker runs", "workers run");
        let waiting = counted(facts.waiting, "job waits", "jobs wait");
        sections.push(Section::Note(match is_whole {
            true => format!(
                "✓ Nothing needs you: {running}, {waiting} and none for longer than {old}, none was \
                 lost in the last {recent}."
            ),
            false => format!(
                "Nothing was found that needs you: {running}, {waiting} and none for longer than {old}. The \
                 log has too many events to look back {recent}; alert rules count what was lost."
            ),
        }));
    }
    sections.extend(found.into_iter().map(|it| Section::Finding(shown(it))));
    sections.push(Section::Heading("Jobs".to_owned()));
    sections.push(Section::Cards(cards(&snapshot)));
    sections.extend(last_hour(&req.app.engine.counters().hour()));
    Ok(sheet::page(frame, sections))
}

/// The key of a row, what it counts in words, and how.
type HourRow = (&'static str, &'static str, fn(&Happened) -> u64);

/// Shows what this server did in the last hour.
fn last_hour(hour: &Hour) -> [Section; 2] {
    let rows: [HourRow; 5] = [
        ("enqueued", "Jobs enqueued", |it| it.enqueued),
        ("claimed", "Attempts begun", |it| it.claimed),
        ("completed", "Attempts completed", |it| it.completed),
        ("failed", "Attempts failed", |it| it.failed),
        ("lost", "Attempts lost", |it| it.lost),
    ];
    let row = |(key, what, of): HourRow| {
        let minutes: Vec<u64> = hour.minutes().map(of).collect();
        Row {
            key: key.to_owned(),
            testid: Some(format!("hour-{key}")),
            cells: vec![
                Cell::Text(what.to_owned()),
                Cell::Count(minutes.last().copied().unwrap_or(0)),
                Cell::Count(minutes.iter().sum()),
                Cell::Bars(minutes),
            ],
        }
    };
    let table = Table {
        name: "hour",
        caption: "What this server did; each server counts its own, from its start.".to_owned(),
        columns: vec!["What", "Last whole minute#", "Last hour#", "Each minute, the newest last"],
        rows: rows.into_iter().map(row).collect(),
        ..Table::default()
    };
    [Section::Heading("Last hour".to_owned()), Section::Table(table)]
}

fn cards(snapshot: &Snapshot) -> Vec<Card> {
    let card = |(state, count): (State, u64)| Card {
        label: state.as_str().to_owned(),
        value: Count(count).to_string(),
        testid: format!("count-{}", state.as_str()),
        href: Some("jobs".to_owned()),
    };
    numbers::totals(snapshot).into_iter().map(card).collect()
}

fn shown(found: finding::Finding) -> Finding {
    let finding::Finding { rule, what, evidence, fix, page } = found;
    Finding {
        name: rule.name().to_owned(),
        is_worst: rule.is_worst(),
        what,
        evidence,
        remedy: fix,
        href: Some(page),
    }
}
