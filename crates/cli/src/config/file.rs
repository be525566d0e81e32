//! The YAML file: sections with keys, each value with the line it stands on and an excerpt to
//! show when it is wrong.
//!
//! What a key means is not known here, only that a file has two levels, and a third one where
//! keys are grouped; and that `limits`, `dead_letters` and `schedules` may stand without their section.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use outlast_cli_core::without_passwords;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::value::{DEAD_LETTERS_EXPECTED, LIMITS_EXPECTED, SCHEDULES_EXPECTED};
use super::{ConfigError, Origin, keys};

/// Keys of the section `server` that may stand at the top of the file, with what they are.
const LISTS: [(&str, &str); 3] = [
    ("limits", LIMITS_EXPECTED),
    ("dead_letters", DEAD_LETTERS_EXPECTED),
    ("schedules", SCHEDULES_EXPECTED),
];

/// Says what a list at the top of the file is, if it is one.
fn list_at_top(name: &str) -> Option<&'static str> {
    LISTS.iter().find(|(list, _)| *list == name).map(|(_, what)| *what)
}

/// One line of a file that sets a key.
#[derive(Debug)]
pub(super) struct Entry {
    /// `section.key`.
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// The line with the key marked.
    pub(super) key_marked: String,
    /// The line with the value marked.
    pub(super) value_marked: String,
}

/// Reads a file's entries, in the file's order.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, ConfigError> {
    let malformed = |detail: String| ConfigError::Malformed { path: path.to_owned(), detail };
    let unread = |error: serde_saphyr::Error| malformed(fault(text, &error));
    let at = |line: u64| Origin::File { path: path.to_owned(), line };
    let sections: Option<Pairs<Option<Spanned<Value>>>> =
        serde_saphyr::from_str(text).map_err(unread)?;
    let sections = sections.map(|pairs| pairs.0).unwrap_or_default();
    // A section that does not exist is named before the file is read for good: the second
    // reading wants every section to hold keys.
    for (section, _) in &sections {
        let known = |key: &keys::Key| key.name.split('.').next() == Some(&section.value);
        if list_at_top(&section.value).is_none() && !keys::ALL.iter().any(known) {
            let origin = at(section.referenced.line());
            let marked = key_marked(text, section, &section.value);
            return Err(ConfigError::unknown(&section.value, origin).with_excerpt(&marked));
        }
    }
    let sections: Option<Pairs<Section>> = serde_saphyr::from_str(text).map_err(unread)?;
    let mut found = Vec::new();
    for (section, entries) in sections.map(|pairs| pairs.0).unwrap_or_default() {
        let line = section.referenced.line();
        let entries = match entries {
            Section::Keys(entries) => entries,
            Section::List(items) if list_at_top(&section.value).is_some() => {
                let marked = marked(text, section.referenced, section.value.chars().count());
                found.push(Entry {
                    name: format!("server.{}", section.value),
                    value: Value::Array(items),
                    origin: at(line),
                    key_marked: marked.clone(),
                    value_marked: marked,
                });
                continue;
            }
            Section::List(_) => {
                let section = &section.value;
                return Err(malformed(format!("line {line}: `{section}` holds keys, no list")));
            }
        };
        if let Some(list) = list_at_top(&section.value).filter(|_| !entries.is_empty()) {
            let name = &section.value;
            return Err(malformed(format!("line {line}: `{name}` is a mapping, and not {list}")));
        }
        for (key, value) in entries {
            let name = format!("{}.{}", section.value, key.value);
            if let (true, Value::Object(group)) = (keys::is_group(&name), &value.value) {
                found.extend(grouped(path, text, &name, key.referenced.line(), group));
                continue;
            }
            found.push(Entry {
                origin: at(key.referenced.line()),
                key_marked: key_marked(text, &key, &name),
                name,
                value_marked: marked(text, value.referenced, usize::MAX),
                value: value.value,
            });
        }
    }
    for (list, _) in LISTS {
        let name = format!("server.{list}");
        if found.iter().filter(|entry| entry.name == name).count() > 1 {
            let message = format!("`{list}` and `{name}` are the same key, and the file has both");
            return Err(ConfigError::together(message, "keep one of them"));
        }
    }
    Ok(found)
}

