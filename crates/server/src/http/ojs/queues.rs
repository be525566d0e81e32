//! Queues: their counts, and stopping and allowing fetches.

use outlast_core::job::State;
use outlast_store::command::QueueOrder;
use outlast_store::query::QueueStats;
use outlast_store::tally::Counts;
use outlast_store::{Command, Reply};
use outlast_wire::json::Object;
use outlast_wire::ojs::quirks;

use crate::engine::unexpected;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::error::Failure;

pub(super) async fn list(call: Call) -> Result<Answer, Failure> {
    let queues = call.app.engine.store().queues().await?;
    Ok(Answer::object(|object| {
        object.array("queues", &queues, |out, queue| {
            let mut object = Object::begin(out);
            fields(&mut object, queue);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("total", queues.len());
            object.number("limit", queues.len());
            object.number("offset", 0);
            object.flag("has_more", false);
        });
    }))
}

pub(super) async fn stats(mut call: Call) -> Result<Answer, Failure> {
    let (name, tenant) = (call.queue().await?, call.tenant()?);
    let store = call.app.engine.store();
    let queue = store.queues().await?.into_iter().find(|queue| queue.name == name);
    let queue = queue.ok_or_else(|| Failure::not_found(format!("queue {name} is not known")))?;
    let queue = match tenant {
        Some(tenant) => of_tenant(&call.app, queue, &tenant).await?,
        None => queue,
    };
    let now = call.app.now().await?;
    let as_text = quirks::queue_is_text(call.header("ojs-version"));
    Ok(Answer::object(|object| {
        if as_text {
            object.text("queue", &queue.name);
        } else {
            object.object("queue", |object| fields(object, &queue));
        }
        object.text("status", status(queue.paused));
        object.object("stats", |object| counts(object, &queue));
        object.time("computed_at", now);
    }))
}

pub(super) async fn pause(call: Call) -> Result<Answer, Failure> {
    order(call, true).await
}

pub(super) async fn resume(call: Call) -> Result<Answer, Failure> {
    order(call, false).await
}

async fn order(mut call: Call, paused: bool) -> Result<Answer, Failure> {
    let queue = call.queue().await?;
    let order = QueueOrder { queue: queue.clone(), paused, by: call.by() };
    match call.app.engine.submit(Command::Queue(order)).await? {
        Reply::Done => {}
        other => return Err(unexpected("a queue's order", &other).into()),
    }
    Ok(Answer::object(|object| {
        object.object("queue", |object| {
            object.text("name", &queue);
            object.flag("paused", paused);
            object.text("status", status(paused));
        });
    }))
}

/// Counts one tenant's jobs only.
async fn of_tenant(app: &App, queue: QueueStats, tenant: &str) -> Result<QueueStats, Failure> {
    let tally = app.engine.store().tally().await?;
    let mut counts = QueueStats { name: queue.name, paused: queue.paused, ..QueueStats::default() };
    let theirs = tally.iter().filter(|class| {
        class.key.queue == counts.name && class.key.tenant.as_deref() == Some(tenant)
    });
    let mut all = Counts::default();
    theirs.for_each(|class| all.add(&class.counts));
    for state in State::ALL {
        *counts.count_mut(state) = all.state(state);
    }
    Ok(counts)
}

const fn status(paused: bool) -> &'static str {
    if paused { "paused" } else { "active" }
}

fn fields(object: &mut Object<'_>, queue: &QueueStats) {
    object.text("name", &queue.name);
    object.text("status", status(queue.paused));
    object.flag("paused", queue.paused);
    counts(object, queue);
}

fn counts(object: &mut Object<'_>, queue: &QueueStats) {
    object.number("available", queue.available);
    object.number("active", queue.active);
    object.number("scheduled", queue.scheduled);
    object.number("pending", queue.pending);
    object.number("retryable", queue.retryable);
    object.number("completed", queue.completed);
    object.number("cancelled", queue.cancelled);
    object.number("discarded", queue.discarded);
    object.time_if("oldest_available_at", queue.oldest_available);
}
