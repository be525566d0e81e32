//! Starts an execution.

use outlast_core::id::JobId;
use outlast_store::{Command, Reply};
use outlast_wire::execution::request::Request;

use super::view;
use crate::engine::unexpected;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::once::{self, Door, Key};
use crate::http::orders;
use crate::intake::execution;

pub(super) async fn create(mut call: Call) -> Result<Answer, Failure> {
    let key = Key::of(&call)?;
    let body = call.body().await?;
    let request = Request::read(&body)?;
    let now = call.app.now().await?;
    let by = call.token().map(|token| token.name.as_str());
    let job = execution::plan(call.app.engine.settings(), request, by, now)?;
    if let Some(key) = key {
        let request = once::request(Door::Execution, None, &body);
        let done = key.enqueue(&call.app, request, vec![job]).await?;
        let written = done.jobs.first().map(|record| view::newborn(&call.app, record));
        let location = done.jobs.first().map(|record| location(record.job.id));
        let answer = Answer::created(written.unwrap_or_default()).replayed(done.replayed);
        return Ok(answer.at(location.unwrap_or_default()));
    }
    let id = job.id;
    match call.app.engine.submit(Command::Enqueue(Box::new(job))).await? {
        Reply::Enqueued(stored) => stored.map_err(Failure::Enqueue)?,
        other => return Err(unexpected("an enqueue", &other).into()),
    };
    // Read back: by now it may be under way already.
    let record = orders::job(&call.app, id, None).await?;
    Ok(Answer::created(view::document(&call.app, &record)).at(location(id)))
}

fn location(id: JobId) -> String {
    format!("/api/v1/executions/{id}")
}
