//! The YAML file: sections with keys, each value with the line it stands on.
//!
//! What a key means is not known here, only that a file has two levels.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{ConfigError, Origin, keys};

/// Reads a file as `section.key`, value and origin, in the file's order.
pub(super) fn read(path: &Path) -> Result<Vec<(String, Value, Origin)>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<(String, Value, Origin)>, ConfigError> {
    let malformed = |error: &dyn fmt::Display| ConfigError::Malformed {
        path: path.to_owned(),
        detail: error.to_string(),
    };
    let at = |line: u64| Origin::File { path: path.to_owned(), line };
    let sections: Option<Pairs<Option<Spanned<Value>>>> =
        serde_saphyr::from_str(text).map_err(|error| malformed(&error))?;
    let sections = sections.map(|pairs| pairs.0).unwrap_or_default();
    // A section that does not exist is named before the file is read for good: the second
    // reading wants every section to hold keys.
    for (section, _) in &sections {
        if !keys::ALL.iter().any(|key| key.name.split('.').next() == Some(&section.value)) {
            return Err(ConfigError::unknown(&section.value, at(section.referenced.line())));
        }
    }
    let sections: Option<Pairs<Option<Pairs<Spanned<Value>>>>> =
        serde_saphyr::from_str(text).map_err(|error| malformed(&error))?;
    let mut found = Vec::new();
    for (section, entries) in sections.map(|pairs| pairs.0).unwrap_or_default() {
        for (key, value) in entries.map(|pairs| pairs.0).unwrap_or_default() {
            let name = format!("{}.{}", section.value, key.value);
            let origin = at(key.referenced.line());
            found.push((name, value.value, origin));
        }
    }
    Ok(found)
}

/// A mapping as pairs, in order, with the place of every key.
struct Pairs<T>(Vec<(Spanned<String>, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

struct PairsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for PairsVisitor<T> {
    type Value = Pairs<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}
