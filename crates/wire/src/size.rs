//! Sizes as users write them: bytes such as `65536`, or `512 KiB`, `1 MiB`, `2 GiB`.

use serde_json::Value;

/// What a size looks like, for messages.
pub const EXPECTED: &str = "a size: bytes such as 65536, or 512 KiB, 1 MiB, 2 GiB";

/// Reads a size above 0 in bytes, or a number with a unit; `MB` and `MiB` differ as they should.
#[must_use]
pub fn value(value: &Value) -> Option<u64> {
    let (number, unit) = quantity(value)?;
    let factor = match unit.to_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1000.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "mb" => 1000.0 * 1000.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "gb" => 1000.0 * 1000.0 * 1000.0,
        _ => return None,
    };
    let bytes = (number * factor).round();
    // A petabyte keeps the number exact.
    if !(1.0..=1e15).contains(&bytes) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a whole number between 1 and 1e15"
    )]
    let bytes = bytes as u64;
    Some(bytes)
}

/// A number that is not negative, and the letters after it.
fn quantity(value: &Value) -> Option<(f64, String)> {
    let text = match value {
        Value::Number(number) => {
            return Some((number.as_f64().filter(|n| *n >= 0.0)?, String::new()));
        }
        Value::String(text) => text.trim(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split)?;
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim().to_owned()))
}

/// Writes a number of bytes with the largest unit that keeps it exact, such as `64 MiB`.
#[must_use]
pub fn text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = UNITS.iter().find(|(_, bits)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    whole.map_or_else(|| format!("{bytes} B"), |(unit, bits)| format!("{} {unit}", bytes >> bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (bytes, written) in [
            (1, "1 B"),
            (1000, "1000 B"),
            (1 << 20, "1 MiB"),
            (3 << 29, "1536 MiB"),
            (1 << 40, "1024 GiB"),
        ] {
            assert_eq!(text(bytes), written);
            assert_eq!(value(&written.into()), Some(bytes), "{written}");
        }
        assert_eq!(text(0), "0 B");
    }
}
