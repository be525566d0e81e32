//! How stores keep values: rules and events as compact JSON, some types as numbers.
//!
//! - [`number`]: the numbers

pub mod number;

use std::collections::BTreeMap;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, Outcome, Overlap, Rules, State};
use outlast_core::keys::Keys;
use outlast_core::limit::GateId;
use outlast_core::operation::{OperationKind, OperationStatus, Skip};
use outlast_core::queue::{Fair, LetterRule, QueueSettings};
use outlast_core::resources::Resources;
use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::selector::{Placement, Selector};
use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_store::command::{ClassKey, Route};
use outlast_store::error::StoreError;
use outlast_store::event::{Event, EventName};
use outlast_store::operation::Skips;
use serde::de::value::StrDeserializer;
use serde::de::{IntoDeserializer as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

#[derive(Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the stored text")]
struct RulesText {
    max: u32,
    first_ms: u64,
    coef: u32,
    cap_ms: u64,
    backoff: u8,
    jitter: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    never: Vec<String>,
    #[serde(default)]
    dead: bool,
    #[serde(default)]
    forbid: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processes: Option<u32>,
    /// Workflow, step, item, and whether its result is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<(Uuid, u32, u32, bool)>,
}

/// Returns a list or map as JSON text.
///
/// # Errors
/// Returns [`StoreError::Rejected`] when it has no such text.
pub fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Rejected(error.to_string()))
}

/// Returns the text of how many jobs an operation left as they were, by reason.
#[must_use]
pub fn skips_text(skips: &Skips) -> String {
    let words: BTreeMap<&str, u64> = skips.iter().map(|(skip, n)| (skip.as_str(), *n)).collect();
    serde_json::to_string(&words).unwrap_or_default()
}

/// Returns how many jobs an operation left as they were. A reason of a later build is a change.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when the text is not one that [`skips_text`] wrote.
pub fn skips_of(text: &str) -> Result<Skips, StoreError> {
    let words: BTreeMap<String, u64> = parse(text, "skips")?;
    let mut skips = Skips::new();
    for (word, count) in words {
        *skips.entry(Skip::parse(&word).unwrap_or(Skip::Changed)).or_default() += count;
    }
    Ok(skips)
}

/// Returns the kind of an operation.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] for a word that this build does not know.
pub fn operation_kind(word: &str) -> Result<OperationKind, StoreError> {
    let unknown = || StoreError::Corrupt(format!("no kind of an operation: {word:?}"));
    OperationKind::parse(word).ok_or_else(unknown)
}

/// Returns how an operation stands.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] for a word that this build does not know.
pub fn operation_status(word: &str) -> Result<OperationStatus, StoreError> {
    let unknown = || StoreError::Corrupt(format!("no status of an operation: {word:?}"));
    OperationStatus::parse(word).ok_or_else(unknown)
}

/// Returns the text of rules; `None` stands for the standard ones.
#[must_use]
pub fn rules_text(rules: &Rules) -> Option<String> {
    if *rules == Rules::standard() {
        return None;
    }
    let retry = &rules.retry;
    let text = RulesText {
        max: retry.max_attempts,
        first_ms: retry.initial_interval.0,
        coef: retry.coefficient_millis,
        cap_ms: retry.max_interval.0,
        backoff: match retry.backoff {
            Backoff::Constant => 0,
            Backoff::Linear => 1,
            Backoff::Exponential => 2,
            Backoff::Polynomial => 3,
        },
        jitter: retry.jitter,
        never: retry.non_retryable.clone(),
        dead: retry.on_exhaustion == OnExhaustion::DeadLetter,
        forbid: rules.overlap == Overlap::Forbidden,
        expires: rules.expires_at.map(|at| at.0),
        memory: rules.resources.memory(),
        cpu: rules.resources.cpu_millis(),
        processes: rules.resources.processes(),
        workflow: rules.workflow.map(|it| (it.workflow.0, it.step, it.item, it.keeps_result)),
    };
    serde_json::to_string(&text).ok()
}

