//! Keys: what a job is limited, shared and found by, such as `{"tenant": "42"}`.
//!
//! Jobs of a class with the same keys are one lane: claimed in order, left out as a whole while
//! a limit on one of the keys is used up.

use std::collections::BTreeMap;
use std::collections::btree_map::Iter;

use uuid::Uuid;

/// Most keys of a job.
pub const KEYS_MAX: usize = 4;
/// Longest name of a key.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest value of a key.
pub const VALUE_BYTES_MAX: usize = 256;

/// A job's keys, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Keys(BTreeMap<String, String>);

/// Why keys are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// More than [`KEYS_MAX`].
    #[error("a job has at most {KEYS_MAX} keys, not {0}")]
    TooMany(usize),
    /// A name with other characters, or of another length, than allowed.
    #[error(
        "{0:?} is no name of a key: it has 1 to {NAME_BYTES_MAX} characters out of a-z, 0-9, _ . -"
    )]
    Name(String),
    /// A value that is too long.
    #[error("the value of key {name:?} has {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    Value {
        /// Of this key.
        name: String,
        /// So long.
        bytes: usize,
    },
    /// A value that PostgreSQL cannot store.
    #[error("the value of key {0:?} contains a NUL character")]
    Nul(String),
}

impl Keys {
    /// Checks names and values.
    ///
    /// # Errors
    /// Returns what is wrong with the first key that is refused, and what would be right.
    pub fn new(keys: BTreeMap<String, String>) -> Result<Self, KeysError> {
        if keys.len() > KEYS_MAX {
            return Err(KeysError::TooMany(keys.len()));
        }
        for (name, value) in &keys {
            if !is_name(name) {
                return Err(KeysError::Name(name.clone()));
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(KeysError::Value { name: name.clone(), bytes: value.len() });
            }
            if value.contains('\0') {
                return Err(KeysError::Nul(name.clone()));
            }
        }
        Ok(Self(keys))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> Iter<'_, String, String> {
        self.0.iter()
    }

    /// Returns the lane of jobs with these keys: 0 without keys, else a number from 1 to 2⁶³ − 1.
    ///
    /// It is stored with every job and never changes. Two sets of keys may have the same lane, so
    /// a claim compares the keys themselves.
    #[must_use]
    pub fn lane(&self) -> i64 {
        if self.0.is_empty() {
            return 0;
        }
        let mut text = Vec::new();
        for (name, value) in &self.0 {
            for part in [name, value] {
                // Lengths keep {"a": "bc"} apart from {"ab": "c"}.
                text.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
                text.extend(part.as_bytes());
            }
        }
        let (high, _) = Uuid::new_v5(&LANES, &text).as_u64_pair();
        i64::try_from(high >> 1).unwrap_or(i64::MAX).max(1)
    }
}

/// The namespace of lanes (RFC 9562, section 5.5).
const LANES: Uuid = Uuid::from_u128(0x6b0e_7a1c_52f4_4d0b_9d0e_3f6a_41c8_77e5);

/// Whether a key can have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-'))
}

impl<'a> IntoIterator for &'a Keys {
    type Item = (&'a String, &'a String);
    type IntoIter = Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(of: &[(&str, &str)]) -> Result<Keys, KeysError> {
        Keys::new(of.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn lanes_are_the_same_for_ever() {
        // Stored with every job: a change of these numbers strands jobs.
        assert_eq!(keys(&[]).unwrap().lane(), 0);
        assert_eq!(keys(&[("tenant", "42")]).unwrap().lane(), 4_191_954_407_205_579_910);
    }

    #[test]
    fn lanes_of_other_keys_differ() {
        let all = [
            keys(&[("a", "bc")]),
            keys(&[("ab", "c")]),
            keys(&[("a", "b"), ("c", "d")]),
            keys(&[("a", "")]),
            keys(&[("tenant", "1")]),
            keys(&[("tenant", "2")]),
        ];
        let mut lanes: Vec<i64> = all.into_iter().map(|keys| keys.unwrap().lane()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        assert_eq!(lanes.len(), 6);
        assert!(lanes.iter().all(|lane| *lane > 0));
    }

    #[test]
    fn keys_out_of_bounds_are_refused_by_name() {
        let many = ["a", "b", "c", "d", "e"].map(|name| (name, "1"));
        assert_eq!(keys(&many), Err(KeysError::TooMany(5)));
        for name in ["", "Tenant", "a b", "ü", "a=b"] {
            assert_eq!(keys(&[(name, "1")]), Err(KeysError::Name(name.into())));
        }
        assert_eq!(keys(&[(&"x".repeat(65), "1")]), Err(KeysError::Name("x".repeat(65))));
        let refused = keys(&[("tenant", &"v".repeat(257))]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the value of key \"tenant\" has 257 bytes; at most 256 are allowed"
        );
        assert!(keys(&[("tenant_1.x-y", &"v".repeat(256))]).is_ok());
        assert_eq!(keys(&[("tenant", "4\0 2")]), Err(KeysError::Nul("tenant".into())));
    }
}
