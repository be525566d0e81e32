//! Changes of all dead letters that match: replay, take off the list.
//!
//! A request works through the matching ones in steps, newest job first, so that neither a step nor
//! what others do waits long. Each dead letter is changed by itself, and only if it still is the one
//! that was found. One that died after the request began is left alone.

use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use outlast_core::job::State;
use outlast_core::limits::PAGE_MAX;
use outlast_core::time::Span;
use outlast_store::command::{ForgetDeadLetter, JobAction, JobOrder, Seen};
use outlast_store::query::{DeadLetter, DeadLetterPage, JobQuery, LetterFilter, Page};
use outlast_wire::dead_letter::{self, LettersOrder};

use tokio::time::{Interval, MissedTickBehavior};

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, post};
use super::schema::Schema;
use crate::access::Scope;
use crate::clock::{boot_time, millis};
use crate::engine::Engine;

/// How many are read at once.
const READ: u32 = 250;
/// How many are changed at once, and how long after each other: 6,000 a second. What others send is
/// delayed by a small change now and then, and never by a large one.
const STEP: usize = 30;
const PAUSE: Duration = Duration::from_millis(5);
/// How many such changes are under way at once: the next one need not wait for the commit of the last.
const STEPS_AT_ONCE: usize = 3;
/// After how long a request responds with where the next one goes on.
const SPENT_MAX: Duration = Duration::from_secs(20);

pub(super) fn routes() -> Routes {
    const RETRY: &str = "Retries all dead letters that match, with fresh budgets";
    const PURGE: &str = "Removes all dead letters that match; their jobs stay discarded";
    let change = |verb: &str, what| {
        let path = format!("/api/v1/dead-letters/{verb}");
        post(path, Scope::Operate, what, Schema::LettersChanged).takes(Schema::LettersRequest)
    };
    Routes::new().add(change("retry", RETRY), retry).add(change("purge", PURGE), purge)
}

async fn retry(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    change(req, Change::Retry).await
}

async fn purge(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    change(req, Change::Purge).await
}

/// What is done with each.
#[derive(Clone, Copy)]
enum Change {
    Retry,
    Purge,
}

/// How far a request came.
#[derive(Default)]
struct Progress {
    matched: usize,
    changed: usize,
    /// Where the next request goes on, if there may be more.
    next: Option<String>,
}

async fn change(mut req: ApiRequest, change: Change) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let now = req.app.now().await?;
    let mut order = dead_letter::read(&body, now)?;
    // What has died by now is among them, to the millisecond.
    let end = now.after(Span::from_millis(1));
    let until = order.until.map_or(end, |until| until.min(end));
    order.until = Some(until);
    let progress = work_through(&req.app.engine, &order, change, &req.by()).await?;
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| {
            object.number("matched", progress.matched);
            object.number("changed", progress.changed);
            object.flag("dry_run", order.dry_run);
            object.time_or_null("since", order.since);
            object.time("until", until);
            object.text_or_null("next_cursor", progress.next.as_deref());
        });
    }))
}

async fn work_through(
    engine: &Engine,
    order: &LettersOrder,
    change: Change,
    by: &str,
) -> Result<Progress, ApiError> {
    let began = boot_time();
    let most = order.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let read = if order.dry_run { PAGE_MAX } else { READ };
    let mut pace = tokio::time::interval(PAUSE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut done = Progress { next: order.cursor.clone(), ..Progress::default() };
    let next_page = |done: &Progress| {
        let left = u32::try_from(most - done.matched).unwrap_or(u32::MAX);
        read_page(engine, order, Page { limit: read.min(left), cursor: done.next.clone() })
    };
    let mut page = next_page(&done).await?;
    loop {
        done.matched += page.letters.len();
        done.next = page.next;
        let spent = millis(boot_time().since(began));
        let is_last = done.next.is_none() || done.matched >= most || spent >= SPENT_MAX;
        let letters = if order.dry_run { Vec::new() } else { page.letters };
        let changing = change_all(engine, change, &letters, Steps { pace: &mut pace, by });
        if is_last {
            done.changed += changing.await?;
            return Ok(done);
        }
        // What is read meanwhile lies behind what is changed.
        let changed;
        (changed, page) = tokio::try_join!(changing, next_page(&done))?;
        done.changed += changed;
    }
}

async fn read_page(
    engine: &Engine,
    order: &LettersOrder,
    page: Page,
) -> Result<DeadLetterPage, ApiError> {
    let has_cursor = page.cursor.is_some();
    let found = engine.store().dead_letters(query(order, page)).await;
    found.map_err(|error| ApiError::of_page(error, has_cursor))
}

/// How changes follow each other, and who makes them.
struct Steps<'a> {
    pace: &'a mut Interval,
    by: &'a str,
}

/// Changes these step by step; returns how many were still as they were found.
async fn change_all(
    engine: &Engine,
    change: Change,
    letters: &[DeadLetter],
    Steps { pace, by }: Steps<'_>,
) -> Result<usize, ApiError> {
    let mut steps = letters.chunks(STEP);
    let mut under_way = FuturesUnordered::new();
    let mut all = 0;
    loop {
        tokio::select! {
            _ = pace.tick(), if steps.len() > 0 && under_way.len() < STEPS_AT_ONCE => {
                under_way.extend(steps.next().map(|step| apply(engine, change, step, by)));
            }
            Some(changed) = under_way.next() => all += changed?,
            else => return Ok(all),
        }
    }
}

fn query(order: &LettersOrder, page: Page) -> JobQuery {
    let letters = LetterFilter { reason: order.reason, from: order.since, before: order.until };
    JobQuery {
        queue: order.queue.clone(),
        job_type: order.job_type.clone(),
        error: order.error.clone(),
        letters: Some(letters),
        ..JobQuery::all(page)
    }
}

/// Changes these in one batch or a few; returns how many were still as they were found.
async fn apply(
    engine: &Engine,
    change: Change,
    letters: &[DeadLetter],
    by: &str,
) -> Result<usize, ApiError> {
    let each = letters.iter().map(|letter| async {
        let (job, by) = (letter.job.job.id, by.to_owned());
        match change {
            Change::Retry => {
                let seen =
                    Seen { state: State::Discarded, epoch: letter.job.epoch, started: false };
                let (action, expected) = (JobAction::Replay, Some(seen));
                let order = JobOrder { job, action, tenant: None, by, expected };
                engine.submit(order).await.map(|moved| moved.is_ok())
            }
            Change::Purge => {
                let life = Some(letter.job.life);
                let order = ForgetDeadLetter { job, tenant: None, by, life };
                engine.submit(order).await.map(|forgotten| forgotten.is_ok())
            }
        }
    });
    let changed = try_join_all(each).await?;
    Ok(changed.into_iter().filter(|changed| *changed).count())
}
