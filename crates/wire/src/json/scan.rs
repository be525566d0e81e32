//! One look at the bytes of a document before anything reads it.
//!
//! A reader that keeps values as text does not look into them, and clients that read them later do.
//! To them half of a surrogate pair is no text, a number beyond 64-bit floats is no number, and
//! arrays that are nested too deeply overflow a stack.

use outlast_core::limits::JSON_DEPTH_MAX;

/// Numbers that are this short and have no exponent are never too large.
const LARGE_BYTES: usize = 300;

/// Something that not every reader of JSON can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is nested too deeply.
    Depth,
    /// At this byte there is an escape of half a surrogate pair.
    Surrogate(usize),
    /// At this byte a number begins that no 64-bit float is as large as.
    Number(usize),
}

impl Unreadable {
    /// Returns where it is, if it is in one place, and what it is.
    pub(super) fn words(self) -> (Option<usize>, String) {
        match self {
            Self::Depth => (None, format!("is nested more than {JSON_DEPTH_MAX} levels deep")),
            Self::Surrogate(at) => (Some(at), "half of a surrogate pair is no text".to_owned()),
            Self::Number(at) => (Some(at), "number is too large for a 64-bit float".to_owned()),
        }
    }
}

/// Looks for what not every reader can read. What is no JSON at all is for the reader to report.
pub(super) fn check(body: &[u8]) -> Result<(), Unreadable> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = body.get(at) {
        at = match byte {
            b'"' => after_text(body, at)?,
            b'-' | b'0'..=b'9' => {
                let end = after_number(body, at);
                let number = body.get(at..end).unwrap_or_default();
                if is_too_large(number) {
                    return Err(Unreadable::Number(at));
                }
                end
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(Unreadable::Depth);
                }
                at + 1
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at + 1
            }
            _ => at + 1,
        };
    }
    Ok(())
}

/// Returns the place after the text that begins at `at`.
pub(super) fn after_text(body: &[u8], at: usize) -> Result<usize, Unreadable> {
    let mut at = at + 1;
    while let Some(byte) = body.get(at) {
        at = match byte {
            b'"' => return Ok(at + 1),
            b'\\' => after_escape(body, at)?,
            _ => at + 1,
        };
    }
    Ok(at)
}

fn after_escape(body: &[u8], at: usize) -> Result<usize, Unreadable> {
    match (unit(body, at), unit(body, at + 6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => Ok(at + 12),
        (Some(0xd800..=0xdfff), _) => Err(Unreadable::Surrogate(at)),
        _ => Ok(at + 2),
    }
}

/// Returns what an escape such as `\u00e4` stands for.
fn unit(body: &[u8], at: usize) -> Option<u16> {
    let digits = body.get(at..at + 6)?.strip_prefix(br"\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u16::from_str_radix(digits, 16).ok()
}

/// Returns the place after the number that begins at `at`.
pub(super) fn after_number(body: &[u8], at: usize) -> usize {
    let rest = body.get(at..).unwrap_or_default();
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    at + rest.iter().take_while(|byte| is_of_number(byte)).count()
}

fn is_too_large(number: &[u8]) -> bool {
    if number.len() < LARGE_BYTES && !number.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return false;
    }
    let number = std::str::from_utf8(number).unwrap_or_default();
    number.parse::<f64>().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::{Unreadable, check};

    #[test]
    fn half_a_surrogate_pair_is_found_where_it_is_and_a_whole_one_is_text() {
        let at = |text: &str| check(text.as_bytes());
        assert_eq!(at(r#"["\ud83d\ude00", "\\ud800", "\u00e4"]"#), Ok(()));
        assert_eq!(at(r#"["\ud800"]"#), Err(Unreadable::Surrogate(2)));
        assert_eq!(at(r#"{"\udc00": 1}"#), Err(Unreadable::Surrogate(2)));
        assert_eq!(at(r#"["a\ud800\u0041"]"#), Err(Unreadable::Surrogate(3)));
        assert_eq!(at(r#"["\uD800\uD800"]"#), Err(Unreadable::Surrogate(2)));
    }

    #[test]
    fn number_beyond_every_float_is_found_where_it_is() {
        let at = |text: &str| check(text.as_bytes());
        assert_eq!(at(r#"[1e308, -1.5E-400, 123456789012345678901, "1e400"]"#), Ok(()));
        assert_eq!(at("[1, 1e400]"), Err(Unreadable::Number(4)));
        assert_eq!(at("-1E+999"), Err(Unreadable::Number(0)));
        let (fits, large) = ("9".repeat(308), "9".repeat(400));
        assert_eq!((at(&fits), at(&large)), (Ok(()), Err(Unreadable::Number(0))));
    }

    #[test]
    fn depth_counts_what_is_open_and_no_brackets_in_text() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check(nested(64).as_bytes()), Ok(()));
        assert_eq!(check(nested(65).as_bytes()), Err(Unreadable::Depth));
        assert_eq!(check(format!("[{0}, {0}]", nested(63)).as_bytes()), Ok(()));
        assert_eq!(check(format!("\"{}\"", "[".repeat(99)).as_bytes()), Ok(()));
        // What is cut is for the reader to report.
        for cut in ["\"\\", "\"\\u", "\"\\ud800", "-", "["] {
            assert_ne!(check(cut.as_bytes()), Err(Unreadable::Depth));
        }
    }
}
