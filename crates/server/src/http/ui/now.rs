//! The first page: what needs someone, worst first, by the names of the alert rules.

use std::sync::Arc;

use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Liveness;
use outlast_dashboard::atoms::{Count, Lasting, counted};
use outlast_dashboard::pages::sheet::{Card, Cell, Finding, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use outlast_store::query::QueueStats;
use outlast_store::record::WorkerRecord;

use super::jobs::encoded;
use super::numbers;
use super::recent::{RECENT, Recent};
use super::sheet::{self, Head};
use super::waits::words;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::metrics::hour::{Happened, Hour};
use crate::snapshot::Snapshot;

/// How long the oldest job may wait before it is a finding; as in the alert rule.
const OLD: Span = Span::from_secs(900);
/// How long the oldest end of a job may wait for its workflow; as in the alert rule.
const WORKFLOW_LAG: Span = Span::from_secs(30);
/// Most findings of one kind.
const OF_ONE_MAX: usize = 5;

/// What the findings follow from.
struct Facts {
    now: Timestamp,
    snapshot: Arc<Snapshot>,
    /// Those that are silent or unhealthy, and how many others there are.
    workers: Vec<WorkerRecord>,
    lost: Recent,
    letters: Recent,
    skips: Recent,
    workflow_lag: Span,
}

async fn read(req: &ApiRequest) -> Result<Facts, ApiError> {
    let app = &req.app;
    let store = app.engine.store();
    let snapshot = app.snapshot().await?;
    let now = app.now().await?;
    let counts = store.workflow_counts().await?;
    let [lost, letters, skips] = app.recent.look(store.as_ref(), now).await?;
    Ok(Facts {
        now,
        workers: store.live_workers().await?,
        lost,
        letters,
        skips,
        workflow_lag: counts.oldest_end.map_or(Span::ZERO, |oldest| now.since(oldest)),
        snapshot,
    })
}

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let facts = read(req).await?;
    let mut frame = Head::new(Place::Now, "Now", "outlast doctor").saying(said).frame(req).await;
    frame.counted = Some(facts.snapshot.counted_at);
    let mut findings = findings(&facts);
    if let Some(trouble) = &frame.trouble {
        let evidence = req.app.engine.health().store;
        findings.insert(
            0,
            Finding {
                name: "OutlastStoreDown".to_owned(),
                is_worst: true,
                what: trouble.clone(),
                evidence: format!("The store says: {evidence}"),
                remedy: "see what `outlast doctor` finds; nothing that was acknowledged is lost"
                    .to_owned(),
                href: Some("servers".to_owned()),
            },
        );
    }
    let mut sections = Vec::new();
    if findings.is_empty() {
        let (running, waiting) = (facts.snapshot.workers.running, facts.snapshot.totals.available);
        let is_whole = [&facts.lost, &facts.letters, &facts.skips].iter().all(|it| it.is_whole);
        let (old, recent) = (Lasting(OLD), Lasting(RECENT));
        let running = counted(running as u64, "worker runs", "workers run");
        let waiting = counted(waiting, "job waits", "jobs wait");
        sections.push(Section::Note(match is_whole {
            true => format!(
                "✓ Nothing needs you: {running}, {waiting} and none for longer than {old}, none was lost in \
                 the last {recent}."
            ),
            false => format!(
                "Nothing was found that needs you: {running}, {waiting} and none for longer than {old}. The \
                 log has too many events to look back {recent}; alert rules count what was lost."
            ),
        }));
    }
    sections.extend(findings.into_iter().map(Section::Finding));
    sections.push(Section::Heading("Jobs".to_owned()));
    sections.push(Section::Cards(cards(&facts.snapshot)));
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

fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    no_workers(facts, &mut all);
    nobody_eligible(facts, &mut all);
    lost(facts, &mut all);
    workers(facts, &mut all);
    stuck_workflows(facts, &mut all);
    queues(facts, &mut all);
    recently(&facts.letters, &mut all, |of| Finding {
        name: "OutlastDeadLetters".to_owned(),
        what: format!(
            "{} in the last {}",
            least(of, "job became a dead letter", "jobs became dead letters"),
            Lasting(RECENT)
        ),
        remedy: "look at what they have in common, repair it, then retry them".to_owned(),
        href: Some("failures".to_owned()),
        ..plain()
    });
    recently(&facts.skips, &mut all, |of| {
        Finding {
        name: "OutlastSchedulesSkip".to_owned(),
        what: format!(
            "schedules left out {} in the last {}",
            least(of, "fire", "fires"),
            Lasting(RECENT)
        ),
        remedy: "a job that runs for longer than the time between two fires needs a time limit or another overlap"
            .to_owned(),
        href: Some("schedules".to_owned()),
        ..plain()
    }
    });
    all.sort_by_key(|finding| !finding.is_worst);
    all
}

fn plain() -> Finding {
    Finding {
        name: String::new(),
        is_worst: false,
        what: String::new(),
        evidence: String::new(),
        remedy: String::new(),
        href: None,
    }
}

fn recently(of: &Recent, all: &mut Vec<Finding>, finding: impl Fn(&Recent) -> Finding) {
    if of.count > 0 {
        let evidence = of.last.as_ref().map(|last| format!("The latest: {last}"));
        all.push(Finding { evidence: evidence.unwrap_or_default(), ..finding(of) });
    }
}

