//! From what was asked to the job that is stored.
//!
//! A type that names an action makes the job one for the workers of that action: its
//! parameters are checked here, before anything is stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::{Overlap, Rules};
use outlast_core::limits::{LABELS_BYTES_MAX, LABELS_MAX, TENANT_NAME_MAX};
use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::time::{Span, Timestamp};
use outlast_packs::{Action, PackSet, RetrySpec, Violation};
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};
use outlast_store::record::JobRecord;
use outlast_store::reply::Enqueued;
use outlast_wire::Fault;
use outlast_wire::execution::request::Request;
use outlast_wire::json;
use outlast_wire::ojs::enqueue::{Envelope, FirstWanted};
use outlast_wire::ojs::job::{Course, JobView, signed};
use outlast_wire::ojs::quirks;
use outlast_wire::time::When;
use serde_json::Value;
use uuid::Uuid;

use super::App;
use super::call::ANONYMOUS;
use super::error::Failure;
use crate::settings::Settings;

/// A job ready to be stored, and what its producer is shown once it is.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    envelope: Envelope<'a>,
    id: JobId,
    meta: Cow<'a, str>,
    args: Cow<'a, str>,
    max_attempts: u32,
    scheduled: Option<Timestamp>,
    expires: Option<Timestamp>,
}

/// Who wants a job stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asker<'a> {
    /// The tenant that the request is limited to.
    pub(crate) tenant: Option<&'a str>,
    /// The name of the token that was shown.
    pub(crate) name: Option<&'a str>,
}

/// Plans a job of the standard.
pub(crate) async fn ojs<'a>(
    app: &App,
    envelope: Envelope<'a>,
    asker: Asker<'_>,
) -> Result<(NewJob, Planned<'a>), Failure> {
    let now = match (envelope.first, envelope.expires) {
        (None, None) => Timestamp::default(),
        (Some(_), _) | (_, Some(_)) => app.now().await?,
    };
    ojs_at(app.engine.settings(), envelope, asker, now)
}

/// Plans a job of the standard if the time is `now`.
pub(crate) fn ojs_at<'a>(
    settings: &Settings,
    envelope: Envelope<'a>,
    asker: Asker<'_>,
    now: Timestamp,
) -> Result<(NewJob, Planned<'a>), Failure> {
    let packs = settings.packs.current();
    let Some(action) = packs.get(&envelope.job_type) else {
        let (job, planned) = plain(envelope, asker, now);
        bounded(&job.class)?;
        return Ok((job, planned));
    };
    let args = arguments(action, envelope.args)?;
    let (job, planned) = planned(envelope, args, (asker, now), Some(action));
    bounded(&job.class)?;
    Ok((job, planned))
}

/// Returns whether a tenant may have this name.
pub(crate) fn is_tenant(name: &str) -> bool {
    name.len() <= TENANT_NAME_MAX && !name.chars().any(char::is_control)
}

/// Checks the parts of a class that are not bounded by their names: they are keys in the store.
fn bounded(class: &ClassKey) -> Result<(), Fault> {
    if class.tenant.as_deref().is_some_and(|name| !is_tenant(name)) {
        let problem = format!("must be at most {TENANT_NAME_MAX} bytes, none of them control");
        return Err(Fault::rule("meta.tenant_id", problem));
    }
    let Route::Action { labels, .. } = &class.route else { return Ok(()) };
    if labels.len() > LABELS_MAX {
        let problem = format!(
            "names {} labels, those of the action included; at most {LABELS_MAX} are taken",
            labels.len()
        );
        return Err(Fault::rule("labels", problem));
    }
    let bytes = serde_json::to_string(labels).map_or(usize::MAX, |text| text.len());
    if bytes > LABELS_BYTES_MAX {
        let problem = format!(
            "is {bytes} bytes long as JSON, the action's own labels included; at most \
             {LABELS_BYTES_MAX} are taken"
        );
        return Err(Fault::rule("labels", problem));
    }
    Ok(())
}

/// Plans a job of the standard as one for whoever registered a handler for its type.
pub(crate) fn plain<'a>(
    envelope: Envelope<'a>,
    asker: Asker<'_>,
    now: Timestamp,
) -> (NewJob, Planned<'a>) {
    let args = (envelope.args.to_owned(), Cow::Borrowed(envelope.args));
    planned(envelope, args, (asker, now), None)
}

