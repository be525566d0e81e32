//! Operations on all jobs that match: begin, list, show, stop.

use outlast_core::operation::{OperationId, OperationKind, OperationStatus};
use outlast_core::time::Timestamp;
use outlast_store::operation::{OperationQuery, OperationRecord};
use outlast_store::record::JobRecord;
use outlast_wire::json::{self, Object};
use outlast_wire::ojs::error::Code;
use outlast_wire::operation::{self, OperationRequest};

use super::App;
use super::cursor;
use super::error::{ApiError, Missing};
use super::executions;
use super::idempotency::{self, IdempotencyKey};
use super::request::ApiRequest;
use super::response::{ApiResponse, object};
use super::route::{Routes, get, post};
use super::schema::Schema;
use super::workers;
use crate::access::Scope;
use crate::operations::count::{Counted, count};
use crate::operations::definition::Definition;
use crate::operations::service::{self, Author, Begun, OperationError, Shown};

const LIST: &[(&str, &str)] = &[
    ("running", "`true` for those that run, `false` for those that have ended"),
    ("limit", "Page size, 50 by default"),
    ("cursor", "`next_cursor` of the previous page"),
];
/// How many of the jobs that match are shown with a count: their errors are cut here.
const ERROR_MAX: usize = 200;

/// Where they are listed and begun.
pub(super) const ALL: &str = "/api/v1/operations";

pub(super) fn routes() -> Routes {
    const ONE: &str = "/api/v1/operations/{id}";
    Routes::new()
        .add(
            post(
                ALL,
                Scope::Produce,
                "Cancels or retries all jobs that match, or counts them; retries need the role operator",
                Schema::Operation,
            )
            .repeatable(Schema::OperationRequest)
            .statuses(&[200, 201])
            .refuses(&[Code::NotFound]),
            begin,
        )
        .add(get(ALL, Scope::Read, "Lists operations", Schema::Operations).query(LIST), list)
        .add(get(ONE, Scope::Read, "Shows an operation", Schema::Operation), show)
        .add(
            post(
                "/api/v1/operations/{id}/stop",
                Scope::Produce,
                "Stops an operation; what it changed stays so",
                Schema::Operation,
            )
            .refuses(&[Code::Conflict]),
            stop,
        )
}

/// Returns what an operation needs: as much as the same order to a single job.
pub(super) const fn scope_of(kind: OperationKind) -> Scope {
    match kind {
        OperationKind::Cancel => Scope::Produce,
        OperationKind::Retry => Scope::Operate,
    }
}

/// Refuses who may not give such an order to a single job.
fn may(req: &ApiRequest, kind: OperationKind) -> Result<(), ApiError> {
    req.require(scope_of(kind), &format!("a {} of jobs", kind.as_str()))
}

pub(super) async fn begin(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    // The store's own time, as in the answer to a dry run: what this server knows of it lags behind.
    let now = req.app.engine.store().now().await?;
    let request = operation::read(&body, now)?;
    may(&req, request.kind)?;
    let key = IdempotencyKey::of(&req)?;
    let tenant = req.tenant()?;
    let digest = || idempotency::begins("operation", tenant.as_deref(), &body);
    let request_digest = key.is_some().then(digest);
    let dry_run = request.dry_run;
    let definition =
        Definition { request: request_digest, ..definition(&req.app, request, tenant).await? };
    let engine = &req.app.engine;
    if dry_run {
        let counted = count(engine, &definition, definition.as_of).await?;
        // What came while they were counted is among them.
        let as_of = match definition.as_of {
            Some(as_of) => as_of,
            None => engine.store().now().await?,
        };
        return Ok(ApiResponse::ok(preview(&definition, as_of, &counted)));
    }
    let author = Author { by: req.by(), key: key.as_ref().map(IdempotencyKey::fingerprint) };
    let begun = service::begin(engine, definition, author).await?;
    let now = engine.now().await?;
    Ok(match begun {
        Begun::Now(begun) => {
            let path = format!("/api/v1/operations/{}", begun.record.id);
            ApiResponse::created(document(&Shown::Whole(Box::new(begun)), now)).at(path)
        }
        Begun::Before(begun) => {
            ApiResponse::ok(document(&Shown::Whole(Box::new(begun)), now)).replayed(true)
        }
    })
}

/// Returns what a request is stored as: its worker is named by id from now on.
pub(super) async fn definition(
    app: &App,
    request: OperationRequest,
    tenant: Option<String>,
) -> Result<Definition, ApiError> {
    let OperationRequest { kind, mut filter, expected, as_of, reason, .. } = request;
    if let Some(worker) = &filter.worker {
        filter.worker = Some(workers::find(app, worker).await?.id.to_string());
    }
    Ok(Definition { kind, filter, tenant, as_of, expected, estimate: None, reason, request: None })
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let asked = req.page()?;
    let running = req.query("running").map(|_| req.flag("running")).transpose()?;
    let after = asked.cursor.as_deref().map(cursor::read).transpose()?;
    let (all, next) = page(&req, OperationQuery { running, after, limit: asked.limit }).await?;
    let now = req.app.now().await?;
    Ok(ApiResponse::object(|object| {
        object.array("data", &all, |out, operation| {
            let mut object = Object::begin(out);
            fields(&mut object, operation, now);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", asked.limit);
            object.text_or_null("next_cursor", next.as_deref());
        });
    }))
}

