//! What a pack says that its scripts need, and the digest of all that decides about it.
//!
//! A requirement may be a file or folder of the pack, or a list that names more. Whatever word in
//! such a list names something in the pack counts: one too many only makes an environment stale
//! that need not be.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use toml_edit::{Document, Item};

use super::EnvironmentKind;
use crate::digest::{add, hex, is_made};
use crate::limits::DIGEST_FILES_MAX;
use crate::note::Note;
use crate::source::{Source, inside};

const REQUIREMENTS: &str = "requirements.txt";
const PROJECT: &str = "pyproject.toml";
const PACKAGE: &str = "package.json";
/// Files that fix what npm installs, the one that wins first.
const LOCKS: [&str; 2] = ["npm-shrinkwrap.json", "package-lock.json"];
/// Where it installs it from.
const NPM_CONFIGURATION: &str = ".npmrc";

/// What says what is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    /// `requirements.txt`.
    Requirements,
    /// `pyproject.toml`: its `project.dependencies`.
    Project(Vec<String>),
    /// `package.json`.
    Package {
        /// Whether a lock file fixes what is installed.
        is_locked: bool,
    },
}

/// A manifest that asks for something.
pub(super) struct FoundManifest {
    pub(super) manifest: Manifest,
    pub(super) digest: String,
}

impl Manifest {
    /// The file's name.
    #[must_use]
    pub const fn file(&self) -> &'static str {
        match self {
            Self::Requirements => REQUIREMENTS,
            Self::Project(_) => PROJECT,
            Self::Package { .. } => PACKAGE,
        }
    }
}

/// Finds what a pack asks for; nothing if it asks for nothing. A file that cannot be used is noted.
pub(super) fn find(source: &Source, kind: EnvironmentKind) -> Result<Option<FoundManifest>, Note> {
    let noted = |file: &str, why: &str| Note::new(&source.label(file), why);
    let text = |file: &str| source.text(file).map_err(|error| noted(file, error.problem()));
    match kind {
        EnvironmentKind::Python => {
            if let Some(list) = text(REQUIREMENTS)? {
                let asks = lines(&list).next().is_some();
                return Ok(asks.then(|| found(source, Manifest::Requirements, &list)));
            }
            let Some(project) = text(PROJECT)? else { return Ok(None) };
            let dependencies = dependencies(&project)
                .map_err(|why| noted(PROJECT, &format!("has no effect: {why}")))?;
            if dependencies.is_empty() {
                return Ok(None);
            }
            let list = dependencies.join("\n");
            Ok(Some(found(source, Manifest::Project(dependencies), &list)))
        }
        EnvironmentKind::Node => {
            let Some(package) = text(PACKAGE)? else { return Ok(None) };
            let package: Value = serde_json::from_str(&package).map_err(|error| {
                noted(PACKAGE, &format!("has no effect: it is not JSON: {error}"))
            })?;
            let list = packages(&package);
            let is_locked = LOCKS.iter().any(|lock| matches!(source.text(lock), Ok(Some(_))));
            let asks = !list.is_empty();
            Ok(asks.then(|| found(source, Manifest::Package { is_locked }, &list)))
        }
    }
}

fn found(source: &Source, manifest: Manifest, list: &str) -> FoundManifest {
    let mut inputs = Inputs::of(source);
    match &manifest {
        Manifest::Requirements => inputs.add(REQUIREMENTS),
        Manifest::Project(_) => inputs.sum.update(list),
        Manifest::Package { .. } => {
            [PACKAGE, NPM_CONFIGURATION].iter().chain(&LOCKS).for_each(|file| inputs.add(file));
        }
    }
    inputs.follow(list, "");
    FoundManifest { manifest, digest: inputs.end() }
}

