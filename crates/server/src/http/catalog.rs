//! Actions and packs: what executions may name.

use std::time::Duration;

use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::time::Span;
use outlast_packs::{Action, OnDrain, Origin, OutputFormat, Overlap, Pack, PackError, PackPolicy};
use outlast_wire::json::Object;

use super::error::{ApiError, Missing};
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, get};
use super::schema::Schema;
use super::skew::{Fleet, Spread};
use crate::access::Scope;
use crate::intake::{IntakeError, action as intake};

pub(super) fn routes() -> Routes {
    Routes::new()
        .add(
            get("/api/v1/actions", Scope::Read, "Lists actions", Schema::Actions)
                .query(&[("pack", "Only actions of this pack")]),
            actions,
        )
        .add(
            get("/api/v1/actions/{ref}", Scope::Read, "Shows an action", Schema::Action),
            one_action,
        )
        .add(get("/api/v1/packs", Scope::Read, "Lists packs", Schema::Packs), packs)
        .add(get("/api/v1/packs/{ref}", Scope::Read, "Shows a pack", Schema::Pack), one_pack)
}

async fn actions(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let pack = req.query("pack");
    let packs = req.app.engine.settings().packs.current();
    let wanted = |action: &&Action| pack.as_ref().is_none_or(|pack| action.pack == *pack);
    Ok(list(packs.actions().filter(wanted), action))
}

async fn one_action(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.param("ref").await;
    let packs = req.app.engine.settings().packs.current();
    let found = packs.get(&name).ok_or_else(|| IntakeError::no_action(&packs, &name))?;
    Ok(ApiResponse::object(|object| object.object("data", |object| action(object, found))))
}

async fn packs(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let workers = req.app.engine.store().live_workers().await?;
    let fleet = Fleet::of(&workers);
    let packs = req.app.engine.settings().packs.current();
    let faulty = packs.faulty_packs().map(|(name, fault)| Listed::Faulty(name, fault));
    Ok(list(packs.packs().map(Listed::Whole).chain(faulty), |object, listed| match listed {
        Listed::Whole(found) => pack(object, found, &fleet.spread(found)),
        Listed::Faulty(name, fault) => faulty_pack(object, name, fault),
    }))
}

/// A pack in a list.
enum Listed<'a> {
    Whole(&'a Pack),
    Faulty(&'a str, &'a PackError),
}

/// A pack that was left out: of what it holds nothing is known.
fn faulty_pack(object: &mut Object<'_>, name: &str, fault: &PackError) {
    object.text("ref", name);
    object.text("label", name);
    object.text("description", "");
    object.text_or_null("version", None);
    object.flag("enabled", false);
    object.flag("built_in", false);
    object.flag("replaces_built_in", false);
    for list in ["tags", "actions", "workflows", "notes"] {
        object.texts(list, std::iter::empty());
    }
    object.text("digest", "");
    object.texts("faults", std::iter::once(fault.to_string().as_str()));
    object.object("workers", |object| Spread::default().write(object));
}

async fn one_pack(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = req.param("ref").await;
    let workers = req.app.engine.store().live_workers().await?;
    let packs = req.app.engine.settings().packs.current();
    let found = packs.packs().find(|pack| pack.reference == name);
    let Some(found) = found else {
        let fault = packs.faulty_packs().find(|(faulty, _)| *faulty == name);
        return Err(ApiError::not_found(
            Missing::Pack,
            match fault {
                Some((_, fault)) => format!("pack {name} was left out: {fault}"),
                None => format!("pack {name} is not known"),
            },
        ));
    };
    let spread = Fleet::of(&workers).spread(found);
    Ok(ApiResponse::object(|object| object.object("data", |object| pack(object, found, &spread))))
}

