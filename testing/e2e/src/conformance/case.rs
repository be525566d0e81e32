//! Case files: where they are and what is in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

/// One case file.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Identifier. A few are used by two files, so reports print the name beside it.
    pub test_id: String,
    /// Name in kebab case.
    pub name: String,
    /// What it proves.
    #[serde(default)]
    pub description: String,
    /// Steps to run before.
    #[serde(default)]
    pub(crate) setup: Option<Steps>,
    /// The case itself.
    pub(crate) steps: Vec<Step>,
    /// Steps to run afterwards, not judged.
    #[serde(default)]
    pub(crate) teardown: Option<Steps>,
}

/// A nested list of steps.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Steps {
    pub(crate) steps: Vec<Step>,
}

/// One request, pause or comparison.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) id: String,
    pub(crate) action: String,
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    #[serde(default)]
    pub(crate) raw_body: Option<String>,
    #[serde(default)]
    pub(crate) delay_ms: u64,
    #[serde(default)]
    pub(crate) duration_ms: u64,
    #[serde(default)]
    pub(crate) repeat: Option<u32>,
    #[serde(default)]
    pub(crate) parallel_with: Option<String>,
    #[serde(default)]
    pub(crate) assertions: Option<Map<String, Value>>,
}

impl Case {
    /// Returns how reports name this case.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} {}", self.test_id, self.name)
    }

    /// Tells whether the case asserts anything at all; some public ones do not.
    #[must_use]
    pub fn asserts_something(&self) -> bool {
        self.steps.iter().any(|step| step.assertions.is_some())
    }
}

/// One folder of cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level(String);

impl Level {
    /// Names a folder by its number (`0`) or by its name (`ext-progress`).
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = match name {
            "0" => "level-0-core",
            "1" => "level-1-reliable",
            "2" => "level-2-scheduled",
            "3" => "level-3-workflows",
            "4" => "level-4-advanced",
            other => other,
        };
        Self(folder.to_owned())
    }

    /// Returns the folder's name.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.0
    }
}

/// Finds the folder of suites: `OUTLAST_OJS_SUITES`, else the one beside the repository.
///
/// # Errors
///
/// Names the folder that is missing.
pub fn suites_dir() -> anyhow::Result<PathBuf> {
    let dir = match std::env::var_os("OUTLAST_OJS_SUITES") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/ojs/suites"),
    };
    if !dir.is_dir() {
        bail!("no folder of conformance cases at {}: set OUTLAST_OJS_SUITES", dir.display());
    }
    Ok(dir)
}

/// Reads every case of a level, in the order of their ids.
///
/// # Errors
///
/// Names the file that cannot be read, or the level that has none.
pub fn read_level(suites: &Path, level: &Level) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    let folder = suites.join(level.folder());
    read_folder(&folder, &mut cases)?;
    if cases.is_empty() {
        bail!("no conformance cases in {}", folder.display());
    }
    cases.sort_by_key(Case::label);
    Ok(cases)
}

fn read_folder(folder: &Path, cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(&path, cases)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path)?;
            let case = serde_json::from_str(&text)
                .with_context(|| format!("parsing {}", path.display()))?;
            cases.push(case);
        }
    }
    Ok(())
}
