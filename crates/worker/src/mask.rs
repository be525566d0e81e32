//! Hiding secret values in what a job prints and answers.
//!
//! Values are replaced as they stand, and as JSON writes them. A value that the job encodes in
//! another way is not recognised; short ones would hide half of every log and are left alone.
//!
//! All values are looked for at once, by an automaton that takes one step for each byte of
//! output, however many values there are and however many lines each has. Every byte that belongs
//! to any of them is hidden, also where values overlap.

use std::sync::Arc;

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::nfa::noncontiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use serde_json::Value;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Shorter values are left alone.
const SHORTEST: usize = 4;
/// A line of a value of several lines is hidden by itself from this length on: a key is printed
/// line by line.
const LINE_SHORTEST: usize = 8;

/// The values to hide in one attempt's output. Cheap to clone.
#[derive(Clone, Default)]
pub struct Mask(Option<Arc<Values>>);

/// At least one value, and what finds them.
struct Values {
    list: Vec<Vec<u8>>,
    automaton: NFA,
    start: StateID,
    /// How many of the last bytes may be the beginning of a value, by state.
    depths: Vec<usize>,
}

/// There is more to hide than can be searched for.
#[derive(Debug, thiserror::Error)]
#[error("secret values cannot be masked: {0}")]
pub struct MaskError(String);

/// Shows how many there are, never what.
impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} values)", self.0.as_ref().map_or(0, |values| values.list.len()))
    }
}

impl Mask {
    /// Hides these values.
    ///
    /// # Errors
    /// If they are too long to be searched for: far longer than any parameters and secrets.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Self, MaskError> {
        let mut all = Vec::new();
        for value in values {
            let value = value.trim_ascii_end();
            add(&mut all, value, SHORTEST);
            let lines = value.split(|byte| *byte == b'\n');
            lines.for_each(|line| add(&mut all, line.trim_ascii(), LINE_SHORTEST));
        }
        all.sort_unstable();
        all.dedup();
        if all.is_empty() {
            return Ok(Self(None));
        }
        Ok(Self(Some(Arc::new(Values::new(all)?))))
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Drops what a cut left of a value at the beginning of `bytes`.
    pub fn drop_cut_beginning(&self, bytes: &mut Vec<u8>) {
        let Some(values) = &self.0 else { return };
        let beginning = bytes.get(..values.longest().min(bytes.len())).unwrap_or_default();
        let borders = borders(beginning);
        let ends = values.list.iter().map(|value| end_in(value, beginning, &borders));
        bytes.drain(..ends.max().unwrap_or(0));
    }

    /// Drops what a cut left of a value at the end of `bytes`.
    pub fn drop_cut_end(&self, bytes: &mut Vec<u8>) {
        let Some(values) = &self.0 else { return };
        let end = bytes.len().saturating_sub(values.longest());
        let end = bytes.get(end..).unwrap_or_default();
        let end = end.iter().fold(values.start, |state, byte| values.after(state, *byte));
        bytes.truncate(bytes.len() - values.depth(end));
    }

    /// Hides values in a text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes().to_vec())).into_owned()
    }

    /// Hides values in every text, name and number of a JSON document; bytes that are none are
    /// hidden in as they are.
    #[must_use]
    pub fn json(&self, document: Vec<u8>) -> Vec<u8> {
        if self.is_empty() || document.is_empty() {
            return document;
        }
        match std::str::from_utf8(&document) {
            Ok(text) if serde_json::from_str::<Value>(text).is_ok() => {
                self.document(text).into_bytes()
            }
            _ => self.bytes(document),
        }
    }

    /// Masks each text and number of a valid document where it stands: all else stays as it was
    /// written.
    fn document(&self, mut rest: &str) -> String {
        let mut masked = String::with_capacity(rest.len());
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '"' => text_length(rest),
                '-' | '0'..='9' => rest.find(is_not_of_number).unwrap_or(rest.len()),
                other => other.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            rest = after;
            match serde_json::from_str(token) {
                Ok(Value::String(text)) => {
                    let hidden = self.text(&text);
                    let is_same = hidden == text;
                    masked +=
                        &if is_same { token.to_owned() } else { Value::from(hidden).to_string() };
                }
                Ok(Value::Number(_)) => {
                    let hidden = self.text(token);
                    let is_same = hidden == token;
                    masked += &if is_same { hidden } else { Value::from(hidden).to_string() };
                }
                _ => masked += token,
            }
        }
        masked
    }

    fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut stream = Masking::new(self);
        let mut masked = stream.next(bytes);
        masked.extend(stream.end());
        masked
    }
}