/// The lines of a list of requirements that say something.
fn lines(list: &str) -> impl Iterator<Item = &str> {
    let bare = |line: &str| line.find(" #").unwrap_or(line.len());
    let lines = list.lines().map(move |line| line[..bare(line)].trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Words of a line that may name something in the pack: without options, markers and extras.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || "=@;,\"'".contains(c));
    words.map(|word| {
        let word = word.split('[').next().unwrap_or_default();
        let word = word.strip_prefix("file:").unwrap_or(word);
        ["-r", "-c", "-e"].iter().find_map(|it| word.strip_prefix(it)).unwrap_or(word)
    })
}

/// `project.dependencies` of a `pyproject.toml`.
fn dependencies(project: &str) -> Result<Vec<String>, String> {
    let document = Document::parse(project).map_err(|error| {
        let what = error.message();
        format!("it is not TOML: {what}")
    })?;
    let Some(project) = document.get("project").and_then(Item::as_table_like) else {
        return Ok(Vec::new());
    };
    let is_dynamic = |item: &Item| {
        let list = item.as_array();
        list.is_some_and(|list| list.iter().any(|it| it.as_str() == Some("dependencies")))
    };
    if project.get("dynamic").is_some_and(is_dynamic) {
        let why = "project.dependencies is dynamic; list them there, or in requirements.txt";
        return Err(why.to_owned());
    }
    let Some(given) = project.get("dependencies") else { return Ok(Vec::new()) };
    let list = given.as_array().map(|list| list.iter().map(|it| it.as_str().map(str::to_owned)));
    let list: Option<Vec<String>> = list.and_then(Iterator::collect);
    list.ok_or_else(|| "project.dependencies is not a list of texts".to_owned())
}

/// What a `package.json` wants installed, a version or place in each line.
fn packages(package: &Value) -> String {
    let lists = ["dependencies", "optionalDependencies"];
    let lists = lists.iter().filter_map(|list| package.get(list)?.as_object());
    let versions = lists.flat_map(|list| list.values().filter_map(Value::as_str));
    versions.collect::<Vec<_>>().join("\n")
}

/// Files that decide what is installed.
struct Inputs<'a> {
    source: &'a Source,
    sum: Sha256,
    seen: BTreeSet<String>,
}

impl<'a> Inputs<'a> {
    fn of(source: &'a Source) -> Self {
        Self { source, sum: Sha256::new(), seen: BTreeSet::new() }
    }

    /// Adds what the words of a list name, seen from the list's folder or the pack's.
    fn follow(&mut self, list: &str, folder: &str) {
        for word in lines(list).flat_map(words).filter(|word| !word.is_empty()) {
            for path in [format!("{folder}{word}"), word.to_owned()] {
                let Some(path) = inside(&path) else { continue };
                let path = path.to_string_lossy().into_owned();
                if self.source.is_folder(&path) {
                    self.add_folder(path);
                } else {
                    self.add(&path);
                }
            }
        }
    }

    fn add_folder(&mut self, path: String) {
        let mut open = vec![path];
        while let Some(folder) = open.pop() {
            for name in self.source.names(&folder).unwrap_or_default() {
                let path =
                    if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                if !self.source.is_folder(&path) {
                    self.add(&path);
                } else if !is_made(&name) {
                    open.push(path);
                }
            }
        }
    }

    /// Adds a file, and what it names if it is a list. One that is not there is left out.
    fn add(&mut self, path: &str) {
        if self.seen.len() > DIGEST_FILES_MAX || !self.seen.insert(path.to_owned()) {
            return;
        }
        match self.source.content(path) {
            Ok(None) => {}
            Ok(Some(content)) => {
                add(&mut self.sum, path.as_bytes(), Some(&content));
                let is_list = [".txt", ".in"].iter().any(|ending| path.ends_with(ending));
                if let Some(list) = std::str::from_utf8(&content).ok().filter(|_| is_list) {
                    let folder = path.rfind('/').map_or("", |at| &path[..=at]);
                    self.follow(list, folder);
                }
            }
            // What cannot be read counts by its name alone, as in the pack's digest.
            Err(_) => add(&mut self.sum, path.as_bytes(), None),
        }
    }

    fn end(self) -> String {
        hex(&self.sum.finalize())
    }
}
