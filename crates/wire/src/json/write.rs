//! Writes JSON straight into a buffer: no tree, and text that is JSON already goes in as
//! it is.

use std::fmt::Display;
use std::io::Write as _;

use outlast_core::time::{Span, Timestamp};

use crate::time;

/// An object under construction. Call [`Object::end`], or it stays open.
#[derive(Debug)]
pub struct Object<'o> {
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'o> Object<'o> {
    /// Opens an object at the end of `out`.
    #[must_use]
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Goes on with an object whose `{` and at least one field are in `out` already.
    #[must_use]
    pub const fn resume(out: &'o mut Vec<u8>) -> Self {
        Self { out, empty: false }
    }

    /// Writes a text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        string(self.out, value);
    }

    /// Writes a text, or `null`.
    pub fn text_or_null(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.raw(key, "null"),
        }
    }

    /// Writes what is JSON already.
    pub fn raw(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Writes what is JSON already, or `null`.
    pub fn raw_or_null(&mut self, key: &str, json: Option<&str>) {
        self.raw(key, json.unwrap_or("null"));
    }

    /// Writes a number, or anything else that shows itself as JSON.
    pub fn number(&mut self, key: &str, value: impl Display) {
        self.key(key);
        show(self.out, &value);
    }

    /// Writes a truth value.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.raw(key, if value { "true" } else { "false" });
    }

    /// Writes something that shows itself without characters that need an escape, such
    /// as an id, as a text.
    pub fn plain(&mut self, key: &str, value: impl Display) {
        self.key(key);
        self.out.push(b'"');
        show(self.out, &value);
        self.out.push(b'"');
    }

    /// Writes an instant.
    pub fn time(&mut self, key: &str, at: Timestamp) {
        self.plain(key, time::Rfc3339(at));
    }

    /// Writes an instant, or leaves the field out.
    pub fn time_if(&mut self, key: &str, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.time(key, at);
        }
    }

    /// Writes an instant, or `null`.
    pub fn time_or_null(&mut self, key: &str, at: Option<Timestamp>) {
        match at {
            Some(at) => self.time(key, at),
            None => self.raw(key, "null"),
        }
    }

    /// Writes a span as a number of seconds, with milliseconds only where there are some.
    pub fn seconds(&mut self, key: &str, span: Span) {
        match span.as_millis() % 1000 {
            0 => self.number(key, span.as_secs()),
            rest => self.number(key, format_args!("{}.{rest:03}", span.as_secs())),
        }
    }

    /// Writes a span as a number of seconds, or `null`.
    pub fn seconds_or_null(&mut self, key: &str, span: Option<Span>) {
        match span {
            Some(span) => self.seconds(key, span),
            None => self.raw(key, "null"),
        }
    }

    /// Writes an object of its own.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        let mut inner = Object::begin(self.out);
        fill(&mut inner);
        inner.end();
    }

    /// Writes an array, each item by `write`.
    pub fn array<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Vec<u8>, T),
    ) {
        self.key(key);
        self.out.push(b'[');
        for (n, item) in items.into_iter().enumerate() {
            if n > 0 {
                self.out.push(b',');
            }
            write(self.out, item);
        }
        self.out.push(b']');
    }

    /// Writes an array of texts.
    pub fn texts<'t>(&mut self, key: &str, items: impl IntoIterator<Item = &'t str>) {
        self.array(key, items, string);
    }

    /// Closes the object.
    pub fn end(self) {
        self.out.push(b'}');
    }

    fn key(&mut self, key: &str) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        string(self.out, key);
        self.out.push(b':');
    }
}

/// Writes a text with its quotes and escapes.
pub(crate) fn string(out: &mut Vec<u8>, value: &str) {
    let plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    if value.as_bytes().iter().all(plain) {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    } else {
        // Writing a text into a buffer in memory cannot fail.
        serde_json::to_writer(out, value).unwrap_or_default();
    }
}

fn show(out: &mut Vec<u8>, value: &impl Display) {
    // Writing into a buffer in memory cannot fail.
    write!(out, "{value}").unwrap_or_default();
}
