//! Hiding secret values in what a job prints and answers.
//!
//! Values are replaced as they stand, and as JSON writes them. A value that the job encodes in
//! another way is not recognised; short ones would hide half of every log and are left alone.

use serde_json::Value;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Shorter values are left alone.
const SHORTEST: usize = 4;
/// A line of a value of several lines is hidden by itself from this length on: a key is printed
/// line by line.
const LINE_SHORTEST: usize = 8;

/// The values to hide in one attempt's output.
#[derive(Clone, Default)]
pub struct Mask {
    /// Longest first, so that no part of a value hides the rest of it.
    values: Vec<Vec<u8>>,
}

/// Shows how many there are, never what.
impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} values)", self.values.len())
    }
}

impl Mask {
    /// Hides these values.
    #[must_use]
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = Vec::new();
        for value in values {
            let value = value.trim_ascii_end();
            add(&mut all, value, SHORTEST);
            let lines = value.split(|byte| *byte == b'\n');
            lines.for_each(|line| add(&mut all, line.trim_ascii(), LINE_SHORTEST));
        }
        all.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        all.dedup();
        Self { values: all }
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Drops what a cut left of a value at the beginning of `bytes`.
    pub fn drop_cut_beginning(&self, bytes: &mut Vec<u8>) {
        let left = |len: usize| {
            let part = bytes.get(..len).unwrap_or_default();
            self.values.iter().any(|value| value.len() > len && value.ends_with(part))
        };
        let longest = self.longest_part(bytes);
        let cut = (1..=longest).rev().find(|len| left(*len)).unwrap_or(0);
        bytes.drain(..cut);
    }

    /// Drops what a cut left of a value at the end of `bytes`.
    pub fn drop_cut_end(&self, bytes: &mut Vec<u8>) {
        let left = |len: usize| {
            let part = bytes.get(bytes.len() - len..).unwrap_or_default();
            self.values.iter().any(|value| value.len() > len && value.starts_with(part))
        };
        let longest = self.longest_part(bytes);
        let cut = (1..=longest).rev().find(|len| left(*len)).unwrap_or(0);
        bytes.truncate(bytes.len() - cut);
    }

    /// The longest part of a value that may be at an edge.
    fn longest_part(&self, bytes: &[u8]) -> usize {
        self.values.first().map_or(0, |longest| longest.len() - 1).min(bytes.len())
    }

    /// Hides values in a text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut masked = Vec::with_capacity(text.len());
        self.replace(text.as_bytes(), true, &mut masked);
        String::from_utf8_lossy(&masked).into_owned()
    }

    /// Hides values in every text, name and number of a JSON document; bytes that are none are
    /// hidden in as they are.
    #[must_use]
    pub fn json(&self, document: Vec<u8>) -> Vec<u8> {
        if self.is_empty() || document.is_empty() {
            return document;
        }
        match serde_json::from_slice(&document) {
            Ok(value) => self.value(value).to_string().into_bytes(),
            Err(_) => {
                let mut masked = Vec::with_capacity(document.len());
                self.replace(&document, true, &mut masked);
                masked
            }
        }
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Number(number) => {
                let text = number.to_string();
                let masked = self.text(&text);
                if masked == text { Value::Number(number) } else { Value::String(masked) }
            }
            Value::Array(list) => list.into_iter().map(|inner| self.value(inner)).collect(),
            Value::Object(map) => {
                map.into_iter().map(|(name, inner)| (self.text(&name), self.value(inner))).collect()
            }
            other @ (Value::Null | Value::Bool(_)) => other,
        }
    }

    /// Masks into `masked` and returns how much of `bytes` is done: all of it at the end, else
    /// all but what may be the beginning of a value.
    fn replace(&self, bytes: &[u8], at_end: bool, masked: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let may_grow = |value: &Vec<u8>| value.len() > rest.len() && value.starts_with(rest);
            if !at_end && self.values.iter().any(may_grow) {
                return at;
            } else if let Some(found) = self.values.iter().find(|value| rest.starts_with(value)) {
                masked.extend_from_slice(HIDDEN.as_bytes());
                at += found.len();
            } else {
                masked.extend(rest.first());
                at += 1;
            }
        }
        at
    }
}

