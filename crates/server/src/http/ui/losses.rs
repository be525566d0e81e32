//! Attempts that were lost, each with where its job runs again.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::Outcome;
use outlast_core::time::{Span, Timestamp};
use outlast_dashboard::atoms::Lasting;
use outlast_dashboard::pages::sheet::{Cell, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use outlast_store::event::{EventName, EventQuery, NewestQuery};
use outlast_store::record::AttemptRecord;

use super::job::charge;
use super::jobs::{encoded, short};
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::{event_log, executions};

/// How far back it goes.
const SINCE: Span = Span::from_secs(24 * 3600);
/// How many losses are shown, the latest ones.
const LOSSES_MAX: u32 = 50;
/// From how many losses on a type or a worker is worth a line.
const MANY: usize = 2;

/// Something that several losses may have in common.
type OfLoss = fn(&Loss) -> String;

/// An attempt that was lost.
pub(super) struct Loss {
    job: JobId,
    job_type: String,
    queue: String,
    at: Timestamp,
    epoch: Epoch,
    worker: Option<WorkerId>,
    worker_name: Option<String>,
    code: &'static str,
    evidence: String,
    charged: String,
    again: Option<Again>,
    /// How its job ended, if it has and no attempt followed.
    ended: Option<&'static str>,
}

/// The attempt that followed.
struct Again {
    worker: Option<WorkerId>,
    worker_name: Option<String>,
    after: Span,
    outcome: &'static str,
}

/// Losses, the latest first, and the place before which there may be others.
pub(super) struct Losses {
    pub(super) losses: Vec<Loss>,
    pub(super) earlier: Option<String>,
}

/// Reads losses of the last day, the latest first: of all workers or one, and those before a place in the log.
pub(super) async fn read(
    req: &ApiRequest,
    worker: Option<WorkerId>,
    before: Option<String>,
) -> Result<Losses, ApiError> {
    let store = req.app.engine.store();
    let now = req.app.now().await?;
    let of = EventQuery {
        names: vec![EventName::JobLost.word()],
        worker,
        ..EventQuery::all(LOSSES_MAX)
    };
    let since = Timestamp(now.0.saturating_sub_unsigned(SINCE.0));
    let has_place = before.is_some();
    let query = NewestQuery { of, since: Some(since), until: None, before };
    let found = event_log::newest(store.as_ref(), query).await;
    let found = found.map_err(|error| ApiError::of_page(error, has_place))?;
    let mut attempts: HashMap<JobId, Vec<AttemptRecord>> = HashMap::new();
    let mut losses = Vec::new();
    for (_, event) in found.events {
        let (Some(job), Some(epoch)) = (event.job, event.epoch) else { continue };
        let of_job = match attempts.entry(job) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(store.attempts(job).await?),
        };
        let lost = of_job.iter().find(|it| it.epoch == epoch);
        let next = of_job.iter().filter(|it| it.epoch > epoch).min_by_key(|it| it.epoch);
        let ended = match next {
            Some(_) => None,
            None => match store.job(job).await? {
                Some(job) => job.state.is_terminal().then(|| executions::status(&job).as_str()),
                None => Some("deleted"),
            },
        };
        losses.push(Loss {
            job,
            ended,
            job_type: event.job_type.unwrap_or_default(),
            queue: event.queue.unwrap_or_default(),
            at: event.at,
            epoch,
            worker: event.worker.or_else(|| lost.and_then(|it| it.worker)),
            worker_name: lost.and_then(|it| it.worker_name.clone()),
            code: event.evidence.word().unwrap_or_default(),
            evidence: event.evidence.text.clone(),
            charged: lost.map(charge).unwrap_or_default(),
            again: next.map(|it| Again {
                worker: it.worker,
                worker_name: it.worker_name.clone(),
                after: it.claimed.since(event.at),
                outcome: it.outcome.map_or("running", Outcome::as_str),
            }),
        });
    }
    Ok(Losses { losses, earlier: found.earlier })
}

