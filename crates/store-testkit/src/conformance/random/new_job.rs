//! A job that a script stores.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{Overlap, Rules, State};
use outlast_core::keys::Keys;
use outlast_core::resources::{MEMORY_MIN, Resources};
use outlast_core::retry::{OnExhaustion, RetryPolicy};
use outlast_core::selector::Placement;
use outlast_core::time::{Span, Timestamp};
use outlast_core::unique::{OnConflict, States, Unique};
use outlast_core::workflow::WorkflowItem;
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};

use super::resolve::{job_id, queue_name};
use super::script::Spec;
use crate::conformance::workflow::workflow_id;

/// Few classes have one.
fn placement(class: u8) -> Placement {
    let requires = if class & 9 == 9 { "gpu,zone!=b" } else { "" };
    let prefers = if class & 8 == 0 { "" } else { "zone=a" };
    Placement { requires: requires.parse().unwrap(), prefers: prefers.parse().unwrap() }
}

pub(super) fn new_job(spec: &Spec, now: Timestamp) -> NewJob {
    let [letters, forbidden, jitter, pending] = spec.flags;
    let retry = RetryPolicy {
        max_attempts: spec.max_attempts,
        initial_interval: Span(200),
        jitter,
        non_retryable: vec!["auth.*".into()],
        on_exhaustion: if letters { OnExhaustion::DeadLetter } else { OnExhaustion::Discard },
        ..RetryPolicy::standard()
    };
    let overlap = if forbidden { Overlap::Forbidden } else { Overlap::Allowed };
    let labels = [("zone".to_owned(), "a".to_owned())].into();
    let tenant = spec.keys.map(|tenant| ("tenant".to_owned(), tenant.to_string()));
    NewJob {
        id: job_id(spec.job),
        class: ClassKey {
            queue: queue_name(spec.class & 1),
            job_type: "work".into(),
            route: if spec.class & 2 == 0 {
                Route::Plain
            } else {
                Route::Action { runtime: "shell".into(), labels, proof: spec.class & 1 != 0 }
            },
            tenant: (spec.class & 4 != 0).then(|| "acme".to_owned()),
            isolated: false,
            keyed: false,
            placement: placement(spec.class),
        },
        keys: Keys::new(tenant.into_iter().collect()).unwrap(),
        priority: spec.priority,
        payload: Payload { args: format!("[{}]", spec.job), ..Payload::default() },
        rules: Rules {
            retry,
            overlap,
            expires_at: spec.expires.map(|ms| Timestamp(now.0 + ms)),
            resources: Resources::new(
                forbidden.then_some(MEMORY_MIN),
                letters.then_some(500),
                pending.then_some(3),
            )
            .unwrap(),
            workflow: (spec.class & 2 != 0).then(|| WorkflowItem {
                workflow: workflow_id(spec.class & 1),
                step: u32::from(spec.job),
                item: 0,
                keeps_result: forbidden,
            }),
        },
        first: match spec.first {
            Some(ms) => First::At(Timestamp(now.0 + ms)),
            None if pending && letters && forbidden => First::OnActivation,
            None => First::Now,
        },
        timeout: spec.timeout.map(Span),
        visibility: spec.visibility.map(Span),
        scheduled_timeout: spec
            .patience
            .map_or(ScheduledTimeout::Never, |ms| ScheduledTimeout::After(Span(ms))),
        origin: if jitter { Origin::Ojs } else { Origin::Execution },
        by: String::new(),
        unique: spec.unique.map(|(key, policy)| unique(key, policy)),
    }
}

fn unique(key: u8, policy: u8) -> Unique {
    let ended = States::LIVE.with(State::Completed).with(State::Cancelled);
    Unique {
        fingerprint: [key; 32],
        on_conflict: OnConflict::ALL[usize::from(policy & 3)],
        states: if policy & 4 == 0 { States::LIVE } else { ended },
        period: (policy & 8 != 0).then_some(Span(600)),
    }
}
