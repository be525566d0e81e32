//! What only the server knows about its health: findings, which the first page shows too, and numbers that
//! `outlast doctor` compares with its limits.

use std::path::PathBuf;
use std::sync::Arc;

use outlast_core::finding::{self, Finding};
use outlast_core::job::State;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::command::{ClassId, ClassKey, Route as JobRoute};
use outlast_store::query::{JobQuery, OldestClaimable, Page, QueueStats, StoreFacts};
use outlast_store::record::{JobRecord, WorkerRecord};
use outlast_store::tally::ClassCounts;
use outlast_wire::json::Object;
use tokio::sync::Mutex;

use super::App;
use super::error::ApiError;
use super::findings;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, get};
use super::schema::Schema;
use super::skew::Fleet;
use crate::access::Scope;
use crate::clock::{boot_time, wall};
use crate::engine::Untaken;
use crate::probe::{self, Disk, Fsync};

/// How long a check of the disk is cached: clients must not keep the disk busy.
const LOOK_FRESH: Span = Span::from_secs(5);
/// Most classes and jobs that are named.
const NAMED_MAX: usize = 50;
/// Most claimed jobs that are checked for a start.
const UNSTARTED_MAX: u32 = 500;
/// Most classes of isolated jobs that are looked at.
const ISOLATED_MAX: usize = 10;

pub(super) fn routes() -> Routes {
    Routes::new().add(
        get("/api/v1/doctor", Scope::Read, "Shows what `outlast doctor` checks", Schema::Doctor),
        doctor,
    )
}

/// The latest check of the disk, and when it was made.
#[derive(Debug, Default)]
pub(super) struct LastLook(Mutex<Option<(BootTime, Arc<Look>)>>);

#[derive(Debug)]
struct Look {
    fsync: Result<Fsync, String>,
    disk: Result<Disk, String>,
}

impl LastLook {
    async fn at(&self, folder: PathBuf) -> Arc<Look> {
        let mut last = self.0.lock().await;
        if let Some((at, look)) = last.as_ref()
            && boot_time().since(*at) < LOOK_FRESH
        {
            return Arc::clone(look);
        }
        let worded = |error: std::io::Error| error.to_string();
        let looking = tokio::task::spawn_blocking(move || Look {
            fsync: probe::fsync(&folder).map_err(worded),
            disk: probe::disk(&folder).map_err(worded),
        });
        let look = looking.await.unwrap_or_else(|error| Look {
            fsync: Err(error.to_string()),
            disk: Err(error.to_string()),
        });
        let look = Arc::new(look);
        *last = Some((boot_time(), Arc::clone(&look)));
        look
    }
}

async fn doctor(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let app = &req.app;
    let store = app.engine.store();
    let now = store.now().await?;
    let wall = wall();
    let facts = store.facts();
    let look = match &facts.folder {
        Some(folder) => Some(app.disk.at(folder.clone()).await),
        None => None,
    };
    let (workers, queues) = (store.live_workers().await?, store.queues().await?);
    let classes = store.tally().await?;
    let untaken = untaken(app, &classes);
    let isolated = isolated(app, &classes).await?;
    let unstarted = unstarted(app, now).await?;
    let limit = app.engine.settings().start_timeout;
    // Who asks may have just repaired something.
    app.snapshots.forget().await;
    let findings = finding::findings(&findings::facts(app).await?.0);
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| {
            object.text("version", app.engine.settings().version);
            object.time("wall_time", wall);
            object.time("store_time", now);
            object.object("store", |object| about_store(object, &facts, look.as_deref()));
            let skew = Fleet::of(&workers).words(&app.engine.settings().packs.current());
            object.texts("skew", skew.iter().map(String::as_str));
            object.array("findings", &findings, |out, found| {
                let mut object = Object::begin(out);
                about_finding(&mut object, found);
                object.end();
            });
            object.array("untaken", &untaken, |out, (key, why)| {
                let mut object = Object::begin(out);
                about_class(&mut object, key, why);
                object.end();
            });
            object.array("isolated", &isolated, |out, class| {
                let mut object = Object::begin(out);
                about_isolated(&mut object, class, now);
                object.end();
            });
            object.array("queues", &queues, |out, queue| {
                let mut object = Object::begin(out);
                about_queue(&mut object, queue, now);
                object.end();
            });
            object.number("start_timeout_seconds", seconds(limit));
            object.array("unstarted", &unstarted, |out, job| {
                let mut object = Object::begin(out);
                about_unstarted(&mut object, job, now);
                object.end();
            });
            object.array("workers", &workers, |out, worker| {
                let mut object = Object::begin(out);
                about_worker(&mut object, app, worker, now);
                object.end();
            });
        });
    }))
}

