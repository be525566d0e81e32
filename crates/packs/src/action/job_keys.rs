//! The keys of an action's jobs: texts with parameters in them, such as `"{{tenant}}"`.
//!
//! `{{name}}` is replaced by a parameter, `{{name.inner}}` by a field of one that is an object.
//! There are no expressions. A key is shown with its job, so no secret goes into one.

use std::collections::BTreeMap;

use outlast_core::keys::{KEYS_MAX, NAME_BYTES_MAX, VALUE_BYTES_MAX, is_name};
use serde_json::{Value, json};

use crate::parameters::{Parameters, Violation, escape};
use crate::yaml::{kind, scalar};

/// The keys of an action's jobs.
#[derive(Debug, Default)]
pub(crate) struct JobKeys(BTreeMap<String, Template>);

/// What is wrong with `keys`, and what would be right.
pub(super) struct Slip {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl From<String> for Slip {
    fn from(problem: String) -> Self {
        let remedy = "write a mapping such as `{tenant: \"{{tenant}}\"}`, with the name of a \
                      parameter in quotes and braces";
        Self { problem, remedy: remedy.to_owned() }
    }
}

/// A text with parameters in it.
#[derive(Debug)]
struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Parameter(Path),
}

/// The name of a parameter, or of a field inside one: `customer.id`.
#[derive(Debug)]
struct Path(String);

impl JobKeys {
    /// Reads the `keys` of an action's file.
    pub(super) fn read(value: &Value, parameters: &Parameters) -> Result<Self, Slip> {
        let Value::Object(map) = value else { return Err("not a mapping".to_owned().into()) };
        if map.len() > KEYS_MAX {
            return Err(format!("{} keys; at most {KEYS_MAX} are taken", map.len()).into());
        }
        let one = |(name, value): (&String, &Value)| {
            let template = named(name, value)?;
            for path in template.paths() {
                path.check(name, parameters)?;
            }
            Ok((name.clone(), template))
        };
        map.iter().map(one).collect::<Result<_, Slip>>().map(Self)
    }

    /// Names and templates, sorted by name.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, template)| (name.as_str(), template.source.as_str()))
    }

    /// Fills in parameters, except for the keys that `is_given` otherwise.
    pub(super) fn fill(
        &self,
        parameters: &Value,
        mask: impl FnOnce() -> Value,
        is_given: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, String>, Vec<Violation>> {
        let (mut keys, mut violations) = (BTreeMap::new(), Vec::new());
        if self.0.is_empty() {
            return Ok(keys);
        }
        let masked = mask();
        for (name, template) in self.0.iter().filter(|(name, _)| !is_given(name)) {
            match template.fill(name, parameters, &masked) {
                Ok(value) => {
                    keys.insert(name.clone(), value);
                }
                Err(violation) => violations.push(violation),
            }
        }
        if violations.is_empty() { Ok(keys) } else { Err(violations) }
    }
}

fn named(name: &str, value: &Value) -> Result<Template, String> {
    if !is_name(name) {
        return Err(format!(
            "`{name}` is no name of a key: 1 to {NAME_BYTES_MAX} characters out of a-z, 0-9, `_`, \
             `.` and `-`"
        ));
    }
    let source = scalar(value).ok_or_else(|| format!("`{name}` is {}", kind(value)))?;
    if source.contains('\0') {
        return Err(format!("`{name}` contains a NUL character"));
    }
    let template = Template::parse(source).map_err(|problem| format!("`{name}`: {problem}"))?;
    let bytes = template.bytes_of_text();
    if bytes > VALUE_BYTES_MAX {
        return Err(format!("`{name}` has {bytes} bytes; at most {VALUE_BYTES_MAX} are taken"));
    }
    Ok(template)
}

impl Template {
    fn parse(source: String) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), source.as_str());
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((path, after)) = after.split_once("}}") else {
                return Err("`{{` without `}}`".to_owned());
            };
            let path = path.trim();
            if path.is_empty() || path.contains(|c: char| c.is_whitespace() || "{}|()".contains(c))
            {
                return Err(format!("`{{{{{path}}}}}` is not the name of a parameter"));
            }
            parts.extend([Part::Text(before.to_owned()), Part::Parameter(Path(path.to_owned()))]);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { parts, source })
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(|part| match part {
            Part::Parameter(path) => Some(path),
            Part::Text(_) => None,
        })
    }

    fn bytes_of_text(&self) -> usize {
        let text = |part: &Part| if let Part::Text(text) = part { text.len() } else { 0 };
        self.parts.iter().map(text).sum()
    }

    fn fill(&self, key: &str, parameters: &Value, masked: &Value) -> Result<String, Violation> {
        let mut value = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => value.push_str(text),
                Part::Parameter(path) => {
                    let text = path
                        .text(key, parameters, masked)
                        .map_err(|message| Violation { path: path.pointer(), message })?;
                    value.push_str(&text);
                }
            }
        }
        let message = if value.len() > VALUE_BYTES_MAX {
            let bytes = value.len();
            format!("makes key `{key}` {bytes} bytes long; at most {VALUE_BYTES_MAX} are taken")
        } else if value.contains('\0') {
            format!("contains a NUL character, which key `{key}` cannot have")
        } else {
            return Ok(value);
        };
        // Without a parameter it was checked when the file was read.
        let path = self.paths().next().map(Path::pointer).unwrap_or_default();
        Err(Violation { path, message })
    }
}

impl Path {
    /// Whether the parameter exists and may be shown.
    fn check(&self, key: &str, parameters: &Parameters) -> Result<(), Slip> {
        let path = &self.0;
        let probe = self.segments().rev().fold(json!("x"), |inner, name| json!({ name: inner }));
        if let Some(unknown) = parameters.unknown(&probe).first() {
            let (problem, remedy) = unknown.message.split_once("; ").unwrap_or_default();
            let problem = format!("`{key}`: `{path}` {problem}");
            return Err(Slip { problem, remedy: remedy.to_owned() });
        }
        if parameters.mask(&probe) != probe {
            let problem = format!("`{key}`: parameter `{path}` is secret");
            let remedy = "take another parameter: keys are shown with the job";
            return Err(Slip { problem, remedy: remedy.to_owned() });
        }
        Ok(())
    }

    fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    fn find<'a>(&self, parameters: &'a Value) -> Option<&'a Value> {
        let found = self.segments().try_fold(parameters, |value, name| value.get(name));
        found.filter(|value| !value.is_null())
    }

    fn text(&self, key: &str, parameters: &Value, masked: &Value) -> Result<String, String> {
        let Some(value) = self.find(parameters) else {
            return Err(format!("is missing; key `{key}` of the action is made of it"));
        };
        if self.find(masked) != Some(value) {
            return Err(format!("is secret and cannot be part of key `{key}`"));
        }
        scalar(value).ok_or_else(|| {
            let found = kind(value);
            format!("is {found}; key `{key}` of the action takes a text, a number or a boolean")
        })
    }

    fn pointer(&self) -> String {
        self.segments().map(|name| format!("/{}", escape(name))).collect()
    }
}
