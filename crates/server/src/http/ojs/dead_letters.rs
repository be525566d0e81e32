//! Dead letters: look, replay, take off the list.

use outlast_store::command::JobOrder;
use outlast_store::query::{DeadLetter, Page};
use outlast_store::{Command, Reply};
use outlast_wire::json::Object;

use super::jobs;
use crate::engine::unexpected;
use crate::http::answer::{Answer, object};
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::orders;
use crate::http::show::Shown;

/// Most pages looked at to fill one answer that is limited to a queue.
const PAGES_MAX: usize = 100;

pub(super) async fn list(call: Call) -> Result<Answer, Failure> {
    let Page { limit, cursor } = call.page()?;
    let offset = call.number::<usize>("offset")?.unwrap_or(0);
    let queue = call.query("queue");
    let wanted =
        |letter: &DeadLetter| queue.as_ref().is_none_or(|queue| letter.job.job.key.queue == *queue);
    let size = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut letters, mut skipped, mut next) = (Vec::new(), 0, cursor);
    let mut total = 0;
    for _ in 0..PAGES_MAX {
        let page = Page { limit, cursor: next.take() };
        let has_cursor = page.cursor.is_some();
        let page = call.app.engine.store().dead_letters(page).await;
        let page = page.map_err(|error| Failure::of_page(error, has_cursor))?;
        total = page.total;
        next = page.next;
        for letter in page.letters.into_iter().filter(wanted) {
            if skipped < offset {
                skipped += 1;
            } else if letters.len() < size {
                letters.push(letter);
            }
        }
        if letters.len() >= size || next.is_none() {
            break;
        }
    }
    if let Some(queue) = &queue {
        let tally = call.app.engine.store().tally().await?;
        let classes = tally.iter().filter(|class| class.key.queue == *queue);
        total = classes.map(|class| class.counts.dead_letters()).sum();
    }
    let mut shown = Vec::with_capacity(letters.len());
    for DeadLetter { job, reason, at } in letters {
        shown.push((Shown::of(&call.app, job).await?, reason, at));
    }
    Ok(Answer::object(|object| {
        object.array("jobs", &shown, |out, (shown, reason, at)| {
            let mut object = Object::begin(out);
            shown.view().fields(&mut object);
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

pub(super) async fn show(mut call: Call) -> Result<Answer, Failure> {
    let (id, tenant) = (call.job().await?, call.tenant()?);
    let record = orders::job(&call.app, id, tenant.as_deref()).await?;
    let Some(reason) = record.dead_letter else {
        return Err(Failure::not_found(format!("job {id} is not a dead letter")));
    };
    let shown = Shown::of(&call.app, record).await?;
    Ok(Answer::object(|object| {
        object.object("job", |object| {
            shown.view().fields(object);
            object.text("dead_letter_reason", reason.as_str());
        });
    }))
}

pub(super) async fn retry(mut call: Call) -> Result<Answer, Failure> {
    let (job, tenant) = (call.job().await?, call.tenant()?);
    let order = JobOrder { job, tenant, by: call.by(), expected: None };
    let record = orders::replay(&call.app, order).await?;
    jobs::document(&call.app, record).await
}

pub(super) async fn forget(mut call: Call) -> Result<Answer, Failure> {
    let (job, tenant) = (call.job().await?, call.tenant()?);
    let order = JobOrder { job, tenant, by: call.by(), expected: None };
    match call.app.engine.submit(Command::ForgetDeadLetter(order)).await? {
        Reply::Done => Ok(Answer::ok(object(|object| {
            object.flag("deleted", true);
            object.plain("job_id", job);
        }))),
        Reply::NotFound => Err(Failure::not_found(format!("job {job} is no dead letter"))),
        other => Err(unexpected("a dead letter's end", &other).into()),
    }
}
