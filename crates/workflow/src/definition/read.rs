//! Our form of a workflow, key by key.

mod step;

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::time::Span;
use serde_json::{Map, Value};

use super::graph::{Graph, Places};
use super::{Definition, Form};
use crate::fault::{Fault, Place, instead, nearest, shown};
use crate::limits;
use crate::template::{Template, size};

pub(super) use step::is_name;

/// Who wrote it. A store may say more than users.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    User,
    Store,
}

const KEYS: [&str; 7] = ["name", "description", "parameters", "timeout", "keys", "labels", "steps"];

pub(super) fn read(value: &Value, origin: Origin) -> Result<Definition, Fault> {
    let root = Place::Root;
    if size(value) > limits::DEFINITION_BYTES_MAX {
        let problem = format!("has more than {} bytes", limits::DEFINITION_BYTES_MAX);
        return Err(Fault::at(&root, problem));
    }
    let map = object(value, &root, "a workflow is an object with `steps`")?;
    let extra: &[&str] = if origin == Origin::Store { &["form"] } else { &[] };
    check_keys(map, &KEYS, extra, &root)?;
    let form = form(map)?;
    let named = named_steps(map.get("steps"), &root)?;
    let mut steps = Vec::with_capacity(named.len());
    let by_name = by_name(&named)?;
    let mut edges = 0;
    for step in &named {
        let read = step::read(step, &by_name, origin, form)?;
        edges += read.after.len();
        if edges > limits::EDGES_MAX {
            let problem = format!("the steps wait for more than {} steps", limits::EDGES_MAX);
            return Err(Fault::at(&root.key("steps"), problem));
        }
        steps.push(read);
    }
    let graph = Graph::new(&steps, &Written(&named))?;
    let mut definition = Definition::new(steps, graph);
    definition.form = form;
    definition.name = text(map, "name", &root)?;
    if let Some(name) =
        definition.name.as_deref().filter(|name| name.len() > limits::NAME_BYTES_MAX)
    {
        let problem = format!("`{}` is longer than {} bytes", shown(name), limits::NAME_BYTES_MAX);
        return Err(Fault::at(&root.key("name"), problem));
    }
    definition.description = text(map, "description", &root)?;
    definition.parameters = map.get("parameters").filter(|it| !it.is_null()).cloned();
    if let Some(parameters) = &definition.parameters {
        object(parameters, &root.key("parameters"), "parameters are described by an object")?;
    }
    definition.timeout = span(map, "timeout", &root)?;
    definition.keys = keys(map, &root)?;
    definition.labels = labels(map, &root)?;
    Ok(definition)
}

fn form(map: &Map<String, Value>) -> Result<Form, Fault> {
    let Some(value) = map.get("form") else { return Ok(Form::Steps) };
    let known = Form::ALL.into_iter().find(|form| Some(form.as_str()) == value.as_str());
    known.ok_or_else(|| Fault::at(&Place::Root.key("form"), "is no form of a workflow"))
}

fn keys(map: &Map<String, Value>, root: &Place<'_>) -> Result<Option<Template>, Fault> {
    let Some(value) = map.get("keys").filter(|value| !value.is_null()) else { return Ok(None) };
    let place = root.key("keys");
    for (key, value) in object(value, &place, "keys are an object of names and texts")? {
        if !value.is_string() {
            return Err(Fault::at(&place.key(key), "must be text"));
        }
    }
    let template = Template::read(value, &place)?;
    let references = template.references();
    if references.item || !references.steps.is_empty() {
        let problem = "may read only `parameters` and `workflow`; its jobs are not there yet";
        return Err(Fault::at(&place, problem));
    }
    Ok(Some(template))
}

fn labels(map: &Map<String, Value>, root: &Place<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let Some(value) = map.get("labels").filter(|value| !value.is_null()) else {
        return Ok(BTreeMap::new());
    };
    let place = root.key("labels");
    let map = object(value, &place, "labels are an object of names and texts")?;
    let mut labels = BTreeMap::new();
    for (key, value) in map {
        let text = value.as_str().ok_or_else(|| Fault::at(&place.key(key), "must be text"))?;
        labels.insert(key.clone(), text.to_owned());
    }
    Ok(labels)
}

/// A step with its name and where it was written.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    pub(super) map: &'a Map<String, Value>,
    /// Its place within `steps`.
    pub(super) at: At<'a>,
}

/// Steps are an object by name or a list.
#[derive(Clone, Copy)]
pub(super) enum At<'a> {
    Key(&'a str),
    Index(usize),
}

impl Named<'_> {
    /// Calls with the place of the step.
    pub(super) fn with_place<T>(&self, act: impl FnOnce(&Place<'_>) -> T) -> T {
        let root = Place::Root;
        let steps = root.key("steps");
        match self.at {
            At::Key(key) => act(&steps.key(key)),
            At::Index(index) => act(&steps.index(index)),
        }
    }
}

struct Written<'a>(&'a [Named<'a>]);

impl Places for Written<'_> {
    fn fault(&self, step: usize, key: &str, problem: String) -> Fault {
        let step = &self.0[step];
        // `args` is what a type has instead of `with`.
        let key = if key == "with" && step.map.contains_key("args") { "args" } else { key };
        step.with_place(|place| Fault::at(&place.key(key), problem))
    }
}

