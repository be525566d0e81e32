//! Ids that follow from what they name, and those that begin alike.

use outlast_core::time::Timestamp;
use uuid::{Builder, Uuid};

/// Returns the UUIDv7 of a time and a digest: the same two give the same id on every server.
pub(crate) fn of_digest(at: Timestamp, digest: &[u8]) -> Uuid {
    let mut random = [0; 10];
    random.iter_mut().zip(digest).for_each(|(byte, of)| *byte = *of);
    let millis = u64::try_from(at.0).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// Returns the first and the last id that begin with these hexadecimal digits.
pub(crate) fn that_begin(digits: &str) -> (Uuid, Uuid) {
    let filled = |fill: &str| {
        let fill = fill.repeat(32_usize.saturating_sub(digits.len()));
        Uuid::from_u128(u128::from_str_radix(&format!("{digits}{fill}"), 16).unwrap_or(0))
    };
    (filled("0"), filled("f"))
}
