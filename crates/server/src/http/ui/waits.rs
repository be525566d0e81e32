//! Why jobs wait: by reason, queue and type, with what helps beside each.

use outlast_dashboard::pages::sheet::{Cell, Row, Section, Table};
use outlast_dashboard::{Flash, Place};

use super::jobs::encoded;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::snapshot::{Reason, WaitingGroup};

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let snapshot = req.app.snapshot().await?;
    let head = Head::new(Place::Waiting, "Waiting", "outlast queues list -o json").saying(said);
    let mut frame = head.frame(req).await;
    frame.counted = Some(snapshot.counted_at);
    let waiting = &snapshot.waiting;
    let mut groups: Vec<&WaitingGroup> = waiting.groups.iter().collect();
    groups.sort_by_key(|group| !needs_someone(group.reason));
    let rows = groups.into_iter().map(|group| Row {
        key: key(group),
        testid: Some("waiting".to_owned()),
        cells: vec![
            Cell::Marked("wait-reason", words(group.reason).to_owned()),
            Cell::Link(group.queue.clone(), format!("queues/{}", encoded(&group.queue))),
            Cell::Text(group.job_type.clone().unwrap_or_else(|| "all types".to_owned())),
            Cell::Count(group.jobs),
            lever(group),
        ],
    });
    let caption = match waiting.others {
        0 => "What needs someone first, then the largest groups.".to_owned(),
        others => format!(
            "What needs someone first, then the largest groups; {others} more jobs wait in others."
        ),
    };
    let table = Table {
        name: "waiting",
        caption,
        columns: vec!["Why", "Queue", "Type", "Jobs#", "What helps"],
        rows: rows.collect(),
        empty: match waiting.others {
            0 => "No job waits.",
            _ => "Why they wait is not known right now.",
        },
        grows: None,
        next: None,
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

/// Whether jobs wait until someone does something.
pub(super) const fn needs_someone(reason: Reason) -> bool {
    matches!(reason, Reason::NoWorker | Reason::WorkersAway | Reason::Paused)
}

/// What jobs wait for.
pub(super) const fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Time => "delayed until their time",
        Reason::Activation => "held back until they are activated",
        Reason::Retry => "failed, and wait for their next attempt",
        Reason::Paused => "the queue is paused",
        Reason::NoWorker => "no live worker can run them",
        Reason::WorkersAway => "the workers that can run them are not connected",
        Reason::Limit => "a limit is used up",
        Reason::Alone => "each needs a worker that holds nothing else",
        Reason::Turn => "their turn: workers take them as slots become free",
    }
}

fn key(group: &WaitingGroup) -> String {
    let of = format!("{} {}", group.queue, group.job_type.as_deref().unwrap_or_default());
    super::letters::key_of(group.reason.as_str(), &of)
}

fn lever(group: &WaitingGroup) -> Cell {
    let queue = encoded(&group.queue);
    let (words, href) = match group.reason {
        Reason::NoWorker | Reason::WorkersAway | Reason::Turn | Reason::Alone => {
            ("workers", "workers".to_owned())
        }
        Reason::Paused => ("resume the queue", format!("queues/{queue}")),
        Reason::Limit => ("limits", "limits".to_owned()),
        Reason::Time | Reason::Retry | Reason::Activation => {
            ("run some now", format!("jobs?status=requested&queue={queue}"))
        }
    };
    Cell::Link(words.to_owned(), href)
}