/// Returns classes with claimable jobs that no worker takes.
fn untaken<'a>(app: &App, classes: &'a [ClassCounts]) -> Vec<(&'a ClassKey, Untaken)> {
    let mut untaken: Vec<(&ClassKey, Untaken)> = Vec::new();
    for ClassCounts { key, .. } in
        classes.iter().filter(|class| class.counts.state(State::Available) > 0)
    {
        if untaken.len() < NAMED_MAX
            && !untaken.iter().any(|(named, _)| named.looks_like(key))
            && let Some(why) = app.engine.untaken(key)
        {
            untaken.push((key, why));
        }
    }
    untaken
}

/// Jobs of one queue and type that wait for a worker that holds nothing else.
struct Isolated<'a> {
    key: &'a ClassKey,
    count: u64,
    classes: Vec<ClassId>,
    /// The one that has waited for longest.
    first: Option<OldestClaimable>,
}

/// Returns the isolated jobs that some worker could run once it is idle.
async fn isolated<'a>(
    app: &App,
    classes: &'a [ClassCounts],
) -> Result<Vec<Isolated<'a>>, ApiError> {
    let waiting = classes.iter().filter(|class| {
        let waits = class.key.isolated && class.counts.state(State::Available) > 0;
        waits && app.engine.untaken(&class.key).is_none()
    });
    let mut all: Vec<Isolated<'_>> = Vec::new();
    for ClassCounts { id, key, counts } in waiting {
        let count = counts.state(State::Available);
        if let Some(named) = all.iter_mut().find(|named| named.key.looks_like(key)) {
            named.count += count;
            named.classes.push(*id);
        } else if all.len() < ISOLATED_MAX {
            all.push(Isolated { key, count, classes: vec![*id], first: None });
        }
    }
    let ids: Vec<ClassId> = all.iter().flat_map(|named| named.classes.iter().copied()).collect();
    if ids.is_empty() {
        return Ok(all);
    }
    let oldest = app.engine.store().oldest_claimable(ids).await?;
    for named in &mut all {
        let own = oldest.iter().filter(|oldest| named.classes.contains(&oldest.class));
        named.first = own.min_by_key(|oldest| oldest.since).cloned();
    }
    Ok(all)
}

/// Returns claimed jobs that did not start in time.
async fn unstarted(app: &App, now: Timestamp) -> Result<Vec<JobRecord>, ApiError> {
    let query = JobQuery {
        states: vec![State::Active],
        started: Some(false),
        ..JobQuery::all(Page { limit: UNSTARTED_MAX, cursor: None })
    };
    let limit = app.engine.settings().start_timeout;
    let late = |job: &JobRecord| {
        // Only native workers report starts, and only of attempts that last a moment.
        let native = job.holder.as_ref().is_some_and(|holder| holder.worker.is_some());
        native && job.claimed.is_some_and(|claimed| now.since(claimed) > limit)
    };
    let jobs = app.engine.store().jobs(query).await?.jobs;
    Ok(jobs.into_iter().filter(late).take(NAMED_MAX).collect())
}

fn about_finding(object: &mut Object<'_>, found: &Finding) {
    let Finding { rule, what, evidence, fix, page } = found;
    object.text("rule", rule.name());
    object.flag("stands_still", rule.stands_still());
    object.text("what", what);
    object.text("evidence", evidence);
    object.text("fix", fix);
    object.text("page", page);
}

