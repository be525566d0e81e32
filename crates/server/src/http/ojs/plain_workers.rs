//! Plain OJS workers: which worker is behind the id that a client gave itself.
//!
//! A plain worker registers by its first heartbeat; each registration is an incarnation.
//! This is only a cache: a client that it does not hold is looked up in the store, and a refused
//! renewal registers the client again. What a heartbeat stores does not wait for the event loop's
//! work, except a last heartbeat, which moves jobs.
//!
//! ```text
//! unknown ──first beat──▶ known ──beats──▶ known ──refused (lapsed, stopped)──▶ registered again
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::liveness::{Liveness, Phase, Standing, WorkerEvent};
use outlast_core::worker::order::WorkerOrder;
use outlast_store::command::{Registration, Renew, WorkerMove, WorkerRole};
use outlast_store::query::WorkerQuery;
use outlast_store::record::WorkerRecord;
use outlast_store::reply::Renewed;
use outlast_wire::ojs::worker::{BeatPhase, Heartbeat};
use uuid::Uuid;

use crate::clock::boot_time;
use crate::http::App;
use crate::http::error::ApiError;

/// Most clients in the cache; others are looked up and registered again.
const KNOWN_MAX: usize = 100_000;

/// Longest that the response to a last heartbeat waits for its jobs to move.
const GOODBYE_WAITS: Duration = Duration::from_secs(1);

/// How many of the latest incarnations of an id are checked.
const LIVING_MAX: u32 = 20;

/// The renewal number that a registration gives.
const FIRST_RENEWAL: u64 = 1;

/// The plain workers that this server has seen.
#[derive(Debug, Default)]
pub(crate) struct PlainWorkers {
    known: Mutex<HashMap<String, Known>>,
    /// Clients whose jobs were passed over, and are retried.
    behind: Mutex<HashSet<String>>,
    /// Clients that fetch and never sent a heartbeat, as the store knew when it was asked.
    without_beats: Mutex<HashMap<String, BootTime>>,
    /// Clients whose latest counts were below what the store holds for them.
    differences: Mutex<HashMap<String, Difference>>,
}

/// Jobs that a client holds by the store's account, and did not count.
#[derive(Debug, Default)]
struct Difference {
    /// Not counted by the latest heartbeat. The next one may be only late.
    once: Vec<JobId>,
    /// Not counted repeatedly, and logged.
    logged: Vec<JobId>,
}

/// The latest incarnation behind an id.
#[derive(Clone, Copy, Debug)]
struct Known {
    worker: WorkerId,
    /// When this server last received its heartbeat.
    beat: Option<BootTime>,
    /// Whether it went quiet by itself, so that it may resume by itself. An operator's order
    /// stays until the operator resumes it.
    quiet: bool,
    /// Its latest renewal that this server made, and whether `quiet` was said on either side
    /// of that beat.
    latest: Option<Latest>,
}

/// The latest beat of a worker that this server answered.
#[derive(Clone, Copy, Debug)]
struct Latest {
    renewal: u64,
    quiet: bool,
}

impl Known {
    const fn silent(worker: WorkerId) -> Self {
        Self { worker, beat: None, quiet: false, latest: None }
    }

    /// Returns whether `quiet` in the beat that became `renewal` is the worker's own word.
    ///
    /// The Go SDK repeats the state that the server last answered, one beat late: after a
    /// `resume` that echo of `quiet` must not undo it. So `quiet` counts only if neither side
    /// said it in the beat before. What was said there is not known here when another server
    /// answered that beat; then it does not count either: a quiet worker does not fetch.
    fn is_own_quiet(&self, said: Option<BeatPhase>, renewal: u64) -> bool {
        let Some(latest) = self.latest else { return false };
        said == Some(BeatPhase::Quiet) && latest.renewal + 1 == renewal && !latest.quiet
    }
}

impl PlainWorkers {
    fn find(&self, plain_id: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(plain_id).copied()
    }

    fn keep(&self, plain_id: &str, known: Known) {
        let mut map = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= KNOWN_MAX && !map.contains_key(plain_id) {
            map.clear();
        }
        map.insert(plain_id.to_owned(), known);
    }

    /// Notes that jobs of a client were passed over; returns whether they were before.
    pub(super) fn falls_behind(&self, plain_id: &str) -> bool {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        !behind.insert(plain_id.to_owned())
    }

