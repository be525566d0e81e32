//! Heartbeats of plain workers, and how a worker is.

use http::StatusCode;
use outlast_core::id::JobId;
use outlast_core::worker::liveness::{Liveness, Phase, Standing};
use outlast_store::command::Extend;
use outlast_store::{Command, Reply, Store};
use outlast_wire::ojs::quirks;
use outlast_wire::ojs::worker::{Heartbeat, HeldByBeat};

use super::plain;
use crate::engine::unexpected;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::{App, workers};

pub(super) async fn beat<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let body = call.body().await?;
    let beat = Heartbeat::read(&body)?;
    let app = &call.app;
    let (worker, standing) = plain::beat(app, &beat).await?;
    app.engine.counters().beat(true);
    let extended = extend(app, &beat).await?;
    let state = match directive(app, &extended).await? {
        Some(directive) => directive,
        None => told(standing),
    };
    let listed = match &beat.held {
        HeldByBeat::Jobs(jobs) => jobs.as_slice(),
        HeldByBeat::Count(_) => &[],
    };
    let stale = listed.iter().filter(|job| !extended.contains(job));
    let ids = |ids: Vec<&JobId>| ids.into_iter().map(ToString::to_string).collect::<Vec<_>>();
    let (kept, stale) = (ids(extended.iter().collect()), ids(stale.collect()));
    let now = app.now().await?;
    Ok(Answer::object(|object| {
        object.flag("acknowledged", true);
        object.text("state", state);
        object.text("worker_id", &beat.worker);
        object.plain("incarnation", worker);
        object.texts("jobs_extended", kept.iter().map(String::as_str));
        // Jobs that the client thinks it holds and does not: it should stop them.
        object.texts("stale_jobs", stale.iter().map(String::as_str));
        object.time("server_time", now);
    }))
}

/// Resets the visibility of what the client holds to its full length.
async fn extend<S: Store>(app: &App<S>, beat: &Heartbeat) -> Result<Vec<JobId>, Failure> {
    let jobs = match &beat.held {
        HeldByBeat::Count(Some(0)) => return Ok(Vec::new()),
        HeldByBeat::Jobs(jobs) if jobs.is_empty() => return Ok(Vec::new()),
        // Which jobs is not said: all that the store has for this client.
        HeldByBeat::Count(_) => Vec::new(),
        HeldByBeat::Jobs(jobs) => jobs.clone(),
    };
    let extend = Extend { worker: beat.worker.clone(), jobs };
    match app.engine.submit(Command::Extend(extend)).await? {
        Reply::Extended(jobs) => Ok(jobs),
        other => Err(unexpected("an extension", &other).into()),
    }
}

/// Returns the state that a held job's test directive asks for, in conformance runs only.
async fn directive<S: Store>(
    app: &App<S>,
    held: &[JobId],
) -> Result<Option<&'static str>, Failure> {
    if !app.engine.settings().conformance {
        return Ok(None);
    }
    for job in held {
        let record = app.engine.store().job(*job).await?;
        let directive = record.and_then(|record| quirks::test_directive(&record.job.payload.extra));
        if directive.is_some() {
            return Ok(directive);
        }
    }
    Ok(None)
}

/// Returns what the standard's clients are told to be.
const fn told(standing: Standing) -> &'static str {
    match (standing.liveness, standing.phase) {
        (Liveness::Lapsed | Liveness::Gone, _) | (_, Phase::Draining) => "terminate",
        (Liveness::Live | Liveness::Suspect, Phase::Quiet) => "quiet",
        (Liveness::Live | Liveness::Suspect, Phase::Running) => "running",
    }
}

pub(super) async fn health<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let name = call.param("id").await;
    let worker = workers::find(&call.app, &name).await?;
    let standing = worker.standing;
    let status =
        if standing.is_active() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let id = worker.plain_id.as_deref().unwrap_or(&worker.name);
    let answer = Answer::object(|object| {
        object.text("worker_id", id);
        object.text("state", standing.state());
        object.text("status", if standing.is_active() { "healthy" } else { "degraded" });
        object.number("active_jobs", worker.in_flight);
        object.time("last_heartbeat", worker.last_heartbeat);
    });
    Ok(answer.with_status(status))
}
