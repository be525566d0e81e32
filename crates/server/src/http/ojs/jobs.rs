//! Enqueue, look, cancel.

use outlast_core::id::JobId;
use outlast_core::limits::BULK_JOBS_MAX;
use outlast_core::time::Timestamp;
use outlast_store::command::JobOrder;
use outlast_store::record::JobRecord;
use outlast_store::{Command, Reply};
use outlast_wire::Fault;
use outlast_wire::json::Object;
use outlast_wire::ojs::enqueue::{self, Envelope};

use crate::engine::unexpected;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, Endpoint, IdempotencyKey};
use crate::http::job_view::JobDetails;
use crate::http::request::ApiRequest;
use crate::http::response::{ApiResponse, object};
use crate::http::{App, orders};
use crate::intake::Requester;
use crate::intake::ojs::{self, Planned};

/// Stores one job. This is the hot path: the body is read once and kept as text.
pub(super) async fn enqueue(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let key = IdempotencyKey::of(&req)?;
    let body = req.body().await?;
    let tenant = req.tenant()?;
    let envelope = enqueue::one(&body)?;
    let name = req.token().map(|token| token.name.as_str());
    let requester = Requester { tenant: tenant.as_deref(), name };
    let now = time_of_plan(&req.app, std::slice::from_ref(&envelope)).await?;
    let (job, planned) = ojs::plan(req.app.engine.settings(), envelope, requester, now)?;
    let unenforced = planned.unenforced();
    if let Some(key) = key {
        let request = idempotency::request(Endpoint::Job, tenant.as_deref(), &body);
        let done = key.enqueue(&req.app, request, vec![job]).await?;
        let location = done.jobs.first().map(|record| location(record.job.id));
        let written = object(|object| {
            for record in done.jobs {
                let shown = JobDetails::newborn(&req.app, record);
                object.object("job", |object| shown.view().fields(object));
            }
        });
        let answer = ApiResponse::created(written).replayed(done.replayed).unenforced(unenforced);
        return Ok(answer.at(location.unwrap_or_default()));
    }
    let location = location(job.id);
    let stored = match req.app.engine.submit(Command::Enqueue(Box::new(job))).await? {
        Reply::Enqueued(stored) => stored.map_err(ApiError::Enqueue)?,
        other => return Err(unexpected("an enqueue", &other).into()),
    };
    let mut out = Vec::with_capacity(body.len() + 384);
    out.extend_from_slice(b"{\"job\":");
    planned.view(&stored).write(&mut out);
    out.push(b'}');
    Ok(ApiResponse::created(out).at(location).unenforced(unenforced))
}

/// Returns the time at which jobs are planned, if it matters to any of them.
async fn time_of_plan(app: &App, envelopes: &[Envelope<'_>]) -> Result<Timestamp, ApiError> {
    if envelopes.iter().any(ojs::has_time) { app.now().await } else { Ok(Timestamp::default()) }
}

fn location(id: JobId) -> String {
    format!("/ojs/v1/jobs/{id}")
}

/// Stores several jobs, or none of them.
pub(super) async fn enqueue_all(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let key = IdempotencyKey::of(&req)?;
    let body = req.body().await?;
    let tenant = req.tenant()?;
    let envelopes = enqueue::bulk(&body)?;
    if envelopes.len() > BULK_JOBS_MAX {
        let problem = format!("holds {} jobs; at most {BULK_JOBS_MAX} are taken", envelopes.len());
        return Err(Fault::rule("jobs", problem).into());
    }
    let mut jobs = Vec::with_capacity(envelopes.len());
    let mut all = Vec::with_capacity(envelopes.len());
    let name = req.token().map(|token| token.name.as_str());
    let requester = Requester { tenant: tenant.as_deref(), name };
    let now = time_of_plan(&req.app, &envelopes).await?;
    for envelope in envelopes {
        let (job, planned) = ojs::plan(req.app.engine.settings(), envelope, requester, now)?;
        jobs.push(job);
        all.push(planned);
    }
    let unenforced = all.iter().find_map(Planned::unenforced);
    if let Some(key) = key {
        let request = idempotency::request(Endpoint::Batch, tenant.as_deref(), &body);
        let done = key.enqueue(&req.app, request, jobs).await?;
        let shown: Vec<_> =
            done.jobs.into_iter().map(|record| JobDetails::newborn(&req.app, record)).collect();
        let written = object(|object| {
            object.number("count", shown.len());
            object.array("jobs", &shown, |out, shown| shown.view().write(out));
        });
        return Ok(ApiResponse::created(written).replayed(done.replayed).unenforced(unenforced));
    }
    let stored = match req.app.engine.submit(Command::EnqueueAll(jobs)).await? {
        Reply::EnqueuedAll(stored) => {
            stored.map_err(|(_position, refusal)| ApiError::Enqueue(refusal))?
        }
        other => return Err(unexpected("a bulk enqueue", &other).into()),
    };
    let mut out = Vec::with_capacity(body.len() * 2 + 256 * stored.len());
    let mut object = Object::begin(&mut out);
    object.number("count", stored.len());
    object.array("jobs", all.iter().zip(&stored), |out, (planned, stored)| {
        planned.view(stored).write(out);
    });
    object.end();
    Ok(ApiResponse::created(out).unenforced(unenforced))
}

pub(super) async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant) = (req.job().await?, req.tenant()?);
    let record = orders::job(&req.app, id, tenant.as_deref()).await?;
    document(&req.app, record).await
}

pub(super) async fn cancel(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (job, tenant) = (req.job().await?, req.tenant()?);
    let order = JobOrder { job, tenant, by: req.by(), expected: None };
    let record = orders::cancel(&req.app, order).await?;
    document(&req.app, record).await
}

/// Makes a pending job available; says from what and when, as the standard has it.
pub(super) async fn activate(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (job, tenant) = (req.job().await?, req.tenant()?);
    let order = JobOrder { job, tenant: tenant.clone(), by: req.by(), expected: None };
    let moved = orders::moved(&req.app, job, Command::Activate(order)).await?;
    let record = orders::job(&req.app, job, tenant.as_deref()).await?;
    let shown = JobDetails::of(&req.app, record).await?;
    let view = shown.view();
    Ok(ApiResponse::object(|object| {
        object.object("job", |object| {
            view.fields(object);
            object.plain("previous_state", moved.from);
            object.time("activated_at", moved.at);
        });
    }))
}

/// Answers with a job under `job`, and its fields at the root too, where the Rust client
/// reads them.
pub(super) async fn document(app: &App, record: JobRecord) -> Result<ApiResponse, ApiError> {
    let shown = JobDetails::of(app, record).await?;
    let view = shown.view();
    Ok(ApiResponse::ok(object(|object| {
        object.object("job", |object| view.fields(object));
        view.fields(object);
    })))
}
