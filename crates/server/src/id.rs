//! Ids that follow from what they name.

use outlast_core::time::Timestamp;
use uuid::{Builder, Uuid};

/// Returns the UUIDv7 of a time and a digest: the same two give the same id on every server.
pub(crate) fn of_digest(at: Timestamp, digest: &[u8]) -> Uuid {
    let mut random = [0; 10];
    random.iter_mut().zip(digest).for_each(|(byte, of)| *byte = *of);
    let millis = u64::try_from(at.0).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}
