//! Instants on the calendar, as the server writes and reads them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_core::time::Timestamp;
use outlast_wire::time::{Rfc3339, When};
use serde::{Deserialize as _, Deserializer, de};

/// Shows an instant as RFC 3339.
pub(super) fn text(at: SystemTime) -> String {
    let millis = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    };
    Rfc3339(Timestamp(millis)).to_string()
}

fn parse(text: &str) -> Option<SystemTime> {
    let Some(When::At(Timestamp(millis))) = When::parse(text) else { return None };
    let distance = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

/// Reads an instant.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom(format_args!("{text:?} is no instant")))
}

/// Reads an instant that may be missing.
pub(super) fn read_if<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SystemTime>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| {
        parse(&text).ok_or_else(|| de::Error::custom(format_args!("{text:?} is no instant")))
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{parse, text};

    #[test]
    fn an_instant_survives_the_wire_to_the_millisecond() {
        for millis in [0, 1, 1_700_000_000_123] {
            let at = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(parse(&text(at)), Some(at));
        }
        let before = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(parse(&text(before)), Some(before));
        assert_eq!(parse("+PT2S"), None, "relative to nothing");
    }
}
