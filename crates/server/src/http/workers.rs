//! Workers: show, quiet, resume, drain, forget.

mod orders;

pub(super) use orders::give as give_order;

use outlast_core::evidence::EvidenceCode;
use outlast_core::id::WorkerId;
use outlast_core::labels;
use outlast_core::limits::PAGE_MAX;
use outlast_core::selector::Selector;
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::Liveness;
use outlast_core::worker::order::WorkerOrder;
use outlast_packs::PackSet;
use outlast_store::StoreError;
use outlast_store::command::ForgetWorker;
use outlast_store::query::{Page, WorkerPage, WorkerQuery};
use outlast_store::record::WorkerRecord;
use outlast_wire::json::Object;
use outlast_wire::ojs::error::Code;
use outlast_wire::placement;
use uuid::Uuid;

use super::App;
use super::error::{ApiError, Missing};
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, delete, get, post};
use super::schema::Schema;
use super::skew;
use crate::access::Scope;

const QUERY: &[(&str, &str)] = &[
    ("status", "`active` or `inactive`"),
    ("state", "Only workers in this state"),
    ("live", "`true` for workers that have neither stopped nor lapsed"),
    ("worker_role", "Only workers of this role"),
    ("name", "Only workers of this name"),
    ("selector", "Only workers whose labels match, such as `gpu=true, zone in (a, b)`"),
    ("id", "Only those whose id starts with this, at least 4 digits"),
    ("limit", "Page size, the largest by default"),
    ("cursor", "`next_cursor` of the previous page"),
];

pub(super) fn routes() -> Routes {
    let path = |rest: &str| format!("/api/v1/workers/{{id}}{rest}");
    orders::routes()
        .add(
            get("/api/v1/workers", Scope::Read, "Lists workers", Schema::Workers).query(QUERY),
            list,
        )
        .add(get(path(""), Scope::Read, "Shows a worker", Schema::Worker), show)
        .add(
            delete(
                path(""),
                Scope::Operate,
                "Forgets a stopped or lapsed worker",
                Schema::Forgotten,
            )
            .refuses(&[Code::Conflict]),
            forget,
        )
        .add(
            post(path("/quiet"), Scope::Operate, "Stops giving a worker new jobs", Schema::Worker)
                .refuses(&[Code::Conflict]),
            quiet,
        )
        .add(
            post(path("/resume"), Scope::Operate, "Gives a worker new jobs again", Schema::Worker)
                .refuses(&[Code::Conflict]),
            resume,
        )
        .add(
            post(
                path("/drain"),
                Scope::Operate,
                "Lets a worker finish its jobs and stop",
                Schema::Worker,
            )
            .refuses(&[Code::Conflict]),
            drain,
        )
}

/// Finds a worker by its id, by the id it gave itself, or by its name. A live one comes before
/// others, and a later one before an earlier one.
pub(super) async fn find(app: &App, name: &str) -> Result<WorkerRecord, ApiError> {
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
    latest
        .ok_or_else(|| ApiError::not_found(Missing::Worker, format!("worker {name} is not known")))
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let now = req.app.now().await?;
    // Most fleets fit on one page.
    let page = req.page_of(PAGE_MAX)?;
    let limit = page.limit;
    let has_cursor = page.cursor.is_some();
    let query = WorkerQuery {
        status: req.query("status"),
        state: req.query("state"),
        role: req.query("worker_role"),
        name: req.query("name"),
        called: None,
        ids: req.ids()?.map(|(first, last)| (WorkerId(first), WorkerId(last))),
        page,
    };
    let selector = req.query("selector");
    let selector = selector.map(|text| placement::read("selector", Some(&text))).transpose()?;
    let is_live = req.flag("live")?;
    let page = match selector.filter(|selector| !selector.is_empty()) {
        selector if is_live => live(&req.app, query, selector).await,
        Some(selector) => matching(&req.app, query, &selector).await,
        None => req.app.engine.store().workers_page(query).await,
    };
    let page = page.map_err(|error| ApiError::of_page(error, has_cursor))?;
    let packs = req.app.engine.settings().packs.current();
    Ok(ApiResponse::object(|object| {
        object.array("data", &page.workers, |out, worker| {
            let mut object = Object::begin(out);
            fields(&mut object, worker, &packs, now);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", limit);
            object.text_or_null("next_cursor", page.next.as_deref());
            object.number("total", page.total);
        });
    }))
}

/// Returns the page of those workers whose labels match. All are read: labels have no index, and
/// workers are few.
async fn matching(
    app: &App,
    query: WorkerQuery,
    selector: &Selector,
) -> Result<WorkerPage, StoreError> {
    let before = query.before()?;
    let mut every = query.clone();
    every.page = Page { limit: PAGE_MAX, cursor: None };
    let mut found = Vec::new();
    loop {
        let page = app.engine.store().workers_page(every.clone()).await?;
        let matching =
            page.workers.into_iter().filter(|worker| selector.matches_labels(&worker.labels));
        found.extend(matching);
        every.page.cursor = page.next;
        if every.page.cursor.is_none() {
            break;
        }
    }
    let total = u64::try_from(found.len()).unwrap_or(u64::MAX);
    found.retain(|worker| (worker.created.0, worker.id) < before);
    Ok(WorkerPage::of(found, total, &query.page))
}

