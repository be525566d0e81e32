//! Workflows: all, and the steps of one as a drawing.

use outlast_core::workflow::WorkflowId;
use outlast_dashboard::pages::Text;
use outlast_dashboard::pages::graph::{Graph, Step};
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table, Why};
use outlast_dashboard::{Flash, Frame, Place};
use outlast_store::workflow::WorkflowQuery;
use outlast_wire::workflow::{Status, StepView, WorkflowView};

use super::jobs::{encoded, short};
use super::sheet::{self, Head};
use crate::http::cursor;
use crate::http::error::{ApiError, Missing};
use crate::http::request::ApiRequest;
use crate::workflows::view;

/// How many workflows are on a page.
const WORKFLOWS: u32 = 50;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let status = req.query("status").filter(|word| Status::parse(word).is_some());
    let after = req.query("cursor").and_then(|text| cursor::read(&text).ok());
    let name = req.query("name");
    let query = WorkflowQuery {
        status: status.clone(),
        name: name.clone(),
        tenant: None,
        after,
        limit: WORKFLOWS + 1,
    };
    let mut found = view::list(&req.app.engine, query).await?;
    let next = cursor::next(&mut found, WORKFLOWS, |last| cursor::write(last.created, last.id));
    let frame = Head::new(Place::Workflows, "Workflows", "outlast workflows list")
        .saying(said)
        .frame(req)
        .await;
    let given = [("status", &status), ("name", &name)];
    let given = given
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}&", encoded(value.as_ref()?))));
    let given: String = given.collect();
    let next = next.map(|cursor| (format!("workflows?{given}cursor={cursor}"), "Older workflows"));
    let choose = Form {
        name: "filter".to_owned(),
        action: "workflows".to_owned(),
        label: "Filter".to_owned(),
        fields: vec![
            Field::word("status", "Status", status.unwrap_or_default()).of(&[
                "",
                "running",
                "completed",
                "failed",
                "cancelled",
                "timeout",
            ]),
            Field::word("name", "Name", name.unwrap_or_default()),
        ],
        ..Form::default()
    };
    let table = Table {
        name: "workflows",
        caption: "The latest ones first.".to_owned(),
        columns: vec![
            "Workflow",
            "Name",
            "Of a pack",
            "Status",
            "Retries#",
            "Began",
            "Ended",
            "Error",
        ],
        rows: found.iter().map(row).collect(),
        empty: "No workflow matches.",
        grows: None,
        next,
    };
    Ok(sheet::page(frame, vec![Section::Filter(choose), Section::Table(table)]))
}

fn row(view: &WorkflowView) -> Row {
    Row {
        key: sheet::key(view.id),
        testid: Some("workflow".to_owned()),
        cells: vec![
            Cell::Link(view.id.to_string(), format!("workflows/{}", view.id)),
            Cell::text(view.name.clone()),
            Cell::text(view.workflow_ref.clone()),
            Cell::State(view.status.as_str().to_owned()),
            Cell::Text(view.retries.to_string()),
            Cell::At(view.created),
            Cell::at(view.finished),
            Cell::Live(short(view.error.as_deref().unwrap_or_default(), 200)),
        ],
    }
}

pub(super) async fn one(
    req: &ApiRequest,
    id: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let unknown = || ApiError::not_found(Missing::Workflow, format!("workflow {id} is not known"));
    let id: WorkflowId = id.parse().map_err(|_not| unknown())?;
    let view = view::for_page(&req.app.engine, id, req.is_update).await?;
    let name = view.name.clone().unwrap_or_else(|| id.to_string());
    let command = format!("outlast workflows show {id}");
    let frame = Head::new(Place::Workflows, format!("Workflow {name}"), command)
        .saying(said)
        .frame(req)
        .await;
    let root = frame.root();
    let status = match view.ending {
        Some(ending) => format!("{}, being ended as {ending}", view.status),
        None => view.status.as_str().to_owned(),
    };
    let mut sections = vec![Section::Why(Why {
        status: Some(view.status.as_str().to_owned()),
        text: sentence(&view, &status),
        testid: "workflow-why",
    })];
    let buttons = buttons(&view, &frame);
    if !buttons.is_empty() {
        sections.push(Section::Buttons(buttons));
    }
    sections.push(Section::Graph(graph(&view, &root)));
    sections.push(Section::Heading("Steps".to_owned()));
    sections.push(Section::Table(Table {
        name: "steps",
        columns: vec![
            "Step",
            "Status",
            "Does",
            "After",
            "Items#",
            "Ended well#",
            "Ended badly#",
            "Began",
            "Ended",
            "Jobs",
            "Why",
        ],
        rows: view.steps.iter().map(|step| step_row(step, &view, &root)).collect(),
        empty: "It has no steps.",
        ..Table::default()
    }));
    let hidden = &req.app.engine.settings().hidden;
    if let Some(result) = &view.result {
        sections.push(Section::Text("Result".to_owned(), Text::of(&hidden.masked(result.get()))));
    }
    if !view.parameters.is_empty() {
        let parameters = serde_json::to_string_pretty(&view.parameters).unwrap_or_default();
        let parameters = hidden.masked(&parameters);
        sections.push(Section::Text("Parameters".to_owned(), Text::of(&parameters)));
    }
    sections.push(Section::Facts(facts(&view, &root)));
    Ok(sheet::page(frame, sections))
}

