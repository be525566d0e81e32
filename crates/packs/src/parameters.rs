//! The parameters of an action: schema, validation, defaults and secrets.
//!
//! Both styles of pack files become one JSON Schema when the pack is read; the validator is
//! compiled then, once, and never fetches anything. A message about a bad parameter never
//! repeats its value, because the value may be a secret.

mod defaults;
mod schema;
mod secrets;
mod unknown;

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::limits::VIOLATIONS_MAX;

/// One thing that is wrong with parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The parameter, as a JSON pointer such as `/headers/accept`; empty for all of them.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return formatter.write_str(&self.message);
        }
        write!(formatter, "{}: {}", self.path, self.message)
    }
}

/// How parameters that the schema does not name are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// They are rejected, unless the schema covers them.
    NamedOnly,
    /// As JSON Schema does: they pass, unless the schema forbids them.
    AsSchema,
}

/// The parameters of one action.
#[derive(Debug)]
pub(crate) struct Parameters {
    schema: Value,
    validator: Validator,
    notes: Vec<String>,
}

impl Parameters {
    /// Reads the `parameters` of an action's file, in either style.
    pub(crate) fn new(described: Value) -> Result<Self, String> {
        let (schema, notes) = schema::from_either_style(described)?;
        let validator =
            jsonschema::options().offline().build(&schema).map_err(|error| unfit_schema(&error))?;
        Ok(Self { schema, validator, notes })
    }

    pub(crate) const fn schema(&self) -> &Value {
        &self.schema
    }

    /// What in the description has no effect and may be a typo.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn check(
        &self,
        given: &Value,
        strictness: Strictness,
    ) -> Result<Value, Vec<Violation>> {
        let mut complete = match given {
            Value::Null => Value::Object(Map::new()),
            Value::Object(_) => given.clone(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let message = "parameters must be an object".to_owned();
                return Err(vec![Violation { path: String::new(), message }]);
            }
        };
        let mut violations = match strictness {
            Strictness::NamedOnly => self.unknown(&complete),
            Strictness::AsSchema => Vec::new(),
        };
        defaults::fill(&self.schema, &mut complete);
        let is_repeated = |error: &ValidationError<'_>| {
            let others = matches!(error.kind(), ValidationErrorKind::AdditionalProperties { .. });
            others && error.instance_path().to_string().is_empty()
        };
        let errors = self.validator.iter_errors(&complete);
        let has_any = !violations.is_empty();
        let errors = errors.filter(|error| !(has_any && is_repeated(error)));
        violations.extend(errors.take(VIOLATIONS_MAX).map(violation));
        violations.truncate(VIOLATIONS_MAX);
        if violations.is_empty() { Ok(complete) } else { Err(violations) }
    }

    /// Parameters that the action does not have.
    pub(crate) fn unknown(&self, given: &Value) -> Vec<Violation> {
        unknown::check(&self.schema, given)
    }

    pub(crate) fn mask(&self, parameters: &Value) -> Value {
        secrets::mask(&self.schema, parameters)
    }

    pub(crate) fn secret_values(&self, parameters: &Value) -> Vec<String> {
        let masked = self.mask(parameters);
        let mut found = Vec::new();
        secrets::hidden(parameters, &masked, &mut found);
        found
    }

    /// Defaults that the schema itself refuses.
    pub(crate) fn unfit_defaults(&self) -> impl Iterator<Item = Violation> {
        let violations = self.check(&Value::Null, Strictness::AsSchema).err().unwrap_or_default();
        let mut filled = Value::Object(Map::new());
        defaults::fill(&self.schema, &mut filled);
        violations.into_iter().filter(move |violation| {
            !violation.path.is_empty() && filled.pointer(&violation.path).is_some()
        })
    }
}

fn unfit_schema(error: &ValidationError<'_>) -> String {
    let place = error.instance_path();
    match error.instance().as_ref() {
        Value::String(name) if place.to_string().ends_with("/type") => format!(
            "`{name}` at {place} is not a type (string, number, integer, boolean, object, array)"
        ),
        _ => format!("{error} (at {place})"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the iterator hands errors over by value")]
fn violation(error: ValidationError<'_>) -> Violation {
    let mut path = error.instance_path().to_string();
    let message = match error.kind() {
        ValidationErrorKind::Required { property } => {
            path.push('/');
            path.push_str(&escape(property.as_str().unwrap_or_default()));
            "is required".to_owned()
        }
        ValidationErrorKind::Type { .. } => {
            let expected = error.masked_with("value").to_string();
            let expected = expected.strip_prefix("value is not of type").unwrap_or(&expected);
            let expected = expected.trim().replace('"', "");
            format!("must be {expected}, not {}", kind(error.instance()))
        }
        _ => error.masked_with("value").to_string(),
    };
    Violation { path, message }
}

/// Escapes a name for use in a JSON pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
