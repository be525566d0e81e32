//! Dead letters: look, replay, take off the list.

use outlast_store::command::{ForgetDeadLetter, JobAction, JobOrder};
use outlast_store::query::{DeadLetter, Page};
use outlast_store_rules::list::Fit;
use outlast_wire::json::Object;

use super::jobs;
use crate::http::error::{ApiError, Missing};
use crate::http::job_view::{JobDetails, omitted};
use crate::http::request::ApiRequest;
use crate::http::response::{ApiResponse, object};
use crate::http::{App, orders};

/// Most pages read for one response that is filtered by queue.
const PAGES_MAX: usize = 100;

/// Lists a page. Its cursor is that of the last letter on it: the page of the store that the
/// letter came from may hold more of the same queue.
pub(super) async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let page = req.page()?;
    let limit = page.limit;
    let offset = req.number::<usize>("offset")?.unwrap_or(0);
    let queue = req.query("queue");
    let Found { letters, mut next, total } = find(&req.app, queue.as_deref(), page, offset).await?;
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
            object.number("total", total);
            object.number("limit", limit);
            object.number("offset", offset);
            object.flag("has_more", next.is_some());
            object.text_or_null("next_cursor", next.as_deref());
        });
    }))
}

/// A page of the dead letters of one queue or of all.
struct Found {
    letters: Vec<DeadLetter>,
    /// Cursor of the next page, if there may be one.
    next: Option<String>,
    total: u64,
}

async fn find(
    app: &App,
    queue: Option<&str>,
    Page { limit, mut cursor }: Page,
    offset: usize,
) -> Result<Found, ApiError> {
    let store = app.engine.store();
    let wanted = |letter: &DeadLetter| queue.is_none_or(|name| letter.job.job.key.queue == name);
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut letters, mut skipped, mut total) = (Vec::new(), 0, 0);
    let all_of_queue = match queue {
        Some(queue) => Some(of_queue(app, queue).await?),
        None => None,
    };
    // Behind the last one of the queue there may be very many others.
    let is_first = cursor.is_none();
    let is_all = |seen: usize| {
        is_first && all_of_queue.is_some_and(|all| u64::try_from(seen).is_ok_and(|it| it >= all))
    };
    if is_all(0) {
        return Ok(Found { letters, next: None, total });
    }
    'pages: for _ in 0..PAGES_MAX {
        let has_cursor = cursor.is_some();
        let page = store.dead_letters(Page { limit, cursor }).await;
        let page = page.map_err(|error| ApiError::of_page(error, has_cursor))?;
        (cursor, total) = (page.next, page.total);
        for letter in page.letters.into_iter().filter(wanted) {
            if skipped < offset {
                skipped += 1;
            } else if letters.len() < size {
                letters.push(letter);
            } else {
                cursor = letters.last().map(|last: &DeadLetter| last.cursor.clone());
                break 'pages;
            }
        }
        if is_all(skipped + letters.len()) {
            cursor = None;
        }
        // Without a filter the next page of the store is the next page.
        if cursor.is_none() || (queue.is_none() && letters.len() >= size) {
            break;
        }
    }
    Ok(Found { letters, next: cursor, total: all_of_queue.unwrap_or(total) })
}

/// How many dead letters a queue has.
async fn of_queue(app: &App, queue: &str) -> Result<u64, ApiError> {
    Ok(app.engine.store().counts_of(queue.to_owned(), None).await?.dead_letters())
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
    let order = ForgetDeadLetter { job, tenant, by: req.by() };
    if req.app.engine.submit(order).await?.is_err() {
        let message = format!("job {job} is not a dead letter");
        return Err(ApiError::not_found(Missing::DeadLetter, message));
    }
    Ok(ApiResponse::ok(object(|object| {
        object.flag("deleted", true);
        object.plain("job_id", job);
    })))
}