/// Counts what happened lately. There may have been more than is known.
fn least(of: &Recent, one: &str, many: &str) -> String {
    let counted = counted(of.count, one, many);
    if of.is_whole { counted } else { format!("at least {counted}") }
}

fn no_workers(facts: &Facts, all: &mut Vec<Finding>) {
    let (waiting, workers) = (facts.snapshot.totals.available, facts.snapshot.workers);
    if waiting > 0 && workers.running == 0 {
        all.push(Finding {
            name: "OutlastNoWorkers".to_owned(),
            is_worst: true,
            what: format!(
                "{}, and no worker takes jobs",
                counted(waiting, "job waits", "jobs wait")
            ),
            evidence: format!(
                "live workers: none running, {} quiet, {} draining, {} suspect",
                workers.quiet, workers.draining, workers.suspect
            ),
            remedy: "start workers, or resume those that are quiet".to_owned(),
            href: Some("workers".to_owned()),
        });
    }
}

fn nobody_eligible(facts: &Facts, all: &mut Vec<Finding>) {
    let groups = facts.snapshot.waiting.groups.iter().filter(|group| group.reason.is_nowhere());
    for group in groups.take(OF_ONE_MAX) {
        let of = group.job_type.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        all.push(Finding {
            name: "OutlastNobodyEligible".to_owned(),
            is_worst: true,
            what: format!(
                "{}{of} in queue {} can run nowhere",
                counted(group.jobs, "job", "jobs"),
                group.queue
            ),
            evidence: group.lack.clone().unwrap_or_else(|| words(group.reason).to_owned()),
            remedy: "start a worker that has what they ask for, or cancel them".to_owned(),
            href: Some("waiting".to_owned()),
        });
    }
}

fn lost(facts: &Facts, all: &mut Vec<Finding>) {
    recently(&facts.lost, all, |of| Finding {
        name: "OutlastJobsLost".to_owned(),
        is_worst: true,
        what: format!(
            "{} in the last {}",
            least(of, "attempt was lost", "attempts were lost"),
            Lasting(RECENT)
        ),
        remedy: "their jobs run again; see which worker or type they have in common".to_owned(),
        href: Some("losses".to_owned()),
        ..plain()
    });
}

fn workers(facts: &Facts, all: &mut Vec<Finding>) {
    for worker in &facts.workers {
        if worker.standing.liveness == Liveness::Suspect {
            all.push(Finding {
                name: "OutlastWorkersLost".to_owned(),
                what: format!("worker {} is silent", worker.name),
                evidence: format!(
                    "last heard of {} ago; it holds {} when its lease ends",
                    Lasting(facts.now.since(worker.last_heartbeat)),
                    counted(u64::from(worker.in_flight), "job, which moves", "jobs, which move")
                ),
                remedy: "see whether its machine and network are well".to_owned(),
                href: Some(format!("workers/{}", worker.id)),
                ..plain()
            });
        } else if let Some(unhealthy) = &worker.unhealthy {
            all.push(Finding {
                name: "OutlastWorkerUnhealthy".to_owned(),
                what: format!("worker {} is unhealthy and takes no jobs", worker.name),
                evidence: format!(
                    "{}, for {}",
                    unhealthy.reason,
                    Lasting(facts.now.since(unhealthy.since))
                ),
                remedy: "repair what its check names; it comes back by itself".to_owned(),
                href: Some(format!("workers/{}", worker.id)),
                ..plain()
            });
        }
        if all.len() > 20 {
            break;
        }
    }
}

fn stuck_workflows(facts: &Facts, all: &mut Vec<Finding>) {
    if facts.workflow_lag > WORKFLOW_LAG {
        all.push(Finding {
            name: "OutlastWorkflowsStuck".to_owned(),
            is_worst: true,
            what: "workflows do not move on".to_owned(),
            evidence: format!(
                "the oldest end of a job has waited for {}",
                Lasting(facts.workflow_lag)
            ),
            remedy: "the log of the servers says why".to_owned(),
            href: Some("workflows?status=running".to_owned()),
        });
    }
}

fn queues(facts: &Facts, all: &mut Vec<Finding>) {
    let waits = |queue: &QueueStats| queue.oldest_available.map(|oldest| facts.now.since(oldest));
    let old =
        facts.snapshot.queues.iter().filter(|queue| waits(queue).is_some_and(|waits| waits > OLD));
    for queue in old.take(OF_ONE_MAX) {
        let link = Some(format!("queues/{}", encoded(&queue.name)));
        let waits = Lasting(waits(queue).unwrap_or_default());
        let waiting = counted(queue.available, "job waits", "jobs wait");
        all.push(if queue.paused {
            Finding {
                name: "OutlastQueuePaused".to_owned(),
                what: format!("queue {} is paused, and {waiting} in it", queue.name),
                evidence: format!("the oldest has waited for {waits}"),
                remedy: "resume it when what it was paused for is over".to_owned(),
                href: link,
                ..plain()
            }
        } else {
            Finding {
                name: "OutlastBacklogOld".to_owned(),
                what: format!("{waiting} in queue {}", queue.name),
                evidence: format!("the oldest has waited for {waits}"),
                remedy: "more workers or slots, or a limit that lets more of them run".to_owned(),
                href: link,
                ..plain()
            }
        });
    }
}
