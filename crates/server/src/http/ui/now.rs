//! The first page: what needs someone, worst first, by the names of the alert rules.

use std::sync::Arc;

use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Liveness;
use outlast_dashboard::atoms::{Count, Lasting};
use outlast_dashboard::pages::sheet::{Card, Finding, Section};
use outlast_dashboard::{Flash, Place};
use outlast_store::event::{EventQuery, NewestQuery};
use outlast_store::query::{JobQuery, Page, QueueStats};
use outlast_store::record::WorkerRecord;

use super::jobs::encoded;
use super::sheet::{self, Head};
use super::waits::words;
use super::{losses, numbers};
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::snapshot::{Reason, Snapshot, WaitingGroup};

/// How long the oldest job may wait before it is a finding; as in the alert rule.
const OLD: Span = Span::from_secs(900);
/// How far back losses, skips and dead letters are findings.
const RECENT: Span = Span::from_secs(600);
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
    /// Why jobs can run nowhere, for the largest groups.
    nowhere: Vec<(WaitingGroup, String)>,
    lost: Recent,
    letters: Recent,
    skips: Recent,
    workflow_lag: Span,
}

/// Events of the last minutes.
struct Recent {
    count: usize,
    last: Option<String>,
    /// Whether these are all.
    is_whole: bool,
}

async fn read(req: &ApiRequest) -> Result<Facts, ApiError> {
    let app = &req.app;
    let store = app.engine.store();
    let snapshot = app.snapshot().await?;
    let now = app.now().await?;
    let counts = store.workflow_counts().await?;
    Ok(Facts {
        now,
        workers: store.live_workers().await?,
        nowhere: nowhere(app, &snapshot).await?,
        lost: recent(req, "job.lost", now).await?,
        letters: recent(req, "job.dead_lettered", now).await?,
        skips: recent(req, "cron.skipped", now).await?,
        workflow_lag: counts.oldest_end.map_or(Span::ZERO, |oldest| now.since(oldest)),
        snapshot,
    })
}

/// Returns groups of jobs that can run nowhere, with what the first job of each says.
async fn nowhere(app: &App, snapshot: &Snapshot) -> Result<Vec<(WaitingGroup, String)>, ApiError> {
    let is_nowhere =
        |group: &&WaitingGroup| matches!(group.reason, Reason::NoWorker | Reason::WorkersAway);
    let mut found = Vec::new();
    for group in snapshot.waiting.groups.iter().filter(is_nowhere).take(OF_ONE_MAX) {
        let query = JobQuery {
            states: vec![State::Available],
            queue: Some(group.queue.clone()),
            job_type: group.job_type.clone(),
            ..JobQuery::all(Page { limit: 1, cursor: None })
        };
        let jobs = app.engine.store().jobs(query).await?.jobs;
        let reason = jobs.first().and_then(|job| app.engine.waiting_reason(job));
        found.push((group.clone(), reason.unwrap_or_else(|| words(group.reason).to_owned())));
    }
    Ok(found)
}

async fn recent(req: &ApiRequest, name: &str, now: Timestamp) -> Result<Recent, ApiError> {
    let of = EventQuery {
        after: None,
        names: vec![name.to_owned()],
        queues: Vec::new(),
        job: None,
        worker: None,
        limit: 100,
    };
    let since = Some(Timestamp(now.0.saturating_sub_unsigned(RECENT.0)));
    let query = NewestQuery { of, since, until: None, before: None };
    let found = losses::newest(req, query).await?;
    let last = found.events.first().map(|event| event.evidence.to_string());
    Ok(Recent { count: found.events.len(), last, is_whole: found.is_whole })
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
        let (waiting, old, recent) = (Count(waiting), Lasting(OLD), Lasting(RECENT));
        sections.push(Section::Note(match is_whole {
            true => format!(
                "✓ Nothing needs you: {running} workers running, {waiting} jobs wait and none for longer than \
                 {old}, none was lost in the last {recent}."
            ),
            false => format!(
                "Nothing was found that needs you: {running} workers running, {waiting} jobs wait and none for \
                 longer than {old}. The log has too many events to look back {recent}; alert rules count what \
                 was lost."
            ),
        }));
    }
    sections.extend(findings.into_iter().map(Section::Finding));
    sections.push(Section::Heading("Jobs".to_owned()));
    sections.push(Section::Cards(cards(&facts.snapshot)));
    Ok(sheet::page(frame, sections))
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
    recently(&facts.letters, &mut all, |count| Finding {
        name: "OutlastDeadLetters".to_owned(),
        what: format!("{count} jobs became dead letters in the last {}", Lasting(RECENT)),
        remedy: "look at what they have in common, repair it, then retry them".to_owned(),
        href: Some("failures".to_owned()),
        ..plain()
    });
    recently(&facts.skips, &mut all, |count| {
        Finding {
        name: "OutlastSchedulesSkip".to_owned(),
        what: format!("schedules left out {count} fires in the last {}", Lasting(RECENT)),
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

fn recently(of: &Recent, all: &mut Vec<Finding>, finding: impl Fn(usize) -> Finding) {
    if of.count > 0 {
        let evidence = of.last.as_ref().map(|last| format!("The latest: {last}"));
        all.push(Finding { evidence: evidence.unwrap_or_default(), ..finding(of.count) });
    }
}

fn no_workers(facts: &Facts, all: &mut Vec<Finding>) {
    let (waiting, workers) = (facts.snapshot.totals.available, facts.snapshot.workers);
    if waiting > 0 && workers.running == 0 {
        all.push(Finding {
            name: "OutlastNoWorkers".to_owned(),
            is_worst: true,
            what: format!("{} jobs wait, and no worker takes jobs", Count(waiting)),
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
    for (group, reason) in &facts.nowhere {
        let of = group.job_type.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        all.push(Finding {
            name: "OutlastNobodyEligible".to_owned(),
            is_worst: true,
            what: format!(
                "{} jobs{of} in queue {} can run nowhere",
                Count(group.jobs),
                group.queue
            ),
            evidence: reason.clone(),
            remedy: "start a worker that has what they ask for, or cancel them".to_owned(),
            href: Some("waiting".to_owned()),
        });
    }
}

fn lost(facts: &Facts, all: &mut Vec<Finding>) {
    recently(&facts.lost, all, |count| Finding {
        name: "OutlastJobsLost".to_owned(),
        is_worst: true,
        what: format!("{count} attempts were lost in the last {}", Lasting(RECENT)),
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
                    "last heard of {} ago; it holds {} jobs, which move when its lease ends",
                    Lasting(facts.now.since(worker.last_heartbeat)),
                    worker.in_flight
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
        let waiting = Count(queue.available);
        all.push(if queue.paused {
            Finding {
                name: "OutlastQueuePaused".to_owned(),
                what: format!("queue {} is paused, and {waiting} jobs wait in it", queue.name),
                evidence: format!("the oldest has waited for {waits}"),
                remedy: "resume it when what it was paused for is over".to_owned(),
                href: link,
                ..plain()
            }
        } else {
            Finding {
                name: "OutlastBacklogOld".to_owned(),
                what: format!("{waiting} jobs wait in queue {}", queue.name),
                evidence: format!("the oldest has waited for {waits}"),
                remedy: "more workers or slots, or a limit that lets more of them run".to_owned(),
                href: link,
                ..plain()
            }
        });
    }
}
