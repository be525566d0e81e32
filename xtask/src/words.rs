//! The vocabulary: retired words are rejected. The words in use are in `docs/reference/glossary.md`.
//!
//! There are phrases, which no prose contains, and names, which no module, type or function of a
//! folder has. Prose is everything that is not an identifier: words in capitals, in backquotes or
//! joined to another by a hyphen, dot or underscore are data.

mod retired;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use self::retired::{NAMES, PHRASES};

/// Files that quote them, and migrations, whose text never changes.
const EXEMPT: &[&str] = &[
    "xtask/src/words.rs",
    "xtask/src/words/retired.rs",
    "crates/store-postgres/migrations",
    "crates/store-sqlite/migrations",
];
/// What defines a name.
const KINDS: &[&str] = &["struct", "enum", "trait", "type", "fn"];

/// The retired phrases, ready to be looked up.
#[derive(Debug)]
pub(crate) struct Retired {
    /// By their first word: the words, and what to write.
    phrases: BTreeMap<String, Vec<(Vec<String>, &'static str)>>,
}

impl Retired {
    /// Sorts the phrases by their first word.
    pub(crate) fn new() -> Self {
        let mut phrases: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (instead, retired) in PHRASES {
            for phrase in *retired {
                let words: Vec<String> = phrase.split(' ').map(str::to_owned).collect();
                let first = words.first().cloned().unwrap_or_default();
                phrases.entry(first).or_default().push((words, *instead));
            }
        }
        Self { phrases }
    }

    /// Adds what a file must not contain.
    pub(crate) fn check(&self, file: &Path, text: &str, faults: &mut Vec<String>) {
        if !EXEMPT.iter().any(|exempt| file.starts_with(exempt)) {
            self.check_phrases(file, text, faults);
        }
        if file.extension().is_some_and(|it| it == "rs") {
            check_names(file, text, faults);
        }
    }

    fn check_phrases(&self, file: &Path, text: &str, faults: &mut Vec<String>) {
        let words = words(text);
        for (at, (word, line)) in words.iter().enumerate() {
            for (phrase, instead) in self.phrases.get(word).into_iter().flatten() {
                let found = words.iter().skip(at).map(|(word, _)| word);
                if found.take(phrase.len()).eq(phrase.iter()) {
                    let (shown, phrase) = (file.display(), phrase.join(" "));
                    faults.push(format!("{shown}:{line}: `{phrase}` is retired: {instead}"));
                }
            }
        }
    }
}

fn check_names(file: &Path, text: &str, faults: &mut Vec<String>) {
    let mut names = NAMES.iter().filter(|(_, _, folder)| file.starts_with(folder)).peekable();
    if names.peek().is_none() {
        return;
    }
    let mut defined = definitions(text);
    defined.extend(file.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    for (instead, retired, _) in names {
        for name in retired.iter().filter(|name| defined.contains(**name)) {
            faults.push(format!("{}: `{name}` is retired: call it `{instead}`", file.display()));
        }
    }
}

/// The types that a source file defines, and its functions as `fn name`.
fn definitions(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let Some(kind) = words.find(|word| KINDS.contains(word)) else { continue };
        let Some(name) = words.next() else { continue };
        found.insert(if kind == "fn" { format!("fn {name}") } else { name.to_owned() });
    }
    found
}

/// The words of a text with their lines. Identifiers are in it as words that match no phrase.
fn words(text: &str) -> Vec<(String, usize)> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for token in line.split_whitespace() {
            let trimmed = token.trim_matches(|c: char| !c.is_alphanumeric() && c != '`');
            // The marks of a comment, a list or a table.
            if trimmed.is_empty() {
                continue;
            }
            let is_prose = trimmed.chars().all(|c| c.is_alphabetic() || c == '\'')
                && trimmed.chars().skip(1).all(|c| !c.is_uppercase())
                && !token.contains(&format!("\"{trimmed}\""));
            let word = if is_prose { trimmed.to_lowercase() } else { String::new() };
            words.push((word, number + 1));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(file: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        Retired::new().check(Path::new(file), text, &mut faults);
        faults
    }

    #[test]
    fn a_retired_phrase_is_found_across_lines_of_a_comment() {
        let found = faults("x.md", "fine\n/// The server is\n/// told about it.");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x.md:2: `is told`"), "{found:?}");
    }

    #[test]
    fn data_is_no_prose() {
        assert!(faults("x.md", "`nobody` NOBODY \"nobody\" nobody.knows nobody-x").is_empty());
    }

    #[test]
    fn a_retired_name_is_rejected_as_module_type_and_function_in_its_folder_only() {
        assert_eq!(faults("crates/bench/src/hands.rs", "").len(), 1);
        assert_eq!(faults("crates/bench/src/x.rs", "pub(crate) struct Place {").len(), 1);
        assert_eq!(faults("crates/cli/src/x.rs", "async fn tell(text: &str) {").len(), 1);
        assert!(faults("crates/cli/src/x.rs", "fn tell_all() {").is_empty());
        assert!(faults("crates/bench/src/x.rs", "pub struct Places;").is_empty());
        assert!(faults("crates/cli/src/hands.rs", "struct Place;").is_empty());
    }
}