impl Values {
    fn new(list: Vec<Vec<u8>>) -> Result<Self, MaskError> {
        let automaton = NFA::builder()
            .match_kind(MatchKind::Standard)
            .prefilter(false)
            .build(&list)
            .map_err(|error| MaskError(error.to_string()))?;
        let start = automaton.start_state(Anchored::No);
        let start = start.map_err(|error| MaskError(error.to_string()))?;
        let mut values = Self { list, automaton, start, depths: Vec::new() };
        values.depths = values.measure();
        Ok(values)
    }

    /// The depth of a state is the length of the beginning of a value that leads to it.
    fn measure(&self) -> Vec<usize> {
        let mut depths = Vec::new();
        for value in &self.list {
            let mut state = self.start;
            for (at, byte) in value.iter().enumerate() {
                state = self.after(state, *byte);
                let index = state.as_usize();
                if depths.len() <= index {
                    depths.resize(index + 1, 0);
                }
                if let Some(depth) = depths.get_mut(index) {
                    *depth = at + 1;
                }
            }
        }
        depths
    }

    fn longest(&self) -> usize {
        self.automaton.max_pattern_len()
    }

    fn after(&self, state: StateID, byte: u8) -> StateID {
        self.automaton.next_state(Anchored::No, state, byte)
    }

    fn depth(&self, state: StateID) -> usize {
        self.depths.get(state.as_usize()).copied().unwrap_or(0)
    }

    /// The length of the longest value that ends here.
    fn found(&self, state: StateID) -> Option<usize> {
        let is_match = self.automaton.is_match(state);
        // The first is that of the state itself, those after it are its ends.
        is_match.then(|| self.automaton.pattern_len(self.automaton.match_pattern(state, 0)))
    }
}

/// How much of `beginning` one `value` ends in, at most. `borders` are those of `beginning`.
fn end_in(value: &[u8], beginning: &[u8], borders: &[usize]) -> usize {
    value.iter().fold(0, |matched, byte| longer(matched, *byte, beginning, borders))
}

/// For each part from the beginning: the longest shorter one that it ends in.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let mut borders = Vec::with_capacity(bytes.len());
    let mut matched = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            matched = longer(matched, *byte, bytes, &borders);
        }
        borders.push(matched);
    }
    borders
}

/// How much of `bytes` is matched after one more byte, if `matched` was before it.
fn longer(mut matched: usize, byte: u8, bytes: &[u8], borders: &[usize]) -> usize {
    while matched > 0 && bytes.get(matched) != Some(&byte) {
        matched = borders.get(matched - 1).copied().unwrap_or(0);
    }
    if bytes.get(matched) == Some(&byte) { matched + 1 } else { 0 }
}