/// Returns the page of those that have neither stopped nor lapsed, however many others there are.
async fn live(
    app: &App,
    query: WorkerQuery,
    selector: Option<Selector>,
) -> Result<WorkerPage, StoreError> {
    let before = query.before()?;
    let is_wanted = |wanted: Option<&String>, is: &str| wanted.is_none_or(|it| it == is);
    let mut found = app.engine.store().live_workers().await?;
    found.retain(|worker| {
        worker.standing.holds_lease()
            && is_wanted(query.status.as_ref(), status(worker))
            && is_wanted(query.state.as_ref(), worker.standing.state())
            && is_wanted(query.role.as_ref(), worker.role.as_str())
            && is_wanted(query.name.as_ref(), &worker.name)
            && query.ids.is_none_or(|(first, last)| (first..=last).contains(&worker.id))
            && selector.as_ref().is_none_or(|selector| selector.matches_labels(&worker.labels))
    });
    let total = u64::try_from(found.len()).unwrap_or(u64::MAX);
    found.sort_unstable_by_key(|worker| std::cmp::Reverse((worker.created.0, worker.id)));
    found.retain(|worker| (worker.created.0, worker.id) < before);
    Ok(WorkerPage::of(found, total, &query.page))
}

async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.param("id").await;
    document(&req.app, &name).await
}

async fn document(app: &App, name: &str) -> Result<ApiResponse, ApiError> {
    let worker = find(app, name).await?;
    let now = app.now().await?;
    let packs = app.engine.settings().packs.current();
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| fields(object, &worker, &packs, now));
    }))
}

pub(super) async fn quiet(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    order(req, WorkerOrder::Quiet).await
}

pub(super) async fn resume(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    order(req, WorkerOrder::Resume).await
}

pub(super) async fn drain(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    order(req, WorkerOrder::Drain).await
}

async fn order(mut req: ApiRequest, order: WorkerOrder) -> Result<ApiResponse, ApiError> {
    let name = req.param("id").await;
    let worker = find(&req.app, &name).await?.id;
    let ordered = req.app.engine.order_worker(worker, order, req.by()).await?;
    document(&req.app, &ordered.worker.to_string()).await
}

async fn forget(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.param("id").await;
    let worker = find(&req.app, &name).await?;
    if worker.standing.holds_lease() {
        let state = worker.standing.state();
        let message =
            format!("worker {name} is {state}; only a stopped or lapsed one is forgotten");
        return Err(ApiError::Conflict(message));
    }
    let order = ForgetWorker { worker: worker.id, name: worker.name, by: req.by() };
    if req.app.engine.submit(order).await?.is_err() {
        return Err(ApiError::Conflict(format!("worker {name} still holds attempts")));
    }
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| {
            object.plain("id", worker.id);
            object.flag("forgotten", true);
        });
    }))
}

const fn status(worker: &WorkerRecord) -> &'static str {
    if worker.standing.is_active() { "active" } else { "inactive" }
}

/// How a worker ended, in one word; `None` for one that lives.
fn ended(worker: &WorkerRecord) -> Option<&'static str> {
    match worker.standing.liveness {
        Liveness::Live | Liveness::Suspect => None,
        Liveness::Lapsed => Some("lapsed"),
        Liveness::Gone => Some(end_by(worker.evidence_code)),
    }
}

/// How a worker ended that is gone, by the word for its evidence.
const fn end_by(code: Option<EvidenceCode>) -> &'static str {
    match code {
        Some(EvidenceCode::Drained) => "drained",
        Some(
            EvidenceCode::EngineKilled | EvidenceCode::GuardianKilled | EvidenceCode::WorkerKilled,
        ) => "killed",
        _ => "stopped",
    }
}

/// Writes a worker's fields.
fn fields(object: &mut Object<'_>, worker: &WorkerRecord, packs: &PackSet, now: Timestamp) {
    object.plain("id", worker.id);
    object.text("name", &worker.name);
    object.text("worker_role", worker.role.as_str());
    object.text("status", status(worker));
    object.text("state", worker.standing.state());
    object.text_or_null("ended", ended(worker));
    object.texts("runtimes", worker.runtimes.iter().map(String::as_str));
    object.texts("queues", worker.queues.iter().map(String::as_str));
    let pool = worker.labels.get(labels::POOL);
    object.text_or_null("pool", pool.map(String::as_str));
    object.object("labels", |object| {
        for (name, value) in &worker.labels {
            object.text(name, value);
        }
    });
    object.number("concurrency", worker.concurrency);
    object.number("in_flight", worker.in_flight);
    object.time_or_null("oldest_claim", worker.oldest_claim);
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
    object.text_or_null("evidence_code", worker.evidence_code.map(EvidenceCode::as_str));
    object.text_or_null("ordered", worker.given.map(|given| given.order.as_str()));
    object.time_or_null("ordered_at", worker.given.map(|given| given.at));
    for (name, other) in [("previous", worker.previous), ("followed_by", worker.followed_by)] {
        object.text_or_null(name, other.map(|other| other.to_string()).as_deref());
    }
    object.object("health", |object| health(object, worker));
    let skew = skew::of_worker(worker, packs);
    object.texts("skew", skew.iter().map(String::as_str));
    object.raw("about", if worker.about.is_empty() { "null" } else { &worker.about });
    object.text_or_null("plain_id", worker.plain_id.as_deref());
}

fn health(object: &mut Object<'_>, worker: &WorkerRecord) {
    let unhealthy = worker.unhealthy.as_ref();
    object.text("status", if unhealthy.is_some() { "unhealthy" } else { "healthy" });
    object.text_or_null("reason", unhealthy.map(|it| it.reason.as_str()));
    object.time_or_null("since", unhealthy.map(|it| it.since));
}
