//! Schedules: when they fire next, when they fired, and what was left out.

use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_dashboard::pages::Text;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table, Why};
use outlast_dashboard::{Flash, Frame, Place};
use outlast_schedule::progress::{LastFire, LastSkip, Progress};
use outlast_store::schedule::ScheduleQuery;
use outlast_wire::schedule::Template;

use super::jobs::encoded;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::schedules::status;
use crate::schedules::service::{self, Listed, Schedule, ScheduleError};

/// How many schedules are on a page.
const SCHEDULES: u32 = 100;
/// How many of the fires to come are shown.
const NEXT: usize = 10;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let after = req.query("after").and_then(|name| ScheduleName::new(&name).ok());
    let query = ScheduleQuery { after, limit: SCHEDULES };
    let Listed { schedules: found, next } = service::list(&req.app.engine, query, None).await?;
    let frame =
        Head::new(Place::Schedules, "Schedules", "outlast cron list").saying(said).frame(req).await;
    let next =
        next.map(|last| (format!("schedules?after={}", encoded(last.as_str())), "More schedules"));
    let table = Table {
        name: "schedules",
        caption: String::new(),
        columns: vec![
            "Schedule",
            "State",
            "Fires",
            "Zone",
            "Does",
            "Next fire",
            "Last fire",
            "Skipped#",
            "Last skip",
        ],
        rows: found.iter().map(|schedule| row(&frame, schedule)).collect(),
        empty: "There are no schedules. `outlast cron add` makes one.",
        grows: None,
        next,
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

fn row(_frame: &Frame, schedule: &Schedule) -> Row {
    let (progress, timing) = (&schedule.progress, &schedule.definition.timing);
    let name = schedule.name().as_str();
    Row {
        key: encoded(name),
        testid: Some(format!("schedule-{name}")),
        cells: vec![
            Cell::Link(name.to_owned(), format!("schedules/{}", encoded(name))),
            Cell::State(status(schedule).to_owned()),
            Cell::Text(timing.expression.as_str().to_owned()),
            Cell::Text(timing.zone.name().to_owned()),
            Cell::Text(does(schedule)),
            next_fire(progress),
            progress
                .last_fire
                .as_ref()
                .map_or_else(|| Cell::Text(String::new()), |it| Cell::LiveAt(it.at)),
            Cell::Count(progress.skipped),
            Cell::Live(progress.last_skip.as_ref().map(|it| it.reason.clone()).unwrap_or_default()),
        ],
    }
}

fn next_fire(progress: &Progress) -> Cell {
    match progress.next.filter(|_| progress.paused.is_none()) {
        Some(next) => Cell::LiveAt(next),
        None => Cell::Text(String::new()),
    }
}

fn does(schedule: &Schedule) -> String {
    let (kind, text) = match &schedule.definition.template {
        Template::Execution(text) => ("action_ref", text),
        Template::Ojs(text) => ("type", text),
        Template::Workflow(text) => ("workflow_ref", text),
    };
    let found = outlast_wire::json::field(text, kind);
    let name = found.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let what = if kind == "workflow_ref" { "workflow " } else { "" };
    format!("{what}{}", name.unwrap_or_default())
}

pub(super) async fn one(
    req: &ApiRequest,
    name: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let name = outlast_wire::schedule::name(name)?;
    let found = service::find(&req.app.engine, &name, None).await?;
    let schedule = found.ok_or_else(|| ApiError::from(ScheduleError::NotFound(name.clone())))?;
    let command = format!("outlast cron show {name}");
    let frame = Head::new(Place::Schedules, format!("Schedule {name}"), command)
        .saying(said)
        .frame(req)
        .await;
    let root = frame.root();
    let (progress, timing) = (&schedule.progress, &schedule.definition.timing);
    let mut sections = vec![Section::Why(Why {
        status: Some(status(&schedule).to_owned()),
        text: sentence(&schedule),
        testid: "schedule-why",
    })];
    if schedule.record.state.configured {
        let words =
            "The configuration declares it: change `schedules` in its file and send SIGHUP.";
        sections.push(Section::Note(words.to_owned()));
    }
    if frame.reader.may.operate {
        sections.push(Section::Buttons(buttons(&schedule)));
    }
    sections.push(Section::Heading("Next fires".to_owned()));
    let from = progress.next.unwrap_or(frame.now).max(frame.now);
    // The fire that is next is among them.
    let from = Timestamp(from.0.saturating_sub(1));
    let next = timing.timetable(progress.anchor).upcoming(from, NEXT);
    let until = timing.until;
    let is_shown = |at: &Timestamp| progress.paused.is_none() && until.is_none_or(|end| *at <= end);
    let rows = next.into_iter().filter(|it| is_shown(&it.time)).map(|it| Row {
        key: it.time.0.to_string(),
        testid: None,
        cells: vec![Cell::At(it.time)],
    });
    sections.push(Section::Table(Table {
        name: "next",
        columns: vec!["At"],
        rows: rows.collect(),
        empty: "None: it is paused, or its last time is over.",
        ..Table::default()
    }));
    sections.push(Section::Facts(facts(&schedule, &root)));
    let packs = req.app.engine.settings().packs.current();
    let job = serde_json::to_string_pretty(&schedule.definition.shown_job(&packs));
    let job = req.app.engine.settings().hidden.masked(&job.unwrap_or_default());
    sections.push(Section::Text("What a fire stores".to_owned(), Text::of(&job)));
    Ok(sheet::page(frame, sections))
}

fn sentence(schedule: &Schedule) -> String {
    let progress = &schedule.progress;
    match (&progress.paused, progress.next) {
        (Some(pause), _) if pause.reason.is_empty() => format!("paused by {}", pause.by),
        (Some(pause), _) => format!("paused by {}: {}", pause.by, pause.reason),
        (None, Some(_)) => format!("fired {} times, left out {}", progress.fired, progress.skipped),
        (None, None) => "ended: no fire follows".to_owned(),
    }
}

fn buttons(schedule: &Schedule) -> Vec<Form> {
    let name = encoded(schedule.name().as_str());
    let to = |order: &str| format!("{name}/{order}");
    let mut all = vec![Form::button("trigger", to("trigger"), "Fire now")];
    all.push(match schedule.progress.paused {
        Some(_) => Form::button("resume", to("resume"), "Resume"),
        None => Form::button("pause", to("pause"), "Pause").with(Field::word(
            "reason",
            "Reason for a pause",
            "",
        )),
    });
    if !schedule.record.state.configured {
        let words = format!("Remove schedule {}? Its jobs stay.", schedule.name());
        all.push(Form::button("remove", to("remove"), "Remove").asks(words));
    }
    all
}

fn facts(schedule: &Schedule, root: &str) -> Vec<(&'static str, Cell)> {
    let (progress, timing) = (&schedule.progress, &schedule.definition.timing);
    let mut facts = vec![
        ("Fires", Cell::Text(timing.expression.as_str().to_owned())),
        ("Time zone", Cell::Text(timing.zone.name().to_owned())),
        ("While an earlier one has not ended", Cell::Text(timing.overlap.as_str().to_owned())),
        ("After an outage", Cell::Text(timing.catch_up.as_str().to_owned())),
        ("Put off by at most", Cell::Lasting(timing.jitter)),
        ("Ends", Cell::at(timing.until)),
        ("Next fire", next_fire(progress)),
    ];
    if let Some(LastFire { fire_time, at, job, is_workflow }) = &progress.last_fire {
        let place = if *is_workflow { "workflows" } else { "jobs" };
        facts.push(("Last fire was for", Cell::At(*fire_time)));
        facts.push(("It was stored", Cell::At(*at)));
        facts.push(("As", Cell::Link(job.to_string(), format!("{root}{place}/{job}"))));
    }
    if let Some(LastSkip { fire_time, at, reason }) = &progress.last_skip {
        facts.push(("Last skip was for", Cell::At(*fire_time)));
        facts.push(("It was left out", Cell::At(*at)));
        facts.push(("Because", Cell::Text(reason.clone())));
    }
    let name = schedule.name().as_str();
    facts.push((
        "Its jobs",
        Cell::Link("list them".to_owned(), format!("{root}jobs?schedule={}", encoded(name))),
    ));
    facts.push(("Set by", Cell::Text(schedule.record.state.set_by.clone())));
    facts
}
