//! Workers: look, quiet, resume, drain, forget.

use outlast_core::id::WorkerId;
use outlast_core::time::Timestamp;
use outlast_store::record::WorkerRecord;
use outlast_store::{Command, Reply, Store};
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
];

pub(super) fn routes<S: Store>() -> Routes<S> {
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
pub(super) async fn find<S: Store>(app: &App<S>, name: &str) -> Result<WorkerRecord, Failure> {
    let id = Uuid::try_parse(name).ok().map(WorkerId);
    let store = app.engine.store();
    let named = |worker: &WorkerRecord| {
        Some(worker.id) == id || worker.name == name || worker.plain_id.as_deref() == Some(name)
    };
    let best = |worker: &WorkerRecord| Some(worker.id) == id || worker.standing.holds_lease();
    // The many that went are looked through only for one that does not live.
    let live = store.live_workers().await?;
    if let Some(worker) = live.into_iter().filter(named).find(best) {
        return Ok(worker);
    }
    let mut found = None;
    for worker in store.workers().await?.into_iter().filter(named) {
        if best(&worker) {
            return Ok(worker);
        }
        found = found.or(Some(worker));
    }
    found.ok_or_else(|| Failure::not_found(format!("worker {name} is not known")))
}

async fn list<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    let now = call.app.now().await?;
    let store = call.app.engine.store();
    let mut workers = match call.query("status").as_deref() {
        Some("active") => store.live_workers().await?,
        _ => store.workers().await?,
    };
    for (filter, of) in FILTERS {
        if let Some(word) = call.query(filter) {
            workers.retain(|worker| of(worker) == word);
        }
    }
    let total = workers.len();
    Ok(Answer::object(|object| {
        object.array("data", &workers, |out, worker| {
            let mut object = Object::begin(out);
            fields(&mut object, worker, now);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", total);
            object.raw("next_cursor", "null");
            object.number("total", total);
        });
    }))
}

type Of = fn(&WorkerRecord) -> &str;

/// What a list may be limited by.
const FILTERS: &[(&str, Of)] = &[
    ("status", |worker| status(worker)),
    ("state", |worker| worker.standing.state()),
    ("worker_role", |worker| worker.role.as_str()),
    ("name", |worker| &worker.name),
];

async fn show<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
    let name = call.param("id").await;
    document(&call.app, &name).await
}

async fn document<S: Store>(app: &App<S>, name: &str) -> Result<Answer, Failure> {
    let worker = find(app, name).await?;
    let now = app.now().await?;
    Ok(Answer::object(|object| object.object("data", |object| fields(object, &worker, now))))
}

async fn quiet<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    order(call, WorkerOrder::Quiet).await
}

async fn resume<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    order(call, WorkerOrder::Resume).await
}

async fn drain<S: Store>(call: Call<S>) -> Result<Answer, Failure> {
    order(call, WorkerOrder::Drain).await
}

async fn order<S: Store>(mut call: Call<S>, order: WorkerOrder) -> Result<Answer, Failure> {
    let name = call.param("id").await;
    let worker = find(&call.app, &name).await?.id;
    call.app.engine.order_worker(worker, order, call.by()).await?;
    document(&call.app, &worker.to_string()).await
}

async fn forget<S: Store>(mut call: Call<S>) -> Result<Answer, Failure> {
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