/// The keys of a group that begins at a line.
fn grouped(
    path: &Path,
    text: &str,
    name: &str,
    from: u64,
    group: &serde_json::Map<String, Value>,
) -> Vec<Entry> {
    let entry = |(key, value): (&String, &Value)| {
        // Values of a group do not know their lines: theirs is the next that names the key.
        let after = usize::try_from(from).unwrap_or_default();
        let is_key = |line: &str| {
            let rest = line.trim_start().trim_start_matches(['"', '\'']).strip_prefix(key.as_str());
            rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
        };
        let found = text.lines().zip(1_u64..).skip(after).find(|(line, _)| is_key(line));
        let (shown, line) = match found {
            Some((_, number)) if names_secret(text) => (String::new(), number),
            Some((line, number)) => (format!("{number} | {}", line.trim_end()), number),
            None => (String::new(), from),
        };
        Entry {
            name: format!("{name}.{key}"),
            value: value.clone(),
            origin: Origin::File { path: path.to_owned(), line },
            key_marked: shown.clone(),
            value_marked: shown,
        }
    };
    group.iter().map(entry).collect()
}

/// Whether a key, or the one that is most likely meant by it, must not be shown.
fn is_secret(name: &str) -> bool {
    let meant = keys::find(name).or_else(|| keys::find(keys::nearest(name)));
    meant.is_some_and(|key| key.secret)
}

/// The line of a key with the key marked; nothing if it must not be shown.
fn key_marked(text: &str, key: &Spanned<String>, name: &str) -> String {
    if is_secret(name) {
        return String::new();
    }
    marked(text, key.referenced, key.value.chars().count())
}

/// What a reader of YAML says, with the lines around the fault. They are not shown if the file names
/// a secret anywhere: its value may be on another line than its name, or part of the message.
fn fault(text: &str, error: &serde_saphyr::Error) -> String {
    if !names_secret(text) {
        return without_passwords(&error.to_string());
    }
    let place = error.location().map_or_else(String::new, |place| {
        format!("line {}, column {}: ", place.line(), place.column())
    });
    format!("{place}it cannot be read as YAML; no line is shown, because the file names a secret")
}

/// Whether a file names a token, a password or a secret.
fn names_secret(text: &str) -> bool {
    // These two name where secrets are.
    let lower = text.to_lowercase().replace("token_file", "").replace("secrets:", "");
    ["tok", "passw", "secret"].iter().any(|word| lower.contains(word))
        || without_passwords(text) != text
}

/// A line of the file with what stands at `place` underlined, to its end or for `length`; nothing if
/// the file names a secret, which may be on any line.
fn marked(text: &str, place: Location, length: usize) -> String {
    if names_secret(text) {
        return String::new();
    }
    let number = place.line();
    let index = usize::try_from(number).unwrap_or_default().saturating_sub(1);
    let Some(line) = text.lines().nth(index) else { return String::new() };
    let before = usize::try_from(place.column()).unwrap_or_default().saturating_sub(1);
    let rest: String = line.chars().skip(before).collect();
    // A comment is not part of the value.
    let value = rest.split_once(" #").map_or(rest.as_str(), |(value, _)| value).trim_end();
    let carets = "^".repeat(value.chars().count().min(length).max(1));
    let (margin, blanks) = (" ".repeat(number.to_string().len()), " ".repeat(before));
    format!("{number} | {}\n{margin} | {blanks}{carets}", line.trim_end())
}

/// What stands below a section's name.
enum Section {
    Keys(Vec<(Spanned<String>, Spanned<Value>)>),
    List(Vec<Value>),
}

impl<'de> Deserialize<'de> for Section {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SectionVisitor)
    }
}

struct SectionVisitor;

impl<'de> Visitor<'de> for SectionVisitor {
    type Value = Section;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_unit<E>(self) -> Result<Section, E> {
        Ok(Section::Keys(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Section, A::Error> {
        PairsVisitor(PhantomData).visit_map(map).map(|pairs| Section::Keys(pairs.0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Section, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Section::List(items))
    }
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