fn planned<'a>(
    mut envelope: Envelope<'a>,
    (stored, shown): (String, Cow<'a, str>),
    (Asker { tenant, name }, now): (Asker<'_>, Timestamp),
    action: Option<&Action>,
) -> (NewJob, Planned<'a>) {
    envelope.extra = signed(envelope.extra, name);
    let (first, scheduled) = match envelope.first {
        None => (First::Now, None),
        Some(FirstWanted::OnActivation) => (First::OnActivation, None),
        Some(FirstWanted::At(when)) => {
            let at = when.resolve(now);
            (First::At(at), Some(at))
        }
    };
    let expires = envelope.expires.map(|when| when.resolve(now));
    let meta = tenant.map_or(Cow::Borrowed(envelope.meta), |tenant| {
        Cow::Owned(quirks::with_tenant(envelope.meta, tenant))
    });
    let default = || action.map_or_else(RetryPolicy::standard, default_policy);
    let rules = Rules {
        retry: envelope.retry.clone().unwrap_or_else(default),
        overlap: envelope.overlap.unwrap_or_else(|| action.map_or(Overlap::Allowed, overlap_of)),
        expires_at: expires,
    };
    let id = envelope.id.unwrap_or_else(|| JobId(Uuid::now_v7()));
    let job = NewJob {
        id,
        class: ClassKey {
            queue: envelope.queue.clone().into_owned(),
            job_type: envelope.job_type.clone().into_owned(),
            route: action
                .map_or(Route::Plain, |action| route(action, BTreeMap::new(), rules.overlap)),
            tenant: tenant.map(ToOwned::to_owned).or_else(|| tenant_of(envelope.meta)),
            isolated: false,
        },
        priority: envelope.priority,
        payload: Payload {
            args: stored,
            meta: meta.clone().into_owned(),
            extra: envelope.extra.clone(),
        },
        first,
        timeout: envelope.timeout.or_else(|| action.and_then(timeout_of)),
        visibility: envelope.visibility,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: name.unwrap_or(ANONYMOUS).to_owned(),
        rules,
    };
    let max_attempts = job.rules.retry.max_attempts;
    (job, Planned { envelope, id, meta, args: shown, max_attempts, scheduled, expires })
}

impl Planned<'_> {
    /// Returns the option that is stored and not enforced, if the job brings one.
    pub(crate) const fn unenforced(&self) -> Option<&'static str> {
        self.envelope.unenforced
    }

    /// Writes the job as it was stored.
    pub(crate) fn view(&self, stored: &Enqueued) -> JobView<'_> {
        debug_assert_eq!(self.id, stored.id, "answered with another job");
        JobView {
            id: self.id,
            job_type: &self.envelope.job_type,
            queue: &self.envelope.queue,
            state: stored.state,
            args: &self.args,
            meta: &self.meta,
            extra: &self.envelope.extra,
            priority: self.envelope.priority,
            attempt: 0,
            max_attempts: self.max_attempts,
            created: stored.at,
            scheduled: self.scheduled,
            expires: self.expires,
            course: Course::default(),
        }
    }
}

/// Plans an execution.
pub(crate) fn execution(
    app: &App,
    request: Request,
    by: Option<&str>,
    now: Timestamp,
) -> Result<NewJob, Failure> {
    let settings = app.engine.settings();
    let reference = &request.action_ref;
    let packs = settings.packs.current();
    let action = packs.get(reference).ok_or_else(|| no_action(&packs, reference))?;
    let parameters = checked(action, &request.parameters)?;
    let retry = request.policy(default_policy(action))?;
    let scheduled = later(request.delay, now);
    let standard = ScheduledTimeout::After(settings.scheduled_timeout);
    let extra = if request.labels.is_empty() {
        String::new()
    } else {
        serde_json::json!({ "labels": &request.labels }).to_string()
    };
    let overlap = request.overlap.unwrap_or_else(|| overlap_of(action));
    let class = ClassKey {
        queue: request.queue,
        route: route(action, request.labels, overlap),
        job_type: request.action_ref,
        tenant: None,
        isolated: false,
    };
    bounded(&class)?;
    Ok(NewJob {
        id: JobId(Uuid::now_v7()),
        priority: request.priority,
        payload: Payload {
            args: Value::Array(vec![parameters]).to_string(),
            meta: String::new(),
            extra: signed(extra, by),
        },
        rules: Rules { retry, overlap, expires_at: None },
        first: scheduled.map_or(First::Now, First::At),
        timeout: request.timeout.or_else(|| timeout_of(action)),
        visibility: None,
        scheduled_timeout: request.scheduled_timeout.unwrap_or(standard),
        origin: Origin::Execution,
        by: by.unwrap_or(ANONYMOUS).to_owned(),
        class,
    })
}

/// Plans a job as one that was stored before, under another id and to run at once.
pub(crate) fn again(app: &App, record: &JobRecord, by: Option<&str>) -> Result<NewJob, Failure> {
    let stored = &record.job;
    let mut payload = stored.payload.clone();
    payload.extra = signed(payload.extra, by);
    if stored.key.route != Route::Plain {
        let packs = app.engine.settings().packs.current();
        let reference = &stored.key.job_type;
        let action = packs.get(reference).ok_or_else(|| no_action(&packs, reference))?;
        payload.args = arguments(action, &payload.args)?.0;
    }
    Ok(NewJob {
        id: JobId(Uuid::now_v7()),
        class: ClassKey { isolated: false, ..(*stored.key).clone() },
        priority: stored.priority,
        payload,
        rules: Rules { expires_at: None, ..stored.rules.clone() },
        first: First::Now,
        timeout: stored.timeout,
        visibility: stored.visibility,
        scheduled_timeout: stored.scheduled_timeout,
        origin: stored.origin,
        by: by.unwrap_or(ANONYMOUS).to_owned(),
    })
}

