//! Workers: all, one, and those of a deploy.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use outlast_core::evidence::EvidenceCode;
use outlast_core::labels;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Liveness;
use outlast_core::worker::order::WorkerOrder;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table, Why};
use outlast_dashboard::{Flash, Frame, Place};
use outlast_store::query::WorkerQuery;
use outlast_store::record::WorkerRecord;
use serde_json::Value;

use super::jobs::encoded;
use super::losses::{self, Losses};
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::{App, skew, workers};

/// How many workers that have ended are shown.
const ENDED_MAX: u32 = 50;
/// How many live ones are shown.
const LIVE_MAX: usize = 500;

/// Returns the workers that hold a lease, and the latest ones that do not.
async fn read(app: &App) -> Result<Vec<WorkerRecord>, ApiError> {
    let store = app.engine.store();
    let mut all = store.live_workers().await?;
    let query = WorkerQuery { status: Some("inactive".to_owned()), ..WorkerQuery::all(ENDED_MAX) };
    let ended = store.workers_page(query).await?.workers;
    let known: Vec<_> = all.iter().map(|worker| worker.id).collect();
    all.extend(ended.into_iter().filter(|worker| !known.contains(&worker.id)));
    Ok(all)
}

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let mut all = read(&req.app).await?;
    // What may need someone first.
    let rank = |worker: &WorkerRecord| match worker.standing.liveness {
        Liveness::Suspect => 0,
        Liveness::Live if worker.unhealthy.is_some() => 1,
        Liveness::Live => 2,
        Liveness::Lapsed => 3,
        Liveness::Gone => 4,
    };
    all.sort_by_key(|worker| (rank(worker), Reverse(worker.created)));
    let frame =
        Head::new(Place::Workers, "Workers", "outlast workers list").saying(said).frame(req).await;
    let live = all.iter().filter(|worker| worker.standing.holds_lease()).count();
    let cut = all.len().saturating_sub(LIVE_MAX);
    all.truncate(LIVE_MAX);
    let mut sections = vec![Section::Note(format!("{live} live."))];
    if cut > 0 {
        sections.push(Section::Note(format!("{cut} more are not shown.")));
    }
    sections.push(Section::Table(Table {
        name: "workers",
        caption: "Suspect and unhealthy ones first, then the latest.".to_owned(),
        columns: COLUMNS.to_vec(),
        rows: all.iter().map(|worker| row(&frame, worker)).collect(),
        empty: "No worker has registered yet.",
        grows: None,
        next: None,
    }));
    Ok(sheet::page(frame, sections))
}

const COLUMNS: [&str; 9] = [
    "Worker",
    "State",
    "In flight#",
    "Slots#",
    "Pool",
    "Version",
    "Last heartbeat",
    "Lease until",
    "Why",
];

fn row(frame: &Frame, worker: &WorkerRecord) -> Row {
    let root = frame.root();
    Row {
        key: sheet::key(worker.id),
        testid: Some(format!("worker-{}", worker.name)),
        cells: vec![
            sheet::worker(&root, Some(worker.id), Some(&worker.name)),
            Cell::State(state(worker).to_owned()),
            Cell::Count(u64::from(worker.in_flight)),
            Cell::Text(worker.concurrency.to_string()),
            Cell::text(worker.labels.get(labels::POOL).cloned()),
            Cell::Text(version(worker)),
            Cell::LiveAt(worker.last_heartbeat),
            lease(worker),
            Cell::Live(why(worker)),
        ],
    }
}

fn state(worker: &WorkerRecord) -> &'static str {
    if worker.unhealthy.is_some() && worker.standing.holds_lease() {
        "unhealthy"
    } else {
        worker.standing.state()
    }
}

fn lease(worker: &WorkerRecord) -> Cell {
    match worker.standing.holds_lease() {
        true => Cell::LiveAt(worker.lease_until),
        false => Cell::Text(String::new()),
    }
}

fn why(worker: &WorkerRecord) -> String {
    match &worker.unhealthy {
        Some(unhealthy) => unhealthy.reason.clone(),
        None => worker.evidence.clone(),
    }
}

