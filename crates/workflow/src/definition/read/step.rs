//! One step of our form.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::str::FromStr as _;

use outlast_core::limits::CONCURRENCY_MAX;
use outlast_core::selector::Selector;
use serde_json::{Map, Value};

use super::super::Form;
use super::super::step::{JobSettings, OnFailure, StepDefinition, Target, When};
use super::{Named, Origin, check_keys, kind, object, references, span, text};
use crate::expression::Expression;
use crate::fault::{Fault, Place, instead, nearest, shown};
use crate::limits;
use crate::template::Template;

const KEYS: [&str; 20] = [
    "name",
    "action",
    "type",
    "workflow",
    "after",
    "with",
    "args",
    "when",
    "for_each",
    "concurrency",
    "retry",
    "timeout",
    "on_failure",
    "requires",
    "prefers",
    "resources",
    "queue",
    "priority",
    "options",
    "meta",
];

/// What only a store says.
const STORED: [&str; 2] = ["callback", "handled"];

pub(super) fn read(
    named: &Named<'_>,
    by_name: &BTreeMap<&str, usize>,
    origin: Origin,
    form: Form,
) -> Result<StepDefinition, Fault> {
    named.with_place(|place| {
        let map = named.map;
        let extra: &[&str] = if origin == Origin::Store { &STORED } else { &[] };
        check_keys(map, &KEYS, extra, place)?;
        let target = target(map, place)?;
        let input = input(map, &target, form, place)?;
        let mut step = StepDefinition::new(named.name.to_owned(), target, input);
        if let Some(after) = map.get("after") {
            step.after = references(after, by_name, named.name, &place.key("after"))?;
        }
        step.when = when(map, form, place)?;
        if step.after.is_empty() && matches!(step.when, When::Failure) {
            let problem = "a step that waits for none never runs on a failure; add `after`";
            return Err(Fault::at(&place.key("when"), problem));
        }
        step.for_each = for_each(map, place)?;
        step.concurrency = concurrency(map, step.for_each.is_some(), place)?;
        step.on_failure = on_failure(map, place)?;
        step.job = settings(map, &step.target, place)?;
        let is_set = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        (step.callback, step.handled) = (is_set("callback"), is_set("handled"));
        check_items(&step, place)?;
        Ok(step)
    })
}

/// Says whether text may be the name of a step.
pub(in super::super) fn is_name(name: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let starts = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    starts && name.len() <= limits::NAME_BYTES_MAX && name.bytes().all(fit)
}

fn target(map: &Map<String, Value>, place: &Place<'_>) -> Result<Target, Fault> {
    let found = [
        text(map, "action", place)?.map(Target::Action),
        text(map, "type", place)?.map(Target::Type),
        text(map, "workflow", place)?.map(Target::Workflow),
    ];
    let mut found = found.into_iter().flatten();
    match (found.next(), found.next()) {
        (Some(target), None) => Ok(target),
        (None, _) => {
            Err(Fault::at(place, "a step needs `action`, `type` or `workflow`: what it does"))
        }
        (Some(one), Some(other)) => {
            let problem = format!("is there beside `{}`; a step does one thing", one.key());
            Err(Fault::at(&place.key(other.key()), problem))
        }
    }
}

fn input(
    map: &Map<String, Value>,
    target: &Target,
    form: Form,
    place: &Place<'_>,
) -> Result<Template, Fault> {
    let (key, other, empty) = match target {
        Target::Type(_) => ("args", "with", Value::Array(Vec::new())),
        Target::Action(_) | Target::Workflow(_) => ("with", "args", Value::Object(Map::new())),
    };
    if map.contains_key(other) {
        let problem = match target {
            Target::Type(_) => "a type takes a list: args: [value]",
            Target::Action(_) => "an action takes parameters by name: with: {name: value}",
            Target::Workflow(_) => "a workflow takes parameters by name: with: {name: value}",
        };
        return Err(Fault::at(&place.key(other), problem));
    }
    let value = map.get(key).filter(|value| !value.is_null()).unwrap_or(&empty);
    let place = place.key(key);
    let fits = match target {
        Target::Type(_) => value.is_array(),
        Target::Action(_) | Target::Workflow(_) => value.is_object(),
    };
    if !fits {
        let wanted = if key == "args" { "a list" } else { "an object" };
        return Err(Fault::at(&place, format!("must be {wanted}, not {}", kind(value))));
    }
    // The standard knows no expressions: what looks like one is data.
    if form.passes_results() {
        return Ok(Template::plain(value.clone()));
    }
    Template::read(value, &place)
}

fn when(map: &Map<String, Value>, form: Form, place: &Place<'_>) -> Result<When, Fault> {
    const WORDS: [&str; 3] = ["success", "failure", "always"];
    let place = place.key("when");
    let text = match map.get("when") {
        None | Some(Value::Null) => return Ok(When::Success),
        Some(Value::String(text)) => text.trim(),
        Some(other) => {
            let problem = format!("is {}; write success, failure, always or CEL", kind(other));
            return Err(Fault::at(&place, problem));
        }
    };
    match text {
        "success" => return Ok(When::Success),
        "failure" => return Ok(When::Failure),
        "always" => return Ok(When::Always),
        "no_failure" if form.passes_results() => return Ok(When::NoFailure),
        _ => {}
    }
    // A word alone is a slip more likely than a variable.
    if text.bytes().all(|byte| byte.is_ascii_alphabetic())
        && let Some(near) = nearest(text, WORDS)
    {
        return Err(Fault::at(&place, format!("did you mean `{near}`?")));
    }
    let inner = text.strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}"));
    let expression = Expression::new(inner.unwrap_or(text))
        .map_err(|error| Fault::at(&place, format!("`{}`: {error}", shown(text))))?;
    Ok(When::Expression(expression))
}