fn list<T>(items: impl Iterator<Item = T>, write: impl Fn(&mut Object<'_>, T)) -> ApiResponse {
    let items: Vec<T> = items.collect();
    let total = items.len();
    ApiResponse::object(|object| {
        object.array("data", items, |out, item| {
            let mut object = Object::begin(out);
            write(&mut object, item);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", total);
            object.raw("next_cursor", "null");
            object.number("total", total);
        });
    })
}

fn action(object: &mut Object<'_>, action: &Action) {
    object.text("ref", &action.reference);
    object.text("pack", &action.pack);
    object.text("label", &action.label);
    object.text("description", &action.description);
    object.text("runner_type", action.runner.as_str());
    object.text_or_null("interpreter", action.own_interpreter.as_deref());
    object.flag("enabled", action.enabled);
    object.raw("parameters", &action.schema().to_string());
    object.text("parameter_delivery", action.delivery.as_str());
    object.text("parameter_format", action.format.as_str());
    let output = match action.output_format {
        OutputFormat::Text => "text",
        OutputFormat::Json => "json",
        OutputFormat::Yaml => "yaml",
        OutputFormat::Jsonl => "jsonl",
    };
    object.text("output_format", output);
    match action.timeout {
        Some(timeout) => object.number("timeout", timeout.as_secs_f64()),
        None => object.raw("timeout", "null"),
    }
    object.text("queue", intake::queue(Some(action)));
    object.number("priority", intake::priority(Some(action)));
    object.object("retry", |object| retry(object, &intake::retry_policy(action)));
    object.flag("interruptible", action.interruptible);
    let on_drain = match action.on_drain {
        OnDrain::Finish => "finish",
        OnDrain::Stop => "stop",
    };
    object.text("on_drain", on_drain);
    let overlap = match action.overlap {
        Overlap::Allowed => "allowed",
        Overlap::Forbidden => "forbidden",
    };
    object.text("overlap", overlap);
    outlast_wire::resources::write(object, &action.resources);
    object.object("required_labels", |object| {
        for (name, value) in &action.required_labels {
            object.text(name, value);
        }
    });
    object.text(
        "packs",
        match action.packs {
            PackPolicy::Any => "any",
            PackPolicy::Pinned => "pinned",
        },
    );
    object.text("requires", &action.placement.requires.to_string());
    object.text("prefers", &action.placement.prefers.to_string());
    object.object("keys", |object| {
        for (name, template) in action.key_templates() {
            object.text(name, template);
        }
    });
    object.texts("tags", action.tags.iter().map(String::as_str));
    // Names only: what they hold is the worker's.
    object.texts("secrets", action.secrets.keys().map(String::as_str));
}

/// The policy of jobs that have none of their own, in the words of requests.
fn retry(object: &mut Object<'_>, policy: &RetryPolicy) {
    object.number("max_attempts", policy.max_attempts);
    object.number("initial_interval", seconds(policy.initial_interval));
    object.number("max_interval", seconds(policy.max_interval));
    object.number("backoff_coefficient", f64::from(policy.coefficient_millis) / 1000.0);
    let strategy = match policy.backoff {
        Backoff::Constant => "constant",
        Backoff::Linear => "linear",
        Backoff::Exponential => "exponential",
        Backoff::Polynomial => "polynomial",
    };
    object.text("backoff_strategy", strategy);
    object.flag("jitter", policy.jitter);
    object.texts("non_retryable_errors", policy.non_retryable.iter().map(String::as_str));
    let then = match policy.on_exhaustion {
        OnExhaustion::Discard => "discard",
        OnExhaustion::DeadLetter => "dead_letter",
    };
    object.text("on_exhaustion", then);
}

fn seconds(span: Span) -> f64 {
    Duration::from_millis(span.as_millis()).as_secs_f64()
}

fn pack(object: &mut Object<'_>, pack: &Pack, workers: &Spread<'_>) {
    object.text("ref", &pack.reference);
    object.text("label", &pack.label);
    object.text("description", &pack.description);
    object.text_or_null("version", pack.version.as_deref());
    object.flag("enabled", pack.enabled);
    object.flag("built_in", pack.origin == Origin::BuiltIn);
    object.flag("replaces_built_in", pack.origin == Origin::Replacement);
    object.texts("tags", pack.tags.iter().map(String::as_str));
    object.texts("actions", pack.actions().iter().map(|action| action.reference.as_str()));
    object.texts("workflows", pack.workflows().iter().map(|it| it.reference.as_str()));
    let notes: Vec<String> = pack.notes().iter().map(ToString::to_string).collect();
    object.texts("notes", notes.iter().map(String::as_str));
    object.text("digest", &pack.digest);
    let faults: Vec<String> = pack.faults().map(|(_, fault)| fault.to_string()).collect();
    object.texts("faults", faults.iter().map(String::as_str));
    object.object("workers", |object| workers.write(object));
}