/// Adds a value, and the way JSON writes it where that is another.
fn add(all: &mut Vec<Vec<u8>>, value: &[u8], shortest: usize) {
    if value.len() < shortest {
        return;
    }
    all.push(value.to_vec());
    let Ok(text) = std::str::from_utf8(value) else { return };
    let written = Value::from(text).to_string();
    let inner = written.get(1..written.len() - 1).unwrap_or_default();
    if inner != text {
        all.push(inner.as_bytes().to_vec());
    }
}

/// A stream of output on its way past a [`Mask`]. A value that is split between two pieces is
/// found all the same: what may be its beginning waits for the next piece.
#[derive(Debug)]
pub struct Masking<'a> {
    mask: &'a Mask,
    waiting: Vec<u8>,
}

impl<'a> Masking<'a> {
    /// Masks one stream.
    #[must_use]
    pub fn new(mask: &'a Mask) -> Self {
        Self { mask, waiting: Vec::new() }
    }

    /// Masks the next piece; returns what can be shown by now.
    pub fn next(&mut self, piece: Vec<u8>) -> Vec<u8> {
        if self.mask.is_empty() {
            return piece;
        }
        self.waiting.extend(piece);
        self.flow(false)
    }

    /// Returns what still waited: the stream is over.
    pub fn end(&mut self) -> Vec<u8> {
        self.flow(true)
    }

    /// Forgets what still waited: the stream was cut there, perhaps within a value.
    pub fn cut(&mut self) {
        self.waiting.clear();
    }

    fn flow(&mut self, at_end: bool) -> Vec<u8> {
        let mut masked = Vec::with_capacity(self.waiting.len());
        let done = self.mask.replace(&self.waiting, at_end, &mut masked);
        self.waiting.drain(..done);
        masked
    }
}

#[cfg(test)]
mod tests {
    use super::{Mask, Masking};

    fn mask(values: &[&str]) -> Mask {
        Mask::of(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn values_are_hidden_in_texts_and_documents() {
        let mask = mask(&["sesame\n", "pa\"ss", "12345678", "abc"]);
        assert_eq!(mask.text("open sesame, abc"), "open ***, abc");
        let document = br#"{"sesame":["x sesame",12345678,1],"q":"pa\"ss"}"#.to_vec();
        let masked = String::from_utf8(mask.json(document)).unwrap();
        assert_eq!(masked, r#"{"***":["x ***","***",1],"q":"***"}"#);
        assert_eq!(mask.text(r#"{"q":"pa\"ss"}"#), r#"{"q":"***"}"#);
    }

    #[test]
    fn a_key_is_hidden_line_by_line() {
        let mask = mask(&["-----BEGIN KEY-----\nMIIBVgIBADANBg\nend\n"]);
        assert_eq!(mask.text("> MIIBVgIBADANBg\nend"), "> ***\nend");
    }

    #[test]
    fn a_value_split_between_pieces_is_hidden_and_nothing_else_is_held_back_for_long() {
        let mask = mask(&["sesame", "sesame-street"]);
        for cut in 0..24 {
            let text = b"a sesa sesame-street ses".to_vec();
            let mut stream = Masking::new(&mask);
            let mut shown = stream.next(text[..cut].to_vec());
            shown.extend(stream.next(text[cut..].to_vec()));
            shown.extend(stream.end());
            assert_eq!(String::from_utf8(shown).unwrap(), "a sesa *** ses", "cut at {cut}");
        }
        let mut stream = Masking::new(&mask);
        assert_eq!(stream.next(b"line\n".to_vec()), b"line\n");
        assert_eq!(stream.next(b"cut in ses".to_vec()), b"cut in ");
        stream.cut();
        assert_eq!(stream.end(), b"");
    }
}