/// Returns the rules that a text stands for.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when the text is not one that [`rules_text`] wrote.
pub fn rules_of(text: Option<&str>) -> Result<Rules, StoreError> {
    let Some(text) = text else { return Ok(Rules::standard()) };
    let text: RulesText = parse(text, "rules")?;
    Ok(Rules {
        retry: RetryPolicy {
            max_attempts: text.max,
            initial_interval: Span(text.first_ms),
            coefficient_millis: text.coef,
            max_interval: Span(text.cap_ms),
            backoff: match text.backoff {
                0 => Backoff::Constant,
                1 => Backoff::Linear,
                3 => Backoff::Polynomial,
                _ => Backoff::Exponential,
            },
            jitter: text.jitter,
            non_retryable: text.never,
            on_exhaustion: if text.dead { OnExhaustion::DeadLetter } else { OnExhaustion::Discard },
        },
        overlap: if text.forbid { Overlap::Forbidden } else { Overlap::Allowed },
        expires_at: text.expires.map(Timestamp),
        resources: Resources::new(text.memory, text.cpu, text.processes)
            .map_err(|error| StoreError::Corrupt(format!("rules: {error}")))?,
        workflow: text.workflow.map(|(workflow, step, item, keeps_result)| WorkflowItem {
            workflow: WorkflowId(workflow),
            step,
            item,
            keeps_result,
        }),
    })
}

/// Returns the text of keys, a JSON object sorted by name; `None` stands for none.
#[must_use]
pub fn keys_text(keys: &Keys) -> Option<String> {
    if keys.is_empty() {
        return None;
    }
    let sorted: BTreeMap<&String, &String> = keys.iter().collect();
    serde_json::to_string(&sorted).ok()
}

/// Returns the keys that a text stands for.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when the text is not one that [`keys_text`] wrote.
pub fn keys_of(text: Option<&str>) -> Result<Keys, StoreError> {
    let Some(text) = text else { return Ok(Keys::default()) };
    Keys::new(parse(text, "keys")?).map_err(|error| StoreError::Corrupt(format!("keys: {error}")))
}

/// Returns the numbers of gates, separated by commas; `None` without any.
#[must_use]
pub fn gates_text(gates: &[GateId]) -> Option<String> {
    let numbers: Vec<String> = gates.iter().map(|gate| gate.0.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(","))
}

#[derive(Serialize, Deserialize)]
struct SettingsText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fair_by: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    weights: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_depth: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    requires: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    prefers: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dead_letters: Vec<LetterRuleText>,
}

#[derive(Serialize, Deserialize)]
struct LetterRuleText {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

impl LetterRuleText {
    fn of(rule: &LetterRule) -> Self {
        let reasons = rule.reasons.iter().map(|reason| reason.as_str().to_owned()).collect();
        Self { reasons, webhook: rule.webhook.clone(), action: rule.action.clone() }
    }