    /// Notes that no job of a client is retried.
    pub(super) fn catches_up(&self, plain_id: &str) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).remove(plain_id);
    }

    /// Returns jobs that the client's latest heartbeat did not count, and that are not logged yet.
    pub(super) fn differing(&self, plain_id: &str) -> Vec<JobId> {
        let map = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(plain_id).map(|difference| difference.once.clone()).unwrap_or_default()
    }

    /// Notes which jobs a heartbeat did not count. Returns those that the one before it did not
    /// count either, when that is new.
    pub(super) fn differs(&self, plain_id: &str, unconfirmed: &[JobId]) -> Vec<JobId> {
        let mut map = self.differences.lock().unwrap_or_else(PoisonError::into_inner);
        if unconfirmed.is_empty() {
            map.remove(plain_id);
            return Vec::new();
        }
        if map.len() >= KNOWN_MAX && !map.contains_key(plain_id) {
            map.clear();
        }
        let known = map.entry(plain_id.to_owned()).or_default();
        let (again, others): (Vec<_>, Vec<_>) =
            unconfirmed.iter().copied().partition(|job| known.once.contains(job));
        known.logged.retain(|job| unconfirmed.contains(job));
        known.once = others.into_iter().filter(|job| !known.logged.contains(job)).collect();
        known.logged.extend(&again);
        again
    }

    /// Forgets all clients, after a reset.
    pub(crate) fn clear(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.differences.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.without_beats.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Notes that the store knows of no heartbeat of a client.
    fn never_beat(&self, plain_id: &str, now: BootTime) {
        let mut map = self.without_beats.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= KNOWN_MAX {
            map.clear();
        }
        map.insert(plain_id.to_owned(), now);
    }

    /// Whether the store knew of no heartbeat of a client when it was asked lately.
    fn had_not_beaten(&self, plain_id: &str, lately: Span, now: BootTime) -> bool {
        let map = self.without_beats.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(plain_id).is_some_and(|asked| now.since(*asked) < lately)
    }
}

/// What the store knows of a client.
enum Stored {
    /// It never sent a heartbeat.
    Nothing,
    /// It has lapsed or stopped; with the incarnation whose order holds for the next one.
    Ended(Option<WorkerId>),
    /// It lives, and was renewed.
    Alive(WorkerId, Renewed),
}

/// Notes a heartbeat and returns its worker with its present standing.
pub(super) async fn beat(app: &App, beat: &Heartbeat) -> Result<(WorkerId, Standing), ApiError> {
    let known = app.plain.find(&beat.worker);
    let renewed = match known {
        Some(known) => renew(app, known.worker, beat.active_jobs.count()).await?,
        None => None,
    };
    let (mut known, renewal, mut standing) = match (known, renewed) {
        (Some(known), Some(renewed)) => (known, renewed.renewal, renewed.standing),
        // Another server may have made it known.
        (Some(_) | None, _) => match stored(app, &beat.worker, beat.active_jobs.count()).await? {
            Stored::Alive(worker, renewed) => {
                (Known::silent(worker), renewed.renewal, renewed.standing)
            }
            Stored::Ended(previous) => register(app, beat, previous).await?,
            Stored::Nothing => register(app, beat, None).await?,
        },
    };
    known.beat = Some(boot_time());
    let said = match beat.phase {
        Some(BeatPhase::Quiet) if !known.is_own_quiet(beat.phase, renewal) => None,
        said => said,
    };
    if let Some(event) = wanted(said, standing.phase, known.quiet) {
        standing = step(app, known.worker, event).await?.unwrap_or(standing);
    }
    known.quiet = match said {
        Some(BeatPhase::Quiet) => true,
        Some(BeatPhase::Running | BeatPhase::Drain | BeatPhase::Terminated) => false,
        None => known.quiet,
    };
    let quiet = beat.phase == Some(BeatPhase::Quiet) || standing.phase == Phase::Quiet;
    known.latest = Some(Latest { renewal, quiet });
    app.plain.keep(&beat.worker, known);
    Ok((known.worker, standing))
}

/// Returns what a client's own state means for its worker.
const fn wanted(said: Option<BeatPhase>, phase: Phase, by_itself: bool) -> Option<WorkerEvent> {
    match (said, phase) {
        (Some(BeatPhase::Terminated), _) => Some(WorkerEvent::Goodbye),
        (Some(BeatPhase::Drain), Phase::Running | Phase::Quiet) => Some(WorkerEvent::Drain),
        (Some(BeatPhase::Quiet), Phase::Running) => Some(WorkerEvent::Quiet),
        (Some(BeatPhase::Running), Phase::Quiet) if by_itself => Some(WorkerEvent::Resume),
        (Some(BeatPhase::Drain | BeatPhase::Quiet | BeatPhase::Running) | None, _) => None,
    }
}

