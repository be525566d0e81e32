//! Selectors over workers' labels, in the grammar of Kubernetes label selectors:
//! `gpu=true, zone in (a, b), disk!=slow, !spot`.
//!
//! A worker matches when every requirement holds. `!=` and `notin` also hold for a worker
//! without the label, as in Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Longest text of a selector: it is part of the key that jobs are claimed by.
pub const SELECTOR_BYTES_MAX: usize = 1024;
/// Longest name, and longest value, of a label.
pub const LABEL_BYTES_MAX: usize = 63;
/// Longest prefix of a label's name, before the slash.
const PREFIX_BYTES_MAX: usize = 253;

/// What labels a worker must have. Its text is canonical: two selectors that ask for the same in
/// another order are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Selector(BTreeSet<Requirement>);

/// Which workers a job runs on, by their labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Placement {
    /// What a worker must match.
    pub requires: Selector,
    /// Of the workers with a free slot, those that match most of this come first.
    pub prefers: Selector,
}

impl Placement {
    /// Whether any worker will do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requires.is_empty() && self.prefers.is_empty()
    }

    /// Adds what another asks for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (requires, prefers) = (other.requires, other.prefers);
        Self { requires: self.requires.and(requires), prefers: self.prefers.and(prefers) }
    }

    /// Returns whether a worker without labels will do.
    #[must_use]
    pub fn takes_unlabelled(&self) -> bool {
        self.requires.matches(|_| None)
    }
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    label: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    Exists,
    Missing,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{why} at character {at} of the selector {text:?}; a selector looks like \"gpu=true, zone in (a, b), !spot\""
)]
pub struct SelectorError {
    why: String,
    at: usize,
    text: String,
}

impl Selector {
    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The requirements, in canonical order.
    pub fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.0.iter()
    }

    /// Adds the requirements of another: both must hold.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns whether a worker with these labels matches.
    #[must_use]
    pub fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(|name| labels.get(name).map(String::as_str))
    }

    /// Asks for one value of a label, and for nothing else of it.
    #[must_use]
    pub fn pinned(self, label: String, value: String) -> Self {
        let mut all = self.without(&label).0;
        all.insert(Requirement { label, test: Test::In(BTreeSet::from([value])) });
        Self(all)
    }

    /// Asks for nothing of a label any more.
    #[must_use]
    pub fn without(self, label: &str) -> Self {
        Self(self.0.into_iter().filter(|requirement| requirement.label != label).collect())
    }

    /// Returns the one value that it allows a label to have; `None` if it allows several, or none.
    #[must_use]
    pub fn only(&self, label: &str) -> Option<&str> {
        self.0.iter().filter(|requirement| requirement.label == label).find_map(|it| {
            match &it.test {
                Test::In(values) if values.len() == 1 => values.first().map(String::as_str),
                Test::Exists | Test::Missing | Test::In(_) | Test::NotIn(_) => None,
            }
        })
    }

    /// Returns whether a worker with these labels matches; `label` looks one up.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(&label))
    }
}

impl Requirement {
    /// The label it is about.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether it asks for a label, not for the absence of one or of a value.
    #[must_use]
    pub const fn wants_label(&self) -> bool {
        matches!(self.test, Test::Exists | Test::In(_))
    }

    /// Returns whether it holds for a worker; `label` looks one of its labels up.
    pub fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(&self.label);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, requirement) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.label;
        let list = |values: &BTreeSet<String>| {
            values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
        };
        match &self.test {
            Test::Exists => f.write_str(label),
            Test::Missing => write!(f, "!{label}"),
            Test::In(values) if values.len() == 1 => write!(f, "{label}={}", list(values)),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{label}!={}", list(values)),
            Test::In(values) => write!(f, "{label} in ({})", list(values)),
            Test::NotIn(values) => write!(f, "{label} notin ({})", list(values)),
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            let why = format!("more than {SELECTOR_BYTES_MAX} bytes");
            return Err(Parser { text, at: 0 }.error(why));
        }
        Self::of_any_length(text)
    }
}

impl Selector {
    /// Reads a text of any length. What two selectors ask for together may be longer than
    /// [`SELECTOR_BYTES_MAX`], and so may the canonical text of one that is not.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn of_any_length(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { text, at: 0 };
        let mut found = BTreeSet::new();
        parser.skip_spaces();
        while !parser.is_at_end() {
            found.insert(parser.requirement()?);
            parser.skip_spaces();
            if parser.is_at_end() {
                break;
            }
            parser.expect(",")?;
            parser.skip_spaces();
            if parser.is_at_end() {
                return Err(parser.error("a requirement is missing after the comma".into()));
            }
        }
        Ok(Self(found))
    }
}

