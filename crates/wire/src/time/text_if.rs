//! An instant that may be missing, as RFC 3339 text, for `#[serde(with)]`.

use outlast_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

use super::text;

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub(crate) fn serialize<S: Serializer>(
    at: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => text::serialize(at, serializer),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Deserialize)]
    struct One(#[serde(with = "text")] Timestamp);
    Ok(Option::<One>::deserialize(from)?.map(|one| one.0))
}
