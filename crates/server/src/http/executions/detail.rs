//! One execution: look, cancel, retry, and what happened to it.

use outlast_core::id::JobId;
use outlast_store::Store;
use outlast_store::command::JobOrder;
use outlast_store::event::EventQuery;
use outlast_store::query::{LogLine, LogQuery};
use outlast_store::record::AttemptRecord;
use outlast_wire::Fault;
use outlast_wire::json::Object;

use super::view;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::ojs::events as event_log;
use crate::http::{orders, stream};

pub(super) async fn show<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let id = call.job().await?;
    let record = orders::job(&call.app, id, None).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

pub(super) async fn cancel<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let order = JobOrder { job: call.job().await?, tenant: None, by: call.by() };
    let record = orders::cancel(&call.app, order).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

pub(super) async fn retry<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let order = JobOrder { job: call.job().await?, tenant: None, by: call.by() };
    let record = orders::replay(&call.app, order).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

/// What the execution printed: pieces as JSON, or with `format=text` the bytes as they were.
pub(super) async fn logs<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let job = known(&mut call).await?;
    let after = call.number::<u64>("after")?.unwrap_or(0);
    let limit = call.page()?.limit;
    let page = call.app.engine.store().logs(LogQuery { job, after, limit }).await?;
    match call.query("format").as_deref() {
        Some("text") => {
            let bytes = page.lines.into_iter().flat_map(|line| line.bytes).collect();
            Ok(Answer::text("text/plain; charset=utf-8", bytes))
        }
        None | Some("json") => Ok(Answer::object(|object| {
            object.array("data", &page.lines, piece);
            // Also of an empty page: whoever follows goes on from here.
            let next = page.lines.last().map_or(after, |last| last.id);
            object.object("pagination", |object| {
                object.number("limit", u64::from(limit));
                object.number("next_cursor", next);
            });
        })),
        Some(_) => Err(Fault::field("format", "must be `json` or `text`").into()),
    }
}

fn piece(out: &mut Vec<u8>, line: &LogLine) {
    let mut object = Object::begin(out);
    object.number("n", line.id);
    object.number("epoch", line.epoch);
    object.text("stream", line.stream.as_str());
    object.time("at", line.at);
    // What is no text is shown with replacement characters; `format=text` gives it as it is.
    object.text("text", &String::from_utf8_lossy(&line.bytes));
    object.end();
}

/// What happened to the execution: a page, or from its first event on as a stream.
pub(super) async fn events<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let job = known(&mut call).await?;
    let mut query = EventQuery { job: Some(job), ..stream::filter(&mut call).await? };
    query.after = stream::cursor(&call);
    if stream::is_wanted(&call, false)? {
        return stream::answer(call, query).await;
    }
    query.limit = call.page()?.limit;
    event_log::list_as_data(&call.app, query).await
}

pub(super) async fn attempts<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let job = known(&mut call).await?;
    let attempts = call.app.engine.store().attempts(job).await?;
    Ok(Answer::object(|object| {
        object.array("data", &attempts, |out, record| {
            let mut object = Object::begin(out);
            attempt(&mut object, record);
            object.end();
        });
    }))
}

fn attempt(object: &mut Object<'_>, record: &AttemptRecord) {
    // Deliveries, as `attempt` of an execution; what the standard counts is `charged`.
    object.number("attempt", record.epoch);
    object.number("epoch", record.epoch);
    object.number("life", record.life);
    object.number("charged", record.attempt);
    if record.worker.is_none() && record.worker_name.is_none() {
        object.raw("worker", "null");
    } else {
        object.object("worker", |object| {
            match record.worker {
                Some(id) => object.plain("id", id),
                None => object.raw("id", "null"),
            }
            object.text_or_null("name", record.worker_name.as_deref());
        });
    }
    object.time("claimed", record.claimed);
    object.time_or_null("started", record.started);
    object.time_or_null("finished", record.finished);
    object.text_or_null("outcome", record.outcome.map(outlast_core::job::Outcome::as_str));
    object.text_or_null("next_state", record.next_state.map(outlast_core::job::State::as_str));
    object.raw_or_null("error", record.error.as_deref());
    match record.exit_code {
        Some(code) => object.number("exit_code", code),
        None => object.raw("exit_code", "null"),
    }
    object.text("by", &record.by);
    object.text("evidence", &record.evidence);
}

/// Returns the job that the path names, if there is one.
async fn known<S: Store>(call: &mut Call<S>) -> Result<JobId, Failure> {
    let id = call.job().await?;
    orders::job(&call.app, id, None).await.map(|record| record.job.id)
}