/// Returns how long the text is that a valid document begins with, with its quotes.
fn text_length(document: &str) -> usize {
    let mut escaped = false;
    let end = document.char_indices().skip(1).find(|(_, letter)| {
        let ends = *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    end.map_or(document.len(), |(at, _)| at + 1)
}

const fn is_not_of_number(letter: char) -> bool {
    !matches!(letter, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
}

/// Adds a value, and the ways in which JSON is written with it where these are others.
fn add(all: &mut Vec<Vec<u8>>, value: &[u8], shortest: usize) {
    if value.len() < shortest {
        return;
    }
    all.push(value.to_vec());
    // Where output becomes text, other bytes than UTF-8 are replaced.
    let text = &*String::from_utf8_lossy(value);
    if text.as_bytes() != value {
        all.push(text.as_bytes().to_vec());
    }
    let quoted = Value::from(text).to_string();
    let written = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    // Then as Python's json.dumps and Go's json.Marshal write it, and as both together.
    let spellings = [
        written.to_owned(),
        escaped(written, |letter| !letter.is_ascii() || letter == '\u{7f}'),
        escaped(written, |letter| matches!(letter, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')),
        escaped(written, |letter| !letter.is_ascii() || matches!(letter, '<' | '>' | '&')),
    ];
    for spelling in spellings {
        let spelling = spelling.into_bytes();
        if !all.contains(&spelling) {
            all.push(spelling);
        }
    }
}

/// Writes letters as escapes such as `\u00e4`.
fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut written = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_escaped(letter) {
            let mut units = [0; 2];
            written.extend(
                letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")),
            );
        } else {
            written.push(letter);
        }
    }
    written
}

/// A stream of output on its way past a [`Mask`]. A value that is split between two pieces is
/// found all the same: what may be its beginning waits for the next piece.
#[derive(Debug)]
pub struct Masking {
    mask: Mask,
    state: Option<StateID>,
    waiting: Vec<u8>,
    /// What is hidden of `waiting`: beginnings and ends in order, without overlaps.
    hidden: Vec<(usize, usize)>,
    /// The first of them began in what was shown before.
    goes_on: bool,
}

impl Masking {
    /// Masks one stream.
    #[must_use]
    pub fn new(mask: &Mask) -> Self {
        let mask = mask.clone();
        Self { mask, state: None, waiting: Vec::new(), hidden: Vec::new(), goes_on: false }
    }

    /// Masks the next piece; returns what can be shown by now.
    pub fn next(&mut self, piece: Vec<u8>) -> Vec<u8> {
        let Some(values) = self.mask.0.clone() else { return piece };
        let mut state = self.state.unwrap_or(values.start);
        for (at, byte) in piece.iter().enumerate() {
            state = values.after(state, *byte);
            if let Some(length) = values.found(state) {
                self.hide(length, self.waiting.len() + at + 1);
            }
        }
        self.state = Some(state);
        self.waiting.extend(piece);
        self.show(self.waiting.len() - values.depth(state))
    }

    /// Returns what still waited: the stream is over.
    pub fn end(&mut self) -> Vec<u8> {
        let shown = self.show(self.waiting.len());
        self.cut();
        shown
    }

    /// Forgets what still waited: the stream was cut there, perhaps within a value.
    pub fn cut(&mut self) {
        *self = Self::new(&self.mask);
    }

    /// Hides what ends at `end`, together with what it overlaps.
    fn hide(&mut self, length: usize, end: usize) {
        let mut start = end.saturating_sub(length);
        while let Some(last) = self.hidden.pop_if(|last| last.1 > start) {
            start = start.min(last.0);
        }
        self.hidden.push((start, end));
    }

    /// Takes the first `done` bytes of what waits, with values hidden.
    fn show(&mut self, done: usize) -> Vec<u8> {
        let mut shown = Vec::with_capacity(done);
        let mut at = 0;
        let begun = self.hidden.iter().take_while(|(start, _)| *start < done).count();
        let mut goes_on = self.goes_on && begun == 0;
        for (start, end) in self.hidden.drain(..begun) {
            shown.extend_from_slice(self.waiting.get(at..start).unwrap_or_default());
            if !std::mem::take(&mut self.goes_on) {
                shown.extend_from_slice(HIDDEN.as_bytes());
            }
            at = end;
            goes_on = end > done;
        }
        shown.extend_from_slice(self.waiting.get(at..done).unwrap_or_default());
        for (start, end) in &mut self.hidden {
            (*start, *end) = (*start - done, *end - done);
        }
        if goes_on && begun > 0 {
            self.hidden.insert(0, (0, at - done));
        }
        self.goes_on = goes_on;
        self.waiting.drain(..done);
        shown
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::time::Span;

    use super::{Mask, Masking};
    use crate::clock::boot_now;

    fn mask(values: &[&str]) -> Mask {
        Mask::of(values.iter().map(|value| value.as_bytes())).unwrap()
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
    fn what_is_not_hidden_in_a_document_stays_as_it_was_written() {
        let mask = mask(&["sesame"]);
        let document = r#"{ "n": 123456789012345678901, "d":0.12345678901234567891,
            "q": ["a\u00e4\"\\", "x\\", -1.50, true, null, "sesame"] }"#;
        let masked = String::from_utf8(mask.json(document.into())).unwrap();
        assert_eq!(masked, document.replace("sesame", "***"));
    }

    #[test]
    fn values_are_hidden_as_python_and_go_write_them() {
        let mask = mask(&["p\u{e4}ssw&rd<\u{1f600}"]);
        for spelling in [
            "p\u{e4}ssw&rd<\u{1f600}",
            r"p\u00e4ssw&rd<\ud83d\ude00",
            "p\u{e4}ssw\\u0026rd\\u003c\u{1f600}",
            r"p\u00e4ssw\u0026rd\u003c\ud83d\ude00",
        ] {
            assert_eq!(mask.text(&format!("{{\"pw\": \"{spelling}\"}}")), "{\"pw\": \"***\"}");
        }
    }

    // It was hidden in the log, and shown in the result and the error.
    #[test]
    fn a_value_that_is_no_text_is_hidden_also_where_it_was_made_one() {
        let value = b"s\xfcper-geheim";
        let mask = Mask::of([value.as_slice()].into_iter()).unwrap();
        let text = String::from_utf8_lossy(b"pw s\xfcper-geheim!");
        assert_eq!(mask.text(&text), "pw ***!");
        let document = serde_json::json!({ "stdout": text }).to_string();
        assert_eq!(mask.json(document.into()), br#"{"stdout":"pw ***!"}"#);
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

    /// Hides every byte of every value, the slow way.
    fn covered(text: &str, values: &[&str]) -> String {
        let mut hidden: Vec<(usize, usize)> = Vec::new();
        for start in 0..text.len() {
            let found = values.iter().filter(|value| text[start..].starts_with(**value));
            let Some(length) = found.map(|value| value.len()).max() else { continue };
            match hidden.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(start + length),
                _ => hidden.push((start, start + length)),
            }
        }
        let mut shown = String::new();
        let mut at = 0;
        for (start, end) in hidden {
            shown.push_str(&text[at..start]);
            shown.push_str("***");
            at = end;
        }
        shown + &text[at..]
    }

    #[test]
    fn every_byte_of_a_value_is_hidden_wherever_the_output_is_split() {
        let values = ["aaaa", "abab", "babbab", "aabaabaa"];
        let mask = mask(&values);
        for pattern in 0..1_u32 << 13 {
            let text: String =
                (0..13).map(|bit| if pattern >> bit & 1 == 0 { 'a' } else { 'b' }).collect();
            let expected = covered(&text, &values);
            for cut in [0, 3, 5, 8, 11] {
                let mut stream = Masking::new(&mask);
                let mut shown = stream.next(text.as_bytes()[..cut].to_vec());
                shown.extend(stream.next(text.as_bytes()[cut..cut + 1].to_vec()));
                shown.extend(stream.next(text.as_bytes()[cut + 1..].to_vec()));
                shown.extend(stream.end());
                assert_eq!(String::from_utf8(shown).unwrap(), expected, "{text} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_a_cut_leaves_of_a_value_is_dropped() {
        let mask = mask(&["sesame-street", "street-lamps\nshine-brightly"]);
        for (cut, left) in [("me-street, ok", ", ok"), ("street, ok", ", ok"), ("ok, no", "ok, no")]
        {
            let mut bytes = cut.as_bytes().to_vec();
            mask.drop_cut_beginning(&mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), left);
        }
        for (cut, left) in
            [("ok, sesame-str", "ok, "), ("ok, shine-b", "ok, "), ("ok, no", "ok, no")]
        {
            let mut bytes = cut.as_bytes().to_vec();
            mask.drop_cut_end(&mut bytes);
            assert_eq!(String::from_utf8(bytes).unwrap(), left);
        }
    }

    /// Comparing every value at every byte would take hours.
    #[test]
    fn masking_takes_no_longer_for_a_secret_of_many_lines() {
        let lines = (0..6000_u32).map(|line| format!("{:010}", line.wrapping_mul(2_654_435_761)));
        let secret = lines.collect::<Vec<_>>().join("\n");
        let before = boot_now();
        let mask = mask(&[&secret]);
        let mut stream = Masking::new(&mask);
        let piece = "an ordinary line of output, and a number such as 0000000017\n".repeat(1000);
        let mut shown = 0;
        while shown < 10 << 20 {
            shown += stream.next(piece.clone().into_bytes()).len();
        }
        let mut cut = secret.as_bytes()[100..].to_vec();
        mask.drop_cut_beginning(&mut cut);
        assert!(cut.is_empty());
        let took = boot_now().since(before);
        assert!(took < Span::from_millis(30_000), "took {took:?}");
    }
}