/// The version that its user gave it, or that of its build.
fn version(worker: &WorkerRecord) -> String {
    let label = worker.labels.get("version").cloned();
    label
        .or_else(|| about(worker, "version").and_then(|it| it.as_str().map(Into::into)))
        .unwrap_or_default()
}

fn about(worker: &WorkerRecord, name: &str) -> Option<Value> {
    serde_json::from_str::<Value>(&worker.about).ok()?.get_mut(name).map(Value::take)
}

/// When the grace period of a draining worker is over, if it says how long that is.
fn deadline(worker: &WorkerRecord) -> Option<Timestamp> {
    if worker.standing.state() != "draining" {
        return None;
    }
    let grace = about(worker, "shutdown_timeout_seconds")?.as_f64()?;
    let grace = std::time::Duration::try_from_secs_f64(grace).ok()?;
    Some(worker.updated.after(Span::from_millis(u64::try_from(grace.as_millis()).ok()?)))
}

pub(super) async fn one(
    req: &ApiRequest,
    name: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let store = req.app.engine.store();
    let worker = workers::find(&req.app, name).await?;
    let held = store.in_flight_of(worker.id).await?;
    let command = format!("outlast workers show {}", super::jobs::quoted(&worker.name));
    let frame = Head::new(Place::Workers, format!("Worker {}", worker.name), command)
        .saying(said)
        .frame(req)
        .await;
    let root = frame.root();
    let mut sections = vec![Section::Why(Why {
        status: Some(state(&worker).to_owned()),
        text: sentence(&worker, frame.now),
        testid: "worker-why",
    })];
    if frame.reader.may.operate {
        sections.push(Section::Buttons(buttons(&worker)));
    }
    sections.push(Section::Heading("Attempts now".to_owned()));
    let rows = held.iter().map(|it| Row {
        key: sheet::key(it.job),
        testid: None,
        cells: vec![
            sheet::job(&root, it.job),
            Cell::Text(it.epoch.to_string()),
            Cell::Text(if it.started { "running" } else { "starting" }.to_owned()),
            Cell::At(it.claimed),
        ],
    });
    sections.push(Section::Table(Table {
        name: "held",
        caption: String::new(),
        columns: vec!["Job", "Epoch#", "State", "Claimed"],
        rows: rows.collect(),
        empty: "It holds none.",
        grows: Some("held"),
        next: None,
    }));
    sections.push(Section::Heading("Attempts lost in the last 24 hours".to_owned()));
    let Losses { losses, earlier } = losses::read(req, Some(worker.id), None).await?;
    let next = earlier.map(|place| losses::earlier(&root, Some(worker.id), &place));
    sections.push(Section::Table(losses::table(&root, &losses, next, true)));
    sections.push(Section::Heading("Facts".to_owned()));
    sections.push(Section::Facts(facts(req, &worker, &root)));
    Ok(sheet::page(frame, sections))
}

fn sentence(worker: &WorkerRecord, now: Timestamp) -> String {
    let state = worker.standing.state();
    let silent = outlast_dashboard::atoms::Lasting(now.since(worker.last_heartbeat));
    let (held, slots) = (worker.in_flight, worker.concurrency);
    let why = why(worker);
    let why = if why.is_empty() { why } else { format!(": {why}") };
    match worker.standing.liveness {
        Liveness::Live => {
            format!("{state}{why}; holds {held} of {slots}; last heard of {silent} ago")
        }
        Liveness::Suspect => format!("suspect{why}; holds {held}; silent for {silent}"),
        Liveness::Lapsed | Liveness::Gone => {
            let how = worker.evidence_code.map(EvidenceCode::as_str);
            let how = how.map(|code| format!(" ({code})")).unwrap_or_default();
            format!("{state}{how}{why}")
        }
    }
}

