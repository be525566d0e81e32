//! A job in the format of the OJS API.

use std::collections::BTreeMap;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::{Overlap, Rules};
use outlast_core::resources::Resources;
use outlast_core::retry::RetryPolicy;
use outlast_core::time::Timestamp;
use outlast_packs::{Action, PackPolicy};
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};
use outlast_wire::ojs::enqueue::{Envelope, FirstWanted};
use outlast_wire::ojs::job::signed;
use outlast_wire::ojs::quirks;
use outlast_wire::{Fault, json};
use uuid::Uuid;

use super::action::{self, Arguments};
use super::{ANONYMOUS, IntakeError, Requester, check_class, execution, unique};
use crate::settings::Settings;

/// Returns whether a job asks for something at a time. Only then does it matter when it is
/// planned.
pub(crate) const fn has_time(envelope: &Envelope<'_>) -> bool {
    envelope.first.is_some() || envelope.expires.is_some()
}

/// Plans a job that is asked for at `now`.
pub(crate) fn plan(
    settings: &Settings,
    mut envelope: Envelope<'_>,
    requester: Requester<'_>,
    now: Timestamp,
) -> Result<NewJob, IntakeError> {
    let packs = settings.packs.current();
    let policy = envelope.unique.take();
    let mut job = match packs.get(&envelope.job_type) {
        None if !envelope.resources.is_empty() => return Err(no_action_to_limit().into()),
        None => plain(envelope, requester, now),
        Some(action) => {
            let Arguments { stored, keys } =
                action::arguments(action, envelope.args, &envelope.keys)?;
            envelope.keys = keys;
            let digest = execution::digest_of(&packs, action);
            planned(envelope, stored, requester, now, Some((action, digest)))
        }
    };
    check_class(&job.class)?;
    job.unique = policy.map(|policy| unique::of(&policy, &job)).transpose()?;
    Ok(job)
}

/// Plans a job for handlers that are registered for its type, whatever actions there are.
pub(super) fn plain(envelope: Envelope<'_>, requester: Requester<'_>, now: Timestamp) -> NewJob {
    let args = envelope.args.to_owned();
    planned(envelope, args, requester, now, None)
}

fn planned(
    envelope: Envelope<'_>,
    args: String,
    Requester { tenant, name }: Requester<'_>,
    now: Timestamp,
    action: Option<(&Action, &str)>,
) -> NewJob {
    let (mut placement, mut extra) = (envelope.placement, envelope.extra);
    if let Some((action, digest)) = action {
        placement = action.placement.clone().and(placement);
        if action.packs == PackPolicy::Pinned {
            placement.requires = execution::pinned(placement.requires, action, digest);
        }
        extra = execution::with_digest(&extra, digest);
    }
    let action = action.map(|(action, _)| action);
    let first = match envelope.first {
        None => First::Now,
        Some(FirstWanted::OnActivation) => First::OnActivation,
        Some(FirstWanted::At(when)) => First::At(when.resolve(now)),
    };
    let default = || action.map_or_else(RetryPolicy::standard, action::retry_policy);
    let of_action = action.map_or(Resources::NONE, |action| action.resources);
    let rules = Rules {
        retry: envelope.retry.unwrap_or_else(default),
        overlap: envelope
            .overlap
            .unwrap_or_else(|| action.map_or(Overlap::Allowed, action::overlap)),
        expires_at: envelope.expires.map(|when| when.resolve(now)),
        resources: envelope.resources.or(of_action),
        workflow: None,
    };
    NewJob {
        id: envelope.id.unwrap_or_else(|| JobId(Uuid::now_v7())),
        class: ClassKey {
            queue: envelope.queue.as_deref().unwrap_or_else(|| action::queue(action)).to_owned(),
            job_type: envelope.job_type.into_owned(),
            route: action.map_or(Route::Plain, |action| {
                action::route(action, BTreeMap::new(), rules.overlap)
            }),
            tenant: tenant.map(ToOwned::to_owned).or_else(|| tenant_of(envelope.meta)),
            isolated: false,
            keyed: false,
            placement,
        },
        keys: envelope.keys,
        priority: envelope.priority.unwrap_or_else(|| action::priority(action)),
        payload: Payload {
            args,
            meta: match tenant {
                Some(tenant) => quirks::with_tenant(envelope.meta, tenant),
                None => envelope.meta.to_owned(),
            },
            extra: signed(extra, name),
        },
        first,
        timeout: envelope.timeout.or_else(|| action.and_then(action::timeout)),
        visibility: envelope.visibility,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: name.unwrap_or(ANONYMOUS).to_owned(),
        rules,
        unique: None,
    }
}

/// A handler runs inside its worker's process, which no limit of one job can hold.
fn no_action_to_limit() -> Fault {
    let problem = "can be limited for jobs of actions only, and no action has this type";
    Fault::rule(outlast_wire::resources::FIELD, problem)
}

/// Returns the tenant in `meta`, for producers that put it there themselves.
fn tenant_of(meta: &str) -> Option<String> {
    let raw = json::field(meta, "tenant_id")?;
    serde_json::from_str(raw.get()).ok()
}
