//! Which numbers a reader with 64-bit integers and floats keeps.
//!
//! An integer is kept if it fits into 64 bits. Any other number is read as the nearest float, and is
//! kept if that float, written with as many digits, is the number again. The last of up to 17 digits
//! may differ by one: so many are written by languages that do not choose the best ones.
//!
//! ```text
//! 0.10000000000000001      kept: a float written in full, as printf does with %.17g
//! 5.684341886080802e-14    kept: 2⁻⁴⁴ as old versions of Java write it
//! 18446744073709551616     kept: 2⁶⁴, which a float is exactly
//! 123456789012345678901    changed: the float is 123456789012345683968
//! 0.12345678901234567891   changed: the float begins 0.12345678901234567737
//! ```

use serde_json::Value;

use super::scan;

/// Decimal numbers with so many digits come back from a 64-bit float as they were.
const SAFE_DIGITS: usize = 15;

/// With so many digits every 64-bit float is written unmistakably. More are only written to show its
/// whole value.
const WRITTEN_DIGITS_MAX: usize = 17;

/// No 64-bit float has more digits than this, written in full.
const FLOAT_DIGITS_MAX: usize = 767;

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

/// Returns a JSON document of which each number that is another one when it is read, or that cannot
/// be read, is a string instead: it keeps its digits.
#[must_use]
pub fn exact(document: &str) -> String {
    let bytes = document.as_bytes();
    let (mut exact, mut at) = (String::with_capacity(document.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            b'"' => scan::after_text(bytes, at).unwrap_or(bytes.len()),
            b'-' | b'0'..=b'9' => scan::after_number(bytes, at),
            _ => at + 1,
        };
        let part = bytes.get(at..end).unwrap_or_default();
        let is_number = matches!(byte, b'-' | b'0'..=b'9');
        let part = String::from_utf8_lossy(part);
        if is_number && (changed(&part).is_some() || serde_json::from_str::<Value>(&part).is_err())
        {
            exact.extend(["\"", &part, "\""]);
        } else {
            exact.push_str(&part);
        }
        at = end;
    }
    exact
}

fn changed(given: &str) -> Option<Changed> {
    let is_plain = !given.contains(['e', 'E']);
    if is_plain && given.bytes().filter(u8::is_ascii_digit).count() <= SAFE_DIGITS {
        return None;
    }
    // What cannot be read is for the reader to report.
    let read = serde_json::from_str::<Value>(given).ok()?;
    (!is_kept(given, &read)).then(|| Changed { given: given.to_owned(), becomes: read.to_string() })
}

fn is_kept(given: &str, read: &Value) -> bool {
    let (Some(given), Some(float)) = (Decimal::of(given), read.as_f64()) else { return false };
    match given.digits.len() {
        0 => float == 0.0,
        _ if !read.is_f64() => true,
        length @ 1..=FLOAT_DIGITS_MAX => {
            let precision = length - 1;
            let kept = Decimal::of(&format!("{float:.precision$e}"));
            let is_close = length <= WRITTEN_DIGITS_MAX
                && kept.as_ref().is_some_and(|kept| kept.is_close(&given));
            is_close || kept == Some(given)
        }
        _ => false,
    }
}

/// A number by its value: 1.50, 1.5 and 15e-1 are one.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Whether they differ by one in the last digit of the longer one, at most.
    fn is_close(&self, other: &Self) -> bool {
        let exponent = self.exponent.min(other.exponent);
        let whole = |number: &Self| {
            let zeros = u32::try_from(number.exponent - exponent).ok()?;
            number.digits.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(zeros)?)
        };
        let (one, two) = (whole(self), whole(other));
        self.negative == other.negative
            && one.zip(two).is_some_and(|(one, two)| one.abs_diff(two) <= 1)
    }

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

/// Returns a number that is read from YAML as a float and may have had more digits.
#[must_use]
pub fn long_number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if number.is_f64() => {
            let is_long =
                number.as_f64().is_some_and(|number| number.abs() >= 9_007_199_254_740_992.0);
            is_long.then(|| number.to_string())
        }
        Value::Array(items) => items.iter().find_map(long_number),
        Value::Object(fields) => fields.values().find_map(long_number),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, changed_number, exact};

    #[test]
    fn numbers_that_lose_digits_are_found_and_others_are_not() {
        let kept = r#"{"a": [1, -0, 1.50, 0.1, 1e3, 1.0E-7, 18446744073709551615, -9223372036854775808],
            "b": 0.30000000000000004, "c": 100000000000000000000, "d": "123456789012345678901",
            "e": [0.10000000000000001, 2.9999999999999998e-1, 18446744073709551616, -1.7976931348623157e308],
            "f": [0.1000000000000000055511151231257827021181583404541015625, 0.10000000000000000000000],
            "j": [5.684341886080802E-14, 0.29999999999999998, 2.8287938480615898E17],
            "g": [-9223372036854775807, 9007199254740993, 0e-99999, 5e-324, 0.00000000000000000000]}"#;
        assert_eq!(changed_number(kept), None);
        let changed = |given: &str, becomes: &str| {
            let expected = Changed { given: given.to_owned(), becomes: becomes.to_owned() };
            assert_eq!(changed_number(&format!("{{\"n\": [{given}]}}")), Some(expected));
        };
        changed("123456789012345678901", "1.2345678901234568e+20");
        changed("0.12345678901234567891", "0.12345678901234568");
        changed("-9007199254740993.5", "-9007199254740994.0");
        changed("1e-400", "0.0");
        changed("18446744073709551617", "1.8446744073709552e+19");
        changed("-9223372036854775809", "-9.223372036854776e+18");
    }

    #[test]
    fn numbers_that_would_lose_digits_become_strings_and_others_stay() {
        let given = r#"{"a\"1e400": [1, 1.50, 123456789012345678901, -9223372036854775809 , 1e400],
            "ä": {"123456789012345678901": "18446744073709551617", "x": 0.12345678901234567891}}"#;
        let expected = r#"{"a\"1e400": [1, 1.50, "123456789012345678901", "-9223372036854775809" , "1e400"],
            "ä": {"123456789012345678901": "18446744073709551617", "x": "0.12345678901234567891"}}"#;
        assert_eq!(exact(given), expected);
        assert_eq!(exact("-12"), "-12");
    }
}
