//! Schedules: set, list, show, pause, resume, trigger, remove.

use http::StatusCode;
use outlast_core::schedule::ScheduleName;
use outlast_packs::PackSet;
use outlast_schedule::progress::{LastFire, LastSkip, Pause, Progress, Timing};
use outlast_store::schedule::ScheduleQuery;
use outlast_wire::Fault;
use outlast_wire::json::Object;
use outlast_wire::ojs::error::Code;
use outlast_wire::schedule::{self, Template};

use super::App;
use super::error::{ApiError, Missing};
use super::request::ApiRequest;
use super::response::{ApiResponse, object};
use super::route::{Routes, delete, get, post, put};
use super::schema::Schema;
use crate::access::Scope;
use crate::schedules::definition::Definition;
use crate::schedules::job_of_now;
use crate::schedules::service::{self, Author, Change, Listed, Schedule, ScheduleError, Wanted};

const LIST: &[(&str, &str)] =
    &[("limit", "Page size, 50 by default"), ("cursor", "`next_cursor` of the previous page")];

pub(super) fn routes() -> Routes {
    const ALL: &str = "/api/v1/schedules";
    const ONE: &str = "/api/v1/schedules/{name}";
    let order = |path: &'static str, about: &'static str| {
        post(path, Scope::Operate, about, Schema::Schedule).refuses(&[Code::Conflict])
    };
    Routes::new()
        .add(get(ALL, Scope::Read, "Lists schedules", Schema::Schedules).query(LIST), list)
        .add(get(ONE, Scope::Read, "Shows a schedule", Schema::Schedule), show)
        .add(
            put(ONE, Scope::Operate, "Sets a schedule", Schema::Schedule)
                .takes(Schema::ScheduleRequest)
                .statuses(&[200, 201])
                .refuses(&[Code::Conflict, Code::NotFound, Code::ValidationError]),
            set,
        )
        .add(
            delete(ONE, Scope::Operate, "Removes a schedule; its jobs stay", Schema::ScheduleGone)
                .refuses(&[Code::Conflict]),
            remove,
        )
        .add(
            order("/api/v1/schedules/{name}/pause", "Pauses a schedule")
                .takes(Schema::PauseRequest),
            pause,
        )
        .add(
            order("/api/v1/schedules/{name}/resume", "Resumes a schedule").takes(Schema::Nothing),
            resume,
        )
        .add(
            post(
                "/api/v1/schedules/{name}/trigger",
                Scope::Operate,
                "Fires a schedule now, beside its times",
                Schema::Triggered,
            )
            .takes(Schema::Nothing)
            .creates()
            .refuses(&[
                Code::Conflict,
                Code::QueueFull,
                Code::ValidationError,
                Code::Duplicate,
            ]),
            trigger,
        )
}

/// Says who asks for a change.
pub(super) fn author(req: &ApiRequest) -> Result<Author, ApiError> {
    Ok(Author { by: req.by(), is_configuration: false, tenant: req.tenant()? })
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let page = req.page()?;
    let after = page.cursor.as_deref().map(ScheduleName::new).transpose();
    let after = after.map_err(|_not| Fault::field("cursor", "is not a cursor from this server"))?;
    let query = ScheduleQuery { after, limit: page.limit };
    let Listed { schedules, next } = service::list(&req.app.engine, query, None).await?;
    let packs = req.app.engine.settings().packs.current();
    Ok(ApiResponse::object(|object| {
        object.array("data", &schedules, |out, schedule| {
            let mut object = Object::begin(out);
            fields(&mut object, &packs, schedule);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", page.limit);
            object.text_or_null("next_cursor", next.as_ref().map(ScheduleName::as_str));
        });
    }))
}

async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = name(&mut req).await?;
    let found = find(&req.app, &name).await?;
    Ok(ApiResponse::ok(document(&req.app, &found)))
}

