//! An instant as RFC 3339 text, for `#[serde(with)]`.

use outlast_core::time::Timestamp;
use serde::{Deserialize as _, Deserializer, Serializer, de};

use super::{Rfc3339, When};

pub(crate) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Rfc3339(*at))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    match When::parse(&text) {
        Some(When::At(at)) => Ok(at),
        _ => Err(de::Error::custom(format!("{text:?} is not a time"))),
    }
}