fn buttons(worker: &WorkerRecord) -> Vec<Form> {
    if !worker.standing.holds_lease() {
        return vec![];
    }
    let id = worker.id;
    let to = |order: &str| format!("{id}/{order}");
    let ordered = worker.given.map(|given| given.order);
    let mut all = Vec::new();
    if ordered != Some(WorkerOrder::Quiet) {
        all.push(Form::button("quiet", to("quiet"), "Quiet: no new jobs"));
    }
    if matches!(ordered, Some(WorkerOrder::Quiet | WorkerOrder::Drain))
        || worker.standing.state() == "quiet"
    {
        all.push(Form::button("resume", to("resume"), "Resume"));
    }
    if ordered != Some(WorkerOrder::Drain) {
        let words = format!("Drain worker {}? It finishes its jobs and stops.", worker.name);
        all.push(Form::button("drain", to("drain"), "Drain and stop").asks(words));
    }
    all
}

fn facts(req: &ApiRequest, worker: &WorkerRecord, root: &str) -> Vec<(&'static str, Cell)> {
    let mut facts = vec![
        ("Id", Cell::Text(worker.id.to_string())),
        ("Role", Cell::Text(worker.role.as_str().to_owned())),
        ("Registered", Cell::At(worker.created)),
        ("Last heartbeat", Cell::LiveAt(worker.last_heartbeat)),
        ("Lease", Cell::Lasting(worker.lease)),
        ("Queues", Cell::Text(worker.queues.join(", "))),
        ("Runtimes", Cell::Text(worker.runtimes.join(", "))),
        ("Version", Cell::Text(version(worker))),
    ];
    let labels = worker.labels.iter().map(|(name, value)| format!("{name}={value}"));
    facts.push(("Labels", Cell::Text(labels.collect::<Vec<_>>().join(", "))));
    if let Some(at) = deadline(worker) {
        facts.push(("Drain ends at the latest", Cell::At(at)));
    }
    for (name, other) in [("It was before", worker.previous), ("It is now", worker.followed_by)] {
        if let Some(id) = other {
            facts.push((name, Cell::Link(id.to_string(), format!("{root}workers/{id}"))));
        }
    }
    for name in ["host", "pid", "containment", "limits"] {
        if let Some(value) = about(worker, name) {
            let plain =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            let text = value.as_object().map_or_else(
                || plain(&value),
                |each| {
                    let each = each.iter().map(|(name, value)| format!("{name}: {}", plain(value)));
                    each.collect::<Vec<_>>().join(", ")
                },
            );
            let name = match name {
                "host" => "Host",
                "pid" => "Process",
                "containment" => "Containment",
                _ => "Limits kept by",
            };
            facts.push((name, Cell::Text(text)));
        }
    }
    let packs = req.app.engine.settings().packs.current();
    for words in skew::of_worker(worker, &packs) {
        facts.push(("Skew", Cell::Text(words)));
    }
    facts
}

/// Workers by version: how far a deploy has come.
pub(super) async fn deploy(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let all = read(&req.app).await?;
    let by = req.query("by").unwrap_or_else(|| "version".to_owned());
    let command = format!("outlast workers list --by {}", super::jobs::quoted(&by));
    let frame = Head::new(Place::Deploy, "Deploy", command).saying(said).frame(req).await;
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for worker in &all {
        groups.entry(group_of(worker, &by)).or_default().add(worker);
    }
    let may = frame.reader.may.operate;
    let rows = groups.iter().map(|(name, group)| group.row(name, &by, may));
    let table = Table {
        name: "groups",
        caption: format!("Workers by {by}. A deploy is done when nothing of the old version runs."),
        columns: vec![
            "Group",
            "Running#",
            "Quiet#",
            "Draining#",
            "Suspect#",
            "Gone#",
            "Jobs held#",
            "Oldest held since",
            "Drains end",
            "State",
            "Orders",
        ],
        rows: rows.collect(),
        empty: "No worker has registered yet.",
        grows: None,
        next: None,
    };
    let choose = Form {
        name: "by".to_owned(),
        action: "deploy".to_owned(),
        label: "Show".to_owned(),
        fields: vec![Field::word("by", "Group by", by).such_as("version, pool or a label")],
        ..Form::default()
    };
    let mut sections = vec![Section::Filter(choose), Section::Table(table)];
    let draining: Vec<&WorkerRecord> =
        all.iter().filter(|worker| worker.standing.state() == "draining").collect();
    sections.push(Section::Heading("What drains still hold".to_owned()));
    sections.push(Section::Table(drains_hold(req, &frame, &draining).await?));
    Ok(sheet::page(frame, sections))
}

