//! One YAML file: its keys, its values, and where in the file they stand.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_saphyr::{Options, Spanned};

use crate::error::PackError;
use crate::keys::{Keys, Known};
use crate::note::Note;

/// The text of a YAML file together with the name that errors give it.
#[derive(Debug)]
pub(crate) struct Document {
    file: String,
    text: String,
}

/// A value that remembers its line.
pub(crate) type At<T> = Option<Spanned<T>>;

impl Document {
    pub(crate) const fn new(file: String, text: String) -> Self {
        Self { file, text }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Reads the document as `T`. Keys that `T` does not have are passed over.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, PackError> {
        serde_saphyr::from_str_with_options(&self.text, plain()).map_err(|error| {
            let line = error.location().map(|location| location.line());
            self.fault(line, one_line(&error), self.remedy_at(line))
        })
    }

    fn remedy_at(&self, line: Option<u64>) -> &'static str {
        let at = line.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
        match at.and_then(|at| self.text.lines().nth(at)) {
            Some(text) if text.contains("{{") => "put the text with `{{` and `}}` in quotes",
            _ => "correct the YAML there",
        }
    }

    /// Reads the document's top-level mapping.
    pub(crate) fn mapping(&self) -> Result<Map<String, Value>, PackError> {
        match self.read::<Value>()? {
            Value::Object(map) => Ok(map),
            other => Err(self.fault(
                None,
                format!("holds {} where a mapping is needed", kind(&other)),
                "write `key: value` lines",
            )),
        }
    }

    pub(crate) fn fault(
        &self,
        line: Option<u64>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> PackError {
        PackError::new(self.file.clone(), problem, remedy).at(line)
    }

    /// Refuses a key that no system knows, and notes those that only others know.
    pub(crate) fn check_keys(
        &self,
        found: &Map<String, Value>,
        keys: &Keys,
    ) -> Result<Vec<Note>, PackError> {
        let mut notes = Vec::new();
        for key in found.keys() {
            match keys.known(key) {
                Known::Here => {}
                Known::Elsewhere => notes.push(Note::key(&self.file, key)),
                Known::Nowhere => {
                    let problem = format!("key `{key}` is not known");
                    return Err(self.fault(self.line_of(key), problem, keys.remedy(key)));
                }
            }
        }
        Ok(notes)
    }

    /// The line that a top-level key stands on.
    fn line_of(&self, key: &str) -> Option<u64> {
        let is_it = |line: &str| {
            let name = line.split_once(':').map(|(name, _)| name.trim_end());
            name.is_some_and(|name| name.trim_matches(['"', '\'']) == key)
        };
        let at = self.text.lines().position(is_it)?;
        u64::try_from(at).ok()?.checked_add(1)
    }

    /// The line of a place such as `steps.send.after[1]`, as far as its keys stand on lines of
    /// their own.
    pub(crate) fn line_at(&self, place: &str) -> Option<u64> {
        let (mut rest, mut found) = (place, None);
        // How far the key is indented that was found last, and how far its own keys are.
        let (mut outer, mut inner) = (None, None);
        for (number, line) in (1..).zip(self.text.lines()) {
            let text = line.trim_start();
            let indent = line.len() - text.len();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if outer.is_some_and(|outer| indent <= outer) {
                break;
            }
            if *inner.get_or_insert(indent) != indent {
                continue;
            }
            let key = text.split_once(':').map(|(key, _)| key.trim_end().trim_matches(['"', '\'']));
            let Some(after) = key.and_then(|key| rest.strip_prefix(key)) else { continue };
            if after.is_empty() || after.starts_with(['.', '[']) {
                (found, outer, inner) = (Some(number), Some(indent), None);
                rest = after.trim_start_matches('.');
                if rest.is_empty() {
                    break;
                }
            }
        }
        found
    }

    /// Picks the entry of `table` that the file names, or `default` when it names none.
    pub(crate) fn choose<T: Copy>(
        &self,
        key: &str,
        given: Option<&Spanned<String>>,
        table: &[(&str, T)],
        default: T,
    ) -> Result<T, PackError> {
        let Some(given) = given else { return Ok(default) };
        let found = table.iter().find(|(name, _)| *name == given.value);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            self.fault(
                line(given),
                format!("{key} `{}` is not known", given.value),
                format!("use one of {}", names.join(", ")),
            )
        })
    }
}

/// Parses YAML of any shape, for a program's output.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str_with_options(text, plain()).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        format!("line {line}: {}", one_line(&error))
    })
}

/// The line of a value, counted from 1.
pub(crate) fn line<T>(value: &Spanned<T>) -> Option<u64> {
    Some(value.referenced.line())
}

/// What a JSON value is, in words.
pub(crate) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// A text, number or boolean as text.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn plain() -> Options {
    let mut options = Options::default();
    options.with_snippet = false;
    options
}

fn one_line(error: &serde_saphyr::Error) -> String {
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // The line is already in front, together with the file.
    text.rsplit_once(" at line ").map_or_else(|| text.clone(), |(problem, _)| problem.to_owned())
}