async fn set(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    let body = req.body().await?;
    let request = schedule::read(&body)?;
    let now = req.app.now().await?;
    let definition = Definition::of(&request, author.tenant.clone(), now)?;
    let wanted = Wanted { definition, paused: request.paused };
    let (change, found) = changed(&req.app, &name, &wanted, &author).await?;
    let status = if change == Change::Created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(ApiResponse::ok(document(&req.app, &found)).with_status(status))
}

/// Writes one schedule under `data`.
fn document(app: &App, schedule: &Schedule) -> Vec<u8> {
    let packs = app.engine.settings().packs.current();
    object(|object| object.object("data", |object| fields(object, &packs, schedule)))
}

/// Sets a schedule of which the job can be made now and that has a time to fire.
pub(super) async fn changed(
    app: &App,
    name: &ScheduleName,
    wanted: &Wanted,
    author: &Author,
) -> Result<(Change, Schedule), ApiError> {
    let now = app.now().await?;
    job_of_now(app.engine.settings(), name, &wanted.definition, now)?;
    let Timing { expression, zone, until, .. } = &wanted.definition.timing;
    if wanted.definition.timing.next_after(now, now).is_none() {
        let problem = match until {
            Some(_) => "is before the schedule fires for the first time".to_owned(),
            None => format!("never fires: no time of {zone} is {expression}"),
        };
        let field = if until.is_some() { "until" } else { "cron" };
        return Err(Fault::rule(field, problem).into());
    }
    let change = service::set(&app.engine, name, wanted, author).await?;
    Ok((change, find(app, name).await?))
}

pub(super) async fn remove(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    service::remove(&req.app.engine, &name, &author).await?;
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| {
            object.text("name", name.as_str());
            object.flag("removed", true);
        });
    }))
}

pub(super) async fn pause(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    let body = req.body().await?;
    let reason = match body.iter().all(u8::is_ascii_whitespace) {
        true => String::new(),
        false => schedule::pause_reason(&body)?,
    };
    ordered(&req.app, &name, Some(&reason), &author).await
}

pub(super) async fn resume(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    schedule::nothing(&req.body().await?)?;
    ordered(&req.app, &name, None, &author).await
}

async fn ordered(
    app: &App,
    name: &ScheduleName,
    paused: Option<&str>,
    author: &Author,
) -> Result<ApiResponse, ApiError> {
    let found = service::pause(&app.engine, name, paused, author).await?;
    Ok(ApiResponse::ok(document(app, &found)))
}

pub(super) async fn trigger(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (name, author) = (name(&mut req).await?, author(&req)?);
    schedule::nothing(&req.body().await?)?;
    let found = find(&req.app, &name).await?;
    let fired = service::trigger(&req.app.engine, &name, &author).await?;
    let document = object(|object| {
        object.object("data", |object| {
            object.text("name", name.as_str());
            object.plain(kind_of_id(&found), fired.id);
            object.time("fire_time", fired.fire_time);
            object.flag("waits", fired.waits);
        });
    });
    Ok(ApiResponse::ok(document).with_status(StatusCode::CREATED))
}

async fn name(req: &mut ApiRequest) -> Result<ScheduleName, ApiError> {
    let name = req.param("name").await;
    Ok(schedule::name(&name)?)
}

async fn find(app: &App, name: &ScheduleName) -> Result<Schedule, ApiError> {
    let found = service::find(&app.engine, name, None).await?;
    found.ok_or_else(|| ScheduleError::NotFound(name.clone()).into())
}

