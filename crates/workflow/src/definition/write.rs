//! A definition as JSON, without what is the default.

use outlast_core::time::Span;
use serde_json::{Map, Value, json};

use super::step::{JobSettings, OnFailure, StepDefinition, When};
use super::{Definition, Form};

pub(super) fn to_json(definition: &Definition) -> Value {
    let mut made = Map::new();
    put(&mut made, "name", definition.name.as_deref().map(Value::from));
    put(&mut made, "description", definition.description.as_deref().map(Value::from));
    put(&mut made, "parameters", definition.parameters.clone());
    put(&mut made, "timeout", definition.timeout.map(duration));
    put(&mut made, "keys", definition.keys.as_ref().map(super::Template::to_json));
    if !definition.labels.is_empty() {
        made.insert("labels".into(), json!(definition.labels));
    }
    if definition.form != Form::Steps {
        made.insert("form".into(), definition.form.as_str().into());
    }
    let steps = definition.steps.iter().map(|it| (it.name.clone(), step(it, &definition.steps)));
    made.insert("steps".into(), Value::Object(steps.collect()));
    Value::Object(made)
}

fn step(step: &StepDefinition, steps: &[StepDefinition]) -> Value {
    let mut made = Map::new();
    made.insert(step.target.key().into(), step.target.reference().into());
    if !step.after.is_empty() {
        let names: Vec<_> = step.after.iter().map(|index| steps[*index].name.as_str()).collect();
        made.insert("after".into(), json!(names));
    }
    if step.when != When::Success {
        made.insert("when".into(), step.when.as_text().into());
    }
    put(&mut made, "for_each", step.for_each.as_ref().map(super::Template::to_json));
    put(&mut made, "concurrency", step.concurrency.map(|most| most.get().into()));
    let key = if matches!(step.target, super::Target::Type(_)) { "args" } else { "with" };
    made.insert(key.into(), step.input.to_json());
    if step.on_failure != OnFailure::Fail {
        made.insert("on_failure".into(), step.on_failure.as_str().into());
    }
    settings(&mut made, &step.job);
    for (key, set) in [("callback", step.callback), ("handled", step.handled)] {
        if set {
            made.insert(key.into(), true.into());
        }
    }
    Value::Object(made)
}

fn settings(made: &mut Map<String, Value>, job: &JobSettings) {
    put(made, "retry", job.retry.clone());
    put(made, "timeout", job.timeout.map(duration));
    put(made, "requires", job.requires.as_deref().map(Value::from));
    put(made, "prefers", job.prefers.as_deref().map(Value::from));
    put(made, "resources", job.resources.clone());
    put(made, "queue", job.queue.as_deref().map(Value::from));
    put(made, "priority", job.priority.map(Value::from));
    put(made, "options", job.options.clone());
    put(made, "meta", job.meta.clone());
}

fn put(made: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        made.insert(key.into(), value);
    }
}

fn duration(span: Span) -> Value {
    format!("{}ms", span.as_millis()).into()
}
