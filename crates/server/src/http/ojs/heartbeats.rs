//! Heartbeats of plain workers, and their health.

use std::time::Duration;

use http::StatusCode;
use outlast_core::id::JobId;
use outlast_core::worker::liveness::{Liveness, Phase, Standing};
use outlast_store::extend::{Extend, Holds, JobCount};
use outlast_store::reply::Extended;
use outlast_wire::ojs::quirks;
use outlast_wire::ojs::quirks::ActiveJobs;
use outlast_wire::ojs::worker::{BeatPhase, Heartbeat};

use tokio::time::Instant;

use super::plain_workers;
use crate::clock::millis;
use crate::engine::{Engine, Unavailable};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::{App, workers};

/// Pause before jobs that were passed over are tried again.
const PASSED_OVER_PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn beat(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let beat = Heartbeat::read(&body)?;
    let app = &req.app;
    // Neither waits for the other.
    let (known, extended) = tokio::join!(plain_workers::beat(app, &beat), extend(app, &beat));
    let ((worker, standing), extended) = (known?, extended?);
    app.engine.counters().beat(true);
    let Extended { jobs: extended, passed_over, unconfirmed } = extended;
    let state = match directive(app, &extended).await? {
        Some(directive) => directive,
        None => state_name(standing),
    };
    let listed = match &beat.active_jobs {
        ActiveJobs::Jobs(jobs) => jobs.as_slice(),
        ActiveJobs::Count(_) => &[],
    };
    let is_current = |job: &&JobId| extended.contains(job) || passed_over.contains(job);
    let stale = listed.iter().filter(|job| !is_current(job));
    let ids = |ids: Vec<&JobId>| ids.into_iter().map(ToString::to_string).collect::<Vec<_>>();
    let (kept, stale) = (ids(extended.iter().collect()), ids(stale.collect()));
    let unconfirmed = ids(unconfirmed.iter().collect());
    let now = app.now().await?;
    Ok(ApiResponse::object(|object| {
        object.flag("acknowledged", true);
        object.text("state", state);
        object.text("worker_id", &beat.worker);
        object.plain("incarnation", worker);
        object.texts("jobs_extended", kept.iter().map(String::as_str));
        // Jobs that the client believes it holds and does not: it should stop them.
        object.texts("stale_jobs", stale.iter().map(String::as_str));
        // Jobs that the store holds for the client and that it did not count.
        object.texts("unconfirmed_jobs", unconfirmed.iter().map(String::as_str));
        object.time("server_time", now);
    }))
}

/// Resets the visibility of what the client holds to its full length.
async fn extend(app: &App, beat: &Heartbeat) -> Result<Extended, ApiError> {
    // A last heartbeat takes them all from it.
    if beat.phase == Some(BeatPhase::Terminated) {
        return Ok(Extended::default());
    }
    let holds = match &beat.active_jobs {
        // The standard extends jobs that a heartbeat reports, and none beside them.
        ActiveJobs::Count(None | Some(0)) => return Ok(Extended::default()),
        ActiveJobs::Jobs(jobs) if jobs.is_empty() => return Ok(Extended::default()),
        ActiveJobs::Count(Some(jobs)) => {
            let report = app.plain.differing(&beat.worker);
            Holds::Count(JobCount { jobs: *jobs, arrived: app.now().await?, report })
        }
        ActiveJobs::Jobs(jobs) => Holds::Jobs(jobs.clone()),
    };
    let extended = extend_these(&app.engine, &beat.worker, holds).await?;
    if let ActiveJobs::Count(Some(count)) = beat.active_jobs {
        warn_of(app, &beat.worker, count, &extended.unconfirmed);
    }
    if !extended.passed_over.is_empty() && !app.plain.falls_behind(&beat.worker) {
        tokio::spawn(catch_up(app.clone(), beat.worker.clone(), extended.passed_over.clone()));
    }
    Ok(extended)
}

/// Warns of jobs that a client has not counted in two heartbeats in a row.
fn warn_of(app: &App, worker: &str, count: u32, unconfirmed: &[JobId]) {
    let differing = app.plain.differs(worker, unconfirmed);
    if let Some(job) = differing.first() {
        tracing::warn!(
            worker,
            count,
            jobs = differing.len(),
            first_job = %job,
            "a client counts fewer jobs than it has fetched; these are not extended any more, and run again"
        );
    }
}

async fn extend_these(
    engine: &Engine,
    worker: &str,
    holds: Holds,
) -> Result<Extended, Unavailable> {
    let extend = Extend { worker: worker.to_owned(), holds };
    engine.beat(extend).await
}

/// Retries jobs that another transaction had locked: when they are free, their visibility may
/// have passed before the next heartbeat comes.
async fn catch_up(app: App, worker: String, mut jobs: Vec<JobId>) {
    let end = Instant::now() + millis(app.engine.settings().ojs_lease);
    while !jobs.is_empty() && Instant::now() < end {
        tokio::time::sleep(PASSED_OVER_PAUSE).await;
        match extend_these(&app.engine, &worker, Holds::Jobs(jobs)).await {
            Ok(extended) => jobs = extended.passed_over,
            // The next heartbeat tries again.
            Err(_unavailable) => break,
        }
    }
    app.plain.catches_up(&worker);
}

/// Returns the state that a held job's test directive asks for, in conformance runs only.
async fn directive(app: &App, in_flight: &[JobId]) -> Result<Option<&'static str>, ApiError> {
    if !app.engine.settings().conformance {
        return Ok(None);
    }
    for job in in_flight {
        let record = app.engine.store().job(*job).await?;
        let directive = record.and_then(|record| quirks::test_directive(&record.job.payload.extra));
        if directive.is_some() {
            return Ok(directive);
        }
    }
    Ok(None)
}

/// Returns the state that the OJS API tells a worker.
const fn state_name(standing: Standing) -> &'static str {
    match (standing.liveness, standing.phase) {
        (Liveness::Lapsed | Liveness::Gone, _) | (_, Phase::Draining) => "terminate",
        (Liveness::Live | Liveness::Suspect, Phase::Quiet) => "quiet",
        (Liveness::Live | Liveness::Suspect, Phase::Running) => "running",
    }
}

pub(super) async fn health(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.param("id").await;
    let worker = workers::find(&req.app, &name).await?;
    let standing = worker.standing;
    let status =
        if standing.is_active() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let id = worker.plain_id.as_deref().unwrap_or(&worker.name);
    let answer = ApiResponse::object(|object| {
        object.text("worker_id", id);
        object.text("state", standing.state());
        object.text("status", if standing.is_active() { "healthy" } else { "degraded" });
        object.number("active_jobs", worker.in_flight);
        object.time("last_heartbeat", worker.last_heartbeat);
    });
    Ok(answer.with_status(status))
}
