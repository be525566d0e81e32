//! Workflows: begin, list, show, cancel, retry.

use std::time::Duration;

use http::StatusCode;
use outlast_core::time::Span;
use outlast_core::workflow::WorkflowId;
use outlast_store::workflow::WorkflowQuery;
use outlast_wire::Fault;
use outlast_wire::ojs::error::Code;
use outlast_wire::workflow::{
    Pagination, Source, Status, WorkflowList, WorkflowRequest, document, read, status,
};
use outlast_workflow::Definition;
use tokio::time::Instant;

use super::App;
use super::commit_watch::CommitWatch;
use super::cursor;
use super::error::{ApiError, Missing};
use super::executions;
use super::idempotency::{self, IdempotencyKey};
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, get, post};
use super::schema::Schema;
use crate::access::Scope;
use crate::workflows::service::{self, Begun, Repeat, Wanted, WorkflowError};
use crate::workflows::view;

const LIST: &[(&str, &str)] = &[
    ("status", "Only workflows with this status, such as `failed`"),
    ("name", "Only workflows with this name"),
    ("limit", "Page size, 50 by default"),
    ("cursor", "`next_cursor` of the previous page"),
];
const SHOW: &[(&str, &str)] = &[
    ("wait", "Answer when it has ended, or after this long, such as `30s`; at most `60s`"),
    ("drawing", "Also draw its steps as text, in so many columns"),
];
/// Where they are listed and started.
pub(super) const ALL: &str = "/api/v1/workflows";
/// Most columns of a drawing.
const WIDTH_MAX: usize = 1_000;

pub(super) fn routes() -> Routes {
    const ONE: &str = "/api/v1/workflows/{id}";
    Routes::new()
        .add(
            post(ALL, Scope::Produce, "Begins a workflow", Schema::Workflow)
                .enqueues(Schema::WorkflowRequest)
                .refuses(&[Code::Conflict, Code::NotFound]),
            begin,
        )
        .add(get(ALL, Scope::Read, "Lists workflows", Schema::Workflows).query(LIST), list)
        .add(get(ONE, Scope::Read, "Shows a workflow", Schema::Workflow).query(SHOW), show)
        .add(
            post(
                "/api/v1/workflows/{id}/cancel",
                Scope::Produce,
                "Cancels a workflow, and the jobs of it that have not ended",
                Schema::Workflow,
            )
            .refuses(&[Code::Conflict]),
            cancel,
        )
        .add(
            post(
                "/api/v1/workflows/{id}/retry",
                Scope::Operate,
                "Goes on from the steps that failed, and keeps what was done",
                Schema::Workflow,
            )
            .refuses(&[Code::Conflict]),
            retry,
        )
}

async fn begin(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let tenant = req.tenant()?;
    let WorkflowRequest { source, parameters, labels, keys, name } = read(&body)?;
    let settings = req.app.engine.settings();
    let (definition, reference, parameters) = match source {
        Source::Inline(described) => {
            let definition =
                Definition::read(&described).map_err(|fault| at("workflow", &fault))?;
            let parameters = service::parameters_of(&definition, &parameters)?;
            (definition, None, parameters)
        }
        Source::Ref(reference) => {
            let (definition, parameters) = service::of_pack(settings, &reference, &parameters)?;
            (definition, Some(reference), parameters)
        }
    };
    let wanted = Wanted {
        definition,
        reference,
        parameters,
        labels,
        keys,
        name,
        repeat: repeat(&req, tenant.as_deref(), &body)?,
        tenant,
        by: req.token().map(|token| token.name.clone()),
        schedule: None,
    };
    let begun = service::begin(&req.app.engine, wanted).await?;
    let (Begun::Now(id) | Begun::Before(id)) = begun;
    let view = view::find(&req.app.engine, id, None, None).await?;
    Ok(created(ApiResponse::ok(document(&view)), begun))
}

/// Says whether a request began a workflow, or one like it did before.
pub(super) fn created(response: ApiResponse, begun: Begun) -> ApiResponse {
    match begun {
        Begun::Now(_) => response.with_status(StatusCode::CREATED),
        Begun::Before(_) => response.replayed(true),
    }
}

/// Reads whether the request may come again.
pub(super) fn repeat(
    req: &ApiRequest,
    tenant: Option<&str>,
    body: &[u8],
) -> Result<Option<Repeat>, ApiError> {
    let Some(key) = IdempotencyKey::of(req)? else { return Ok(None) };
    let request = idempotency::begins("workflow", tenant, body);
    Ok(Some(Repeat { key: key.fingerprint(), request }))
}

