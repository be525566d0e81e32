//! What is wrong with a definition, where, and what would be right.

#[cfg(test)]
mod tests;

use std::fmt;

/// A definition that is refused. Nothing of it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place, such as `steps.send.after[1]`; empty for the whole.
    pub place: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Fault {
    pub(crate) fn at(place: &Place<'_>, problem: impl Into<String>) -> Self {
        Self { place: place.to_string(), problem: problem.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.problem),
            place => write!(f, "{place}: {}", self.problem),
        }
    }
}

impl std::error::Error for Fault {}

/// A place in a definition. It costs nothing until there is a fault.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Root,
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl<'a> Place<'a> {
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Place::Root, key) => f.write_str(&shown(key)),
            Self::Key(outer, key) => write!(f, "{outer}.{}", shown(key)),
            Self::Index(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

/// Returns text from a user as it is safe to show in one line.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let start: String = text.chars().take(MOST).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{}{more}", start.escape_debug())
}

/// Returns the known name that a wrong one is most like, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.8;
    let wanted = name.to_lowercase();
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(&wanted, &known.to_lowercase()), known))
        .filter(|(like, _)| *like >= NEAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// Returns the end of a sentence about an unknown name: the nearest known one, or all of them.
pub(crate) fn instead(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write one of {}", known.join(", ")),
    }
}
