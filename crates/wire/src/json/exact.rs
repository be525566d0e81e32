//! Which numbers a reader with 64-bit integers and floats keeps.

use serde_json::Value;

use super::scan;

/// Decimal numbers with so many digits come back from a 64-bit float as they were.
const SAFE_DIGITS: usize = 15;

/// A number that is not kept as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// As it is written.
    pub given: String,
    /// As it would be read and written again.
    pub becomes: String,
}

/// Returns the first number of a JSON document that is another one when it is read into 64-bit
/// integers and floats.
#[must_use]
pub fn changed_number(document: &str) -> Option<Changed> {
    let bytes = document.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'"' => scan::after_text(bytes, at).ok()?,
            b'-' | b'0'..=b'9' => {
                let end = scan::after_number(bytes, at);
                if let Some(changed) = changed(document.get(at..end)?) {
                    return Some(changed);
                }
                end
            }
            _ => at + 1,
        };
    }
    None
}

fn changed(given: &str) -> Option<Changed> {
    let is_plain = !given.contains(['e', 'E']);
    if is_plain && given.bytes().filter(u8::is_ascii_digit).count() <= SAFE_DIGITS {
        return None;
    }
    // What cannot be read is for the reader to report.
    let becomes = serde_json::from_str::<Value>(given).ok()?.to_string();
    let is_same = Decimal::of(given) == Decimal::of(&becomes);
    (!is_same).then(|| Changed { given: given.to_owned(), becomes })
}

/// A number by its value: 1.50, 1.5 and 15e-1 are one.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(number: &str) -> Option<Self> {
        let (number, negative) = match number.strip_prefix('-') {
            Some(positive) => (positive, true),
            None => (number, false),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        let shifted = i64::try_from(all.len() - digits.len()).ok()?;
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { negative: false, digits, exponent: 0 });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let exponent = exponent - i64::try_from(fraction.len()).ok()? + shifted;
        Some(Self { negative, digits, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, changed_number};

    #[test]
    fn numbers_that_lose_digits_are_found_and_others_are_not() {
        let kept = r#"{"a": [1, -0, 1.50, 0.1, 1e3, 1.0E-7, 18446744073709551615, -9223372036854775808],
            "b": 0.30000000000000004, "c": 100000000000000000000, "d": "123456789012345678901"}"#;
        assert_eq!(changed_number(kept), None);
        let changed = |given: &str, becomes: &str| {
            let expected = Changed { given: given.to_owned(), becomes: becomes.to_owned() };
            assert_eq!(changed_number(&format!("{{\"n\": [{given}]}}")), Some(expected));
        };
        changed("123456789012345678901", "1.2345678901234568e+20");
        changed("0.12345678901234567891", "0.12345678901234568");
        changed("-9007199254740993.5", "-9007199254740994.0");
        changed("1e-400", "0.0");
    }
}
