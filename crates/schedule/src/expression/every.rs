//! Lengths of `@every`, written as Go writes durations: `90s`, `1h30m`.

use outlast_core::time::Span;

/// Shortest rhythm.
pub const EVERY_MIN: Span = Span::from_secs(1);
/// Longest rhythm: ten years and a few days.
pub const EVERY_MAX: Span = Span::from_secs(3660 * 24 * 60 * 60);

/// Reads a length of whole hours, minutes and seconds, if it is one and within bounds.
pub(super) fn length(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut seconds = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(end);
        let number: u64 = number.parse().ok()?;
        let unit_seconds = match unit.chars().next()? {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds = number.checked_mul(unit_seconds)?.checked_add(seconds)?;
        rest = unit.get(1..)?;
    }
    let length = Span::from_secs(seconds);
    (EVERY_MIN..=EVERY_MAX).contains(&length).then_some(length)
}
