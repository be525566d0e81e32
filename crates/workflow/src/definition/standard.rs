//! The forms of the Open Job Spec: chain, group, batch with callbacks, and steps with `depends_on`.
//!
//! | Form | Steps | Wait for | When |
//! |---|---|---|---|
//! | chain | `step-0`, `step-1`, … | the one before | success |
//! | group | `job-0`, `job-1`, … | none | |
//! | batch | `job-0`, … | none | |
//! | its callbacks | `on-complete`, `on-success`, `on-failure` | all its jobs | always, success, failure |
//! | DAG | their ids | `depends_on` | success |
//!
//! Forms may nest: the names of inner steps are `step-1.job-0`. What follows a group waits for all
//! of its jobs; what follows a batch waits for its callbacks and runs unless one failed.
//!
//! A failed job of a batch with `on_failure` or `on_complete` does not fail the workflow: the
//! standard lets the callback decide. Without one it does, since no callback runs.
//!
//! SDKs send a batch as a DAG whose callbacks have the names above, so in a DAG these names are
//! callbacks too. An empty group or batch, which the standard refuses, is complete at once.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::graph::{Graph, Places};
use super::read::{is_name, object, references, span, text};
use super::step::{StepDefinition, Target, When};
use super::{Definition, Form};
use crate::fault::{Fault, Place, instead, shown};
use crate::limits;
use crate::template::{Template, size};

/// The type of the step that stands for an empty group. No job of it is ever made.
const NOTHING: &str = "outlast.nothing";

/// Callbacks of a batch: their key, the name of the step, when it runs.
const CALLBACKS: [Callback; 3] = [
    Callback { key: "on_complete", name: "on-complete", when: When::Always },
    Callback { key: "on_success", name: "on-success", when: When::Success },
    Callback { key: "on_failure", name: "on-failure", when: When::Failure },
];

struct Callback {
    key: &'static str,
    name: &'static str,
    when: When,
}

pub(super) fn read(value: &Value) -> Result<Definition, Fault> {
    let root = Place::Root;
    if size(value) > limits::DEFINITION_BYTES_MAX {
        let problem = format!("has more than {} bytes", limits::DEFINITION_BYTES_MAX);
        return Err(Fault::at(&root, problem));
    }
    let map = object(value, &root, "a workflow is an object")?;
    let mut reading = Reading { steps: Vec::new(), options: None, edges: 0 };
    if let Some(options) = map.get("options").filter(|options| !options.is_null()) {
        reading.options = Some(object(options, &root.key("options"), "write names and values")?);
    }
    let form = match map.get("type") {
        None | Some(Value::Null) => {
            reading.dag(map, &root)?;
            Form::Dag
        }
        Some(_) => {
            let form = form(map, &root)?;
            reading.form(form, map, &root, Before::nothing())?;
            form
        }
    };
    let graph = Graph::new(&reading.steps, &ByDependency)?;
    let mut definition = Definition::new(reading.steps, graph);
    definition.form = form;
    definition.name = text(map, "name", &root)?;
    definition.timeout = span(map, "timeout", &root)?;
    Ok(definition)
}

/// Where a cycle is: only a DAG can have one.
struct ByDependency;

impl Places for ByDependency {
    fn fault(&self, step: usize, _: &str, problem: String) -> Fault {
        let (root, key) = (Place::Root, "depends_on");
        Fault::at(&root.key("steps").index(step).key(key), problem)
    }
}

fn form(map: &Map<String, Value>, place: &Place<'_>) -> Result<Form, Fault> {
    let name = map.get("type").and_then(Value::as_str).unwrap_or_default();
    match name {
        "chain" => Ok(Form::Chain),
        "group" => Ok(Form::Group),
        "batch" => Ok(Form::Batch),
        other => {
            let end = instead(other, &["chain", "group", "batch"]);
            Err(Fault::at(&place.key("type"), format!("is `{}`; {end}", shown(other))))
        }
    }
}

/// What steps wait for, and how they are named.
#[derive(Clone)]
struct Before {
    after: Vec<usize>,
    when: When,
    /// The start of their names, such as `step-1.`.
    prefix: String,
    /// How deep they are nested.
    depth: usize,
    /// Whether a callback around them deals with failures.
    handled: bool,
}

impl Before {
    fn nothing() -> Self {
        Self {
            after: Vec::new(),
            when: When::Success,
            prefix: String::new(),
            depth: 0,
            handled: false,
        }
    }

    fn within(&self, name: &str) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), depth: self.depth + 1, ..self.clone() }
    }
}

/// What those wait for that follow.
struct Exits {
    steps: Vec<usize>,
    when: When,
}

