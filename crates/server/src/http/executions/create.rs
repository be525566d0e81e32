//! Starts an execution.

use outlast_core::id::JobId;
use outlast_store::reply::EnqueueRefusal;
use outlast_wire::execution::request::Request;

use super::view;
use crate::http::enqueue::{AnsweredJob, Intake, Outcome};
use crate::http::error::ApiError;
use crate::http::idempotency::{Endpoint, IdempotencyKey};
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::{App, orders};
use crate::intake::execution;

pub(in crate::http) async fn create(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let key = IdempotencyKey::of(&req)?;
    let body = req.body().await?;
    let request = Request::read(&body)?;
    let now = req.app.now().await?;
    let by = req.token().map(|token| token.name.as_str());
    let job = execution::plan(req.app.engine.settings(), request, by, now)?;
    let intake =
        Intake { app: &req.app, endpoint: Endpoint::Execution, key, tenant: None, body: &body };
    let Outcome { mut jobs, keyed, replayed } = match intake.submit(vec![job]).await {
        Ok(outcome) => outcome,
        Err(error) => return Err(in_words(&req.app, error).await),
    };
    Ok(match jobs.pop() {
        Some(shown) if shown.deduplicated => deduplicated(&req.app, &shown),
        Some(shown) => {
            // A repeated request must be answered the same, and the reason to wait changes.
            let write = if keyed { view::newborn } else { view::enqueued };
            let written = write(&req.app, shown.details.record());
            ApiResponse::created(written).at(location(shown.details.id())).replayed(replayed)
        }
        None => ApiResponse::created(Vec::new()).replayed(replayed),
    })
}

/// Answers with an execution that was there before: the new one was not started.
fn deduplicated(app: &App, shown: &AnsweredJob) -> ApiResponse {
    let written = view::deduplicated(app, shown.details.record());
    ApiResponse::ok(written).at(location(shown.details.id()))
}

/// Describes an execution that is in the way in the terms of this API.
async fn in_words(app: &App, error: ApiError) -> ApiError {
    let ApiError::Enqueue(EnqueueRefusal::NotUnique { holder, .. }) = error else { return error };
    match orders::job(app, holder, None).await {
        Ok(record) => ApiError::NotUnique { holder, status: view::status(&record) },
        Err(_gone) => error,
    }
}

fn location(id: JobId) -> String {
    format!("/api/v1/executions/{id}")
}