async fn drains_hold(
    req: &ApiRequest,
    frame: &Frame,
    draining: &[&WorkerRecord],
) -> Result<Table, ApiError> {
    let (root, store) = (frame.root(), req.app.engine.store());
    let mut rows = Vec::new();
    for worker in draining.iter().take(20) {
        for held in store.in_flight_of(worker.id).await?.into_iter().take(20) {
            rows.push(Row {
                key: sheet::key(held.job),
                testid: None,
                cells: vec![
                    sheet::worker(&root, Some(worker.id), Some(&worker.name)),
                    sheet::job(&root, held.job),
                    Cell::At(held.claimed),
                    deadline(worker).map_or_else(|| Cell::Text("not known".to_owned()), Cell::At),
                ],
            });
        }
    }
    Ok(Table {
        name: "drains",
        caption: "A job that does not end before the deadline is interrupted, and runs elsewhere."
            .to_owned(),
        columns: vec!["Worker", "Job", "Held since", "Deadline"],
        rows,
        empty: "Nothing: no drain is under way, or those that are hold no job.",
        grows: Some("drain"),
        next: None,
    })
}

fn group_of(worker: &WorkerRecord, by: &str) -> String {
    match by {
        "version" => version(worker),
        label => worker.labels.get(label).cloned().unwrap_or_default(),
    }
}

#[derive(Default)]
struct Group {
    running: u64,
    quiet: u64,
    draining: u64,
    suspect: u64,
    gone: u64,
    held: u64,
    oldest: Option<Timestamp>,
    deadline: Option<Timestamp>,
}

impl Group {
    fn add(&mut self, worker: &WorkerRecord) {
        match worker.standing.state() {
            "running" => self.running += 1,
            "quiet" => self.quiet += 1,
            "draining" => self.draining += 1,
            "suspect" => self.suspect += 1,
            // What it may still hold is no matter of the deploy.
            _ => {
                self.gone += 1;
                return;
            }
        }
        self.held += u64::from(worker.in_flight);
        let oldest = [self.oldest, worker.oldest_claim];
        self.oldest = oldest.into_iter().flatten().min();
        self.deadline = self.deadline.max(deadline(worker));
    }

    fn live(&self) -> u64 {
        self.running + self.quiet + self.draining + self.suspect
    }

    fn row(&self, name: &str, by: &str, may: bool) -> Row {
        let state = match (self.live(), self.held) {
            (0, _) => "done: nothing of it runs",
            (_, 0) if self.running == 0 && self.suspect == 0 => "holds nothing any more",
            _ if self.running == 0 && self.draining > 0 => "draining",
            _ => "running",
        };
        let shown = if name.is_empty() { "(none)" } else { name };
        let selector =
            || if by == "version" { format!("version={name}") } else { format!("{by}={name}") };
        let is_simple = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        };
        let mut orders = Vec::new();
        if may && self.live() > 0 && is_simple(name) && is_simple(by) {
            for (order, label) in
                [("quiet", "Quiet all"), ("resume", "Resume all"), ("drain", "Drain all")]
            {
                let form = Form::button(order, format!("deploy/{order}"), label)
                    .with(Field::hidden("selector", selector()))
                    .with(Field::hidden("by", by));
                let words = format!(
                    "{label} of {by} {name}: {} live workers, and those that start later?",
                    self.live()
                );
                orders.push(form.asks(words));
            }
        }
        Row {
            key: encoded(name),
            testid: Some(format!("group-{name}")),
            cells: vec![
                Cell::Text(shown.to_owned()),
                Cell::Count(self.running),
                Cell::Count(self.quiet),
                Cell::Count(self.draining),
                Cell::Count(self.suspect),
                Cell::Count(self.gone),
                Cell::Count(self.held),
                Cell::at(self.oldest),
                Cell::at(self.deadline),
                Cell::Live(state.to_owned()),
                Cell::Buttons(orders),
            ],
        }
    }
}
