//! Labels of workers. Some are reserved: they say what is known about the worker, and no user sets
//! them.

use std::collections::BTreeMap;

use crate::containment;
use crate::selector::{Selector, is_label_name, is_label_value};

/// The label of a worker's pool.
pub const POOL: &str = "pool";
/// The label of the build that a worker runs.
pub const BUILD: &str = "outlast_version";
/// The label that is the user's, and the build where the user sets none.
pub const VERSION: &str = "version";
/// What labels of runtimes begin with: `runtime/python=true`.
const RUNTIME: &str = "runtime/";
/// What labels of packs begin with: `pack/ops=12a60748f371`.
const PACK: &str = "pack/";
/// How much of a pack's digest its label has.
const DIGEST_CHARS: usize = 12;

/// What is known about a worker, and no user sets.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// Its build.
    pub build: Option<&'a str>,
    /// What holds its process trees.
    pub containment: Option<&'a str>,
    /// Its runtimes.
    pub runtimes: &'a [String],
    /// Its packs, each with its digest.
    pub packs: Vec<(&'a str, &'a str)>,
}

/// Returns the label that says which files of a pack a worker has, by the pack's digest.
#[must_use]
pub fn of_pack(pack: &str, digest: &str) -> (String, String) {
    (format!("{PACK}{pack}"), short_digest(digest).to_owned())
}

/// Returns which files of its action's pack a job wants to run with, if it does not run with any.
#[must_use]
pub fn pinned_pack<'s>(requires: &'s Selector, action: &str) -> Option<&'s str> {
    let (pack, _) = action.split_once('.')?;
    requires.only(&format!("{PACK}{pack}"))
}

/// Returns as much of a digest as people are shown, and labels have.
#[must_use]
pub fn short_digest(digest: &str) -> &str {
    digest.get(..DIGEST_CHARS).unwrap_or(digest)
}

/// Whether a label says something that a worker's list need not repeat: its runtimes and packs.
#[must_use]
pub fn is_of_packs(name: &str) -> bool {
    name.starts_with(PACK)
}

/// Why a worker cannot carry a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// Outlast sets it itself.
    #[error("label `{0}` is reserved: {instead}", instead = instead(.0))]
    Reserved(String),
    /// No selector could name it.
    #[error(
        "label `{0}` has no name that selectors can ask for: at most 63 letters, digits, `-`, `_` \
         and `.`, a letter or digit first and last"
    )]
    Name(String),
    /// No selector could ask for it.
    #[error(
        "label `{name}` has the value `{value}`, which selectors cannot ask for: at most 63 \
         letters, digits, `-`, `_` and `.`, a letter or digit first and last"
    )]
    Value {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Not the name of a pool.
    #[error(
        "pool `{0}` has no usable name: 1 to 63 letters, digits, `-`, `_` and `.`, a letter or \
         digit first and last"
    )]
    Pool(String),
}

/// Returns whether users cannot set the label of this name.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    [POOL, BUILD, containment::LABEL].contains(&name)
        || [RUNTIME, PACK].iter().any(|prefix| name.starts_with(prefix))
}

fn instead(name: &str) -> &'static str {
    match name {
        POOL => "name the pool with --pool or worker.pool",
        containment::LABEL => "it says what holds the worker's process trees",
        BUILD => "it is the build of the worker; `version` is yours",
        _ if name.starts_with(PACK) => "it says which files of a pack the worker has",
        _ => "it says which runtimes the worker has",
    }
}

/// Checks the labels that a user gives a worker.
///
/// # Errors
/// Returns what is wrong with the first that is wrong.
pub fn check(labels: &BTreeMap<String, String>) -> Result<(), LabelError> {
    for name in labels.keys() {
        if is_reserved(name) {
            return Err(LabelError::Reserved(name.clone()));
        }
    }
    check_wanted(labels)
}

/// Checks labels that a job asks its worker for. They may be reserved ones.
///
/// # Errors
/// Returns the first that no worker can carry.
pub fn check_wanted(labels: &BTreeMap<String, String>) -> Result<(), LabelError> {
    for (name, value) in labels {
        if !is_label_name(name) {
            return Err(LabelError::Name(name.clone()));
        }
        if !is_label_value(value) {
            return Err(LabelError::Value { name: name.clone(), value: value.clone() });
        }
    }
    Ok(())
}

