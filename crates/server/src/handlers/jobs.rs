//! The jobs that handle a dead letter.

use std::collections::BTreeMap;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::{Overlap, Rules};
use outlast_core::keys::Keys;
use outlast_core::resources::Resources;
use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::selector::Placement;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{ClassKey, First, LetterKey, NewJob, Origin, Payload, Route};
use outlast_store::query::UnhandledLetter;
use outlast_wire::Fault;
use outlast_wire::execution::request::Request;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use uuid::Builder;

use super::{Handlers, JOB_TYPE, QUEUE, Rule};
use crate::intake::{self, IntakeError};
use crate::settings::Settings;

/// Who enqueues the jobs and reports what came of them, for the event log.
pub(crate) const BY: &str = "dead letter handler";

/// The field of a job's `meta` that says which dead letter it handles.
const HANDLES: &str = "handles_dead_letter";

/// Wait before the second try of a handler; it doubles, up to half an hour.
const FIRST_PAUSE: Span = Span::from_secs(5);
const LAST_PAUSE: Span = Span::from_secs(1800);

/// What one job does about a dead letter: its only argument.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task<'a> {
    /// The name of the receiver that a webhook is sent to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) webhook: Option<String>,
    /// The action that runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) action: Option<String>,
    /// The message.
    #[serde(borrow)]
    pub(crate) message: &'a RawValue,
}

/// Returns the jobs that handle a dead letter, as these rules say. One that is the dead letter of an
/// action that handled another one runs no action: that would go on forever.
pub(crate) fn of_letter(
    handlers: &Handlers,
    rules: &[Rule],
    letter: &UnhandledLetter,
    meta: &str,
    message: &str,
) -> Vec<NewJob> {
    let Ok(message) = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(message))
    else {
        return Vec::new();
    };
    let is_handler = outlast_wire::json::field(meta, HANDLES).is_some();
    let mut jobs = Vec::new();
    for rule in rules.iter().filter(|rule| rule.matches(letter)) {
        let Rule { webhook, action, .. } = rule;
        let tasks = [
            webhook.as_ref().map(|it| (format!("webhook {}", it.url), Some(it.name()), None)),
            action
                .as_ref()
                .filter(|_| !is_handler)
                .map(|it| (format!("action {it}"), None, Some(it.clone()))),
        ];
        for (what, webhook, action) in tasks.into_iter().flatten() {
            let Ok(args) = serde_json::to_string(&[Task { webhook, action, message }]) else {
                continue;
            };
            let LetterKey { job: died, life } = letter.key;
            let id = id_of(&format!("{died} {life} {what}"));
            // Two rules may say the same.
            if jobs.iter().all(|job: &NewJob| job.id != id) {
                jobs.push(job(handlers, id, args));
            }
        }
    }
    jobs
}

/// Returns an id that is the same for the same text, whichever server makes it.
fn id_of(text: &str) -> JobId {
    let digest = Sha256::digest(text);
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, of)| *byte = of);
    JobId(Builder::from_custom_bytes(bytes).into_uuid())
}

fn job(handlers: &Handlers, id: JobId, args: String) -> NewJob {
    NewJob {
        id,
        class: ClassKey {
            queue: QUEUE.to_owned(),
            job_type: JOB_TYPE.to_owned(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Placement::default(),
        },
        keys: Keys::default(),
        priority: 0,
        payload: Payload { args, meta: String::new(), extra: String::new() },
        rules: Rules {
            retry: policy(handlers.give_up_after),
            overlap: Overlap::Allowed,
            expires_at: None,
            resources: Resources::NONE,
            workflow: None,
        },
        first: First::Now,
        timeout: None,
        visibility: None,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: BY.to_owned(),
        unique: None,
    }
}

/// A handler is tried again until this time has passed; then the job is discarded, and is no dead
/// letter itself.
fn policy(give_up_after: Span) -> RetryPolicy {
    let (mut waited, mut pause, mut attempts) = (Span::ZERO, FIRST_PAUSE, 1_u32);
    while waited < give_up_after {
        waited = Span(waited.0.saturating_add(pause.0));
        pause = Span(pause.0.saturating_mul(2)).min(LAST_PAUSE);
        attempts = attempts.saturating_add(1);
    }
    RetryPolicy {
        max_attempts: attempts,
        initial_interval: FIRST_PAUSE,
        coefficient_millis: 2000,
        max_interval: LAST_PAUSE,
        backoff: Backoff::Exponential,
        jitter: true,
        non_retryable: Vec::new(),
        on_exhaustion: OnExhaustion::Discard,
    }
}

/// Returns the execution of the action that handles a dead letter. `handler` is the job that asks for it:
/// it asks for the same execution each time.
pub(crate) fn execution(
    settings: &Settings,
    handler: JobId,
    action: &str,
    message: &RawValue,
    now: Timestamp,
) -> Result<NewJob, IntakeError> {
    #[derive(Deserialize)]
    struct Message<'m> {
        #[serde(borrow)]
        data: &'m RawValue,
    }
    let data = serde_json::from_str::<Message<'_>>(message.get()).map_or(message, |it| it.data);
    // Parameters are read into numbers of 64 bits.
    let data: Value = serde_json::from_str(&outlast_wire::json::exact(data.get()))
        .map_err(|error| Fault::rule("dead_letter", error.to_string()))?;
    let request = Request {
        action_ref: action.to_owned(),
        parameters: serde_json::json!({ "dead_letter": data }),
        queue: None,
        priority: None,
        timeout: None,
        scheduled_timeout: None,
        retry: None,
        labels: BTreeMap::new(),
        keys: Keys::default(),
        placement: Placement::default(),
        unique: None,
        resources: Resources::NONE,
        overlap: None,
        is_pinned: None,
        delay: None,
    };
    let mut job = intake::execution::plan(settings, request, Some(BY), now)?;
    job.id = id_of(&format!("execution for {handler}"));
    job.payload.meta = serde_json::to_string(&BTreeMap::from([(HANDLES, handler.to_string())]))
        .unwrap_or_default();
    Ok(job)
}

#[cfg(test)]
mod tests {
    use outlast_packs::PackSet;

    use super::*;

    #[test]
    fn a_handler_is_tried_for_as_long_as_the_operator_says() {
        for (hours, attempts) in [(0, 1), (1, 11), (24, 57)] {
            let policy = policy(Span::from_secs(hours * 3600));
            assert_eq!(policy.max_attempts, attempts, "{hours} h");
        }
    }

    #[test]
    fn an_action_gets_every_digit_of_a_dead_letter() {
        let settings = Settings::with_packs(PackSet::load(&[]).unwrap().into());
        let message =
            r#"{"type":"dead_letter","data":{"job":{"args":[123456789012345678901,1e400,1]}}}"#;
        let message = serde_json::from_str(message).unwrap();
        let handler = JobId(uuid::Uuid::nil());
        let job = execution(&settings, handler, "core.noop", message, Timestamp(0)).unwrap();
        let args = r#""args":["123456789012345678901","1e400",1]"#;
        assert!(job.payload.args.contains(args), "{}", job.payload.args);
    }
}
