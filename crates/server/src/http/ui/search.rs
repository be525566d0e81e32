//! The search box: an id, or the beginning of one, a worker, a queue or a type.

use axum::extract::Request;
use axum::response::Response;
use outlast_core::id::JobId;
use outlast_core::workflow::WorkflowId;
use uuid::Uuid;

use super::jobs::encoded;
use super::response;
use crate::access::Scope;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::workers;

pub(super) async fn respond(app: App, request: Request) -> Response {
    let asking = response::Asking::of(&request);
    let req = match ApiRequest::of_browser(app.clone(), request, Scope::Read).await {
        Ok(req) => req,
        Err(error) => return asking.refused(&app, error),
    };
    let text = req.query("q").unwrap_or_default();
    match place(&req, text.trim()).await {
        Ok(place) => response::to(&format!("./{place}")),
        Err(error) => response::failed(&req, &error).await,
    }
}

/// Finds the page of what was typed.
async fn place(req: &ApiRequest, text: &str) -> Result<String, ApiError> {
    let store = req.app.engine.store();
    if text.is_empty() {
        return Ok("jobs".to_owned());
    }
    if let Ok(id) = Uuid::try_parse(text) {
        if store.job(JobId(id)).await?.is_some() {
            return Ok(format!("jobs/{id}"));
        }
        if store.workflow(WorkflowId(id)).await?.is_some() {
            return Ok(format!("workflows/{id}"));
        }
    }
    if let Ok(worker) = workers::find(&req.app, text).await {
        return Ok(format!("workers/{}", worker.id));
    }
    if store.queue(text.to_owned()).await?.is_some() {
        return Ok(format!("queues/{}", encoded(text)));
    }
    let is_prefix = outlast_wire::id::digits("q", "first", text).is_ok();
    let filter = if is_prefix { "id" } else { "action_ref" };
    Ok(format!("jobs?{filter}={}", encoded(text)))
}
