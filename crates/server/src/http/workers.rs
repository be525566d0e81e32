//! Workers: look, quiet, resume, drain, forget.

use outlast_core::id::WorkerId;
use outlast_core::limits::PAGE_MAX;
use outlast_core::time::Timestamp;
use outlast_store::query::WorkerQuery;
use outlast_store::record::WorkerRecord;
use outlast_store::{Command, Reply};
use outlast_wire::json::Object;
use outlast_wire::ojs::error::Code;
use uuid::Uuid;

use super::App;
use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::route::{Routes, delete, get, post};
use super::shape::Shape;
use crate::access::Need;
use crate::engine::{WorkerOrder, unexpected};

const QUERY: &[(&str, &str)] = &[
    ("status", "`active` or `inactive`"),
    ("state", "Only workers in this state"),
    ("worker_role", "Only workers of this role"),
    ("name", "Only workers of this name"),
    ("limit", "How many at most; all that fit on one page unless given"),
    ("cursor", "Where the page before ended: its `next_cursor`"),
];

pub(super) fn routes() -> Routes {
    let path = |rest: &str| format!("/api/v1/workers/{{id}}{rest}");
    Routes::new()
        .add(get("/api/v1/workers", Need::Read, "Lists workers", Shape::Workers).query(QUERY), list)
        .add(get(path(""), Need::Read, "Shows a worker", Shape::Worker), show)
        .add(
            delete(path(""), Need::Operate, "Forgets a stopped or lapsed worker", Shape::Forgotten)
                .refuses(&[Code::Conflict]),
            forget,
        )
        .add(
            post(path("/quiet"), Need::Operate, "Gives it no new work", Shape::Worker)
                .refuses(&[Code::Conflict]),
            quiet,
        )
        .add(
            post(path("/resume"), Need::Operate, "Gives it work again", Shape::Worker)
                .refuses(&[Code::Conflict]),
            resume,
        )
        .add(
            post(path("/drain"), Need::Operate, "Lets it finish and stop", Shape::Worker)
                .refuses(&[Code::Conflict]),
            drain,
        )
}

/// Finds a worker by its identity, by the id it gave itself, or by its name; of several
/// one that lives is preferred, and of those the latest.
pub(super) async fn find(app: &App, name: &str) -> Result<WorkerRecord, Failure> {
    let store = app.engine.store();
    if let Ok(id) = Uuid::try_parse(name)
        && let Some(worker) = store.workers_named(vec![WorkerId(id)]).await?.pop()
    {
        return Ok(worker);
    }
    let called = Some(name.to_owned());
    let mut query = WorkerQuery { called, ..WorkerQuery::all(PAGE_MAX) };
    let mut latest = None;
    loop {
        let page = store.workers_page(query.clone()).await?;
        for worker in page.workers {
            if worker.standing.holds_lease() {
                return Ok(worker);
            }
            latest = latest.or(Some(worker));
        }
        query.page.cursor = page.next;
        if query.page.cursor.is_none() {
            break;
        }
    }
    latest.ok_or_else(|| Failure::not_found(format!("worker {name} is not known")))
}

async fn list(call: Call) -> Result<Answer, Failure> {
    let now = call.app.now().await?;
    // Fleets of ordinary size come as one page.
    let page = call.page_of(PAGE_MAX)?;
    let limit = page.limit;
    let has_cursor = page.cursor.is_some();
    let query = WorkerQuery {
        status: call.query("status"),
        state: call.query("state"),
        role: call.query("worker_role"),
        name: call.query("name"),
        called: None,
        page,
    };
    let page = call.app.engine.store().workers_page(query).await;
    let page = page.map_err(|error| Failure::of_page(error, has_cursor))?;
    Ok(Answer::object(|object| {
        object.array("data", &page.workers, |out, worker| {
            let mut object = Object::begin(out);
            fields(&mut object, worker, now);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", limit);
            object.text_or_null("next_cursor", page.next.as_deref());
            object.number("total", page.total);
        });
    }))
}

async fn show(mut call: Call) -> Result<Answer, Failure> {
    let name = call.param("id").await;
    document(&call.app, &name).await
}

async fn document(app: &App, name: &str) -> Result<Answer, Failure> {
    let worker = find(app, name).await?;
    let now = app.now().await?;
    Ok(Answer::object(|object| object.object("data", |object| fields(object, &worker, now))))
}

async fn quiet(call: Call) -> Result<Answer, Failure> {
    order(call, WorkerOrder::Quiet).await
}

async fn resume(call: Call) -> Result<Answer, Failure> {
    order(call, WorkerOrder::Resume).await
}

async fn drain(call: Call) -> Result<Answer, Failure> {
    order(call, WorkerOrder::Drain).await
}

async fn order(mut call: Call, order: WorkerOrder) -> Result<Answer, Failure> {
    let name = call.param("id").await;
    let worker = find(&call.app, &name).await?.id;
    call.app.engine.order_worker(worker, order, call.by()).await?;
    document(&call.app, &worker.to_string()).await
}

async fn forget(mut call: Call) -> Result<Answer, Failure> {
    let name = call.param("id").await;
    let worker = find(&call.app, &name).await?;
    if worker.standing.holds_lease() {
        let state = worker.standing.state();
        let message =
            format!("worker {name} is {state}; only a stopped or lapsed one is forgotten");
        return Err(Failure::Conflict(message));
    }
    match call.app.engine.submit(Command::ForgetWorker(worker.id)).await? {
        Reply::Done => Ok(Answer::object(|object| {
            object.object("data", |object| {
                object.plain("id", worker.id);
                object.flag("forgotten", true);
            });
        })),
        Reply::NotFound => Err(Failure::Conflict(format!("worker {name} still holds attempts"))),
        other => Err(unexpected("a worker's end", &other).into()),
    }
}

const fn status(worker: &WorkerRecord) -> &'static str {
    if worker.standing.is_active() { "active" } else { "inactive" }
}

/// Writes a worker's fields.
fn fields(object: &mut Object<'_>, worker: &WorkerRecord, now: Timestamp) {
    object.plain("id", worker.id);
    object.text("name", &worker.name);
    object.text("worker_role", worker.role.as_str());
    object.text("status", status(worker));
    object.text("state", worker.standing.state());
    object.texts("runtimes", worker.runtimes.iter().map(String::as_str));
    object.texts("queues", worker.queues.iter().map(String::as_str));
    object.object("labels", |object| {
        for (name, value) in &worker.labels {
            object.text(name, value);
        }
    });
    object.number("concurrency", worker.concurrency);
    object.number("in_flight", worker.in_flight);
    object.time("last_heartbeat", worker.last_heartbeat);
    let age = now.since(worker.last_heartbeat);
    object.number(
        "heartbeat_age_seconds",
        format_args!("{}.{:03}", age.as_secs(), age.as_millis() % 1000),
    );
    object.time("started", worker.created);
    object.time("updated", worker.updated);
    object.time("lease_until", worker.lease_until);
    object.text("evidence", &worker.evidence);
    object.raw("about", if worker.about.is_empty() { "null" } else { &worker.about });
    object.text_or_null("plain_id", worker.plain_id.as_deref());
}
