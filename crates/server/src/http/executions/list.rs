//! Lists executions.

use std::collections::BTreeMap;

use outlast_core::id::JobId;
use outlast_core::workflow::WorkflowId;
use outlast_store::query::JobQuery;
use outlast_wire::Fault;
use outlast_wire::execution::status::Status;
use outlast_wire::json::Object;
use outlast_wire::schedule;

use super::view;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::workers;
use crate::job_filter::narrowed;

/// Reads of which workflow the jobs are to be.
fn workflow(req: &ApiRequest) -> Result<Option<WorkflowId>, Fault> {
    let Some(text) = req.query("workflow") else { return Ok(None) };
    if req.query("schedule").is_some() {
        let problem = "and `schedule` are both given: one is enough";
        return Err(Fault::field("workflow", problem));
    }
    let id = text.parse().map_err(|_not| Fault::field("workflow", "must be the id of a workflow"));
    id.map(Some)
}

/// Reads which jobs are asked for.
pub(in crate::http) async fn asked(req: &ApiRequest) -> Result<JobQuery, ApiError> {
    let words = req.list("status");
    let statuses = words.iter().map(|word| status("status", word));
    let statuses = statuses.collect::<Result<Vec<_>, _>>()?;
    let worker = match req.query("worker") {
        Some(name) => Some(workers::find(&req.app, &name).await?.id),
        None => None,
    };
    let now = req.app.now().await?;
    let page = req.page()?;
    let query = JobQuery {
        states: Vec::new(),
        queue: req.query("queue"),
        job_type: req.query("action_ref"),
        worker,
        abandoned: None,
        timed_out: None,
        started: None,
        tenant: None,
        statuses: Vec::new(),
        keys: keys(req)?,
        schedule: req.query("schedule").map(|name| schedule::name(&name)).transpose()?,
        workflow: workflow(req)?,
        error: req.query("error_contains"),
        id_suffix: req.id_suffix()?,
        ids: req.ids()?.map(|(first, last)| (JobId(first), JobId(last))),
        created_from: req.time("created_after", now)?,
        created_before: req.time("created_before", now)?,
        letters: None,
        page,
    };
    Ok(narrowed(query, &statuses))
}

pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = asked(&req).await?;
    let limit = query.page.limit;
    let has_cursor = query.page.cursor.is_some();
    let page = req.app.engine.store().jobs(query).await;
    let page = page.map_err(|error| ApiError::of_page(error, has_cursor))?;
    let reasons = req.app.engine.waiting_reasons(&page.jobs).await;
    let jobs: Vec<_> = page.jobs.iter().zip(&reasons).collect();
    Ok(ApiResponse::object(|object| {
        object.array("data", &jobs, |out, (record, reason)| {
            let mut object = Object::begin(out);
            view::fields(&mut object, &req.app, record, reason.as_deref());
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", limit);
            object.text_or_null("next_cursor", page.next.as_deref());
            let total = page.total.map(|total| total.to_string());
            object.raw_or_null("total", total.as_deref());
        });
    }))
}

/// Reads the status in the parameter `name`.
pub(super) fn status(name: &str, word: &str) -> Result<Status, Fault> {
    Status::parse(word).ok_or_else(|| {
        let known = Status::ALL.map(Status::as_str).join(", ");
        Fault::field(name, format!("must be one of {known}"))
    })
}

/// Reads the keys that jobs must have, each as `name=value`.
pub(in crate::http) fn keys(req: &ApiRequest) -> Result<BTreeMap<String, String>, Fault> {
    let mut keys = BTreeMap::new();
    for pair in req.every("key") {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Fault::field("key", "must be a name and a value, such as `tenant=42`"));
        };
        if keys.insert(name.to_owned(), value.to_owned()).is_some_and(|other| other != value) {
            let problem = format!("has two values for {name:?}, and no job has both");
            return Err(Fault::field("key", problem));
        }
    }
    Ok(keys)
}
