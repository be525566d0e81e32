//! The text of an expression before the parser sees it: its end, size and nesting.
//!
//! The parser recurses on brackets and on `? :`. Text from outside must not decide how much stack
//! that takes.

use super::ExpressionError;
use crate::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, EXPRESSION_NODES_MAX};

/// What a byte of an expression is to these checks.
enum Mark {
    Open(u8),
    Close(u8),
    Question,
    /// Another byte that is not within quotes, and not a letter, digit or space.
    Sign,
    Other,
}

/// Walks over an expression and knows where text begins and ends in it.
struct Marks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Marks<'_> {
    type Item = (usize, Mark);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let byte = *self.bytes.get(at)?;
        self.at += 1;
        let mark = match byte {
            b'(' | b'[' | b'{' => Mark::Open(byte),
            b')' | b']' | b'}' => Mark::Close(byte),
            b'?' => Mark::Question,
            b'"' | b'\'' => {
                self.skip_text(at, byte);
                Mark::Other
            }
            b'/' if self.bytes.get(self.at) == Some(&b'/') => {
                self.skip_comment();
                Mark::Other
            }
            byte if byte.is_ascii_punctuation() && byte != b'_' => Mark::Sign,
            _ => Mark::Other,
        };
        Some((at, mark))
    }
}

impl Marks<'_> {
    /// Goes to behind the text that begins at `start` with this quote, or to the end.
    fn skip_text(&mut self, start: usize, quote: u8) {
        let raw = start
            .checked_sub(1)
            .and_then(|before| self.bytes.get(before))
            .is_some_and(|before| before.eq_ignore_ascii_case(&b'r'));
        let three = [quote; 3];
        let rest = self.bytes.get(start..).unwrap_or_default();
        let ending: &[u8] = if rest.starts_with(&three) { &three } else { &three[..1] };
        self.at = start + ending.len();
        while let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with(ending) {
                self.at += ending.len();
                return;
            }
            self.at += if rest[0] == b'\\' && !raw { 2 } else { 1 };
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn skip_comment(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| *byte != b'\n') {
            self.at += 1;
        }
    }
}

/// Returns where the `}}` is that ends the expression which `text` begins with.
pub(crate) fn end_of_expression(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, mark) in (Marks { bytes: text.as_bytes(), at: 0 }) {
        match mark {
            Mark::Open(b'{') => open += 1,
            Mark::Close(b'}') if open > 0 => open -= 1,
            Mark::Close(b'}') if text[at..].starts_with("}}") => return Some(at),
            Mark::Open(_) | Mark::Close(_) | Mark::Question | Mark::Sign | Mark::Other => {}
        }
    }
    None
}

/// Checks size and nesting.
pub(crate) fn check(source: &str) -> Result<(), ExpressionError> {
    if source.is_empty() {
        return Err(ExpressionError("is empty; write an expression such as `item.name`".into()));
    }
    if source.len() > EXPRESSION_BYTES_MAX {
        let problem = format!(
            "has {} bytes, more than {EXPRESSION_BYTES_MAX}; let a step compute it",
            source.len()
        );
        return Err(ExpressionError(problem));
    }
    let (mut open, mut questions, mut signs) = (0_usize, 0_usize, 0_usize);
    for (_, mark) in (Marks { bytes: source.as_bytes(), at: 0 }) {
        match mark {
            Mark::Open(_) => open += 1,
            Mark::Close(_) => open = open.saturating_sub(1),
            Mark::Question => questions += 1,
            Mark::Sign => signs += 1,
            Mark::Other => {}
        }
        if open > EXPRESSION_DEPTH_MAX || questions > EXPRESSION_DEPTH_MAX {
            let problem = format!(
                "nests deeper than {EXPRESSION_DEPTH_MAX} brackets or questions; let a step compute it"
            );
            return Err(ExpressionError(problem));
        }
        // Each node but a name needs a sign; a comparison has two.
        if signs > 2 * EXPRESSION_NODES_MAX {
            return Err(too_many_nodes());
        }
    }
    Ok(())
}

pub(crate) fn too_many_nodes() -> ExpressionError {
    ExpressionError(format!(
        "has more than {EXPRESSION_NODES_MAX} names, values and operators; let a step compute it"
    ))
}