/// Takes a fetch as a sign of life of a client that once sent heartbeats and fell silent.
/// Otherwise its lapsed incarnation would keep it from getting jobs forever.
pub(super) async fn revive(app: &App, plain_id: &str) -> Result<(), ApiError> {
    let now = boot_time();
    let half = Span(app.engine.settings().ojs_lease.0 / 2);
    let Some(mut known) = app.plain.find(plain_id) else {
        if app.plain.had_not_beaten(plain_id, half, now) {
            return Ok(());
        }
        // It may have sent them to another server, or to this one before a restart.
        let known = match stored(app, plain_id, 0).await? {
            Stored::Alive(worker, _) => Known::silent(worker),
            Stored::Ended(previous) => {
                register(app, &Heartbeat::first(plain_id), previous).await?.0
            }
            Stored::Nothing => {
                app.plain.never_beat(plain_id, now);
                return Ok(());
            }
        };
        app.plain.keep(plain_id, Known { beat: Some(now), ..known });
        return Ok(());
    };
    if known.beat.is_some_and(|beat| now.since(beat) < half) {
        return Ok(());
    }
    match (renew(app, known.worker, 0).await?, known.latest) {
        (None, _) => {
            known = match stored(app, plain_id, 0).await? {
                Stored::Alive(worker, _) => Known::silent(worker),
                Stored::Ended(previous) => {
                    register(app, &Heartbeat::first(plain_id), previous).await?.0
                }
                Stored::Nothing => register(app, &Heartbeat::first(plain_id), None).await?.0,
            };
        }
        // Nothing was said in between.
        (Some(renewed), Some(latest)) if latest.renewal + 1 == renewed.renewal => {
            known.latest = Some(Latest { renewal: renewed.renewal, ..latest });
        }
        (Some(_), _) => {}
    }
    app.plain.keep(plain_id, Known { beat: Some(now), ..known });
    Ok(())
}

async fn renew(app: &App, worker: WorkerId, in_flight: u32) -> Result<Option<Renewed>, ApiError> {
    let renew = Renew { worker, lease: app.engine.settings().ojs_lease, in_flight };
    Ok(app.engine.beat(renew).await?.ok())
}

/// Looks a client up in the store, and renews its latest incarnation that lives.
async fn stored(app: &App, plain_id: &str, in_flight: u32) -> Result<Stored, ApiError> {
    let query = WorkerQuery { called: Some(plain_id.to_owned()), ..WorkerQuery::all(LIVING_MAX) };
    let found = app.engine.store().workers_page(query).await?.workers;
    let mut known = Stored::Nothing;
    for worker in found.iter().filter(|worker| worker.plain_id.as_deref() == Some(plain_id)) {
        if matches!(known, Stored::Nothing) {
            known = Stored::Ended(quiet_by_order(worker).then_some(worker.id));
        }
        if worker.standing.holds_lease()
            && let Some(renewed) = renew(app, worker.id, in_flight).await?
        {
            return Ok(Stored::Alive(worker.id, renewed));
        }
    }
    Ok(known)
}

/// Whether a client that has lapsed was ordered to be quiet: that holds for its next incarnation. An
/// order to end does not, since that may be another process of the same name, which would be ended
/// as soon as it starts.
fn quiet_by_order(latest: &WorkerRecord) -> bool {
    latest.standing.liveness == Liveness::Lapsed
        && latest.given.is_some_and(|given| given.order == WorkerOrder::Quiet)
}

/// Registers a client; returns it as new, with the number of its renewal.
async fn register(
    app: &App,
    beat: &Heartbeat,
    previous: Option<WorkerId>,
) -> Result<(Known, u64, Standing), ApiError> {
    let worker = WorkerId(Uuid::now_v7());
    let registration = Registration {
        id: worker,
        name: beat.worker.clone(),
        role: WorkerRole::Ojs,
        concurrency: beat.concurrency.unwrap_or(1),
        queues: beat.queues.clone(),
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        lease: app.engine.settings().ojs_lease,
        about: serde_json::json!({ "host": beat.host }).to_string(),
        plain_id: Some(beat.worker.clone()),
        previous: previous.into_iter().collect(),
    };
    let registered = app.engine.beat(registration).await?;
    let standing = registered.map_err(|refusal| ApiError::Conflict(refusal.to_string()))?;
    let before = Latest { renewal: 0, quiet: false };
    let known = Known { latest: Some(before), ..Known::silent(worker) };
    Ok((Known { beat: Some(boot_time()), ..known }, FIRST_RENEWAL, standing))
}

/// Moves a worker to the state that it reports. A refusal leaves it, as the response shows.
async fn step(
    app: &App,
    worker: WorkerId,
    event: WorkerEvent,
) -> Result<Option<Standing>, ApiError> {
    let by = format!("worker {worker}");
    let code = (event == WorkerEvent::Goodbye).then_some(EvidenceCode::Drained);
    let evidence = Evidence { code, text: "said so in its heartbeat".into() };
    let step = WorkerMove { worker, event, ordered: None, session: None, by, evidence };
    let moved = if event == WorkerEvent::Goodbye {
        match tokio::time::timeout(GOODBYE_WAITS, app.engine.submit(step)).await {
            Ok(moved) => moved?,
            // The command is carried out nevertheless.
            Err(_elapsed) => return Ok(None),
        }
    } else {
        app.engine.beat(step).await?
    };
    Ok(moved.ok().map(|moved| moved.standing))
}