    /// A reason that a later build wrote is passed over, and so is a rule that has no other: it is not
    /// for all reasons.
    fn into_rule(self) -> Option<LetterRule> {
        let known = self.reasons.iter().filter_map(|word| DeadLetterReason::parse(word));
        let reasons: Vec<DeadLetterReason> = known.collect();
        let is_known = self.reasons.is_empty() || !reasons.is_empty();
        is_known.then_some(LetterRule { reasons, webhook: self.webhook, action: self.action })
    }
}

/// Returns the text of a queue's settings.
#[must_use]
pub fn settings_text(settings: &QueueSettings) -> String {
    let fair = settings.fair.as_ref();
    let Placement { requires, prefers } = &settings.placement;
    let text = SettingsText {
        fair_by: fair.map(|fair| fair.key.clone()),
        weights: fair.map(|fair| fair.weights.clone()).unwrap_or_default(),
        max_depth: settings.max_depth,
        requires: requires.to_string(),
        prefers: prefers.to_string(),
        dead_letters: settings.dead_letters.iter().map(LetterRuleText::of).collect(),
    };
    serde_json::to_string(&text).unwrap_or_default()
}

/// Returns the settings of a queue that a text stands for.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when the text is not one that [`settings_text`] wrote.
pub fn settings_of(text: &str) -> Result<QueueSettings, StoreError> {
    const WHAT: &str = "settings of a queue";
    let SettingsText { fair_by, weights, max_depth, requires, prefers, dead_letters } =
        parse(text, WHAT)?;
    let placement =
        Placement { requires: selector(&requires, WHAT)?, prefers: selector(&prefers, WHAT)? };
    let dead_letters = dead_letters.into_iter().filter_map(LetterRuleText::into_rule).collect();
    let fair = fair_by.map(|key| Fair { key, weights });
    Ok(QueueSettings { fair, max_depth, placement, dead_letters })
}

#[derive(Default, Serialize, Deserialize)]
struct RouteText {
    /// Empty for a plain job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    runtime: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "is_false")]
    proof: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    requires: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    prefers: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Returns the text of a class's route and of which workers it wants; empty for plain jobs that any
/// worker may run.
#[must_use]
pub fn route_text(class: &ClassKey) -> String {
    let placement = &class.placement;
    let text = match &class.route {
        Route::Plain if placement.is_empty() => return String::new(),
        Route::Plain => RouteText::default(),
        Route::Action { runtime, labels, proof } => {
            let (runtime, labels) = (runtime.clone(), labels.clone());
            RouteText { runtime, labels, proof: *proof, ..RouteText::default() }
        }
    };
    let (requires, prefers) = (placement.requires.to_string(), placement.prefers.to_string());
    serde_json::to_string(&RouteText { requires, prefers, ..text }).unwrap_or_default()
}

/// Returns the route that a text stands for, and which workers are wanted.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when the text is not one that [`route_text`] wrote.
pub fn route_of(text: &str) -> Result<(Route, Placement), StoreError> {
    if text.is_empty() {
        return Ok((Route::Plain, Placement::default()));
    }
    let RouteText { runtime, labels, proof, requires, prefers } = parse(text, "route")?;
    let placement = Placement {
        requires: selector(&requires, "route")?,
        prefers: selector(&prefers, "route")?,
    };
    let route = match runtime.is_empty() {
        true => Route::Plain,
        false => Route::Action { runtime, labels, proof },
    };
    Ok((route, placement))
}

fn selector(text: &str, what: &str) -> Result<Selector, StoreError> {
    let selector = Selector::of_any_length(text);
    selector.map_err(|error| StoreError::Corrupt(format!("{what}: {error}")))
}

#[derive(Serialize, Deserialize)]
struct EventText<'a> {
    t: i64,
    /// `None` for one that this build does not know.
    #[serde(deserialize_with = "known")]
    k: Option<EventName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    j: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    w: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ty: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    q: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    o: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<u64>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    by: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    ev: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ec: Option<std::borrow::Cow<'a, str>>,
}

/// Returns the text of a batch's events: a JSON array.
#[must_use]
pub fn events_text(events: &[Event]) -> String {
    let texts: Vec<EventText<'_>> = events.iter().map(event_text).collect();
    serde_json::to_string(&texts).unwrap_or_default()
}

fn event_text(event: &Event) -> EventText<'_> {
    EventText {
        t: event.at.0,
        k: Some(event.kind),
        j: event.job.map(|job| job.0),
        w: event.worker.map(|worker| worker.0),
        e: event.epoch.map(|epoch| epoch.0),
        ty: event.job_type.as_deref().map(without_nul),
        q: event.queue.as_deref().map(without_nul),
        s: event.state.map(|state| state.as_str().into()),
        o: event.outcome.map(|outcome| outcome.as_str().into()),
        a: event.attempt,
        d: event.duration.map(|span| span.0),
        by: without_nul(&event.by),
        ev: without_nul(&event.evidence.text),
        ec: event.evidence.word().map(Into::into),
    }
}

/// PostgreSQL reads no JSON with a NUL in it: one event would hide all that are read with it.
fn without_nul(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// Returns the events that a text stands for, `None` for each that a later build has added: it has
/// its place, and is passed over.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when the text is not one that [`events_text`] wrote.
pub fn events_of_text(text: &str) -> Result<Vec<Option<Event>>, StoreError> {
    let texts: Vec<EventText<'_>> = parse(text, "events")?;
    Ok(texts.into_iter().map(event_of).collect())
}

fn event_of(text: EventText<'_>) -> Option<Event> {
    Some(Event {
        at: Timestamp(text.t),
        kind: text.k?,
        job: text.j.map(JobId),
        worker: text.w.map(WorkerId),
        epoch: text.e.map(Epoch),
        job_type: text.ty.map(std::borrow::Cow::into_owned),
        queue: text.q.map(std::borrow::Cow::into_owned),
        state: text.s.and_then(|state| State::parse(&state)),
        outcome: text.o.and_then(|outcome| Outcome::parse(&outcome)),
        attempt: text.a,
        duration: text.d.map(Span),
        by: text.by.into_owned(),
        evidence: Evidence {
            code: text.ec.and_then(|code| EvidenceCode::parse(&code)),
            text: text.ev.into_owned(),
        },
    })
}

/// Reads the name of an event, if this build knows it.
fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EventName>, D::Error> {
    struct Word;

    impl Visitor<'_> for Word {
        type Value = Option<EventName>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the name of an event")
        }

        fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Self::Value, E> {
            let word: StrDeserializer<'_, serde::de::value::Error> = word.into_deserializer();
            Ok(EventName::deserialize(word).ok())
        }
    }

    deserializer.deserialize_str(Word)
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str, what: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("{what}: {error}")))
}
