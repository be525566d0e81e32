//! Migrations: the steps that bring a store to this build's layout, compared with those that
//! a store was brought through.
//!
//! They go forward only, and one that was released never changes. A store keeps a digest of
//! each that it applied, so that a build which would have applied something else notices.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// One step, as this build has it.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its name, which begins with its number.
    pub name: &'static str,
    /// Its statements.
    pub text: &'static str,
}

impl Migration {
    /// Returns what a store keeps to know the step again.
    #[must_use]
    pub fn digest(&self) -> String {
        Sha256::digest(self.text.as_bytes()).iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _written = write!(text, "{byte:02x}");
            text
        })
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many migrations were applied.
    pub version: usize,
    /// What it keeps of each, by number.
    pub digests: Vec<(usize, String)>,
}

/// Which migrations a store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Steps that were applied, in order.
    pub applied: Vec<&'static str>,
    /// Steps that have yet to be applied, in order.
    pub pending: Vec<&'static str>,
}

/// Why this build cannot use a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The store was made before the first release.
    #[error(
        "store was made by a build of outlast from before the first release: run `outlast export` \
         of that build and `outlast import` of this one"
    )]
    Older,
    /// The store was made by a newer Outlast.
    #[error(
        "store has schema version {found}, this build knows {known}: it was made by a newer outlast"
    )]
    Newer {
        /// Version found.
        found: usize,
        /// Version known.
        known: usize,
    },
    /// The store has a migration that differs from this build's.
    #[error(
        "migration {name} was applied to this store in another form than this build has: \
         another build of outlast made it"
    )]
    Different {
        /// The step.
        name: &'static str,
    },
}

/// Compares what a store says with the steps of this build.
///
/// # Errors
/// Returns why this build must leave the store alone.
pub fn schema_status(known: &[Migration], found: &Found) -> Result<SchemaStatus, Mismatch> {
    let first = known.first().map(Migration::digest);
    let begun = found.digests.iter().find(|(number, _)| *number == 1).map(|(_, digest)| digest);
    if found.version > 0 && begun != first.as_ref() {
        return Err(Mismatch::Older);
    }
    if found.version > known.len() {
        return Err(Mismatch::Newer { found: found.version, known: known.len() });
    }
    for (number, digest) in &found.digests {
        let step = number.checked_sub(1).and_then(|at| known.get(at));
        if let Some(step) = step.filter(|step| step.digest() != *digest) {
            return Err(Mismatch::Different { name: step.name });
        }
    }
    let names: Vec<&'static str> = known.iter().map(|step| step.name).collect();
    let (applied, pending) = names.split_at(found.version);
    Ok(SchemaStatus { applied: applied.to_vec(), pending: pending.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::{Found, Migration, Mismatch, schema_status};

    const KNOWN: &[Migration] = &[
        Migration { name: "0001_first", text: "create table a (b)" },
        Migration { name: "0002_second", text: "create table c (d)" },
    ];

    fn found(version: usize, digests: &[(usize, String)]) -> Found {
        Found { version, digests: digests.to_vec() }
    }

    #[test]
    fn store_that_is_behind_lists_what_is_pending() {
        let half = schema_status(KNOWN, &found(1, &[(1, KNOWN[0].digest())])).unwrap();
        assert_eq!((half.applied, half.pending), (vec!["0001_first"], vec!["0002_second"]));
        let new = schema_status(KNOWN, &Found::default()).unwrap();
        assert_eq!(new.pending.len(), 2);
    }

    #[test]
    fn store_that_began_with_another_step_is_from_before_the_first_release() {
        for digests in [vec![], vec![(1, "another".to_owned())], vec![(2, KNOWN[1].digest())]] {
            for version in [1, 2, 13] {
                assert_eq!(schema_status(KNOWN, &found(version, &digests)), Err(Mismatch::Older));
            }
        }
    }

    #[test]
    fn newer_store_and_different_step_are_told_apart() {
        let first = (1, KNOWN[0].digest());
        let newer = schema_status(KNOWN, &found(3, std::slice::from_ref(&first))).unwrap_err();
        assert_eq!(newer, Mismatch::Newer { found: 3, known: 2 });
        let digests = [first, (2, "another".to_owned())];
        let different = schema_status(KNOWN, &found(2, &digests)).unwrap_err();
        assert_eq!(different, Mismatch::Different { name: "0002_second" });
    }
}
