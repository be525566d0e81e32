//! Labels of workers. Some are reserved: they say what is known about the worker, and no user sets
//! them.

use std::collections::BTreeMap;

use crate::containment;
use crate::selector::{is_label_name, is_label_value};

/// The label of a worker's pool.
pub const POOL: &str = "pool";
/// The label of the build that a worker runs.
pub const BUILD: &str = "outlast_version";
/// The label that is the user's, and the build where the user sets none.
pub const VERSION: &str = "version";
/// What labels of runtimes begin with: `runtime/python=true`.
const RUNTIME: &str = "runtime/";

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
    [POOL, BUILD, containment::LABEL].contains(&name) || name.starts_with(RUNTIME)
}

fn instead(name: &str) -> &'static str {
    match name {
        POOL => "name the pool with --pool or worker.pool",
        containment::LABEL => "it says what holds the worker's process trees",
        BUILD => "it is the build of the worker; `version` is yours",
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
/// they are known, and its runtimes. Its pool is the label that it came with.
#[must_use]
pub fn with_facts<'a>(
    mut labels: BTreeMap<String, String>,
    build: Option<&str>,
    containment: Option<&str>,
    runtimes: impl IntoIterator<Item = &'a String>,
) -> BTreeMap<String, String> {
    labels.retain(|name, _| name == POOL || !is_reserved(name));
    let mut fact = |name: &str, value: &str| labels.insert(name.to_owned(), value.to_owned());
    for runtime in runtimes {
        fact(&format!("{RUNTIME}{runtime}"), "true");
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
    fn labels_that_are_reserved_or_that_no_selector_can_name_are_refused() {
        assert_eq!(check(&labels(&[("zone", "a"), ("x.io/tier", ""), ("version", "2")])), Ok(()));
        for (name, value, why) in [
            ("pool", "gpu", "label `pool` is reserved: name the pool with --pool or worker.pool"),
            ("containment", "pidns", "label `containment` is reserved"),
            ("outlast_version", "1", "label `outlast_version` is reserved: it is the build"),
            ("runtime/python", "true", "label `runtime/python` is reserved"),
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
        let facts = with_facts(said, Some("0.1.0"), None, &runtimes);
        let expected = [
            ("outlast_version", "0.1.0"),
            ("pool", "gpu"),
            ("runtime/shell", "true"),
            ("version", "0.1.0"),
        ];
        assert_eq!(facts, labels(&expected));
        let own = with_facts(labels(&[("version", "7")]), Some("0.1.0"), Some("pidns"), []);
        assert_eq!((&*own["version"], &*own["containment"]), ("7", "pidns"));
    }
}
