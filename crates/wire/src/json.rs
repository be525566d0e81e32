//! JSON in and out.
//!
//! What a producer sent is kept as text and passed on as text: it is validated once and
//! never built into a tree. The depth is checked on the bytes before anything recurses.

pub(crate) mod fields;
mod write;

use outlast_core::limits::JSON_DEPTH_MAX;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use write::Object;

use crate::fault::Fault;

/// Checks that a body is text and not nested too deeply, and returns it as text.
///
/// # Errors
/// Returns what is wrong with it.
pub fn text(body: &[u8]) -> Result<&str, Fault> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Fault::payload("request body is missing; it must be a JSON object"));
    }
    if depth(body) > JSON_DEPTH_MAX {
        let message = format!("request body is nested more than {JSON_DEPTH_MAX} levels deep");
        return Err(Fault::payload(message));
    }
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Fault::payload(format!("request body is not UTF-8 text at byte {at}"))
    })
}

/// Reads a body into a type that owns what it holds.
///
/// # Errors
/// Returns what is wrong with it, with line and column.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    serde_json::from_str(text(body)?).map_err(|error| syntax(&error))
}

/// Puts a reader's error into words, with line and column.
#[must_use]
pub fn syntax(error: &serde_json::Error) -> Fault {
    let message = error.to_string();
    // Its own words end in the place; the place goes first here.
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    // A reader's word for an object is the name of a type of ours.
    let what = match what.split_once("expected struct ") {
        Some((found, _)) => format!("{found}expected an object"),
        None => in_words(what),
    };
    let (line, column) = (error.line(), error.column());
    Fault::payload(format!(
        "request body is not as expected at line {line}, column {column}: {what}"
    ))
}

/// A reader's message without the names of its types.
fn in_words(message: &str) -> String {
    const WORDS: &[(&str, &str)] = &[
        ("expected a sequence", "expected an array"),
        ("expected u64", "expected a whole number that is not negative"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
    ];
    WORDS
        .iter()
        .fold(message.to_owned(), |message, (of_reader, ours)| message.replace(of_reader, ours))
}

/// Checks that bytes are one JSON document that every part of Outlast can read, and returns it
/// as text. Worker and server ask this one function, so that they cannot disagree.
///
/// # Errors
/// Returns what is wrong with it, worded to follow its name.
pub fn document(bytes: &[u8]) -> Result<&str, String> {
    if depth(bytes) > JSON_DEPTH_MAX {
        return Err(format!("is nested more than {JSON_DEPTH_MAX} levels deep"));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 text at byte {}", error.valid_up_to()))?;
    serde_json::from_str::<&RawValue>(text)
        .map(RawValue::get)
        .map_err(|error| format!("is not JSON: {error}"))
}

/// Returns how deeply arrays and objects are nested in what may be JSON.
#[must_use]
pub fn depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in body {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns the fields of a JSON object in their order, their values as text. Anything
/// but an object has none.
#[must_use]
pub fn fields(object: &str) -> Vec<(String, &RawValue)> {
    serde_json::from_str::<Fields<'_>>(object).map(|fields| fields.0).unwrap_or_default()
}

/// Returns one field of a JSON object as text.
#[must_use]
pub fn field<'a>(object: &'a str, name: &str) -> Option<&'a RawValue> {
    // Cheaper than reading an object that cannot hold the field.
    if !object.contains(name) {
        return None;
    }
    fields(object).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
