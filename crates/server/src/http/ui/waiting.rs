//! Why jobs wait: by reason, queue and type, with what helps beside each.

use std::collections::BTreeMap;

use outlast_core::job::State;
use outlast_dashboard::pages::sheet::{Cell, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use outlast_store::tally::ClassCounts;

use super::jobs::encoded;
use super::sheet::{self, Head};
use crate::engine::Untaken;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;

/// How many groups are shown, the largest ones.
const GROUPS_MAX: usize = 100;

/// Jobs of one queue and type that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) reason: String,
    pub(super) queue: String,
    pub(super) job_type: String,
    pub(super) count: u64,
    pub(super) lever: Lever,
}

/// What helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lever {
    /// A worker that can run them.
    Worker,
    /// The queue is to be resumed.
    Queue,
    /// A free slot, or room in a limit.
    Slot,
    /// Nothing: their time comes.
    Time,
}

/// Returns what waits, the largest group first.
pub(super) fn groups(app: &App, classes: &[ClassCounts]) -> Vec<Group> {
    let mut groups: BTreeMap<(String, String, String), (u64, Lever)> = BTreeMap::new();
    let mut add = |class: &ClassCounts, state: State, reason: String, lever: Lever| {
        let count = class.counts.state(state);
        if count > 0 {
            let key = (reason, class.key.queue.clone(), class.key.job_type.clone());
            groups.entry(key).or_insert((0, lever)).0 += count;
        }
    };
    for class in classes {
        if class.counts.state(State::Available) > 0 {
            let (reason, lever) = match app.engine.untaken(&class.key) {
                None => ("takes its turn: for a free slot, or for a limit".to_owned(), Lever::Slot),
                Some(Untaken::Paused) => {
                    (format!("queue {} is paused", class.key.queue), Lever::Queue)
                }
                Some(Untaken::NoWorker { reason, .. }) => (reason, Lever::Worker),
            };
            add(class, State::Available, reason, lever);
        }
        add(class, State::Scheduled, "is delayed until its time".to_owned(), Lever::Time);
        add(
            class,
            State::Retryable,
            "failed, and waits for its next attempt".to_owned(),
            Lever::Time,
        );
        add(
            class,
            State::Pending,
            "is held back by its schedule or workflow".to_owned(),
            Lever::Time,
        );
    }
    let mut all: Vec<Group> = groups
        .into_iter()
        .map(|((reason, queue, job_type), (count, lever))| Group {
            reason,
            queue,
            job_type,
            count,
            lever,
        })
        .collect();
    all.sort_by_key(|group| (group.lever, std::cmp::Reverse(group.count)));
    all
}

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let classes = req.app.engine.store().tally().await?;
    let all = groups(&req.app, &classes);
    let mut frame =
        Head::new(Place::Waiting, "Waiting", "outlast doctor").saying(said).frame(req).await;
    frame.counted = Some(req.app.now().await?);
    let rows = all.iter().take(GROUPS_MAX).map(|group| Row {
        key: key(group),
        testid: Some("waiting".to_owned()),
        cells: vec![
            Cell::Marked("wait-reason", group.reason.clone()),
            Cell::Link(group.queue.clone(), format!("queues/{}", encoded(&group.queue))),
            Cell::Text(group.job_type.clone()),
            Cell::Count(group.count),
            lever(group),
        ],
    });
    let more = all.len().saturating_sub(GROUPS_MAX);
    let caption = match more {
        0 => "What needs someone first, then the largest groups.".to_owned(),
        more => {
            format!("The {GROUPS_MAX} groups that need someone most; {more} more are not shown.")
        }
    };
    let table = Table {
        name: "waiting",
        caption,
        columns: vec!["Why", "Queue", "Type", "Jobs#", "What helps"],
        rows: rows.collect(),
        empty: "No job waits.",
        grows: None,
        next: None,
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

fn key(group: &Group) -> String {
    super::letters::key_of(&group.reason, &format!("{} {}", group.queue, group.job_type))
}

fn lever(group: &Group) -> Cell {
    let link = |words: &str, href: String| Cell::Link(words.to_owned(), href);
    match group.lever {
        Lever::Worker => link("workers", "workers".to_owned()),
        Lever::Queue => link("resume the queue", format!("queues/{}", encoded(&group.queue))),
        Lever::Slot => link("limits and slots", "limits".to_owned()),
        Lever::Time => {
            let query = format!("jobs?status=requested&queue={}", encoded(&group.queue));
            link("run some now", query)
        }
    }
}