struct Parser<'a> {
    text: &'a str,
    /// In bytes.
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn error(&self, why: String) -> SelectorError {
        let before = self.text.get(..self.at).unwrap_or_default();
        let at = before.chars().count().saturating_add(1);
        SelectorError { why, at, text: crate::limits::cut(self.text.to_owned(), 256) }
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        let spaces = rest.len().saturating_sub(rest.trim_start().len());
        self.at = self.at.saturating_add(spaces);
    }

    /// Passes over `token` if it comes next.
    fn accept(&mut self, token: &str) -> bool {
        let comes = self.rest().starts_with(token);
        if comes {
            self.at = self.at.saturating_add(token.len());
        }
        comes
    }

    fn expect(&mut self, token: &str) -> Result<(), SelectorError> {
        if self.accept(token) {
            return Ok(());
        }
        Err(self.error(format!("expected {token:?}")))
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.accept("!") {
            self.skip_spaces();
            return Ok(Requirement { label: self.label()?, test: Test::Missing });
        }
        let label = self.label()?;
        self.skip_spaces();
        let test = if self.accept("!=") {
            Test::NotIn(BTreeSet::from([self.value()?]))
        } else if self.accept("==") || self.accept("=") {
            Test::In(BTreeSet::from([self.value()?]))
        } else {
            let before = self.at;
            match self.word() {
                "" => Test::Exists,
                "in" => Test::In(self.values()?),
                "notin" => Test::NotIn(self.values()?),
                _ => {
                    self.at = before;
                    return Err(self.error("expected =, !=, in, notin or a comma".into()));
                }
            }
        };
        Ok(Requirement { label, test })
    }

    /// Passes over the characters that names and values are made of.
    fn word(&mut self) -> &str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')))
            .unwrap_or(rest.len());
        let begin = self.at;
        self.at = begin.saturating_add(end);
        self.text.get(begin..self.at).unwrap_or_default()
    }

    fn label(&mut self) -> Result<String, SelectorError> {
        let begin = self.at;
        let word = self.word().to_owned();
        if is_label_name(&word) {
            return Ok(word);
        }
        self.at = begin;
        Err(self.error(if word.is_empty() {
            "expected the name of a label".into()
        } else {
            format!("{word:?} is no name of a label")
        }))
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        self.skip_spaces();
        let begin = self.at;
        let word = self.word().to_owned();
        if is_label_value(&word) {
            return Ok(word);
        }
        self.at = begin;
        Err(self.error(format!("{word:?} is no value of a label")))
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        self.skip_spaces();
        self.expect("(")?;
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            self.skip_spaces();
            if self.accept(")") {
                return Ok(values);
            }
            if !self.accept(",") {
                return Err(self.error("expected \",\" or \")\"".into()));
            }
        }
    }
}

/// Whether a label can have this name: `name` or `prefix/name`, as in Kubernetes.
#[must_use]
pub fn is_label_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let prefix_fits = prefix
        .is_none_or(|prefix| prefix.len() <= PREFIX_BYTES_MAX && prefix.split('.').all(is_word));
    prefix_fits && name.len() <= LABEL_BYTES_MAX && is_word(name)
}

/// Whether a label can have this value, as in Kubernetes; it may be empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || (text.len() <= LABEL_BYTES_MAX && is_word(text))
}

/// Letters and digits, with `-`, `_` and `.` between them.
fn is_word(text: &str) -> bool {
    let mut ends = text.chars().next().into_iter().chain(text.chars().next_back());
    !text.is_empty()
        && ends.all(|c| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selector(text: &str) -> Selector {
        text.parse().unwrap()
    }

    fn matches(text: &str, labels: &[(&str, &str)]) -> bool {
        let find = |name: &str| labels.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        selector(text).matches(find)
    }

    #[test]
    fn every_form_of_the_grammar_is_read() {
        let gpu = [("gpu", "true"), ("zone", "a")];
        assert!(matches("", &[]));
        assert!(matches("gpu=true, zone in (a, b), !spot", &gpu));
        assert!(matches("gpu==true,zone notin (c,d),disk!=slow", &gpu));
        assert!(matches("gpu", &gpu));
        assert!(matches("example.com/tier in ()", &[("example.com/tier", "")]));
        assert!(matches("gpu=", &[("gpu", "")]));
        assert!(!matches("zone notin (a)", &gpu));
        assert!(!matches("spot", &gpu));
        assert!(!matches("!gpu", &gpu));
        assert!(!matches("gpu=yes", &gpu));
    }

    #[test]
    fn labels_called_like_operators_are_labels() {
        assert!(matches("in in (notin), notin", &[("in", "notin"), ("notin", "x")]));
    }

    #[test]
    fn a_worker_without_labels_will_do_where_none_is_asked_for() {
        let placement = |requires: &str, prefers: &str| Placement {
            requires: selector(requires),
            prefers: selector(prefers),
        };
        assert!(placement("", "gpu").takes_unlabelled());
        assert!(placement("!spot,zone!=a", "").takes_unlabelled());
        assert!(!placement("gpu", "").takes_unlabelled());
        let both = placement("gpu", "zone=a").and(placement("!spot", ""));
        assert_eq!(both, placement("!spot,gpu", "zone=a"));
    }

    #[test]
    fn order_and_repetition_make_no_difference() {
        assert_eq!(selector("b=1 , a in (y,x),b==1"), selector("a in (x, y),b=1"));
        assert_eq!(selector("a in (x), !c").to_string(), "a=x,!c");
        assert_eq!(selector("a=1").and(selector("b")), selector("b,a=1"));
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_place() {
        for (text, why) in [
            ("gpu=true,", "a requirement is missing after the comma at character 10"),
            ("gpu true", "expected =, !=, in, notin or a comma at character 5"),
            ("=x", "expected the name of a label at character 1"),
            ("zone in a", "expected \"(\" at character 9"),
            ("zone in (a", "expected \",\" or \")\" at character 11"),
            ("-x", "\"-x\" is no name of a label at character 1"),
            ("a=b c", "expected \",\" at character 5"),
            ("ü=1", "expected the name of a label at character 1"),
            ("a=-", "\"-\" is no value of a label at character 3"),
        ] {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        let long = format!("a={}", "x".repeat(64));
        assert!(long.parse::<Selector>().is_err());
        assert!("a,".repeat(600).parse::<Selector>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_shown_is_read_again(
            text in "[a-c=!,() inot./-]{0,40}",
        ) {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(&selector.to_string().parse::<Selector>().unwrap(), &selector);
            }
        }
    }
}
