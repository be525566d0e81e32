//! Queues: counts and settings.

use outlast_core::queue::{Change, QueueChange, QueueSettings};
use outlast_core::selector::Placement;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::SetQueue;
use outlast_store::query::QueueStats;
use outlast_store::queue::QueueRecord;
use outlast_store_rules::apply::queue::receiver_name;
use outlast_wire::json::Object;
use outlast_wire::ojs::error::Code;
use outlast_wire::queue;

use super::App;
use super::doctor::seconds;
use super::error::{ApiError, Missing};
use super::ojs::queues::{counts, fields, max_depth};
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, get, put};
use super::schema::Schema;
use crate::access::Scope;
use crate::snapshot::WaitingGroup;

pub(super) fn routes() -> Routes {
    const ALL: &str = "/api/v1/queues";
    const ONE: &str = "/api/v1/queues/{name}";
    let set = "Changes settings of a queue; what is not named stays";
    Routes::new()
        .add(get(ALL, Scope::Read, "Lists queues with their settings", Schema::QueuesSet), list)
        .add(get(ONE, Scope::Read, "Shows a queue with its settings", Schema::QueueSet), show)
        .add(
            put(ONE, Scope::Operate, set, Schema::QueueSet)
                .takes(Schema::QueueRequest)
                .refuses(&[Code::ValidationError]),
            self::set,
        )
}

/// Lists all queues: the same answer for all who ask within a second.
async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let snapshot = req.app.snapshot().await?;
    let age = snapshot.age();
    Ok(ApiResponse::object(|object| {
        object.array("data", &snapshot.queues, |out, queue| {
            let mut object = Object::begin(out);
            write(&mut object, queue, snapshot.settings.get(&queue.name));
            object.end();
        });
        object.object("totals", |object| counts(object, &snapshot.totals));
        object.object("waiting", |object| {
            object.array("groups", &snapshot.waiting.groups, |out, group| {
                let mut object = Object::begin(out);
                about_waiting(&mut object, group);
                object.end();
            });
            object.number("others", snapshot.waiting.others);
        });
        counted(object, snapshot.counted_at, age);
    }))
}

/// Writes when numbers were read, and how old they are.
fn counted(object: &mut Object<'_>, at: Timestamp, age: Span) {
    object.time("counted_at", at);
    object.number("age_seconds", seconds(age));
}

fn about_waiting(object: &mut Object<'_>, group: &WaitingGroup) {
    object.text("reason", group.reason.as_str());
    object.text("queue", &group.queue);
    object.text_or_null("type", group.job_type.as_deref());
    object.number("jobs", group.jobs);
}

async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.queue().await?;
    let unknown = || ApiError::not_found(Missing::Queue, format!("queue {name} is not known"));
    let queue = req.app.engine.store().queue(name.clone()).await?.ok_or_else(unknown)?;
    shown(&req.app, &queue).await
}

pub(super) async fn set(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.queue().await?;
    let change = queue::read(&req.body().await?)?;
    // The server sends it from where it is: an operator must not choose to whom.
    if sends_webhooks(&change) {
        req.require(Scope::Administer, "a webhook of a queue")?;
    }
    let order = SetQueue { queue: name.clone(), change, by: req.by() };
    req.app.engine.submit(order).await?.map_err(|refusal| queue::refused(&refusal))?;
    req.app.snapshots.forget().await;
    // A queue without jobs and settings is known to no store, and is as it was asked to be.
    let empty = QueueStats { name: name.clone(), ..QueueStats::default() };
    let queue = req.app.engine.store().queue(name).await?.unwrap_or(empty);
    shown(&req.app, &queue).await
}

fn sends_webhooks(change: &QueueChange) -> bool {
    let Change::Set(rules) = &change.dead_letters else { return false };
    rules.iter().any(|rule| rule.webhook.is_some())
}

async fn shown(app: &App, queue: &QueueStats) -> Result<ApiResponse, ApiError> {
    let (store, name, now) = (app.engine.store(), &queue.name, app.now().await?);
    let settings = store.queue_settings().await?.into_iter().find(|it| it.queue == *name);
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| write(object, queue, settings.as_ref()));
        counted(object, now, Span::ZERO);
    }))
}

fn write(object: &mut Object<'_>, queue: &QueueStats, record: Option<&QueueRecord>) {
    fields(object, queue);
    let none = QueueSettings::default();
    let settings = record.map_or(&none, |record| &record.settings);
    max_depth(object, settings.max_depth);
    let fair = settings.fair.as_ref();
    object.text_or_null("fair_by", fair.map(|fair| fair.key.as_str()));
    object.object("weights", |object| {
        for (key, (value, weight)) in
            fair.iter().flat_map(|fair| fair.weights.iter().map(|weight| (&fair.key, weight)))
        {
            object.number(&format!("{key}:{value}"), weight);
        }
    });
    let Placement { requires, prefers } = &settings.placement;
    for (name, selector) in [("requires", requires), ("prefers", prefers)] {
        let text = (!selector.is_empty()).then(|| selector.to_string());
        object.text_or_null(name, text.as_deref());
    }
    object.array("dead_letters", &settings.dead_letters, |out, rule| {
        let mut object = Object::begin(out);
        // A receiver may be let in by a part of its address.
        let webhook = rule.webhook.as_deref().map(receiver_name);
        object.text_or_null("webhook", webhook.as_deref());
        object.text_or_null("action", rule.action.as_deref());
        object.texts("reasons", rule.reasons.iter().map(|reason| reason.as_str()));
        object.end();
    });
    object.text_or_null("set_by", record.map(|record| record.set_by.as_str()));
    object.time_or_null("set_at", record.map(|record| record.set_at));
}
