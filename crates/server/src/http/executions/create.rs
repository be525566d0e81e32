//! Starts an execution.

use outlast_core::id::JobId;
use outlast_store::reply::EnqueueRefusal;
use outlast_wire::execution::request::Request;

use super::view;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, AnsweredJob, Endpoint, IdempotencyKey, Outcome};
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::{App, orders};
use crate::intake::execution;

pub(super) async fn create(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let key = IdempotencyKey::of(&req)?;
    let body = req.body().await?;
    let request = Request::read(&body)?;
    let now = req.app.now().await?;
    let by = req.token().map(|token| token.name.as_str());
    let job = execution::plan(req.app.engine.settings(), request, by, now)?;
    if let Some(key) = key {
        let request = idempotency::request(Endpoint::Execution, None, &body);
        let Outcome { mut jobs, replayed } = match key.enqueue(&req.app, request, vec![job]).await {
            Ok(outcome) => outcome,
            Err(error) => return Err(in_words(&req.app, error).await),
        };
        return Ok(match jobs.pop() {
            Some(shown) if shown.deduplicated => deduplicated(&req.app, &shown),
            Some(shown) => {
                let written = view::newborn(&req.app, shown.details.record());
                ApiResponse::created(written).at(location(shown.details.id())).replayed(replayed)
            }
            None => ApiResponse::created(Vec::new()).replayed(replayed),
        });
    }
    let (stored, job) = req.app.engine.submit_keeping(job).await?;
    let stored = match stored {
        Ok(stored) => stored,
        Err(refusal) => return Err(in_words(&req.app, ApiError::Enqueue(refusal)).await),
    };
    if stored.by_key.is_some() {
        let shown = AnsweredJob::of(&req.app, &stored).await?;
        if shown.deduplicated {
            return Ok(deduplicated(&req.app, &shown));
        }
        let written = view::enqueued(&req.app, shown.details.record());
        return Ok(ApiResponse::created(written).at(location(stored.id)));
    }
    let record = idempotency::stored(job, &stored);
    Ok(ApiResponse::created(view::enqueued(&req.app, &record)).at(location(record.job.id)))
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
