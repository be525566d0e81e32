//! What lints cannot check: sizes of files, names, vocabulary, and which crate may use which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::parameters;
use crate::words::Retired;

/// A file longer than this holds two ideas.
const LINES_MAX: usize = 600;

/// Longest subject of a commit, in characters; the reason belongs in the body.
const SUBJECT_MAX: usize = 72;
/// Commits before this time are left as they are.
const SUBJECTS_SINCE: &str = "2026-11-25T14:00:00Z";

/// The page that `just nightly` writes; it need not have run.
const NIGHTLY: &str = "docs/inside/nightly.md";

/// Which of our crates each crate may use. Arrows go one way.
const MAY_USE: &[(&str, &[&str])] = &[
    ("outlast-core", &[]),
    ("outlast-dashboard", &["outlast-core", "outlast-wire"]),
    ("outlast-packs", &["outlast-core", "outlast-wire", "outlast-workflow"]),
    ("outlast-proto", &[]),
    ("outlast-schedule", &["outlast-core"]),
    ("outlast-workflow", &["outlast-core"]),
    ("outlast-wire", &["outlast-core"]),
    ("outlast-store", &["outlast-core"]),
    ("outlast-store-rules", &["outlast-core", "outlast-store", "outlast-workflow"]),
    ("outlast-store-testkit", &["outlast-core", "outlast-store", "outlast-store-rules"]),
    ("outlast-store-postgres", &["outlast-core", "outlast-store", "outlast-store-rules"]),
    ("outlast-store-sqlite", &["outlast-core", "outlast-store", "outlast-store-rules"]),
    (
        "outlast-server",
        &[
            "outlast-core",
            "outlast-dashboard",
            "outlast-packs",
            "outlast-proto",
            "outlast-schedule",
            "outlast-store",
            "outlast-store-rules",
            "outlast-wire",
            "outlast-workflow",
        ],
    ),
    ("outlast-sdk", &["outlast-core", "outlast-proto", "outlast-wire"]),
    ("outlast-worker", &["outlast-core", "outlast-packs", "outlast-sdk"]),
    ("outlast-cli-core", &["outlast-sdk"]),
    ("outlast-bench", &["outlast-cli-core", "outlast-sdk", "outlast-store-postgres"]),
    (
        "outlast-cli",
        &[
            "outlast-bench",
            "outlast-cli-core",
            "outlast-core",
            "outlast-packs",
            "outlast-schedule",
            "outlast-sdk",
            "outlast-server",
            "outlast-store",
            "outlast-store-rules",
            "outlast-store-postgres",
            "outlast-store-sqlite",
            "outlast-wire",
            "outlast-worker",
            "outlast-workflow",
        ],
    ),
    ("outlast-cluster", &[]),
    ("outlast-e2e", &["outlast-cluster"]),
    ("xtask", &[]),
];

/// Which outside crates only some of ours may use.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("rusqlite", &["outlast-bench", "outlast-store-sqlite"]),
    ("axum", &["outlast-server"]),
    ("clap", &["outlast-cli", "outlast-e2e"]),
    ("tonic", &["outlast-proto", "outlast-server", "outlast-sdk"]),
];

/// Returns everything that is not tidy, one line each.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    let retired = Retired::new();
    for file in tracked(root)? {
        // A file that is listed but missing is being deleted.
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        if file.components().any(|part| part.as_os_str() == "generated") {
            continue;
        }
        if file.extension().is_some_and(|it| it == "rs") {
            check_source(&file, &text, &mut faults);
            parameters::check(&file, &text, &mut faults);
        }
        retired.check(&file, &text, &mut faults);
        check_pages(root, &file, &text, &mut faults);
    }
    for manifest in manifests(root)? {
        check_manifest(&manifest, &mut faults)?;
    }
    check_subjects(root, &mut faults)?;
    Ok(faults)
}

/// Checks the subjects of commits, as far back as the clone goes.
fn check_subjects(root: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let logged = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", "--since", SUBJECTS_SINCE])
        .current_dir(root)
        .output()
        .context("failed to run git")?;
    for line in String::from_utf8(logged.stdout)?.lines() {
        let Some((commit, subject)) = line.split_once(' ') else { continue };
        let length = subject.chars().count();
        if length > SUBJECT_MAX {
            faults.push(format!(
                "commit {commit}: a subject of {length} characters, more than {SUBJECT_MAX}"
            ));
        }
    }
    Ok(())
}

fn tracked(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "*.rs",
            "*.md",
            "*.sql",
            "*.proto",
            "*.yaml",
            "*.service",
            "justfile",
            ".ci",
        ])
        .current_dir(root)
        .output()
        .context("failed to run git")?;
    Ok(String::from_utf8(listed.stdout)?.lines().map(PathBuf::from).collect())
}

fn check_source(file: &Path, text: &str, faults: &mut Vec<String>) {
    let shown = file.display();
    if file.file_name().is_some_and(|name| name == "mod.rs") {
        faults.push(format!("{shown}: name the module's file after the module, not mod.rs"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        faults.push(format!("{shown}: {lines} lines, more than {LINES_MAX}: split it"));
    }
    // Built from two halves, so that this file does not accuse itself.
    if text.contains(concat!("[", "allow(")) {
        faults.push(format!("{shown}: use #[expect(lint, reason)] instead of allow"));
    }
}

/// Checks that pages which a file names are there: comments and messages of the program name some.
fn check_pages(root: &Path, file: &Path, text: &str, faults: &mut Vec<String>) {
    for (at, _) in text.match_indices("docs/") {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || "/-_.".contains(*c);
        let path: String = text[at..].chars().take_while(is_part).collect();
        let Some((page, _)) = path.split_once(".md") else { continue };
        let page = format!("{page}.md");
        if page != NIGHTLY && !root.join(&page).exists() {
            faults.push(format!("{}: there is no {page}", file.display()));
        }
    }
}

fn manifests(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = vec![root.join("xtask/Cargo.toml")];
    for folder in ["crates", "testing"] {
        for entry in std::fs::read_dir(root.join(folder))? {
            let manifest = entry?.path().join("Cargo.toml");
            if manifest.exists() {
                found.push(manifest);
            }
        }
    }
    Ok(found)
}

fn check_manifest(path: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("name = \""))
        .map(|rest| rest.trim_end_matches('"').to_owned())
        .with_context(|| format!("{} has no name", path.display()))?;
    let used = dependencies(&text);
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let Some(allowed) = allowed.get(name.as_str()) else {
        faults.push(format!("{name}: say in xtask/src/tidy.rs which crates it may use"));
        return Ok(());
    };
    for used in used.iter().filter(|used| used.starts_with("outlast-") && **used != name) {
        if !allowed.contains(&used.as_str()) {
            faults.push(format!("{name} must not use {used}"));
        }
    }
    for (outside, users) in ONLY_IN {
        if used.contains(*outside) && !users.contains(&name.as_str()) {
            faults.push(format!("{name} must not use {outside}: only {users:?} may"));
        }
    }
    Ok(())
}

/// Returns the names in `[dependencies]`; tests may use more.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            found.insert(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_that_is_named_but_not_there_is_found() {
        // In two halves, so that this file names no such page itself.
        let text = concat!("see docs/", "use/nothing.md#x, docs/adr/README.md and docs/adr.");
        let mut faults = Vec::new();
        super::check_pages(&crate::root(), "a.rs".as_ref(), text, &mut faults);
        assert_eq!(faults, [concat!("a.rs: there is no docs/", "use/nothing.md")]);
    }

    #[test]
    fn the_tree_is_tidy() {
        let faults = super::check(&crate::root()).unwrap();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
