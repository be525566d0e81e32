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
use crate::http::answer::{Answer, object};
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::once::{self, Door, Key};
use crate::http::show::Shown;
use crate::http::{App, orders};
use crate::intake::Requester;
use crate::intake::ojs::{self, Planned};

/// Stores one job. This is the hot path: the body is read once and kept as text.
pub(super) async fn enqueue(mut call: Call) -> Result<Answer, Failure> {
    let key = Key::of(&call)?;
    let body = call.body().await?;
    let tenant = call.tenant()?;
    let envelope = enqueue::one(&body)?;
    let name = call.token().map(|token| token.name.as_str());
    let requester = Requester { tenant: tenant.as_deref(), name };
    let now = time_of_plan(&call.app, std::slice::from_ref(&envelope)).await?;
    let (job, planned) = ojs::plan(call.app.engine.settings(), envelope, requester, now)?;
    let unenforced = planned.unenforced();
    if let Some(key) = key {
        let request = once::request(Door::Job, tenant.as_deref(), &body);
        let done = key.enqueue(&call.app, request, vec![job]).await?;
        let location = done.jobs.first().map(|record| location(record.job.id));
        let written = object(|object| {
            for record in done.jobs {
                let shown = Shown::newborn(&call.app, record);
                object.object("job", |object| shown.view().fields(object));
            }
        });
        let answer = Answer::created(written).replayed(done.replayed).unenforced(unenforced);
        return Ok(answer.at(location.unwrap_or_default()));
    }
    let location = location(job.id);
    let stored = match call.app.engine.submit(Command::Enqueue(Box::new(job))).await? {
        Reply::Enqueued(stored) => stored.map_err(Failure::Enqueue)?,
        other => return Err(unexpected("an enqueue", &other).into()),
    };
    let mut out = Vec::with_capacity(body.len() + 384);
    out.extend_from_slice(b"{\"job\":");
    planned.view(&stored).write(&mut out);
    out.push(b'}');
    Ok(Answer::created(out).at(location).unenforced(unenforced))
}

/// Returns the time at which jobs are planned, if it matters to any of them.
async fn time_of_plan(app: &App, envelopes: &[Envelope<'_>]) -> Result<Timestamp, Failure> {
    if envelopes.iter().any(ojs::has_time) { app.now().await } else { Ok(Timestamp::default()) }
}

fn location(id: JobId) -> String {
    format!("/ojs/v1/jobs/{id}")
}

/// Stores several jobs, or none of them.
pub(super) async fn enqueue_all(mut call: Call) -> Result<Answer, Failure> {
    let key = Key::of(&call)?;
    let body = call.body().await?;
    let tenant = call.tenant()?;
    let envelopes = enqueue::bulk(&body)?;
    if envelopes.len() > BULK_JOBS_MAX {
        let problem = format!("holds {} jobs; at most {BULK_JOBS_MAX} are taken", envelopes.len());
        return Err(Fault::rule("jobs", problem).into());
    }
    let mut jobs = Vec::with_capacity(envelopes.len());
    let mut all = Vec::with_capacity(envelopes.len());
    let name = call.token().map(|token| token.name.as_str());
    let requester = Requester { tenant: tenant.as_deref(), name };
    let now = time_of_plan(&call.app, &envelopes).await?;
    for envelope in envelopes {
        let (job, planned) = ojs::plan(call.app.engine.settings(), envelope, requester, now)?;
        jobs.push(job);
        all.push(planned);
    }
    let unenforced = all.iter().find_map(Planned::unenforced);
    if let Some(key) = key {
        let request = once::request(Door::Batch, tenant.as_deref(), &body);
        let done = key.enqueue(&call.app, request, jobs).await?;
        let shown: Vec<_> =
            done.jobs.into_iter().map(|record| Shown::newborn(&call.app, record)).collect();
        let written = object(|object| {
            object.number("count", shown.len());
            object.array("jobs", &shown, |out, shown| shown.view().write(out));
        });
        return Ok(Answer::created(written).replayed(done.replayed).unenforced(unenforced));
    }
    let stored = match call.app.engine.submit(Command::EnqueueAll(jobs)).await? {
        Reply::EnqueuedAll(stored) => {
            stored.map_err(|(_position, refusal)| Failure::Enqueue(refusal))?
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
    Ok(Answer::created(out).unenforced(unenforced))
}

pub(super) async fn show(mut call: Call) -> Result<Answer, Failure> {
    let (id, tenant) = (call.job().await?, call.tenant()?);
    let record = orders::job(&call.app, id, tenant.as_deref()).await?;
    document(&call.app, record).await
}

pub(super) async fn cancel(mut call: Call) -> Result<Answer, Failure> {
    let (job, tenant) = (call.job().await?, call.tenant()?);
    let order = JobOrder { job, tenant, by: call.by(), expected: None };
    let record = orders::cancel(&call.app, order).await?;
    document(&call.app, record).await
}

/// Makes a pending job available; says from what and when, as the standard has it.
pub(super) async fn activate(mut call: Call) -> Result<Answer, Failure> {
    let (job, tenant) = (call.job().await?, call.tenant()?);
    let order = JobOrder { job, tenant: tenant.clone(), by: call.by(), expected: None };
    let moved = orders::moved(&call.app, job, Command::Activate(order)).await?;
    let record = orders::job(&call.app, job, tenant.as_deref()).await?;
    let shown = Shown::of(&call.app, record).await?;
    let view = shown.view();
    Ok(Answer::object(|object| {
        object.object("job", |object| {
            view.fields(object);
            object.plain("previous_state", moved.from);
            object.time("activated_at", moved.at);
        });
    }))
}

/// Answers with a job under `job`, and its fields at the root too, where the Rust client
/// reads them.
pub(super) async fn document(app: &App, record: JobRecord) -> Result<Answer, Failure> {
    let shown = Shown::of(app, record).await?;
    let view = shown.view();
    Ok(Answer::ok(object(|object| {
        object.object("job", |object| view.fields(object));
        view.fields(object);
    })))
}