fn for_each(map: &Map<String, Value>, place: &Place<'_>) -> Result<Option<Template>, Fault> {
    let Some(value) = map.get("for_each").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let place = place.key("for_each");
    let wanted = "write an expression such as \"${{ steps.load.result.files }}\", or a list";
    match value {
        Value::Array(list) if list.len() > limits::ITEMS_MAX => {
            let problem = format!("has {} items, more than {}", list.len(), limits::ITEMS_MAX);
            Err(Fault::at(&place, problem))
        }
        Value::Array(_) => Template::read(value, &place).map(Some),
        Value::String(text) => {
            let template = Template::read(value, &place)?;
            let alone = text.trim().starts_with("${{") && template.is_alone();
            if alone {
                Ok(Some(template))
            } else {
                Err(Fault::at(&place, format!("is text; {wanted}")))
            }
        }
        other => Err(Fault::at(&place, format!("is {}; {wanted}", kind(other)))),
    }
}

fn concurrency(
    map: &Map<String, Value>,
    has_items: bool,
    place: &Place<'_>,
) -> Result<Option<NonZeroU32>, Fault> {
    let Some(value) = map.get("concurrency").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let place = place.key("concurrency");
    if !has_items {
        let problem = "is for steps with `for_each`; a limit bounds jobs of many workflows";
        return Err(Fault::at(&place, problem));
    }
    let most = value.as_u64().and_then(|most| u32::try_from(most).ok()).and_then(NonZeroU32::new);
    let most = most.filter(|most| most.get() <= CONCURRENCY_MAX);
    let problem = || format!("must be a whole number from 1 to {CONCURRENCY_MAX}");
    most.map(Some).ok_or_else(|| Fault::at(&place, problem()))
}

fn on_failure(map: &Map<String, Value>, place: &Place<'_>) -> Result<OnFailure, Fault> {
    match text(map, "on_failure", place)?.as_deref() {
        None | Some("fail") => Ok(OnFailure::Fail),
        Some("continue") => Ok(OnFailure::Continue),
        Some(other) => {
            let end = instead(other, &["fail", "continue"]);
            Err(Fault::at(&place.key("on_failure"), format!("is `{}`; {end}", shown(other))))
        }
    }
}

fn settings(
    map: &Map<String, Value>,
    target: &Target,
    place: &Place<'_>,
) -> Result<JobSettings, Fault> {
    if let Target::Workflow(_) = target {
        const OF_JOBS: [&str; 9] = [
            "retry",
            "timeout",
            "requires",
            "prefers",
            "resources",
            "queue",
            "priority",
            "options",
            "meta",
        ];
        if let Some(key) = OF_JOBS.into_iter().find(|key| map.contains_key(*key)) {
            let problem = "is for jobs; a step that starts a workflow has none, its steps have";
            return Err(Fault::at(&place.key(key), problem));
        }
    }
    let of_standard = matches!(target, Target::Type(_));
    for key in ["options", "meta"] {
        if let Some(value) = map.get(key) {
            if !of_standard {
                let problem = "is for steps with `type`; an action has its keys beside it";
                return Err(Fault::at(&place.key(key), problem));
            }
            object(value, &place.key(key), "write names and values")?;
        }
    }
    for key in ["requires", "prefers"] {
        if let Some(selector) = text(map, key, place)? {
            Selector::from_str(&selector)
                .map_err(|error| Fault::at(&place.key(key), error.to_string()))?;
        }
    }
    for key in ["retry", "resources"] {
        let given = map.get(key).filter(|value| !value.is_null());
        // A number of attempts is a retry policy, too.
        let given = given.filter(|value| key != "retry" || !value.is_u64());
        if let Some(value) = given {
            object(value, &place.key(key), "write names and values")?;
        }
    }
    let priority = match map.get("priority") {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_i64().ok_or_else(|| {
            Fault::at(
                &place.key("priority"),
                format!("must be a whole number, not {}", kind(value)),
            )
        })?),
    };
    Ok(JobSettings {
        retry: map.get("retry").filter(|value| !value.is_null()).cloned(),
        timeout: span(map, "timeout", place)?,
        requires: text(map, "requires", place)?,
        prefers: text(map, "prefers", place)?,
        resources: map.get("resources").filter(|value| !value.is_null()).cloned(),
        queue: text(map, "queue", place)?,
        priority,
        options: map.get("options").cloned(),
        meta: map.get("meta").cloned(),
    })
}

/// `item` and `index` are there only while items are rendered.
fn check_items(step: &StepDefinition, place: &Place<'_>) -> Result<(), Fault> {
    let problem = "reads `item` or `index`, which are there only in `with` and `args` of a step \
                   with `for_each`";
    if let When::Expression(expression) = &step.when
        && expression.references().item
    {
        return Err(Fault::at(&place.key("when"), problem));
    }
    match &step.for_each {
        Some(list) if list.references().item => Err(Fault::at(&place.key("for_each"), problem)),
        None if step.input.references().item => {
            let key = if matches!(step.target, Target::Type(_)) { "args" } else { "with" };
            Err(Fault::at(&place.key(key), problem))
        }
        _ => Ok(()),
    }
}