fn about_store(object: &mut Object<'_>, facts: &StoreFacts, look: Option<&Look>) {
    object.text("kind", facts.kind);
    let folder = facts.folder.as_ref().map(|folder| folder.display().to_string());
    object.text_or_null("folder", folder.as_deref());
    object.text("durability", facts.durability);
    object.flag("durable", facts.durable);
    let Some(look) = look else { return };
    match &look.fsync {
        Ok(fsync) => object.object("fsync", |object| {
            object.number("median_ms", millis(fsync.median));
            object.number("slowest_ms", millis(fsync.slowest));
            object.number("rounds", fsync.rounds);
        }),
        Err(error) => object.text("fsync_error", error),
    }
    match &look.disk {
        Ok(disk) => object.object("disk", |object| {
            object.number("free_bytes", disk.free);
            object.number("total_bytes", disk.total);
        }),
        Err(error) => object.text("disk_error", error),
    }
}

fn about_class(object: &mut Object<'_>, key: &ClassKey, why: &Untaken) {
    object.text("queue", &key.queue);
    object.text("type", &key.job_type);
    match &key.route {
        JobRoute::Action { runtime, .. } => object.text("runtime", runtime),
        JobRoute::Plain => object.raw("runtime", "null"),
    }
    match why {
        Untaken::Paused => {
            object.flag("paused", true);
            object.text("reason", &format!("queue {} is paused", key.queue));
        }
        Untaken::NoWorker { reason, lacks_action } => {
            object.flag("paused", false);
            object.text("reason", reason);
            object.flag("lacks_action", *lacks_action);
        }
    }
}

fn about_isolated(object: &mut Object<'_>, class: &Isolated<'_>, now: Timestamp) {
    object.text("queue", &class.key.queue);
    object.text("type", &class.key.job_type);
    object.number("count", class.count);
    match &class.first {
        Some(first) => {
            object.plain("first", first.job);
            object.number("waits_seconds", seconds(now.since(first.since)));
        }
        None => {
            object.raw("first", "null");
            object.raw("waits_seconds", "null");
        }
    }
}

fn about_queue(object: &mut Object<'_>, queue: &QueueStats, now: Timestamp) {
    object.text("name", &queue.name);
    object.flag("paused", queue.paused);
    object.number("available", queue.available);
    object.number("active", queue.active);
    match queue.oldest_available {
        Some(oldest) => object.number("oldest_waits_seconds", seconds(now.since(oldest))),
        None => object.raw("oldest_waits_seconds", "null"),
    }
}

fn about_unstarted(object: &mut Object<'_>, job: &JobRecord, now: Timestamp) {
    object.plain("id", job.job.id);
    object.text("queue", &job.job.key.queue);
    let worker = job.holder.as_ref().and_then(|holder| holder.name.as_deref());
    object.text_or_null("worker", worker);
    let claimed = job.claimed.unwrap_or(now);
    object.number("claimed_seconds_ago", seconds(now.since(claimed)));
}

fn about_worker(object: &mut Object<'_>, app: &App, worker: &WorkerRecord, now: Timestamp) {
    let interval = Span(worker.lease.0 / u64::from(app.engine.settings().staleness_multiplier));
    object.plain("id", worker.id);
    object.text("name", &worker.name);
    object.text("state", worker.standing.state());
    object.flag("holds_lease", worker.standing.holds_lease());
    object.number("in_flight", worker.in_flight);
    object.number("heartbeat_age_seconds", seconds(now.since(worker.last_heartbeat)));
    object.number("interval_seconds", seconds(interval));
    object.number("lease_seconds", seconds(worker.lease));
    let session = app.engine.shared().fleet.session(worker.id);
    match session.and_then(|session| session.not_polling_for()) {
        Some(age) => object.number("deaf_seconds", seconds(age)),
        None => object.raw("deaf_seconds", "null"),
    }
    object.text_or_null("unhealthy", worker.unhealthy.as_ref().map(|it| it.reason.as_str()));
}

/// Returns a span in seconds.
pub(super) fn seconds(span: Span) -> String {
    format!("{}.{:03}", span.as_secs(), span.as_millis() % 1000)
}

fn millis(duration: std::time::Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1000.0)
}
