//! Starts an execution.

use outlast_core::id::JobId;
use outlast_store::{Command, Reply};
use outlast_wire::execution::request::Request;

use super::view;
use crate::engine::unexpected;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, Endpoint, IdempotencyKey};
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
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
        let done = key.enqueue(&req.app, request, vec![job]).await?;
        let written = done.jobs.first().map(|record| view::newborn(&req.app, record));
        let location = done.jobs.first().map(|record| location(record.job.id));
        let answer = ApiResponse::created(written.unwrap_or_default()).replayed(done.replayed);
        return Ok(answer.at(location.unwrap_or_default()));
    }
    let (reply, command) = req.app.engine.submit_keeping(Command::Enqueue(Box::new(job))).await?;
    let (Reply::Enqueued(stored), Command::Enqueue(job)) = (&reply, command) else {
        return Err(unexpected("an enqueue", &reply).into());
    };
    let stored = stored.clone().map_err(ApiError::Enqueue)?;
    let record = idempotency::stored(*job, &stored);
    Ok(ApiResponse::created(view::enqueued(&req.app, &record)).at(location(record.job.id)))
}

fn location(id: JobId) -> String {
    format!("/api/v1/executions/{id}")
}