/// Writes a schedule's fields.
fn fields(object: &mut Object<'_>, packs: &PackSet, schedule: &Schedule) {
    let Schedule { record, definition, progress } = schedule;
    let Timing { expression, zone, catch_up, overlap, jitter, until } = &definition.timing;
    object.text("name", record.name.as_str());
    object.text("cron", expression.as_str());
    object.text("time_zone", zone.name());
    object.text("overlap", overlap.as_str());
    object.text("catch_up", catch_up.as_str());
    object.seconds("jitter_seconds", *jitter);
    object.time_or_null("until", *until);
    let job = definition.shown_job(packs);
    let kind = match &definition.template {
        Template::Execution(_) => "action_ref",
        Template::Ojs(_) => "type",
        Template::Workflow(_) => "workflow_ref",
    };
    object.raw_or_null(kind, job.get(kind).map(ToString::to_string).as_deref());
    object.raw("job", &job.to_string());
    object.text("status", status(schedule));
    pause_or_null(object, progress.paused.as_ref());
    object.time_or_null("anchor", Some(progress.anchor));
    let next = progress.next.filter(|_| progress.paused.is_none());
    object.time_or_null("next_fire", next);
    last_fire(object, schedule);
    last_skip(object, progress.last_skip.as_ref());
    object.number("fired", progress.fired);
    object.number("skipped", progress.skipped);
    let open: Vec<String> = progress.open.iter().map(ToString::to_string).collect();
    object.texts("open_jobs", open.iter().map(String::as_str));
    object.flag("configured", record.state.configured);
    object.text("set_by", &record.state.set_by);
    object.time("created", record.created);
    object.time("updated", record.updated);
    object.number("revision", record.revision);
}

/// Returns the field for the id of what a fire stored.
const fn kind_of_id(schedule: &Schedule) -> &'static str {
    match &schedule.definition.template {
        Template::Execution(_) | Template::Ojs(_) => "job_id",
        Template::Workflow(_) => "workflow_id",
    }
}

/// Returns the word for how a schedule stands.
pub(super) const fn status(schedule: &Schedule) -> &'static str {
    match (&schedule.progress.paused, schedule.progress.next) {
        (Some(_), _) => "paused",
        (None, Some(_)) => "active",
        (None, None) => "ended",
    }
}

fn pause_or_null(object: &mut Object<'_>, pause: Option<&Pause>) {
    match pause {
        None => object.raw("paused", "null"),
        Some(pause) => object.object("paused", |object| {
            object.text("reason", &pause.reason);
            object.text("by", &pause.by);
            object.time("at", pause.at);
        }),
    }
}

fn last_fire(object: &mut Object<'_>, schedule: &Schedule) {
    let (name, timing) = (schedule.name().as_str(), &schedule.definition.timing);
    match &schedule.progress.last_fire {
        None => object.raw("last_fire", "null"),
        Some(LastFire { fire_time, at, job, is_workflow }) => {
            object.object("last_fire", |object| {
                object.time("fire_time", *fire_time);
                let late = Progress::late(name, timing, *fire_time, *at);
                object.seconds("late_seconds", late);
                object.plain(if *is_workflow { "workflow_id" } else { "job_id" }, job);
            })
        }
    }
}

fn last_skip(object: &mut Object<'_>, skip: Option<&LastSkip>) {
    match skip {
        None => object.raw("last_skip", "null"),
        Some(skip) => object.object("last_skip", |object| {
            object.time("fire_time", skip.fire_time);
            object.time("at", skip.at);
            object.text("reason", &skip.reason);
        }),
    }
}

impl From<ScheduleError> for ApiError {
    fn from(error: ScheduleError) -> Self {
        let message = error.to_string();
        match error {
            ScheduleError::Store(error) => error.into(),
            ScheduleError::Unavailable(error) => Self::Unavailable(error),
            ScheduleError::Intake(error) => error.into(),
            ScheduleError::Workflow(error) => error.into(),
            ScheduleError::NotFound(_) => Self::not_found(Missing::Schedule, message),
            ScheduleError::Enqueue(refusal) => Self::Enqueue(refusal),
            ScheduleError::Damaged(..) => Self::Internal(message),
            ScheduleError::Configured(_)
            | ScheduleError::TooMany
            | ScheduleError::Contended(_)
            | ScheduleError::NotTriggered { .. } => Self::Conflict(message),
        }
    }
}
