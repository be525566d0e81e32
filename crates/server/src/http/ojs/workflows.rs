//! Workflows as the standard has them: chains, groups, batches and graphs. The same workflows as our own
//! API's.

use outlast_core::workflow::WorkflowId;
use outlast_store::workflow::WorkflowQuery;
use outlast_wire::ojs::workflow;
use outlast_wire::workflow::WorkflowView;
use outlast_wire::{Fault, json};
use outlast_workflow::Definition;
use serde_json::Map;

use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::workflows::{at, created, id, repeat};
use crate::workflows::service::{self, Begun, Wanted, WorkflowError};
use crate::workflows::view;

pub(super) async fn begin(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let tenant = req.tenant()?;
    let text = json::text(&body)?;
    let described = json::read(&body)?;
    if json::changed_number(text).is_some() {
        for field in ["steps", "jobs", "callbacks"] {
            if let Some(value) = json::field(text, field) {
                json::keeps_numbers(field, value.get())?;
            }
        }
    }
    let definition = Definition::of_standard(&described).map_err(|fault| wrong(&fault))?;
    let wanted = Wanted {
        definition,
        reference: None,
        parameters: Map::new(),
        labels: std::collections::BTreeMap::new(),
        keys: std::collections::BTreeMap::new(),
        name: None,
        repeat: repeat(&req, tenant.as_deref(), &body)?,
        tenant,
        by: req.token().map(|token| token.name.clone()),
        schedule: None,
    };
    let begun = service::begin(&req.app.engine, wanted).await?;
    let (Begun::Now(id) | Begun::Before(id)) = begun;
    let view = view::find(&req.app.engine, id, None, None).await?;
    Ok(created(ApiResponse::ok(workflow::document(&view)), begun))
}

/// What the standard calls an invalid request, we do, too.
fn wrong(fault: &outlast_workflow::Fault) -> Fault {
    match fault.place.as_str() {
        "" => at("", fault),
        place => Fault::field(place, format!("is not as it must be: {}", fault.problem)),
    }
}

pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let page = req.page()?;
    let query = WorkflowQuery {
        status: None,
        name: None,
        tenant: req.tenant()?,
        after: None,
        limit: page.limit,
    };
    let mut found = Vec::new();
    for brief in view::list(&req.app.engine, query).await? {
        // Its steps are counted; one that is gone meanwhile is left out.
        match view::find(&req.app.engine, WorkflowId(brief.id), None, None).await {
            Ok(view) => found.push(WorkflowView { result: None, ..view }),
            Err(WorkflowError::NotFound(_)) => {}
            Err(error @ WorkflowError::Damaged(..)) => {
                tracing::warn!(%error, "a workflow is left out of a list");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ApiResponse::object(|object| {
        object.array("workflows", &found, workflow::write);
        object.number("count", found.len());
    }))
}

pub(super) async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant) = (id(&mut req).await?, req.tenant()?);
    let view = view::find(&req.app.engine, id, tenant.as_deref(), None).await?;
    Ok(ApiResponse::ok(workflow::document(&view)))
}

pub(super) async fn cancel(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant, by) = (id(&mut req).await?, req.tenant()?, req.by());
    service::cancel(&req.app.engine, id, tenant.as_deref(), &by).await?;
    let view = view::find(&req.app.engine, id, None, None).await?;
    Ok(ApiResponse::ok(workflow::document(&view)))
}
