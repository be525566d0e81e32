//! Schedules as the standard has them: cron jobs. The same schedules as our own API's.

use http::StatusCode;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_store::schedule::ScheduleQuery;
use outlast_wire::json::{self, Object};
use outlast_wire::schedule::{self, NamedSchedule, Template, policy_of};
use outlast_wire::{Fault, FaultKind};

use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::{ApiResponse, object};
use crate::http::schedules::{author, changed};
use crate::schedules::definition::Definition;
use crate::schedules::service::{self, Change, Schedule, ScheduleError, Wanted};

/// Most schedules in one answer: the standard has no pages here.
const LISTED_MAX: usize = 10_000;
/// How many are read at once.
const PAGE: u32 = 1_000;

pub(super) async fn register(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let author = author(&req)?;
    let body = req.body().await?;
    let NamedSchedule { name, request } = schedule::of_the_standard(&body)?;
    let now = req.app.now().await?;
    let definition = Definition::of(&request, author.tenant.clone(), now)?;
    let wanted = Wanted { definition, paused: request.paused };
    let (change, found) = changed(&req.app, &name, &wanted, &author).await?;
    let status = if change == Change::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(ApiResponse::ok(one(&found)).with_status(status))
}

pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let tenant = req.tenant()?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = ScheduleQuery { after, limit: PAGE };
        let page = service::list(&req.app.engine, query, tenant.as_deref()).await?;
        found.extend(page.schedules);
        after = page.next;
        if after.is_none() || found.len() >= LISTED_MAX {
            break;
        }
    }
    found.truncate(LISTED_MAX);
    Ok(ApiResponse::object(|object| {
        for key in ["crons", "cron_jobs"] {
            object.array(key, &found, |out, schedule| {
                let mut object = Object::begin(out);
                fields(&mut object, schedule);
                object.end();
            });
        }
        object.number("count", found.len());
    }))
}

pub(super) async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, tenant) = (name(&mut req).await?, req.tenant()?);
    let found = service::find(&req.app.engine, &name, tenant.as_deref()).await?;
    let found = found.ok_or(ScheduleError::NotFound(name))?;
    Ok(ApiResponse::ok(one(&found)))
}

pub(super) async fn remove(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    let removed = service::remove(&req.app.engine, &name, &author).await?;
    let removed = removed.ok_or(ScheduleError::NotFound(name))?;
    Ok(ApiResponse::ok(one(&removed)))
}

/// Switches a schedule on or off: the one change that the standard has beside registering it again.
pub(super) async fn update(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    let body = req.body().await?;
    let is_enabled = schedule::enabled(&body)?;
    let paused = if is_enabled { None } else { Some("") };
    let found = service::pause(&req.app.engine, &name, paused, &author).await?;
    Ok(ApiResponse::ok(one(&found)))
}

/// A name that no schedule can have is not found.
async fn name(req: &mut ApiRequest) -> Result<ScheduleName, ApiError> {
    let name = req.param("name").await;
    let wrong = |fault: Fault| Fault { kind: FaultKind::Request, ..fault };
    Ok(schedule::name(&name).map_err(wrong)?)
}

/// Answers with one schedule, under both names that clients read.
fn one(schedule: &Schedule) -> Vec<u8> {
    object(|object| {
        object.object("cron", |object| fields(object, schedule));
        object.object("cron_job", |object| fields(object, schedule));
    })
}

fn fields(object: &mut Object<'_>, schedule: &Schedule) {
    let Schedule { record, definition, progress } = schedule;
    let timing = &definition.timing;
    object.text("name", record.name.as_str());
    object.text("expression", timing.expression.as_str());
    object.text("cron", timing.expression.as_str());
    object.text("timezone", timing.zone.name());
    object.text("overlap_policy", policy_of(timing.overlap.as_str()));
    object.flag("enabled", progress.paused.is_none());
    let (Template::Execution(template) | Template::Ojs(template)) = &definition.template;
    object.object("job_template", |object| match &definition.template {
        Template::Ojs(_) => {
            for (name, value) in json::fields(template) {
                object.raw(&name, value.get());
            }
        }
        // As the action's job would be enqueued here.
        Template::Execution(_) => {
            let of = |name: &str| json::field(template, name).map(|value| value.get());
            object.raw_or_null("type", of("action_ref"));
            object.raw("args", &format!("[{}]", of("parameters").unwrap_or("{}")));
            object.object("options", |object| {
                if let Some(queue) = of("queue") {
                    object.raw("queue", queue);
                }
            });
        }
    });
    let next: Option<Timestamp> = progress.next.filter(|_| progress.paused.is_none());
    object.time_or_null("next_run_at", next);
    object.time_or_null("last_run_at", progress.last_fire.as_ref().map(|fire| fire.fire_time));
    object.time("created_at", record.created);
    object.time("updated_at", record.updated);
}
