//! Numbers and spans of time as people read them.

use std::fmt;

use crate::time::Span;

/// How long something took, in the two largest units.
#[derive(Clone, Copy, Debug)]
pub struct Lasting(pub Span);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let s = ms / 1000;
        match s {
            0 => write!(f, "{ms} ms"),
            1..=9 => write!(f, "{s}.{} s", ms % 1000 / 100),
            10..=59 => write!(f, "{s} s"),
            60..=3_599 => write!(f, "{} min{}", s / 60, rest(s % 60, "s")),
            3_600..=86_399 => write!(f, "{} h{}", s / 3_600, rest(s % 3_600 / 60, "min")),
            _ => write!(f, "{} d{}", s / 86_400, rest(s % 86_400 / 3_600, "h")),
        }
    }
}

/// Returns the smaller of two units, if there is any of it.
fn rest(count: u64, unit: &str) -> String {
    if count == 0 { String::new() } else { format!(" {count} {unit}") }
}

/// A number, with its thousands apart.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.char_indices() {
            if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// Returns a number with the words for one or for many: `1 job waits`, `2 jobs wait`.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", Grouped(count), if count == 1 { one } else { many })
}