fn named_steps<'a>(steps: Option<&'a Value>, root: &Place<'_>) -> Result<Vec<Named<'a>>, Fault> {
    let place = root.key("steps");
    let empty = "a workflow needs at least one step";
    let named = match steps {
        None | Some(Value::Null) => return Err(Fault::at(&place, empty)),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, step)| {
                let map = object(step, &place.key(name), "a step is an object with `action`")?;
                Ok(Named { name, map, at: At::Key(name) })
            })
            .collect::<Result<Vec<_>, Fault>>()?,
        Some(Value::Array(list)) => {
            let mut named = Vec::with_capacity(list.len());
            for (index, step) in list.iter().enumerate() {
                let place = place.index(index);
                let map = object(step, &place, "a step is an object with `name` and `action`")?;
                let name = map.get("name").and_then(Value::as_str).ok_or_else(|| {
                    Fault::at(&place.key("name"), "a step of a list needs a `name`")
                })?;
                named.push(Named { name, map, at: At::Index(index) });
            }
            named
        }
        Some(_) => {
            return Err(Fault::at(&place, "steps are an object of steps by name, or a list"));
        }
    };
    match named.len() {
        0 => Err(Fault::at(&place, empty)),
        count if count > limits::STEPS_MAX => {
            let problem = format!(
                "a workflow of {count} steps; at most {}: one step may run `for_each` item of a list",
                limits::STEPS_MAX
            );
            Err(Fault::at(&place, problem))
        }
        _ => Ok(named),
    }
}

fn by_name<'a>(named: &[Named<'a>]) -> Result<BTreeMap<&'a str, usize>, Fault> {
    let mut by_name = BTreeMap::new();
    for (index, step) in named.iter().enumerate() {
        step.with_place(|place| {
            let place = match step.at {
                At::Key(_) => *place,
                At::Index(_) => place.key("name"),
            };
            if !is_name(step.name) {
                let problem = format!(
                    "`{}` is no name of a step: letters, digits, `_`, `-` and `.`, first a letter \
                     or digit, at most {} bytes",
                    shown(step.name),
                    limits::NAME_BYTES_MAX
                );
                return Err(Fault::at(&place, problem));
            }
            if by_name.insert(step.name, index).is_some() {
                let problem = format!("there is another step `{}`", step.name);
                return Err(Fault::at(&place, problem));
            }
            Ok(())
        })?;
    }
    Ok(by_name)
}

/// Refuses keys that are not known.
pub(super) fn check_keys(
    map: &Map<String, Value>,
    known: &[&str],
    extra: &[&str],
    place: &Place<'_>,
) -> Result<(), Fault> {
    let unknown =
        map.keys().find(|key| !known.contains(&key.as_str()) && !extra.contains(&key.as_str()));
    match unknown {
        None => Ok(()),
        Some(key) => {
            let end = instead(key, known);
            Err(Fault::at(&place.key(key), format!("is no key that is known here; {end}")))
        }
    }
}

pub(super) fn object<'a>(
    value: &'a Value,
    place: &Place<'_>,
    wanted: &str,
) -> Result<&'a Map<String, Value>, Fault> {
    value.as_object().ok_or_else(|| Fault::at(place, format!("is {}; {wanted}", kind(value))))
}

pub(super) fn text(
    map: &Map<String, Value>,
    key: &str,
    place: &Place<'_>,
) -> Result<Option<String>, Fault> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(Value::String(_)) => Err(Fault::at(&place.key(key), "is empty; leave it out")),
        Some(other) => {
            Err(Fault::at(&place.key(key), format!("must be text, not {}", kind(other))))
        }
    }
}

/// Reads a length of time: seconds, or a number with a unit.
pub(super) fn span(
    map: &Map<String, Value>,
    key: &str,
    place: &Place<'_>,
) -> Result<Option<Span>, Fault> {
    let Some(value) = map.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let read = match value {
        Value::Number(number) => number.as_u64().map(Span::from_secs),
        Value::String(text) => span_of(text),
        _ => None,
    };
    match read {
        Some(span) if span > Span::ZERO => Ok(Some(span)),
        _ => {
            let problem = "is no length of time; write seconds, or 200ms, 30s, 5m, 2h, 7d";
            Err(Fault::at(&place.key(key), problem))
        }
    }
}

fn span_of(text: &str) -> Option<Span> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(millis).map(Span::from_millis)
}

pub(super) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Reads the names of steps, each known and named once.
pub(super) fn references(
    value: &Value,
    by_name: &BTreeMap<&str, usize>,
    own: &str,
    place: &Place<'_>,
) -> Result<Vec<usize>, Fault> {
    let single;
    let names = match value {
        Value::Null => return Ok(Vec::new()),
        Value::String(_) => {
            single = [value.clone()];
            &single[..]
        }
        Value::Array(names) => names,
        other => {
            let problem = format!("is {}; write the names of steps: [load, check]", kind(other));
            return Err(Fault::at(place, problem));
        }
    };
    let mut found = Vec::with_capacity(names.len());
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let place = if value.is_array() { place.index(index) } else { *place };
        let Some(name) = name.as_str() else {
            return Err(Fault::at(&place, format!("is {}; write a step's name", kind(name))));
        };
        if name == own {
            return Err(Fault::at(&place, format!("`{name}` waits for itself; leave it out")));
        }
        let Some(step) = by_name.get(name) else {
            let problem = format!("there is no step `{}`", shown(name));
            let end = match nearest(name, by_name.keys().copied()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            return Err(Fault::at(&place, problem + &end));
        };
        if !seen.insert(*step) {
            return Err(Fault::at(&place, format!("`{name}` is there twice; leave one out")));
        }
        found.push(*step);
    }
    Ok(found)
}