/// The losses of one page. Of those before a place, the latest are no longer the latest there are.
pub(super) fn table(root: &str, losses: &[Loss], next: Option<String>, is_first: bool) -> Table {
    Table {
        name: "losses",
        caption: format!("The latest ones first, {LOSSES_MAX} on a page."),
        columns: vec![
            "Lost",
            "Job",
            "Type",
            "Worker",
            "Evidence",
            "What was seen",
            "Charged",
            "Runs again on",
            "After",
            "And then",
        ],
        rows: losses.iter().map(|loss| row(root, loss)).collect(),
        empty: "None.",
        grows: is_first.then_some("loss"),
        next: next.map(|next| (next, "Earlier losses")),
    }
}

/// Where the losses before a place are.
pub(super) fn earlier(root: &str, worker: Option<WorkerId>, place: &str) -> String {
    let worker = worker.map(|worker| format!("worker={worker}&")).unwrap_or_default();
    format!("{root}losses?{worker}before={}", encoded(place))
}

fn row(root: &str, loss: &Loss) -> Row {
    let again = loss.again.as_ref();
    let none = || match loss.ended {
        Some(status) => Cell::Text(format!("never: {status}")),
        None => Cell::Text("not yet".to_owned()),
    };
    Row {
        key: format!("{}-{}", sheet::key(loss.job), loss.epoch),
        testid: Some("loss".to_owned()),
        cells: vec![
            Cell::At(loss.at),
            sheet::job(root, loss.job),
            Cell::Text(loss.job_type.clone()),
            sheet::worker(root, loss.worker, loss.worker_name.as_deref()),
            Cell::Text(loss.code.to_owned()),
            Cell::Text(short(&loss.evidence, 200)),
            Cell::Text(loss.charged.clone()),
            again.map_or_else(none, |it| sheet::worker(root, it.worker, it.worker_name.as_deref())),
            Cell::Text(again.map(|it| Lasting(it.after).to_string()).unwrap_or_default()),
            Cell::Text(again.map(|it| it.outcome.to_owned()).unwrap_or_default()),
        ],
    }
}

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let worker = event_log::asked(req).await?.worker;
    let before = req.query("before");
    let is_first = before.is_none();
    let Losses { losses, earlier: place } = read(req, worker, before).await?;
    let mut command = "outlast events --type job.lost --since 24h".to_owned();
    if let Some(worker) = worker {
        command = format!("{command} --worker {worker}");
    }
    let frame = Head::new(Place::Losses, "Losses", command).saying(said).frame(req).await;
    let root = frame.root();
    let next = place.map(|place| earlier(&root, worker, &place));
    let mut sections = vec![Section::Note(
        "Attempts whose worker died or fell silent in the last 24 hours. Their jobs run again, unless they \
         may run at most once."
            .to_owned(),
    )];
    sections.push(Section::Table(table(&root, &losses, next, is_first)));
    let by = |of: OfLoss| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        losses.iter().for_each(|loss| *counts.entry(of(loss)).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count >= MANY).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    };
    let groups: [(&str, OfLoss); 3] = [
        ("type", |loss| format!("{} in {}", loss.job_type, loss.queue)),
        ("worker", |loss| loss.worker_name.clone().unwrap_or_default()),
        ("evidence", |loss| loss.code.to_owned()),
    ];
    for (name, of) in groups {
        let rows = by(of).into_iter().map(|(what, count)| Row {
            key: encoded(&what),
            testid: None,
            cells: vec![Cell::Text(what), Cell::Count(u64::try_from(count).unwrap_or(u64::MAX))],
        });
        let rows: Vec<Row> = rows.collect();
        if !rows.is_empty() {
            sections.push(Section::Heading(format!("Several of one {name}")));
            sections.push(Section::Table(Table {
                name,
                columns: vec!["What", "Lost#"],
                rows,
                ..Table::default()
            }));
        }
    }
    Ok(sheet::page(frame, sections))
}
