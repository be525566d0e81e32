//! One execution: look, cancel, retry, and what happened to it.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_store::command::{JobOrder, Seen};
use outlast_store::event::EventQuery;
use outlast_store::query::{LogLine, LogQuery};
use outlast_store::record::{AttemptRecord, JobRecord};
use outlast_store::reply::MoveRefusal;
use outlast_store::{Command, Reply};
use outlast_wire::Fault;
use outlast_wire::json::Object;

use super::{list, view};
use crate::engine::unexpected;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::ojs::events as event_log;
use crate::http::{App, orders, stream};
use crate::intake::execution;

/// How often an execution is looked at that moves between the look and the order.
const LOOKS_MAX: usize = 3;

pub(super) async fn show(mut call: Call) -> Result<Answer, Failure> {
    let id = call.job().await?;
    let record = orders::job(&call.app, id, None).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

pub(super) async fn cancel(mut call: Call) -> Result<Answer, Failure> {
    let allowed = "only one that has not ended can be cancelled";
    let record = ordered(&mut call, Command::Cancel, allowed).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

pub(super) async fn run_now(mut call: Call) -> Result<Answer, Failure> {
    let id = call.job().await?;
    let order = JobOrder { job: id, tenant: None, by: call.by(), expected: None };
    let moved = match orders::moved(&call.app, id, Command::RunNow(order)).await {
        Ok(_) => orders::job(&call.app, id, None).await,
        Err(failure) => Err(failure),
    };
    let allowed = "only one that waits for a time, delayed or for a retry, can be run now";
    let record = in_words(&call.app, id, moved, allowed).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

/// Enqueues a job as this one was, under another id. Its parameters are checked again: the
/// action may have changed since.
pub(super) async fn rerun(mut call: Call) -> Result<Answer, Failure> {
    let id = call.job().await?;
    let record = orders::job(&call.app, id, None).await?;
    if !record.state.is_terminal() {
        let status = view::status(&record).as_str();
        let message = format!("execution {id} is {status}; only one that has ended can be rerun");
        return Err(Failure::Conflict(message));
    }
    let by = call.token().map(|token| token.name.as_str());
    let job = execution::rerun(call.app.engine.settings(), &record, by)?;
    let id = job.id;
    match call.app.engine.submit(Command::Enqueue(Box::new(job))).await? {
        Reply::Enqueued(stored) => stored.map_err(Failure::Enqueue)?,
        other => return Err(unexpected("an enqueue", &other).into()),
    };
    let record = orders::job(&call.app, id, None).await?;
    Ok(Answer::created(view::document(&call.app, &record)))
}

/// Says why an order was refused in the words of this API, and what would be allowed.
async fn in_words(
    app: &App,
    id: JobId,
    moved: Result<JobRecord, Failure>,
    allowed: &str,
) -> Result<JobRecord, Failure> {
    let Err(Failure::Conflict(_)) = &moved else { return moved };
    let record = orders::job(app, id, None).await?;
    let status = view::status(&record).as_str();
    Err(Failure::Conflict(format!("execution {id} is {status}; {allowed}")))
}

pub(super) async fn retry(mut call: Call) -> Result<Answer, Failure> {
    let allowed = "only one that failed, timed out or was abandoned can be retried; \
                   a rerun makes another one of any that has ended";
    let record = ordered(&mut call, Command::Replay, allowed).await?;
    Ok(Answer::ok(view::document(&call.app, &record)))
}

/// Gives an order about the execution, in the status that the request names if it names one.
async fn ordered(
    call: &mut Call,
    order: fn(JobOrder) -> Command,
    allowed: &str,
) -> Result<JobRecord, Failure> {
    let id = call.job().await?;
    let wanted =
        call.query("if_status").map(|word| list::status("if_status", &word)).transpose()?;
    for _ in 0..LOOKS_MAX {
        let mut expected = None;
        if let Some(wanted) = wanted {
            let record = orders::job(&call.app, id, None).await?;
            let status = view::status(&record);
            if status != wanted {
                let (status, wanted) = (status.as_str(), wanted.as_str());
                let problem = format!("is {status}, not {wanted}; nothing was changed");
                return Err(Failure::Conflict(format!("execution {id} {problem}")));
            }
            let started = record.state == State::Active && record.started.is_some();
            expected = Some(Seen { state: record.state, epoch: record.epoch, started });
        }
        let order = order(JobOrder { job: id, tenant: None, by: call.by(), expected });
        match orders::try_move(&call.app, id, order).await? {
            // Perhaps it has that status still, or again.
            Err(MoveRefusal::Moved) => {}
            Ok(_) => return orders::job(&call.app, id, None).await,
            Err(refusal) => {
                return in_words(&call.app, id, Err(Failure::moving(id, &refusal)), allowed).await;
            }
        }
    }
    Err(Failure::Conflict(format!("execution {id} moves all the time; nothing was changed")))
}

/// What the execution printed: pieces as JSON, or with `format=text` the bytes as they were.
pub(super) async fn logs(mut call: Call) -> Result<Answer, Failure> {
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
pub(super) async fn events(mut call: Call) -> Result<Answer, Failure> {
    let job = known(&mut call).await?;
    let mut query = EventQuery { job: Some(job), ..stream::filter(&mut call).await? };
    query.after = stream::cursor(&call);
    if stream::is_wanted(&call, false)? {
        return stream::answer(call, query).await;
    }
    query.limit = call.page()?.limit;
    event_log::list_as_data(&call.app, query).await
}

pub(super) async fn attempts(mut call: Call) -> Result<Answer, Failure> {
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
    object.text_or_null("next_state", record.next_state.map(State::as_str));
    object.raw_or_null("error", record.error.as_deref());
    match record.exit_code {
        Some(code) => object.number("exit_code", code),
        None => object.raw("exit_code", "null"),
    }
    object.text("by", &record.by);
    object.text("evidence", &record.evidence);
    object.text_or_null("evidence_code", record.evidence.word());
}

/// Returns the job that the path names, if there is one.
async fn known(call: &mut Call) -> Result<JobId, Failure> {
    let id = call.job().await?;
    orders::job(&call.app, id, None).await.map(|record| record.job.id)
}