/// Checks the name of a pool.
///
/// # Errors
/// Returns why a pool cannot have that name.
pub fn check_pool(name: &str) -> Result<(), LabelError> {
    let fits = !name.is_empty() && is_label_value(name);
    fits.then_some(()).ok_or_else(|| LabelError::Pool(name.to_owned()))
}

/// Returns a worker's labels with the reserved ones: its build and what holds its process trees, if
/// they are known, its runtimes and its packs. Its pool is the label that it came with.
#[must_use]
pub fn with_facts(
    mut labels: BTreeMap<String, String>,
    Facts { build, containment, runtimes, packs }: Facts<'_>,
) -> BTreeMap<String, String> {
    labels.retain(|name, _| name == POOL || !is_reserved(name));
    let mut fact = |name: &str, value: &str| labels.insert(name.to_owned(), value.to_owned());
    for runtime in runtimes {
        fact(&format!("{RUNTIME}{runtime}"), "true");
    }
    for (pack, digest) in packs {
        let (name, value) = of_pack(pack, digest);
        if is_label_name(&name) && is_label_value(&value) {
            fact(&name, &value);
        }
    }
    if let Some(kind) = containment {
        fact(containment::LABEL, kind);
    }
    if let Some(build) = build {
        fact(BUILD, build);
        labels.entry(VERSION.to_owned()).or_insert_with(|| build.to_owned());
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn pinned_job_asks_for_one_digest_of_the_pack_of_its_action() {
        let (label, value) = of_pack("ops", "12a60748f371aaaa");
        let pinned = Selector::default().pinned(label, value);
        assert_eq!(pinned_pack(&pinned, "ops.which"), Some("12a60748f371"));
        for action in ["other.which", "ops", "opsx.which"] {
            assert_eq!(pinned_pack(&pinned, action), None, "{action}");
        }
        for any in ["", "pack/ops", "!pack/ops", "pack/ops in (a, b)", "pack/ops != a"] {
            assert_eq!(pinned_pack(&any.parse().unwrap(), "ops.which"), None, "{any}");
        }
    }

    #[test]
    fn labels_that_are_reserved_or_that_no_selector_can_name_are_refused() {
        assert_eq!(check(&labels(&[("zone", "a"), ("x.io/tier", ""), ("version", "2")])), Ok(()));
        for (name, value, why) in [
            ("pool", "gpu", "label `pool` is reserved: name the pool with --pool or worker.pool"),
            ("containment", "pidns", "label `containment` is reserved"),
            ("outlast_version", "1", "label `outlast_version` is reserved: it is the build"),
            ("runtime/python", "true", "label `runtime/python` is reserved"),
            ("pack/ops", "1", "label `pack/ops` is reserved: it says which files of a pack"),
            ("a b", "1", "label `a b` has no name that selectors can ask for"),
            ("zone", "eu west", "label `zone` has the value `eu west`, which selectors cannot"),
        ] {
            let error = check(&labels(&[(name, value)])).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        assert_eq!(check_pool("gpu-large"), Ok(()));
        assert!(check_pool("").is_err() && check_pool("a b").is_err());
    }

    #[test]
    fn what_is_known_about_a_worker_replaces_what_it_says() {
        let said = labels(&[("pool", "gpu"), ("containment", "pidns"), ("runtime/node", "true")]);
        let runtimes = ["shell".to_owned()];
        let digest = "12a60748f371737618c1db57ec48c0029b4bddf9b6e6a5530e5d5fe32a92d911";
        let packs = vec![("ops", digest), ("a b", digest)];
        let known = Facts { build: Some("0.1.0"), containment: None, runtimes: &runtimes, packs };
        let facts = with_facts(said, known);
        let expected = [
            ("outlast_version", "0.1.0"),
            ("pack/ops", "12a60748f371"),
            ("pool", "gpu"),
            ("runtime/shell", "true"),
            ("version", "0.1.0"),
        ];
        assert_eq!(facts, labels(&expected));
        let known = Facts { build: Some("0.1.0"), containment: Some("pidns"), ..Facts::default() };
        let own = with_facts(labels(&[("version", "7")]), known);
        assert_eq!((&*own["version"], &*own["containment"]), ("7", "pidns"));
    }
}
