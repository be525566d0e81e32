//! What earlier steps answered, and the templates that quote it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::json_path::{displayed, resolve};

/// One reply, as the assertions see it.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
    /// The body as JSON; `None` when it is not.
    pub(crate) body: Option<Value>,
    pub(crate) took_ms: u64,
}

/// The replies of one case so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    steps: Map<String, Value>,
}

impl Context {
    pub(crate) fn record(&mut self, step: &str, response: &Response) {
        let body = response.body.clone().unwrap_or(Value::Null);
        let reply = json!({"response": {"status": response.status, "body": body}});
        self.steps.insert(step.to_owned(), reply);
    }

    /// Finds a value by a path that starts at `steps`.
    pub(crate) fn find(&self, path: &str) -> Result<Option<Value>, String> {
        let root = json!({"steps": self.steps});
        resolve(path, &root)
    }

    /// Replaces every template in a text.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        let mut copied = 0;
        for found in template().captures_iter(text) {
            let (Some(whole), Some(path)) = (found.get(0), found.get(1)) else { continue };
            filled.push_str(&text[copied..whole.start()]);
            filled.push_str(&displayed(&self.quoted(path.as_str())?));
            copied = whole.end();
        }
        filled.push_str(&text[copied..]);
        Ok(filled)
    }

    /// Replaces every template in a request body; the texts stay texts.
    pub(crate) fn fill_body(&self, body: &Value) -> Result<Value, String> {
        self.fill_value(body, &|context, text| context.fill(text).map(Value::from))
    }

    /// Replaces every template in a matcher; one that stands alone keeps its JSON type.
    pub(crate) fn fill_matcher(&self, matcher: &Value) -> Result<Value, String> {
        self.fill_value(matcher, &|context, text| match alone().captures(text) {
            Some(found) => context.quoted(&found[1]),
            None => context.fill(text).map(Value::from),
        })
    }

    fn fill_value(
        &self,
        value: &Value,
        fill: &dyn Fn(&Self, &str) -> Result<Value, String>,
    ) -> Result<Value, String> {
        match value {
            Value::String(text) => fill(self, text),
            Value::Array(values) => {
                values.iter().map(|value| self.fill_value(value, fill)).collect()
            }
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), self.fill_value(value, fill)?)))
                .collect::<Result<Map<_, _>, String>>()
                .map(Value::Object),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
        }
    }

    fn quoted(&self, path: &str) -> Result<Value, String> {
        self.find(path)?.ok_or_else(|| format!("{{{{{path}}}}} names nothing that was answered"))
    }
}

fn template() -> &'static Regex {
    static TEMPLATE: OnceLock<Regex> = OnceLock::new();
    TEMPLATE.get_or_init(|| compiled(r"\{\{(steps\.[^}]+)\}\}"))
}

fn alone() -> &'static Regex {
    static ALONE: OnceLock<Regex> = OnceLock::new();
    ALONE.get_or_init(|| compiled(r"^\{\{(steps\.[^}]+)\}\}$"))
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_one_step() -> Context {
        let body = json!({"job": {"id": "abc", "attempt": 2}, "jobs": [{"id": "abc"}]});
        let mut context = Context::default();
        let response = Response {
            status: 201,
            headers: BTreeMap::new(),
            text: body.to_string(),
            body: Some(body),
            took_ms: 1,
        };
        context.record("step-1", &response);
        context
    }

    #[test]
    fn templates_in_texts_are_replaced() {
        let context = after_one_step();
        let path = "/jobs/{{steps.step-1.response.body.jobs[0].id}}/x";
        assert_eq!(context.fill(path), Ok("/jobs/abc/x".to_owned()));
        let body = json!({"n": "{{steps.step-1.response.body.job.attempt}}"});
        assert_eq!(context.fill_body(&body), Ok(json!({"n": "2"})));
    }

    #[test]
    fn a_template_alone_in_a_matcher_keeps_its_type() {
        let context = after_one_step();
        let matcher = json!("{{steps.step-1.response.body.job.attempt}}");
        assert_eq!(context.fill_matcher(&matcher), Ok(json!(2)));
    }

    #[test]
    fn a_template_that_names_nothing_is_an_error() {
        let context = after_one_step();
        assert!(context.fill("{{steps.step-2.response.body.job.id}}").is_err());
        assert!(context.fill("{{steps.step-1.response.body.none}}").is_err());
    }
}