/// Says why there is no such action, and which one may be meant.
pub(crate) fn no_action(packs: &PackSet, reference: &str) -> Failure {
    if let Some(fault) = packs.fault_of(reference) {
        return Failure::not_found(format!("action {reference} is faulty and left out: {fault}"));
    }
    Failure::not_found(match packs.nearest(reference) {
        Some(near) => format!("action {reference} is not known; did you mean {near}?"),
        None => format!("action {reference} is not known"),
    })
}

/// Returns when a job may first run, if that is later than now.
fn later(first: Option<When>, now: Timestamp) -> Option<Timestamp> {
    first.map(|when| when.resolve(now))
}

/// Checks the parameters in `args[0]`; returns what is stored and what is shown.
fn arguments(action: &Action, args: &str) -> Result<(String, Cow<'static, str>), Failure> {
    let args: Vec<Value> = serde_json::from_str(args).map_err(|error| json::syntax(&error))?;
    if args.len() > 1 {
        let problem = "must hold one object, the action's parameters";
        return Err(Fault::rule("args", problem).into());
    }
    let complete = checked(action, args.first().unwrap_or(&Value::Null))?;
    let masked = Value::Array(vec![action.mask(&complete)]).to_string();
    Ok((Value::Array(vec![complete]).to_string(), Cow::Owned(masked)))
}

fn checked(action: &Action, parameters: &Value) -> Result<Value, Failure> {
    let reference = &action.reference;
    if !action.enabled {
        return Err(Failure::Conflict(format!("action {reference} is switched off")));
    }
    action.check(parameters).map_err(|violations| {
        let told: Vec<String> = violations.iter().map(Violation::to_string).collect();
        let message = format!("parameters of {reference} are not as required: {}", told.join("; "));
        let details = serde_json::json!({ "violations": violations }).to_string();
        Failure::Parameters { message, details }
    })
}

fn route(action: &Action, wanted: BTreeMap<String, String>, overlap: Overlap) -> Route {
    let mut labels = action.required_labels.clone();
    labels.extend(wanted);
    let proof = overlap == Overlap::Forbidden;
    Route::Action { runtime: action.runner.as_str().to_owned(), labels, proof }
}

/// Returns the tenant in `meta`, for producers that put it there themselves.
fn tenant_of(meta: &str) -> Option<String> {
    let raw = json::field(meta, "tenant_id")?;
    serde_json::from_str(raw.get()).ok()
}

fn timeout_of(action: &Action) -> Option<Span> {
    action.timeout.map(span)
}

const fn overlap_of(action: &Action) -> Overlap {
    match action.overlap {
        outlast_packs::Overlap::Allowed => Overlap::Allowed,
        outlast_packs::Overlap::Forbidden => Overlap::Forbidden,
    }
}

fn span(length: Duration) -> Span {
    Span(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

fn default_policy(action: &Action) -> RetryPolicy {
    let standard = RetryPolicy::standard();
    let Some(spec) = &action.retry else { return standard };
    let RetrySpec { max_attempts, initial_interval, max_interval, jitter, .. } = spec;
    RetryPolicy {
        max_attempts: max_attempts.unwrap_or(standard.max_attempts).max(1),
        initial_interval: initial_interval.map_or(standard.initial_interval, span),
        max_interval: max_interval.map_or(standard.max_interval, span),
        jitter: jitter.unwrap_or(standard.jitter),
        coefficient_millis: spec
            .backoff_coefficient
            .map_or(standard.coefficient_millis, coefficient),
        backoff: spec.backoff_strategy.as_deref().map_or(standard.backoff, |name| match name {
            "none" | "constant" => Backoff::Constant,
            "linear" => Backoff::Linear,
            _ => Backoff::Exponential,
        }),
        non_retryable: spec.non_retryable_errors.clone().unwrap_or(standard.non_retryable),
        on_exhaustion: spec.on_exhaustion.map_or(standard.on_exhaustion, |wanted| match wanted {
            outlast_packs::OnExhaustion::Discard => OnExhaustion::Discard,
            outlast_packs::OnExhaustion::DeadLetter => OnExhaustion::DeadLetter,
        }),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a policy on the wire may ask for"
)]
fn coefficient(number: f64) -> u32 {
    (number.clamp(1.0, 1000.0) * 1000.0).round() as u32
}
