//! An execution as the API shows it.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{Overlap, State};
use outlast_store::command::Route;
use outlast_store::record::JobRecord;
use outlast_wire::execution::status::{Facts, Status};
use outlast_wire::json::{self, Object};

use crate::http::App;
use crate::http::job_view;
use crate::http::response::object;
use crate::intake::ANONYMOUS;
use crate::intake::execution::VALIDATED_WITH;
use crate::schedules;
use crate::workflows;

/// Writes one execution under `data`.
pub(super) async fn document(app: &App, record: &JobRecord) -> Vec<u8> {
    let reasons = app.engine.waiting_reasons(std::slice::from_ref(record)).await;
    let reason = reasons.into_iter().flatten().next();
    object(|object| object.object("data", |object| fields(object, app, record, reason.as_deref())))
}

/// Writes one execution that was just enqueued. Limits are not looked up: that would take longer
/// than the rest.
pub(super) fn enqueued(app: &App, record: &JobRecord) -> Vec<u8> {
    let reason = app.engine.waiting_reason(record);
    object(|object| object.object("data", |object| fields(object, app, record, reason.as_deref())))
}

/// Writes one execution that was there before another request for the same.
pub(super) fn deduplicated(app: &App, record: &JobRecord) -> Vec<u8> {
    let reason = app.engine.waiting_reason(record);
    object(|object| {
        object.object("data", |object| fields(object, app, record, reason.as_deref()));
        object.raw("deduplicated", "true");
    })
}

/// Writes one execution as it was when it was new.
pub(super) fn newborn(app: &App, record: &JobRecord) -> Vec<u8> {
    object(|object| object.object("data", |object| fields(object, app, record, None)))
}

/// Returns an execution's status.
pub(in crate::http) fn status(record: &JobRecord) -> Status {
    let timed_out = record.error.as_deref().is_some_and(|error| {
        ["type", "code"]
            .iter()
            .any(|name| json::field(error, name).is_some_and(|value| value.get() == "\"timeout\""))
    });
    Status::of(&Facts {
        state: record.state,
        started: record.started.is_some() && record.state == State::Active,
        dead_letter: record.dead_letter,
        timed_out,
    })
}

/// Writes an execution's fields.
pub(super) fn fields(
    object: &mut Object<'_>,
    app: &App,
    record: &JobRecord,
    waiting_reason: Option<&str>,
) {
    let job = &record.job;
    object.plain("id", job.id);
    object.text("action_ref", &job.key.job_type);
    match record.omitted.args {
        None => {
            let parameters = job_view::parameters(job, &app.engine.settings().packs.current());
            object.raw("parameters", &parameters.to_string());
        }
        Some(_) => object.raw("parameters", "null"),
    }
    object.text("status", status(record).as_str());
    object.plain("state", record.state);
    object.text("queue", &job.key.queue);
    object.number("priority", job.priority);
    object.number("attempt", record.epoch);
    object.number("epoch", record.epoch);
    object.number("life", record.life);
    object.number("max_attempts", job.rules.retry.max_attempts);
    object.number("failures", record.spent.failures);
    object.number("losses", record.spent.losses);
    object.number("interruptions", record.spent.interruptions);
    worker(object, record);
    object.text_or_null("waiting_reason", waiting_reason);
    // A stranded execution has its reason as its result.
    let stranded = record.error.as_deref().filter(|_| record.ended_by == "stranded");
    object.raw_or_null("result", record.result.as_deref().or(stranded));
    object.raw_or_null("error", record.error.as_deref());
    job_view::omitted(object, "parameters", record.omitted);
    let ended_by = Some(record.ended_by.as_str()).filter(|by| !by.is_empty());
    object.text_or_null("ended_by", ended_by);
    let letter = record.dead_letter.map(outlast_core::job::DeadLetterReason::as_str);
    object.text_or_null("dead_letter", letter);
    object.time("created", job.created);
    object.time_or_null("scheduled", record.claimed);
    object.time_or_null("started", record.started);
    object.time_or_null("finished", record.finished);
    object.time_or_null("due", record.due);
    rules(object, record);
    object.plain("attempts_url", format_args!("/api/v1/executions/{}/attempts", job.id));
}

fn worker(object: &mut Object<'_>, record: &JobRecord) {
    let holder = record.last_holder.as_ref();
    match holder.filter(|holder| holder.worker.is_some() || holder.name.is_some()) {
        None => object.raw("worker", "null"),
        Some(holder) => object.object("worker", |object| {
            match holder.worker {
                Some(id) => object.plain("id", id),
                None => object.raw("id", "null"),
            }
            object.text_or_null("name", holder.name.as_deref());
        }),
    }
}

fn rules(object: &mut Object<'_>, record: &JobRecord) {
    let job = &record.job;
    object.seconds_or_null("timeout", job.timeout);
    let scheduled = match job.scheduled_timeout {
        ScheduledTimeout::Never => None,
        ScheduledTimeout::After(span) => Some(span),
    };
    object.seconds_or_null("scheduled_timeout", scheduled);
    let overlap = match job.rules.overlap {
        Overlap::Allowed => "allowed",
        Overlap::Forbidden => "forbidden",
    };
    object.text("overlap", overlap);
    let digest = json::field(&job.payload.extra, VALIDATED_WITH);
    object.raw("validated_with", digest.map_or("null", |digest| digest.get()));
    match schedules::fire_of(&job.payload.extra) {
        None => object.raw("schedule", "null"),
        Some(fire) => object.object("schedule", |object| {
            object.text("name", &fire.name);
            object.text("fire_time", &fire.fire_time);
            object.number("late_seconds", fire.late_seconds);
        }),
    }
    match workflows::item_of(&job.payload.extra) {
        None => object.raw("workflow", "null"),
        Some(item) => object.object("workflow", |object| {
            object.plain("id", item.id);
            object.text_or_null("name", item.name.as_deref());
            object.text("step", &item.step);
            object.number("item", item.item);
        }),
    }
    outlast_wire::resources::write(object, &job.rules.resources);
    let by = outlast_wire::ojs::job::enqueued_by(&job.payload.extra);
    object.text("enqueued_by", by.as_deref().unwrap_or(ANONYMOUS));
    object.object("keys", |object| {
        for (name, value) in &job.keys {
            object.text(name, value);
        }
    });
    object.text("requires", &job.key.placement.requires.to_string());
    object.text("prefers", &job.key.placement.prefers.to_string());
    object.object("labels", |object| {
        if let Route::Action { labels, .. } = &job.key.route {
            for (name, value) in labels {
                object.text(name, value);
            }
        }
    });
}
