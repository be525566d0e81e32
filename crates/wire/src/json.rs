//! JSON in and out.
//!
//! What a producer sent is kept as text and passed on as text: it is validated once and
//! never built into a tree. The bytes are checked before anything recurses, for what a reader that
//! builds a tree could not read.

mod exact;
pub(crate) mod fields;
mod scan;
mod write;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use exact::{Changed, changed_number, exact, long_number};
pub use write::Object;
pub(crate) use write::string;

use crate::fault::Fault;

/// How many characters of a number a message shows.
const SHOWN_DIGITS: usize = 80;

/// Checks that a body is text that every reader of JSON can read, and returns it as text.
///
/// # Errors
/// Returns what is wrong with it.
pub fn text(body: &[u8]) -> Result<&str, Fault> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Fault::payload("request body is missing; it must be a JSON object"));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Fault::payload(format!("request body is not UTF-8 text at byte {at}"))
    })?;
    match scan::check(body).map_err(scan::Unreadable::words) {
        Ok(()) => Ok(text),
        Err((Some(at), what)) => {
            let (line, column) = line_and_column(text, at);
            Err(at_place(line, column, &what))
        }
        Err((None, what)) => Err(Fault::payload(format!("request body {what}"))),
    }
}

/// Returns the line and column of a byte, as a reader's errors have them.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    (line, column)
}

fn at_place(line: usize, column: usize, what: &str) -> Fault {
    Fault::payload(format!(
        "request body is not as expected at line {line}, column {column}: {what}"
    ))
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
    at_place(error.line(), error.column(), &what)
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
    scan::check(bytes).map_err(|unreadable| match unreadable.words() {
        (Some(at), what) => format!("cannot be read at byte {at}: {what}"),
        (None, what) => what,
    })?;
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 text at byte {}", error.valid_up_to()))?;
    serde_json::from_str::<&RawValue>(text)
        .map(RawValue::get)
        .map_err(|error| format!("is not JSON: {error}"))
}

/// Returns a valid document without the blanks between its parts; texts and numbers stay as they are.
#[must_use]
pub fn compact(document: &str) -> String {
    let bytes = document.as_bytes();
    let mut compact = String::with_capacity(document.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            b'"' => scan::after_text(bytes, at).unwrap_or(bytes.len()),
            _ => at + 1,
        };
        if !byte.is_ascii_whitespace() {
            compact += document.get(at..end).unwrap_or_default();
        }
        at = end;
    }
    compact
}

/// Checks that the numbers of a field stay as they are when they are read into 64-bit integers and
/// floats, as an action's parameters are.
///
/// # Errors
/// Returns the first number that would change.
pub fn keeps_numbers(field: &str, document: &str) -> Result<(), Fault> {
    let Some(Changed { given, becomes }) = changed_number(document) else { return Ok(()) };
    let given: String = given.chars().take(SHOWN_DIGITS).collect();
    let problem = format!("holds {given}, which would become {becomes}: send it as a string");
    Err(Fault::rule(field, problem))
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

/// Returns a JSON object without some of its fields, followed by what `fill` writes. Fields that stay
/// are copied as text, so numbers of any length stay as they were sent.
#[must_use]
pub fn with(object: &str, without: &[&str], fill: impl FnOnce(&mut Object<'_>)) -> String {
    let mut out = Vec::with_capacity(object.len() + 128);
    let mut to = Object::begin(&mut out);
    for (name, value) in fields(object) {
        if !without.contains(&name.as_str()) {
            to.raw(&name, value.get());
        }
    }
    fill(&mut to);
    to.end();
    // Built from texts only.
    String::from_utf8(out).unwrap_or_default()
}

/// Returns a JSON object without some of its fields. One that has none of them stays as it is.
#[must_use]
pub fn without(object: &str, names: &[&str]) -> String {
    match names.iter().any(|name| field(object, name).is_some()) {
        true => with(object, names, |_| {}),
        false => object.to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::compact;

    #[test]
    fn compact_documents_have_no_blanks_outside_of_texts() {
        let document = "{ \"a b\" :\t[1.50, \"x \\\" \u{e4}\",\n true ] }\r\n";
        assert_eq!(compact(document), "{\"a b\":[1.50,\"x \\\" \u{e4}\",true]}");
    }
}
