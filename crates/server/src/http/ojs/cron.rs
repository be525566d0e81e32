//! Schedules as the standard has them: cron jobs. The same schedules as our own API's.

use http::StatusCode;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::schedule::ScheduleQuery;
use outlast_wire::json::Object;
use outlast_wire::schedule::{self, NamedSchedule, Template, policy_of};
use serde_json::{Map, Value, json};

use crate::http::App;
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
    Ok(ApiResponse::ok(one(&req.app, &found)).with_status(status))
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
    let packs = req.app.engine.settings().packs.current();
    Ok(ApiResponse::object(|object| {
        for key in ["crons", "cron_jobs"] {
            object.array(key, &found, |out, schedule| {
                let mut object = Object::begin(out);
                fields(&mut object, &packs, schedule);
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
    Ok(ApiResponse::ok(one(&req.app, &found)))
}

pub(super) async fn remove(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    let removed = service::remove(&req.app.engine, &name, &author).await?;
    let removed = removed.ok_or(ScheduleError::NotFound(name))?;
    Ok(ApiResponse::ok(one(&req.app, &removed)))
}

/// Switches a schedule on or off: the one change that the standard has beside registering it again.
pub(super) async fn update(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    let body = req.body().await?;
    let is_enabled = schedule::enabled(&body)?;
    let paused = if is_enabled { None } else { Some("") };
    let found = service::pause(&req.app.engine, &name, paused, &author).await?;
    Ok(ApiResponse::ok(one(&req.app, &found)))
}

async fn name(req: &mut ApiRequest) -> Result<ScheduleName, ApiError> {
    let name = req.param("name").await;
    Ok(schedule::name(&name)?)
}

/// Answers with one schedule, under both names that clients read.
fn one(app: &App, schedule: &Schedule) -> Vec<u8> {
    let packs = app.engine.settings().packs.current();
    object(|object| {
        object.object("cron", |object| fields(object, &packs, schedule));
        object.object("cron_job", |object| fields(object, &packs, schedule));
    })
}

fn fields(object: &mut Object<'_>, packs: &PackSet, schedule: &Schedule) {
    let Schedule { record, definition, progress } = schedule;
    let timing = &definition.timing;
    object.text("name", record.name.as_str());
    object.text("expression", timing.expression.as_str());
    object.text("cron", timing.expression.as_str());
    object.text("timezone", timing.zone.name());
    object.text("overlap_policy", policy_of(timing.overlap.as_str()));
    object.flag("enabled", progress.paused.is_none());
    let job = definition.shown_job(packs);
    let job = match &definition.template {
        // The standard has no word for a workflow here.
        Template::Ojs(_) | Template::Workflow(_) => job,
        // As the action's job would be enqueued here.
        Template::Execution(_) => {
            let of = |name: &str| job.get(name).cloned();
            let options: Map<String, Value> =
                of("queue").map(|queue| ("queue".to_owned(), queue)).into_iter().collect();
            let parameters = of("parameters").unwrap_or_else(|| json!({}));
            json!({"type": of("action_ref"), "args": [parameters], "options": options})
        }
    };
    object.raw("job_template", &job.to_string());
    let next: Option<Timestamp> = progress.next.filter(|_| progress.paused.is_none());
    object.time_or_null("next_run_at", next);
    object.time_or_null("last_run_at", progress.last_fire.as_ref().map(|fire| fire.fire_time));
    object.time("created_at", record.created);
    object.time("updated_at", record.updated);
}
