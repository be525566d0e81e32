//! A job in the format of the OJS API.

use std::borrow::Cow;
use std::collections::BTreeMap;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::{Overlap, Rules};
use outlast_core::retry::RetryPolicy;
use outlast_core::time::Timestamp;
use outlast_packs::Action;
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};
use outlast_store::reply::Enqueued;
use outlast_wire::json;
use outlast_wire::ojs::enqueue::{Envelope, FirstWanted};
use outlast_wire::ojs::job::{Course, JobView, signed};
use outlast_wire::ojs::quirks;
use uuid::Uuid;

use super::action::{self, Arguments};
use super::{ANONYMOUS, IntakeError, Requester, check_class, unique};
use crate::settings::Settings;

/// What the producer is shown of its job once it is stored.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    envelope: Envelope<'a>,
    id: JobId,
    queue: String,
    priority: i8,
    meta: Cow<'a, str>,
    args: Cow<'a, str>,
    max_attempts: u32,
    scheduled: Option<Timestamp>,
    expires: Option<Timestamp>,
}

/// Returns whether a job asks for something at a time. Only then does it matter when it is
/// planned.
pub(crate) const fn has_time(envelope: &Envelope<'_>) -> bool {
    envelope.first.is_some() || envelope.expires.is_some()
}

/// Plans a job that is asked for at `now`.
pub(crate) fn plan<'a>(
    settings: &Settings,
    mut envelope: Envelope<'a>,
    requester: Requester<'_>,
    now: Timestamp,
) -> Result<(NewJob, Planned<'a>), IntakeError> {
    let packs = settings.packs.current();
    let policy = envelope.unique.take();
    let (mut job, planned) = match packs.get(&envelope.job_type) {
        None => plain(envelope, requester, now),
        Some(action) => {
            let arguments = action::arguments(action, envelope.args, &envelope.keys)?;
            planned(envelope, arguments, (requester, now), Some(action))
        }
    };
    check_class(&job.class)?;
    job.unique = policy.map(|policy| unique::of(&policy, &job)).transpose()?;
    Ok((job, planned))
}

/// Plans a job for handlers that are registered for its type, whatever actions there are.
pub(super) fn plain<'a>(
    envelope: Envelope<'a>,
    requester: Requester<'_>,
    now: Timestamp,
) -> (NewJob, Planned<'a>) {
    let arguments = Arguments {
        stored: envelope.args.to_owned(),
        keys: envelope.keys.clone(),
        shown: Cow::Borrowed(envelope.args),
    };
    planned(envelope, arguments, (requester, now), None)
}

fn planned<'a>(
    mut envelope: Envelope<'a>,
    Arguments { stored, keys, shown }: Arguments<'a>,
    (Requester { tenant, name }, now): (Requester<'_>, Timestamp),
    action: Option<&Action>,
) -> (NewJob, Planned<'a>) {
    envelope.extra = signed(envelope.extra, name);
    envelope.keys = keys;
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
    let default = || action.map_or_else(RetryPolicy::standard, action::retry_policy);
    let rules = Rules {
        retry: envelope.retry.clone().unwrap_or_else(default),
        overlap: envelope
            .overlap
            .unwrap_or_else(|| action.map_or(Overlap::Allowed, action::overlap)),
        expires_at: expires,
    };
    if let Some(action) = action {
        envelope.placement = action.placement.clone().and(envelope.placement);
    }
    let placement = envelope.placement.clone();
    let queue = envelope.queue.as_deref().unwrap_or_else(|| action::queue(action)).to_owned();
    let priority = envelope.priority.unwrap_or_else(|| action::priority(action));
    let id = envelope.id.unwrap_or_else(|| JobId(Uuid::now_v7()));
    let job = NewJob {
        id,
        class: ClassKey {
            queue: queue.clone(),
            job_type: envelope.job_type.clone().into_owned(),
            route: action.map_or(Route::Plain, |action| {
                action::route(action, BTreeMap::new(), rules.overlap)
            }),
            tenant: tenant.map(ToOwned::to_owned).or_else(|| tenant_of(envelope.meta)),
            isolated: false,
            keyed: false,
            placement,
        },
        keys: envelope.keys.clone(),
        priority,
        payload: Payload {
            args: stored,
            meta: meta.clone().into_owned(),
            extra: envelope.extra.clone(),
        },
        first,
        timeout: envelope.timeout.or_else(|| action.and_then(action::timeout)),
        visibility: envelope.visibility,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: name.unwrap_or(ANONYMOUS).to_owned(),
        rules,
        unique: None,
    };
    let max_attempts = job.rules.retry.max_attempts;
    let args = shown;
    let planned =
        Planned { envelope, id, queue, priority, meta, args, max_attempts, scheduled, expires };
    (job, planned)
}

impl Planned<'_> {
    /// Returns the job as it was stored.
    pub(crate) fn view(&self, stored: &Enqueued) -> JobView<'_> {
        debug_assert_eq!(self.id, stored.id, "answered with another job");
        JobView {
            id: self.id,
            job_type: &self.envelope.job_type,
            queue: &self.queue,
            state: stored.state,
            args: &self.args,
            meta: &self.meta,
            extra: &self.envelope.extra,
            keys: &self.envelope.keys,
            placement: &self.envelope.placement,
            priority: self.priority,
            attempt: 0,
            max_attempts: self.max_attempts,
            created: stored.at,
            scheduled: self.scheduled,
            expires: self.expires,
            course: Course::default(),
        }
    }
}

/// Returns the tenant in `meta`, for producers that put it there themselves.
fn tenant_of(meta: &str) -> Option<String> {
    let raw = json::field(meta, "tenant_id")?;
    serde_json::from_str(raw.get()).ok()
}