/// Says where a definition is wrong, below the field that holds it.
pub(super) fn at(field: &str, fault: &outlast_workflow::Fault) -> Fault {
    let place = match (field, fault.place.as_str()) {
        ("", place) => place.to_owned(),
        (field, "") => field.to_owned(),
        (field, place) if place.starts_with('[') => format!("{field}{place}"),
        (field, place) => format!("{field}.{place}"),
    };
    match place.as_str() {
        "" => Fault::payload(fault.problem.clone()),
        place => Fault::rule(place, format!("is not as it must be: {}", fault.problem)),
    }
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let page = req.page()?;
    let status = req.query("status").map(|word| status("status", &word)).transpose()?;
    let query = WorkflowQuery {
        status: status.map(|status: Status| status.as_str().to_owned()),
        name: req.query("name"),
        tenant: req.tenant()?,
        after: page.cursor.as_deref().map(cursor::read).transpose()?,
        limit: page.limit.saturating_add(1),
    };
    let mut workflows = view::list(&req.app.engine, query).await?;
    let next_cursor =
        cursor::next(&mut workflows, page.limit, |last| cursor::write(last.created, last.id));
    let pagination = Pagination { limit: page.limit, next_cursor };
    Ok(ApiResponse::ok(WorkflowList { workflows, pagination }.document()))
}

async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant) = (id(&mut req).await?, req.tenant()?);
    let drawing = req.number::<usize>("drawing")?.map(|width| width.min(WIDTH_MAX));
    if let Some(wait) = executions::wait_asked(&req)? {
        // A tenant does not learn when others' workflows end.
        service::may_see(&req.app.engine, id, tenant.as_deref()).await?;
        wait_for_end(&req.app, id, wait).await?;
    }
    let view = view::find(&req.app.engine, id, tenant.as_deref(), drawing).await?;
    Ok(ApiResponse::ok(document(&view)))
}

/// Waits until a workflow has ended, the time is over or the server stops.
async fn wait_for_end(app: &App, id: WorkflowId, wait: Span) -> Result<(), ApiError> {
    let until = Instant::now() + Duration::from_millis(wait.as_millis());
    let mut commits = CommitWatch::new(app);
    let stopping = app.engine.shared().stopping();
    loop {
        // Before reading, so that commits in the meantime cause another read.
        commits.ready().await;
        let found = app.engine.store().workflow(id).await?;
        if found.is_none_or(|record| record.state.finished.is_some()) {
            return Ok(());
        }
        commits.pause(app);
        tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(until) => return Ok(()),
            goes_on = commits.changed() => if !goes_on {
                return Ok(());
            },
        }
    }
}

pub(super) async fn cancel(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant, by) = (id(&mut req).await?, req.tenant()?, req.by());
    service::cancel(&req.app.engine, id, tenant.as_deref(), &by).await?;
    let view = view::find(&req.app.engine, id, None, None).await?;
    Ok(ApiResponse::ok(document(&view)))
}

pub(super) async fn retry(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant, by) = (id(&mut req).await?, req.tenant()?, req.by());
    service::retry(&req.app.engine, id, tenant.as_deref(), &by).await?;
    let view = view::find(&req.app.engine, id, None, None).await?;
    Ok(ApiResponse::ok(document(&view)))
}

/// Reads the id in the path. What is none is the id of no workflow.
pub(super) async fn id(req: &mut ApiRequest) -> Result<WorkflowId, ApiError> {
    let text = req.param("id").await;
    let unknown = || format!("workflow {text} is not known");
    text.parse().map_err(|_not| ApiError::not_found(Missing::Workflow, unknown()))
}

impl From<WorkflowError> for ApiError {
    fn from(error: WorkflowError) -> Self {
        let message = error.to_string();
        match error {
            WorkflowError::Store(error) => error.into(),
            WorkflowError::Unavailable(error) => Self::Unavailable(error),
            WorkflowError::Intake(error) => error.into(),
            WorkflowError::Step { step, error } => Self::OfStep(step, Box::new(error.into())),
            WorkflowError::NotFound(_)
            | WorkflowError::UnknownReference { .. }
            | WorkflowError::Faulty { .. } => Self::not_found(Missing::Workflow, message),
            WorkflowError::KeyReused => Self::KeyReused(message),
            WorkflowError::Damaged(..) => Self::Internal(message),
            WorkflowError::Disabled(_)
            | WorkflowError::Refused(_)
            | WorkflowError::Contended(_)
            | WorkflowError::Later(_) => Self::Conflict(message),
        }
    }
}
