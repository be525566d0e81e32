//! Dead letters: look, replay, take off the list.

use std::time::Duration;

use outlast_store::command::{ForgetDeadLetter, JobAction, JobOrder};
use outlast_store::query::{DeadLetter, JobQuery, LetterFilter};
use outlast_store_rules::list::Fit;
use outlast_wire::dead_letter;
use outlast_wire::json::Object;

use super::jobs;
use crate::clock::{boot_time, millis};
use crate::http::error::{ApiError, Missing};
use crate::http::job_view::{JobDetails, omitted};
use crate::http::request::ApiRequest;
use crate::http::response::{ApiResponse, object};
use crate::http::{App, orders};

/// For how long pages are read for one response: a page of the store is short where few of many
/// match. The response is short, too, then, and its cursor goes on.
const READING_MAX: Duration = Duration::from_millis(50);

/// Lists a page. Its cursor is that of the last letter on it: the page of the store that the
/// letter came from may hold more.
pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let page = req.page()?;
    let limit = page.limit;
    let offset = req.number::<usize>("offset")?.unwrap_or(0);
    let now = req.app.now().await?;
    let reason =
        req.query("reason").map(|word| dead_letter::reason("reason", &word)).transpose()?;
    let query = JobQuery {
        queue: req.query("queue"),
        job_type: req.query("type"),
        error: req.query("error_contains"),
        letters: Some(LetterFilter {
            reason,
            from: req.time("since", now)?,
            before: req.time("until", now)?,
        }),
        ..JobQuery::all(page)
    };
    let Found { letters, mut next, total } = find(&req.app, query, offset).await?;
    let (mut shown, mut fit, mut last) = (Vec::with_capacity(letters.len()), Fit::default(), None);
    for DeadLetter { job, reason, at, cursor } in letters {
        let details = JobDetails::of(&req.app, job).await?;
        // The errors of earlier attempts are as much again.
        if !fit.takes(details.bytes()) {
            next = last;
            break;
        }
        shown.push((details, reason, at));
        last = Some(cursor);
    }
    Ok(ApiResponse::object(|object| {
        object.array("jobs", &shown, |out, (shown, reason, at)| {
            let mut object = Object::begin(out);
            shown.view().fields(&mut object);
            omitted(&mut object, "args", shown.record().omitted);
            object.text("dead_letter_reason", reason.as_str());
            object.time("dead_lettered_at", *at);
            object.end();
        });
        object.object("pagination", |object| {
            let total = total.map(|total| total.to_string());
            object.raw_or_null("total", total.as_deref());
            object.number("limit", limit);
            object.number("offset", offset);
            object.flag("has_more", next.is_some());
            object.text_or_null("next_cursor", next.as_deref());
        });
    }))
}

/// A page of dead letters.
struct Found {
    letters: Vec<DeadLetter>,
    /// Cursor of the next page, if there may be one.
    next: Option<String>,
    /// How many match in all, where that is known.
    total: Option<u64>,
}

async fn find(app: &App, mut query: JobQuery, mut offset: usize) -> Result<Found, ApiError> {
    let size = usize::try_from(query.page.limit).unwrap_or(usize::MAX);
    let (mut letters, mut total, mut is_first) = (Vec::new(), None, true);
    let began = boot_time();
    loop {
        let has_cursor = query.page.cursor.is_some();
        let page = app.engine.store().dead_letters(query.clone()).await;
        let page = page.map_err(|error| ApiError::of_page(error, has_cursor))?;
        // A later page knows no more.
        if std::mem::take(&mut is_first) {
            total = page.total;
        }
        let skipped = offset.min(page.letters.len());
        offset -= skipped;
        letters.extend(page.letters.into_iter().skip(skipped));
        let mut next = page.next;
        if letters.len() > size {
            letters.truncate(size);
            next = letters.last().map(|last: &DeadLetter| last.cursor.clone());
        }
        let spent = millis(boot_time().since(began));
        let is_late = spent >= READING_MAX && offset == 0;
        if next.is_none() || letters.len() >= size || is_late {
            return Ok(Found { letters, next, total });
        }
        query.page.cursor = next;
    }
}

pub(super) async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (id, tenant) = (req.job().await?, req.tenant()?);
    let record = orders::job(&req.app, id, tenant.as_deref()).await?;
    let Some(reason) = record.dead_letter else {
        return Err(ApiError::not_found(
            Missing::DeadLetter,
            format!("job {id} is not a dead letter"),
        ));
    };
    let shown = JobDetails::of(&req.app, record).await?;
    Ok(ApiResponse::object(|object| {
        object.object("job", |object| {
            shown.view().fields(object);
            object.text("dead_letter_reason", reason.as_str());
        });
    }))
}

pub(super) async fn retry(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (job, tenant) = (req.job().await?, req.tenant()?);
    let order = JobOrder { job, action: JobAction::Replay, tenant, by: req.by(), expected: None };
    let record = orders::carry_out(&req.app, order).await?;
    jobs::document(&req.app, record).await
}

pub(super) async fn forget(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (job, tenant) = (req.job().await?, req.tenant()?);
    let order = ForgetDeadLetter { job, tenant, by: req.by(), life: None };
    if req.app.engine.submit(order).await?.is_err() {
        let message = format!("job {job} is not a dead letter");
        return Err(ApiError::not_found(Missing::DeadLetter, message));
    }
    Ok(ApiResponse::ok(object(|object| {
        object.flag("deleted", true);
        object.plain("job_id", job);
    })))
}