struct Reading<'a> {
    steps: Vec<StepDefinition>,
    /// Options for every job.
    options: Option<&'a Map<String, Value>>,
    /// How many steps all of them wait for.
    edges: usize,
}

impl Reading<'_> {
    fn form(
        &mut self,
        form: Form,
        map: &Map<String, Value>,
        place: &Place<'_>,
        before: Before,
    ) -> Result<Exits, Fault> {
        if before.depth >= limits::NESTING_MAX {
            let problem = format!("nests deeper than {}", limits::NESTING_MAX);
            return Err(Fault::at(place, problem));
        }
        match form {
            Form::Chain => self.chain(map, place, before),
            Form::Group | Form::Steps | Form::Dag => self.group(map, place, &before),
            Form::Batch => self.batch(map, place, before),
        }
    }

    fn chain(
        &mut self,
        map: &Map<String, Value>,
        place: &Place<'_>,
        mut before: Before,
    ) -> Result<Exits, Fault> {
        let place = place.key("steps");
        let list = list(map, "steps", &place)?;
        if list.is_empty() {
            return Err(Fault::at(&place, "a chain needs at least one step"));
        }
        for (index, job) in list.iter().enumerate() {
            let name = format!("step-{index}");
            let exits = self.member(job, &name, &place.index(index), &before)?;
            (before.after, before.when) = (exits.steps, exits.when);
        }
        Ok(Exits { steps: before.after, when: before.when })
    }

    fn group(
        &mut self,
        map: &Map<String, Value>,
        place: &Place<'_>,
        before: &Before,
    ) -> Result<Exits, Fault> {
        let place = place.key("jobs");
        let list = list(map, "jobs", &place)?;
        if list.is_empty() {
            let target = Target::Type(NOTHING.to_owned());
            let input = Template::plain(Value::Array(Vec::new()));
            let name = format!("{}jobs", before.prefix);
            let mut step = StepDefinition::new(name, target, input);
            step.for_each = Some(Template::plain(Value::Array(Vec::new())));
            let step = self.push(step, before, &place)?;
            return Ok(Exits { steps: vec![step], when: When::Success });
        }
        let mut exits = Exits { steps: Vec::new(), when: When::Success };
        for (index, job) in list.iter().enumerate() {
            let name = format!("job-{index}");
            let inner = self.member(job, &name, &place.index(index), before)?;
            exits.steps.extend(inner.steps);
            if inner.when == When::NoFailure {
                exits.when = When::NoFailure;
            }
        }
        Ok(exits)
    }

    fn batch(
        &mut self,
        map: &Map<String, Value>,
        place: &Place<'_>,
        before: Before,
    ) -> Result<Exits, Fault> {
        let at = place.key("callbacks");
        let callbacks = match map.get("callbacks") {
            Some(value) => object(value, &at, "callbacks are an object such as on_complete")?,
            None => {
                return Err(Fault::at(&at, "a batch needs callbacks; without any it is a group"));
            }
        };
        let known = CALLBACKS.map(|callback| callback.key);
        super::read::check_keys(callbacks, &known, &[], &at)?;
        if callbacks.is_empty() {
            return Err(Fault::at(&at, "a batch needs a callback; without any it is a group"));
        }
        let handled = callbacks.contains_key("on_complete") || callbacks.contains_key("on_failure");
        let inside = Before { handled: handled || before.handled, ..before.clone() };
        let jobs = self.group(map, place, &inside)?;
        let mut exits = Exits { steps: Vec::new(), when: When::NoFailure };
        for callback in CALLBACKS {
            let Some(job) = callbacks.get(callback.key) else { continue };
            let before =
                Before { after: jobs.steps.clone(), when: callback.when, ..before.clone() };
            let inner = self.member(job, callback.name, &at.key(callback.key), &before)?;
            for step in &inner.steps {
                self.steps[*step].callback = true;
            }
            exits.steps.extend(inner.steps);
        }
        Ok(exits)
    }

    /// Reads a job, or a form within another.
    fn member(
        &mut self,
        value: &Value,
        name: &str,
        place: &Place<'_>,
        before: &Before,
    ) -> Result<Exits, Fault> {
        let map = object(value, place, "a job is an object with `type` and `args`")?;
        let is_form =
            matches!(map.get("type").and_then(Value::as_str), Some("chain" | "group" | "batch"))
                && (map.contains_key("steps") || map.contains_key("jobs"));
        if is_form {
            return self.form(form(map, place)?, map, place, before.within(name));
        }
        let step = self.job(map, format!("{}{name}", before.prefix), place)?;
        let step = self.push(step, before, place)?;
        Ok(Exits { steps: vec![step], when: When::Success })
    }

    fn job(
        &self,
        map: &Map<String, Value>,
        name: String,
        place: &Place<'_>,
    ) -> Result<StepDefinition, Fault> {
        let Some(job_type) = text(map, "type", place)? else {
            return Err(Fault::at(&place.key("type"), "a job needs a type, such as `email.send`"));
        };
        let args = match map.get("args") {
            None | Some(Value::Null) => Value::Array(Vec::new()),
            Some(args @ Value::Array(_)) => args.clone(),
            Some(_) => return Err(Fault::at(&place.key("args"), "must be a list")),
        };
        // The standard knows no expressions: what looks like one is data.
        let mut step = StepDefinition::new(name, Target::Type(job_type), Template::plain(args));
        let mut options = self.options.cloned().unwrap_or_default();
        if let Some(own) = map.get("options").filter(|own| !own.is_null()) {
            let own = object(own, &place.key("options"), "write names and values")?;
            options.extend(own.clone());
        }
        if !options.is_empty() {
            step.job.options = Some(Value::Object(options));
        }
        if let Some(meta) = map.get("meta").filter(|meta| !meta.is_null()) {
            object(meta, &place.key("meta"), "write names and values")?;
            step.job.meta = Some(meta.clone());
        }
        Ok(step)
    }

    fn push(
        &mut self,
        mut step: StepDefinition,
        before: &Before,
        place: &Place<'_>,
    ) -> Result<usize, Fault> {
        if self.steps.len() >= limits::STEPS_MAX {
            let problem = format!("a workflow of more than {} jobs", limits::STEPS_MAX);
            return Err(Fault::at(place, problem));
        }
        step.after.clone_from(&before.after);
        step.when = before.when.clone();
        step.handled = before.handled;
        self.edges += step.after.len();
        if self.edges > limits::EDGES_MAX {
            let problem = format!("the jobs wait for more than {} jobs", limits::EDGES_MAX);
            return Err(Fault::at(place, problem));
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    fn dag(&mut self, map: &Map<String, Value>, root: &Place<'_>) -> Result<(), Fault> {
        let place = root.key("steps");
        let list = list(map, "steps", &place)?;
        if list.is_empty() {
            return Err(Fault::at(&place, "a workflow needs at least one step"));
        }
        let mut by_name = BTreeMap::new();
        for (index, step) in list.iter().enumerate() {
            let place = place.index(index);
            let map = object(step, &place, "a step is an object with `id` and `type`")?;
            let id = map.get("id").and_then(Value::as_str).filter(|id| is_name(id));
            let Some(id) = id else {
                let problem = "a step needs an id of letters, digits, `_`, `-` and `.`";
                return Err(Fault::at(&place.key("id"), problem));
            };
            if by_name.insert(id, index).is_some() {
                return Err(Fault::at(&place.key("id"), format!("there is another step `{id}`")));
            }
            let step = self.job(map, id.to_owned(), &place)?;
            self.push(step, &Before::nothing(), &place)?;
        }
        for (index, step) in list.iter().enumerate() {
            let place = place.index(index);
            let place = place.key("depends_on");
            let own = self.steps[index].name.clone();
            let after = references(&step["depends_on"], &by_name, &own, &place)?;
            self.edges += after.len();
            if self.edges > limits::EDGES_MAX {
                let problem = format!("the steps wait for more than {} steps", limits::EDGES_MAX);
                return Err(Fault::at(&place, problem));
            }
            self.steps[index].after = after;
        }
        self.mark_callbacks();
        Ok(())
    }

    /// Gives the steps of a DAG that are named like callbacks what callbacks have.
    fn mark_callbacks(&mut self) {
        let mut handled = Vec::new();
        for step in &mut self.steps {
            let callback = CALLBACKS.iter().find(|callback| callback.name == step.name);
            let Some(callback) = callback.filter(|_| !step.after.is_empty()) else { continue };
            step.callback = true;
            step.when = callback.when.clone();
            if !matches!(callback.when, When::Success) {
                handled.extend(step.after.iter().copied());
            }
        }
        for index in handled {
            self.steps[index].handled = true;
        }
    }
}

fn list<'a>(
    map: &'a Map<String, Value>,
    key: &str,
    place: &Place<'_>,
) -> Result<&'a [Value], Fault> {
    match map.get(key) {
        Some(Value::Array(list)) => Ok(list),
        None => Err(Fault::at(place, "is missing; write a list of jobs")),
        Some(_) => Err(Fault::at(place, "must be a list of jobs")),
    }
}
