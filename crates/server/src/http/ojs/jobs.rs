//! Enqueue, look, cancel.

use http::StatusCode;
use outlast_core::id::JobId;
use outlast_core::limits::{BULK_JOBS_MAX, BULK_UNIQUE_JOBS_MAX};
use outlast_core::time::Timestamp;
use outlast_core::unique::OnConflict;
use outlast_store::command::{JobAction, JobOrder, NewJob};
use outlast_store::record::JobRecord;
use outlast_wire::Fault;
use outlast_wire::json::Object;
use outlast_wire::ojs::enqueue::{self, Envelope};

use crate::http::enqueue::{AnsweredJob, Intake, Outcome};
use crate::http::error::ApiError;
use crate::http::idempotency::{Endpoint, IdempotencyKey};
use crate::http::job_view::{JobDetails, omitted};
use crate::http::request::ApiRequest;
use crate::http::response::{ApiResponse, object};
use crate::http::{App, orders};
use crate::intake::Requester;
use crate::intake::ojs;

/// Stores one job. This is the hot path: the body is read once and kept as text.
pub(super) async fn enqueue(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let key = IdempotencyKey::of(&req)?;
    let body = req.body().await?;
    let tenant = req.tenant()?;
    let envelope = enqueue::one(&body)?;
    let name = req.token().map(|token| token.name.as_str());
    let requester = Requester { tenant: tenant.as_deref(), name };
    let now = time_of_plan(&req.app, std::slice::from_ref(&envelope)).await?;
    let job = ojs::plan(req.app.engine.settings(), envelope, requester, now)?;
    let (app, tenant) = (&req.app, tenant.as_deref());
    let intake = Intake { app, endpoint: Endpoint::Job, key, tenant, body: &body };
    let Outcome { mut jobs, replayed, .. } = intake.submit(vec![job]).await?;
    Ok(match jobs.pop() {
        Some(shown) => one(&shown).replayed(replayed),
        None => ApiResponse::created(object(|_| {})).replayed(replayed),
    })
}

/// Answers with one job: 200 if it was there before, and the new one was not stored.
fn one(shown: &AnsweredJob) -> ApiResponse {
    let written = object(|object| {
        object.object("job", |object| shown.details.view().fields(object));
        if shown.deduplicated {
            object.raw("deduplicated", "true");
        }
    });
    let answer = ApiResponse::ok(written).at(location(shown.details.id()));
    if shown.deduplicated { answer } else { answer.with_status(StatusCode::CREATED) }
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
    let name = req.token().map(|token| token.name.as_str());
    let requester = Requester { tenant: tenant.as_deref(), name };
    let now = time_of_plan(&req.app, &envelopes).await?;
    for (place, envelope) in envelopes.into_iter().enumerate() {
        let plan = ojs::plan(req.app.engine.settings(), envelope, requester, now);
        jobs.push(plan.map_err(|error| ApiError::from(error).of_job(place))?);
    }
    let unique = jobs.iter().filter(|job| job.unique.is_some()).count();
    if unique > BULK_UNIQUE_JOBS_MAX {
        let problem =
            format!("holds {unique} jobs with `unique`; at most {BULK_UNIQUE_JOBS_MAX} are taken");
        return Err(Fault::rule("jobs", problem).into());
    }
    if key.is_some()
        && let Some(place) = jobs.iter().position(may_be_ignored)
    {
        let problem = "`ignore` needs a request without `Idempotency-Key`: the answer to a \
                       repeated request could not be the same";
        return Err(Fault::rule("unique.on_conflict", problem).of_job(place).into());
    }
    let (app, tenant) = (&req.app, tenant.as_deref());
    let intake = Intake { app, endpoint: Endpoint::Batch, key, tenant, body: &body };
    let Outcome { jobs, replayed, .. } = intake.submit(jobs).await?;
    Ok(several(&jobs).replayed(replayed))
}

fn may_be_ignored(job: &NewJob) -> bool {
    job.unique.is_some_and(|unique| unique.on_conflict == OnConflict::Ignore)
}

/// Answers with several jobs: 200 if all of them were there before.
fn several(jobs: &[AnsweredJob]) -> ApiResponse {
    let written = object(|object| {
        object.number("count", jobs.len());
        object.array("jobs", jobs, |out, shown| {
            let mut object = Object::begin(out);
            shown.details.view().fields(&mut object);
            omitted(&mut object, "args", shown.details.record().omitted);
            if shown.deduplicated {
                object.raw("deduplicated", "true");
            }
            object.end();
        });
    });
    let answer = ApiResponse::ok(written);
    let is_old = jobs.iter().all(|shown| shown.deduplicated);
    if is_old { answer } else { answer.with_status(StatusCode::CREATED) }
}

pub(super) async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant) = (req.job().await?, req.tenant()?);
    let record = orders::job(&req.app, id, tenant.as_deref()).await?;
    document(&req.app, record).await
}

pub(super) async fn cancel(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (job, tenant) = (req.job().await?, req.tenant()?);
    let order = JobOrder { job, action: JobAction::Cancel, tenant, by: req.by(), expected: None };
    let record = orders::carry_out(&req.app, order).await?;
    document(&req.app, record).await
}

/// Makes a pending job available; says from what and when, as the standard has it.
pub(super) async fn activate(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (job, tenant) = (req.job().await?, req.tenant()?);
    let action = JobAction::Activate;
    let order = JobOrder { job, action, tenant: tenant.clone(), by: req.by(), expected: None };
    let moved = orders::moved(&req.app, order).await?;
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
