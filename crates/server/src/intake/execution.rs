//! A request for an execution, and another run of a stored job.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::Rules;
use outlast_core::labels;
use outlast_core::selector::Selector;
use outlast_core::time::Timestamp;
use outlast_packs::{Action, PackPolicy, PackSet};
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};
use outlast_store::record::JobRecord;
use outlast_store::schedule::FIELD as SCHEDULE;
use outlast_store::workflow::FIELD as WORKFLOW;
use outlast_wire::execution::request::Request;
use outlast_wire::json;
use outlast_wire::ojs::job::signed;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{ANONYMOUS, IntakeError, action, check_class, unique};
use crate::settings::Settings;

/// Plans an execution that is requested at `now` by the token of this name.
pub(crate) fn plan(
    settings: &Settings,
    request: Request,
    by: Option<&str>,
    now: Timestamp,
) -> Result<NewJob, IntakeError> {
    let reference = &request.action_ref;
    let packs = settings.packs.current();
    let found = packs.get(reference).ok_or_else(|| IntakeError::no_action(&packs, reference))?;
    let parameters = action::parameters(found, &request.parameters)?;
    let keys = action::keys(found, &parameters, &request.keys)?;
    let retry = request.policy(action::retry_policy(found))?;
    let first = request.delay.map_or(First::Now, |when| First::At(when.resolve(now)));
    let standard = ScheduledTimeout::After(settings.scheduled_timeout);
    let mut extra = Map::new();
    if !request.labels.is_empty() {
        extra.insert("labels".to_owned(), json!(&request.labels));
    }
    let digest = digest_of(&packs, found);
    extra.insert(VALIDATED_WITH.to_owned(), json!(digest));
    let mut placement = found.placement.clone().and(request.placement);
    if request.is_pinned.unwrap_or(found.packs == PackPolicy::Pinned) {
        placement.requires = pinned(placement.requires, found, digest);
    }
    let overlap = request.overlap.unwrap_or_else(|| action::overlap(found));
    let class = ClassKey {
        queue: request.queue.unwrap_or_else(|| action::queue(Some(found)).to_owned()),
        route: action::route(found, request.labels, overlap),
        job_type: request.action_ref,
        tenant: None,
        isolated: false,
        keyed: false,
        placement,
    };
    check_class(&class)?;
    let policy = request.unique;
    let job = NewJob {
        id: JobId(Uuid::now_v7()),
        keys,
        priority: request.priority.unwrap_or_else(|| action::priority(Some(found))),
        payload: Payload {
            args: Value::Array(vec![parameters]).to_string(),
            meta: String::new(),
            extra: signed(Value::Object(extra).to_string(), by),
        },
        rules: Rules {
            retry,
            overlap,
            expires_at: None,
            resources: request.resources.or(found.resources),
            workflow: None,
        },
        first,
        timeout: request.timeout.or_else(|| action::timeout(found)),
        visibility: None,
        scheduled_timeout: request.scheduled_timeout.unwrap_or(standard),
        origin: Origin::Execution,
        by: by.unwrap_or(ANONYMOUS).to_owned(),
        class,
        unique: None,
    };
    let unique = policy.map(|policy| unique::of(&policy, &job)).transpose()?;
    Ok(NewJob { unique, ..job })
}

/// The field of a job's `extra` that says against which files of its pack it was validated.
pub(crate) const VALIDATED_WITH: &str = "pack_digest";

pub(super) fn with_digest(extra: &str, digest: &str) -> String {
    json::with(extra, &[VALIDATED_WITH], |object| object.text(VALIDATED_WITH, digest))
}

/// Returns the digest of an action's pack, as jobs are shown it.
pub(super) fn digest_of<'a>(packs: &'a PackSet, action: &Action) -> &'a str {
    packs
        .packs()
        .find(|pack| pack.reference == action.pack)
        .map_or("", |pack| labels::short_digest(&pack.digest))
}

/// Asks for a worker that has these files of the action's pack.
pub(super) fn pinned(requires: Selector, action: &Action, digest: &str) -> Selector {
    let (label, value) = labels::of_pack(&action.pack, digest);
    requires.pinned(label, value)
}

/// Plans another job like a stored one, with a new id and to run at once. Its parameters are
/// checked again because the action may have changed; its keys stay.
pub(crate) fn rerun(
    settings: &Settings,
    record: &JobRecord,
    by: Option<&str>,
) -> Result<NewJob, IntakeError> {
    let stored = &record.job;
    let mut payload = stored.payload.clone();
    // Another run is of no schedule and no workflow.
    payload.extra = signed(json::without(&payload.extra, &[SCHEDULE, WORKFLOW]), by);
    let mut placement = stored.key.placement.clone();
    if stored.key.route != Route::Plain {
        let packs = settings.packs.current();
        let reference = &stored.key.job_type;
        let found =
            packs.get(reference).ok_or_else(|| IntakeError::no_action(&packs, reference))?;
        payload.args = Value::Array(vec![action::complete(found, &payload.args)?]).to_string();
        // It is validated again, so it is pinned again.
        let digest = digest_of(&packs, found);
        payload.extra = with_digest(&payload.extra, digest);
        let (label, _) = labels::of_pack(&found.pack, digest);
        if placement.requires.requirements().any(|it| it.label() == label) {
            placement.requires = pinned(placement.requires, found, digest);
        }
    }
    Ok(NewJob {
        id: JobId(Uuid::now_v7()),
        class: ClassKey { isolated: false, placement, ..(*stored.key).clone() },
        keys: stored.keys.clone(),
        priority: stored.priority,
        payload,
        rules: Rules { expires_at: None, workflow: None, ..stored.rules.clone() },
        first: First::Now,
        timeout: stored.timeout,
        visibility: stored.visibility,
        scheduled_timeout: stored.scheduled_timeout,
        origin: stored.origin,
        by: by.unwrap_or(ANONYMOUS).to_owned(),
        unique: None,
    })
}

#[cfg(test)]
mod tests {
    use super::with_digest;

    /// Numbers that no machine word holds were rounded, and one that no float holds lost everything.
    #[test]
    fn what_the_producer_sent_stays_as_it_wrote_it() {
        let sent = r#"{"ref":123456789012345678901234567890,"x":1e400,"pack_digest":"mine"}"#;
        let kept = with_digest(sent, "12a60748f371");
        let expected =
            r#"{"ref":123456789012345678901234567890,"x":1e400,"pack_digest":"12a60748f371"}"#;
        assert_eq!(kept, expected);
        assert_eq!(with_digest("", "12a6"), r#"{"pack_digest":"12a6"}"#);
    }
}
