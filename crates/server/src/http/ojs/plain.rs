//! Plain OJS workers: who is behind the id that a client gave itself.
//!
//! A plain worker registers by its first heartbeat; each registration is an incarnation.
//! What is kept here only saves a look into the store: it is read back from there after a
//! restart, and a refused renewal registers the client anew.
//!
//! ```text
//! unknown ──first beat──▶ known ──beats──▶ known ──refused (lapsed, stopped)──▶ registered anew
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::liveness::{Phase, Standing, WorkerEvent};
use outlast_store::command::{Registration, Renew, WorkerMove, WorkerRole};
use outlast_store::{Command, Reply, Store};
use outlast_wire::ojs::worker::{BeatPhase, Heartbeat};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::clock::boot_time;
use crate::engine::unexpected;
use crate::http::App;
use crate::http::error::Failure;

/// Most clients remembered; beyond it they are looked up and registered again.
const KNOWN_MAX: usize = 100_000;

/// The plain workers that this server has seen.
#[derive(Debug, Default)]
pub(crate) struct PlainWorkers {
    known: Mutex<HashMap<String, Known>>,
    recovered: OnceCell<()>,
}

/// The latest incarnation behind an id.
#[derive(Clone, Copy, Debug)]
struct Known {
    worker: WorkerId,
    /// When this server last saw it beat.
    beat: Option<BootTime>,
    /// Whether it called itself quiet, so that it may resume by its own word. An
    /// operator's quiet order stays until the operator takes it back.
    quiet: bool,
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

    /// Forgets everyone, after a reset.
    pub(crate) fn clear(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn recover<S: Store>(&self, app: &App<S>) -> Result<(), Failure> {
        let recover = async || -> Result<(), Failure> {
            // Latest first: the first row of an id is its latest incarnation.
            for row in app.engine.store().workers().await?.into_iter().rev() {
                if let Some(plain_id) = row.plain_id {
                    self.keep(&plain_id, Known { worker: row.id, beat: None, quiet: false });
                }
            }
            Ok(())
        };
        self.recovered.get_or_try_init(recover).await.copied()
    }
}

/// Notes a heartbeat and returns who sent it, as it stands now.
pub(super) async fn beat<S: Store>(
    app: &App<S>,
    beat: &Heartbeat,
) -> Result<(WorkerId, Standing), Failure> {
    app.plain.recover(app).await?;
    let known = app.plain.find(&beat.worker);
    let renewed = match known {
        Some(known) => renew(app, known.worker, beat.held.count()).await?,
        None => None,
    };
    let (mut known, mut standing) = match (known, renewed) {
        (Some(known), Some(standing)) => (known, standing),
        (Some(_) | None, _) => register(app, beat).await?,
    };
    known.beat = Some(boot_time());
    if let Some(event) = wanted(beat.phase, standing.phase, known.quiet) {
        standing = step(app, known.worker, event).await?.unwrap_or(standing);
    }
    known.quiet = match beat.phase {
        Some(BeatPhase::Quiet) => true,
        Some(BeatPhase::Running | BeatPhase::Drain | BeatPhase::Terminated) => false,
        None => known.quiet,
    };
    app.plain.keep(&beat.worker, known);
    Ok((known.worker, standing))
}

/// Returns what a client's word about itself makes of it.
const fn wanted(said: Option<BeatPhase>, phase: Phase, by_itself: bool) -> Option<WorkerEvent> {
    match (said, phase) {
        (Some(BeatPhase::Terminated), _) => Some(WorkerEvent::Goodbye),
        (Some(BeatPhase::Drain), Phase::Running | Phase::Quiet) => Some(WorkerEvent::Drain),
        (Some(BeatPhase::Quiet), Phase::Running) => Some(WorkerEvent::Quiet),
        (Some(BeatPhase::Running), Phase::Quiet) if by_itself => Some(WorkerEvent::Resume),
        (Some(BeatPhase::Drain | BeatPhase::Quiet | BeatPhase::Running) | None, _) => None,
    }
}

/// Takes a fetch of a client that beat once and fell silent as a sign of life: else its
/// lapsed incarnation would keep it from work for ever.
pub(super) async fn revive<S: Store>(app: &App<S>, plain_id: &str) -> Result<(), Failure> {
    app.plain.recover(app).await?;
    let Some(mut known) = app.plain.find(plain_id) else { return Ok(()) };
    let now = boot_time();
    let half = Span(app.engine.settings().ojs_lease.0 / 2);
    if known.beat.is_some_and(|beat| now.since(beat) < half) {
        return Ok(());
    }
    if renew(app, known.worker, 0).await?.is_none() {
        let first = Heartbeat::first(plain_id);
        known = register(app, &first).await?.0;
    }
    app.plain.keep(plain_id, Known { beat: Some(now), ..known });
    Ok(())
}

async fn renew<S: Store>(
    app: &App<S>,
    worker: WorkerId,
    in_flight: u32,
) -> Result<Option<Standing>, Failure> {
    let renew = Renew { worker, lease: app.engine.settings().ojs_lease, in_flight };
    match app.engine.beat(Command::Renew(renew)).await? {
        Reply::Renewed(renewed) => Ok(renewed.ok().map(|renewed| renewed.standing)),
        other => Err(unexpected("a renewal", &other).into()),
    }
}

async fn register<S: Store>(app: &App<S>, beat: &Heartbeat) -> Result<(Known, Standing), Failure> {
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
    };
    match app.engine.submit(Command::Register(Box::new(registration))).await? {
        Reply::Registered(Ok(standing)) => {
            Ok((Known { worker, beat: Some(boot_time()), quiet: false }, standing))
        }
        Reply::Registered(Err(refusal)) => Err(Failure::Conflict(refusal.to_string())),
        other => Err(unexpected("a registration", &other).into()),
    }
}

/// Moves a worker by its own word. A refusal leaves it as it is, which the answer shows.
async fn step<S: Store>(
    app: &App<S>,
    worker: WorkerId,
    event: WorkerEvent,
) -> Result<Option<Standing>, Failure> {
    let by = format!("worker {worker}");
    let evidence = "said so in its heartbeat".to_owned();
    let step = WorkerMove { worker, event, session: None, by, evidence };
    match app.engine.submit(Command::Worker(step)).await? {
        Reply::WorkerMoved(moved) => Ok(moved.ok().map(|moved| moved.standing)),
        other => Err(unexpected("a worker's move", &other).into()),
    }
}