fn sentence(view: &WorkflowView, status: &str) -> String {
    let ended = view.steps.iter().filter(|step| step.finished.is_some()).count();
    let all = view.steps.len();
    match &view.error {
        Some(error) => format!("{status}: {}", short(error, 500)),
        None => format!("{status}: {ended} of {all} steps ended"),
    }
}

fn buttons(view: &WorkflowView, frame: &Frame) -> Vec<Form> {
    let (id, may) = (view.id, frame.reader.may);
    if !view.status.is_ended() {
        let words = "Cancel this workflow? What runs is cancelled, and nothing more is started.";
        let cancel = Form::button("cancel", format!("{id}/cancel"), "Cancel").asks(words);
        return if may.produce { vec![cancel] } else { vec![] };
    }
    let retry = Form::button("retry", format!("{id}/retry"), "Retry what did not complete");
    if may.operate && view.status != Status::Completed { vec![retry] } else { vec![] }
}

fn graph(view: &WorkflowView, root: &str) -> Graph {
    let place = |name: &String| view.steps.iter().position(|step| step.name == *name);
    let steps: Vec<Step> = view
        .steps
        .iter()
        .map(|step| Step {
            name: step.name.clone(),
            status: step.status.as_str().to_owned(),
            count: if step.total > 1 {
                format!("{}/{}", step.completed + step.failed, step.total)
            } else {
                String::new()
            },
            after: step.after.iter().filter_map(place).collect(),
            href: step_href(step, root),
        })
        .collect();
    Graph::of(&steps)
}

fn step_href(step: &StepView, root: &str) -> Option<String> {
    match (&step.job_ids[..], &step.workflow_ids[..]) {
        ([one], []) => Some(format!("{root}jobs/{one}")),
        ([], [one]) => Some(format!("{root}workflows/{one}")),
        _ => None,
    }
}

fn step_row(step: &StepView, view: &WorkflowView, root: &str) -> Row {
    let does = step.action.as_ref().or(step.job_type.as_ref()).or(step.workflow.as_ref());
    let all =
        || Cell::Link(format!("{} items", step.total), format!("{root}jobs?workflow={}", view.id));
    let jobs = match (&step.job_ids[..], &step.workflow_ids[..]) {
        _ if step.total == 0 => Cell::Text(String::new()),
        _ if step.total > 1 => all(),
        ([job, ..], _) => sheet::job(root, job),
        ([], [child, ..]) => {
            Cell::Link("its workflow".to_owned(), format!("{root}workflows/{child}"))
        }
        ([], []) => all(),
    };
    Row {
        key: encoded(&step.name),
        testid: Some(format!("step-{}", step.name)),
        cells: vec![
            Cell::Text(step.name.clone()),
            Cell::State(step.status.as_str().to_owned()),
            Cell::text(does.cloned()),
            Cell::Text(step.after.join(", ")),
            Cell::Count(u64::from(step.total)),
            Cell::Count(u64::from(step.completed)),
            Cell::Count(u64::from(step.failed)),
            Cell::at(step.started),
            Cell::at(step.finished),
            jobs,
            Cell::Live(short(step.error.as_deref().unwrap_or_default(), 200)),
        ],
    }
}

fn facts(view: &WorkflowView, root: &str) -> Vec<(&'static str, Cell)> {
    let mut facts = vec![
        ("Id", Cell::Text(view.id.to_string())),
        ("Of a pack", Cell::text(view.workflow_ref.clone())),
        ("Form", Cell::Text(view.form.as_str().to_owned())),
        ("Retries", Cell::Text(view.retries.to_string())),
        ("Began", Cell::At(view.created)),
        ("Ended", Cell::at(view.finished)),
        ("Its time is over", Cell::at(view.deadline)),
    ];
    if let Some(parent) = &view.parent {
        let words = format!("step {} of {}", parent.step, parent.workflow);
        facts.push((
            "Started by",
            Cell::Link(words, format!("{root}workflows/{}", parent.workflow)),
        ));
    }
    if let Some(fire) = &view.schedule {
        facts.push((
            "Schedule",
            Cell::Link(fire.name.clone(), format!("{root}schedules/{}", encoded(&fire.name))),
        ));
    }
    facts.push((
        "Its jobs",
        Cell::Link("list them".to_owned(), format!("{root}jobs?workflow={}", view.id)),
    ));
    facts
}
