//! Comparing what a page shows with what was printed: loosely, as CONTRIBUTING.md says.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern;

/// What stands for something else, the longer forms first.
static LOOSE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x)(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})
        | (?P<any>…)
        | (?P<length>\d+(?:\.\d+)?(?:ms|[smhd])(?:\d+[smh])?\b)
        | (?P<number>\d[\d,]*(?:\.\d+)?)
        | (?P<blank>\s+)",
    )
});

/// Real ids by the ids that a page shows for them.
pub(super) type Ids = BTreeMap<String, String>;

/// Puts real ids where a page's are.
pub(super) fn with_ids(text: &str, ids: &Ids) -> String {
    ids.iter().fold(text.to_owned(), |text, (shown, real)| text.replace(shown, real))
}

/// Checks that every line shown is printed, in this order, and learns ids from them.
///
/// # Errors
/// The first line that is not there.
pub(super) fn check(shown: &[String], printed: &str, ids: &mut Ids) -> Result<(), String> {
    let mut lines = printed.lines();
    let mut learned = ids.clone();
    for line in shown.iter().filter(|line| line.trim() != "…") {
        if !lines.any(|candidate| fits(line, candidate, &mut learned)) {
            return Err(line.clone());
        }
    }
    *ids = learned;
    Ok(())
}

fn fits(shown: &str, printed: &str, ids: &mut Ids) -> bool {
    let (mut expression, mut new) = (String::from("^"), Vec::new());
    let (shown, mut end) = (shown.trim(), 0);
    for found in LOOSE.captures_iter(shown) {
        let whole = found.get(0).expect("group 0 is the match");
        expression.push_str(&regex::escape(&shown[end..whole.start()]));
        end = whole.end();
        let text = whole.as_str();
        if found.name("id").is_some() {
            match ids.get(text) {
                Some(real) => expression.push_str(&regex::escape(real)),
                None => {
                    expression.push_str(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})");
                    new.push(text.to_owned());
                }
            }
        } else if found.name("any").is_some() {
            expression.push_str(".*");
        } else if found.name("length").is_some() {
            expression.push_str(r"\d+(?:\.\d+)?(?:ms|[smhd])(?:\d+[smh])?");
        } else if found.name("number").is_some() {
            expression.push_str(r"\d[\d,]*(?:\.\d+)?");
        } else {
            expression.push_str(r"\s+");
        }
    }
    expression.push_str(&regex::escape(&shown[end..]));
    expression.push('$');
    let Some(found) = pattern(&expression).captures(printed.trim()) else { return false };
    for (shown, real) in new.into_iter().zip(found.iter().skip(1).flatten()) {
        ids.insert(shown, real.as_str().to_owned());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Ids, check, with_ids};

    const SHOWN: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";
    const REAL: &str = "01a1fd84-637d-71cd-8814-2b39870f72f2";

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn lines_are_found_in_order_with_others_between() {
        let mut ids = Ids::new();
        let printed = "a\nb  x\nc\n";
        assert_eq!(check(&lines(&["a", "…", "c"]), printed, &mut ids), Ok(()));
        assert_eq!(check(&lines(&["b x"]), printed, &mut ids), Ok(()));
        assert_eq!(check(&lines(&["c", "a"]), printed, &mut ids), Err("a".to_owned()));
        assert_eq!(check(&lines(&["b"]), printed, &mut ids), Err("b".to_owned()));
    }

    #[test]
    fn numbers_times_and_ellipses_are_loose_and_words_are_not() {
        let mut ids = Ids::new();
        let shown = lines(&["done 3 of 4, 2026-11-21 05:57:15Z (570ms ago) {\"a\":…}"]);
        let printed = "done 17 of 17, 2031-01-02 03:04:05Z (2m05s ago) {\"a\":[1,2]}";
        assert_eq!(check(&shown, printed, &mut ids), Ok(()));
        assert!(check(&shown, "gone 3 of 4", &mut ids).is_err());
    }

    #[test]
    fn an_id_is_learned_where_it_is_first_shown_and_then_stands_for_itself() {
        let mut ids = Ids::new();
        let shown = lines(&[&format!("job {SHOWN} completed")]);
        assert_eq!(check(&shown, &format!("job {REAL} completed"), &mut ids), Ok(()));
        let command = with_ids(&format!("outlast jobs show {SHOWN}"), &ids);
        assert_eq!(command, format!("outlast jobs show {REAL}"));
        assert!(check(&shown, &format!("job {SHOWN} completed"), &mut ids).is_err());
    }
}