/// Returns a page of operations, and where the next one begins. A tenant sees its own.
pub(super) async fn page(
    req: &ApiRequest,
    query: OperationQuery,
) -> Result<(Vec<Shown>, Option<String>), ApiError> {
    let limit = query.limit;
    let query = OperationQuery { limit: limit.saturating_add(1), ..query };
    let mut found = req.app.engine.store().operations(query).await?;
    let next = cursor::next(&mut found, limit, |last| cursor::write(last.created, last.id));
    let tenant = req.tenant()?;
    let shown = found.into_iter().map(Shown::of).filter(|it| it.is_of(tenant.as_deref()));
    Ok((shown.collect(), next))
}

async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let found = find(&mut req).await?;
    Ok(ApiResponse::ok(document(&found, req.app.now().await?)))
}

pub(super) async fn stop(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let found = find(&mut req).await?;
    let record = found.record();
    may(&req, record.new.kind)?;
    let stopped = service::stop(&req.app.engine, record.id, &req.by()).await?;
    Ok(ApiResponse::ok(document(&stopped, req.app.now().await?)))
}

async fn find(req: &mut ApiRequest) -> Result<Shown, ApiError> {
    let text = req.param("id").await;
    let unknown = || format!("operation {text} is not known");
    let id = text
        .parse::<OperationId>()
        .map_err(|_not| ApiError::not_found(Missing::Operation, unknown()))?;
    Ok(service::find(&req.app.engine, id, req.tenant()?.as_deref()).await?)
}

/// Writes one operation under `data`.
fn document(operation: &Shown, now: Timestamp) -> Vec<u8> {
    object(|object| object.object("data", |object| fields(object, operation, now)))
}

fn fields(object: &mut Object<'_>, operation: &Shown, now: Timestamp) {
    let (record, definition) = (operation.record(), operation.definition());
    object.plain("id", record.id);
    match operation {
        Shown::Whole(it) => {
            selection(object, &it.definition, it.definition.as_of.unwrap_or(record.created));
        }
        Shown::Damaged(_, problem) => {
            object.text("kind", record.new.kind.as_str());
            object.text("selection", &record.new.about);
            object.time("as_of", record.created);
            object.text("damaged", problem);
        }
    }
    object.text("status", record.status.as_str());
    object.flag("dry_run", false);
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    object.raw_or_null("expected", number(definition.and_then(|it| it.expected)).as_deref());
    let estimate = definition.and_then(|it| it.estimate);
    object.raw_or_null("estimate", number(estimate).as_deref());
    object.number("matched", record.matched);
    object.flag("at_least", record.status == OperationStatus::Running);
    object.number("changed", record.changed);
    object.number("skipped", record.skipped());
    object.object("skipped_by_reason", |object| {
        for (skip, count) in &record.skipped {
            object.number(skip.as_str(), count);
        }
    });
    let speed = Speed::of(record, estimate, now);
    object.number("rate_per_second", speed.rate);
    object.raw_or_null("seconds_left", number(speed.seconds_left).as_deref());
    object.text("by", &record.new.by);
    object.text("note", &record.note);
    object.time("created", record.created);
    object.time("updated", record.updated);
    object.time_or_null("ended", record.ended);
    object.number("revision", record.revision);
}

/// Writes what the operation is about.
fn selection(object: &mut Object<'_>, definition: &Definition, as_of: Timestamp) {
    object.text("kind", definition.kind.as_str());
    object.raw("filter", &definition.filter.document().to_string());
    object.text("selection", &definition.filter.in_words(definition.kind));
    object.time("as_of", as_of);
    object.text("reason", &definition.reason);
}

fn preview(definition: &Definition, as_of: Timestamp, counted: &Counted) -> Vec<u8> {
    object(|object| {
        object.object("data", |object| {
            selection(object, definition, as_of);
            object.flag("dry_run", true);
            object.number("matched", counted.matched);
            object.flag("at_least", !counted.is_exact);
            object.array("examples", &counted.examples, |out, job| {
                let mut object = Object::begin(out);
                example(&mut object, job);
                object.end();
            });
        });
    })
}

fn example(object: &mut Object<'_>, job: &JobRecord) {
    object.plain("id", job.job.id);
    object.text("action_ref", &job.job.key.job_type);
    object.text("queue", &job.job.key.queue);
    object.text("status", executions::status(job).as_str());
    object.time("created", job.job.created);
    let message = job.error.as_deref().and_then(|error| {
        let text = json::field(error, "message")?.get();
        serde_json::from_str::<String>(text).ok()
    });
    let message = message.map(|text| text.chars().take(ERROR_MAX).collect::<String>());
    object.text_or_null("error", message.as_deref());
}

/// How fast an operation goes.
pub(super) struct Speed {
    /// Jobs a second, on average.
    pub(super) rate: u64,
    /// About how long it goes on, where about how many match is known.
    pub(super) seconds_left: Option<u64>,
}

impl Speed {
    pub(super) fn of(record: &OperationRecord, estimate: Option<u64>, now: Timestamp) -> Self {
        let OperationRecord { matched, created, ended, .. } = *record;
        let took = ended.unwrap_or(now).since(created).as_millis().max(1);
        let rate = matched.saturating_mul(1000) / took;
        let left = estimate.map(|all| all.saturating_sub(matched));
        let is_known = ended.is_none() && rate > 0;
        Self { rate, seconds_left: left.filter(|_| is_known).map(|left| left.div_ceil(rate)) }
    }
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        let message = error.to_string();
        match error {
            OperationError::Store(error) => error.into(),
            OperationError::Unavailable(error) => Self::Unavailable(error),
            OperationError::Fault(fault) => fault.into(),
            OperationError::NotFound(_) => Self::not_found(Missing::Operation, message),
            OperationError::KeyReused => Self::KeyReused(message),
            OperationError::Damaged(..) => Self::Internal(message),
            OperationError::TooMany | OperationError::Ended { .. } | OperationError::Stale(_) => {
                Self::Conflict(message)
            }
        }
    }
}
